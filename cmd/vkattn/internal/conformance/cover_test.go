package conformance

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/flash"
)

// What a suite costs where a CPU is the device is compiling: a second for a scalar kernel, several for a kernel of matrix fragments. So
// there are two parts of the suite that keep what finds mistakes. The cover in pairs has for each kernel every option that any case of the
// whole suite has for it, and every pair of options that concern the same thing; of kernels on matrices every option in every form. The
// whole suite runs that of kernels that are compiled for long, in all forms but the first. The short cover, go test -short's, has on each
// tier every option once, whichever kernel has it, and every kernel in each form, with gradients and without; of special inputs it has each
// sort (shortKind), not each number. Both have what is known to find planted mistakes.

// coverage is which of them.
type coverage bool

const (
	singly  coverage = false
	inPairs coverage = true
)

// A choice is one case on one target.
type choice struct {
	at      int // of the case
	target  int
	options []option
	kernels []kernel
}

// option is a value of an axis: a value dimension above the head dimension, say. It must occur beside every option of the axes with which
// it has a concern in common.
type option struct {
	axis, value string
	concern     concern
}

type concern int

const (
	compiled concern = 1 << iota // what a kernel is made from
	data                         // how much there is, and where it lies
	formed                       // what the forms of a kernel treat differently
)

// family is what is covered by itself: the forms of a kernel are options of it, other kernels are other families.
func (t Target) family() string { return t.kernel() + "/" + string(t.Tier) }

// kernel names the implementation, and its kernels for few queries and for fp32 on matrices apart.
func (t Target) kernel() string {
	if t.Tuning[terms] != 0 {
		return t.Family() + " (terms)"
	}
	if t.Tuning["decode"] == 1 {
		return t.Family() + " (few queries)"
	}
	return t.Family()
}

// options says what is special about a case on a target.
func (c *Case) options(t Target) []option {
	p, err := c.Problem.Normalize()
	if err != nil {
		return nil
	}
	gradients := c.hasGradients() && t.hasGradients(c)
	var noted concern // on matrices each form finds the largest scores in another way
	if t.Tier == flash.TierMatrix {
		noted = formed
	}
	is := func(axis string, b bool, of concern) option { return option{axis, fmt.Sprint(b), of} }
	out := []option{
		{"type", p.DType.String(), compiled | data},
		{"causal", p.Causal.String(), compiled | data | formed},
		{"window", windowName(p.Window), formed},
		{"value dimension", relation(p.ValueDim, p.HeadDim), compiled},
		is("whole pieces of 16 bytes", p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0, compiled|formed),
		is("dropout", p.Dropout > 0, compiled|formed),
		is("padded", p.KeyLengths || p.QueryLengths, formed),
		is("packed", p.Packed != flash.Packed{}, 0),
		is("sinks", p.Sinks, formed),
		is("bias", p.Bias != flash.PerScore{}, formed),
		is("mask", p.Mask != flash.PerScore{}, formed),
		is("score function", !p.ScoreFunction.Identity(), formed),
		is("mask function", !p.MaskFunction.Everything(), formed),
		is("captured", len(p.Captures()) > 0, formed),
		is("max logit", p.MaxLogit, noted),
		is("lse", !c.NoLSE, compiled|formed),
		is("gradients", gradients, compiled|formed),
		{"blocks", blocksName(p.Blocks), compiled | data | formed},
		{"classes", blocksName(p.MaskBlocks), 0},
		{"heads", relation(p.KeyHeads, p.Heads) + ", " + relation(p.KeyHeads, 1) + " than one", data},
		{"layout", layoutName(c.Layouts), data},
		{"lengths", relation(p.QueryLen, p.KeyLen), data},
		{"queries", lengthName(p.QueryLen), data},
		{"keys", lengthName(p.KeyLen), data},
		// These need only occur.
		{"batch", relation(p.Batch, 1), 0},
		{"scale", scaleName(c.Problem.Scale), 0},
		{"pages", pagesName(p.Pages), 0},
		{"lists", listsName(p.Lists), 0},
		{"type of keys", p.KeyType.String(), 0},
		{"type of values", p.ValueType.String(), 0},
		{"size", sizeName(max(p.HeadDim, p.ValueDim)), 0},
		{"kind", c.kind(), 0},
	}
	if form, ok := t.Tuning["form"]; ok {
		out = append(out, option{"form", fmt.Sprint(form), formed})
	}
	if t.Implementation != flash.Flash || t.MasksBlocks() { // the others share much of its code: there these need only occur
		for i := range out {
			switch out[i].axis {
			case "type", "causal", "whole pieces of 16 bytes", "dropout", "gradients":
				out[i].concern = compiled
			default:
				out[i].concern = 0
			}
		}
	}
	// whose code between the products is the scalar kernels', which compile in no time: pairs of a form and an option
	if t.Tier == flash.TierMatrix {
		for i := range out {
			switch o := &out[i]; {
			case o.axis == "form":
				o.concern = -1
			case o.concern&formed != 0:
				o.concern = 1 << (8 + i)
			default:
				o.concern = 0
			}
		}
	}
	if gradients {
		out = append(out, is("accumulates", c.accumulates(), 0))
	}
	return out
}

func relation(a, b int) string {
	switch {
	case a < b:
		return "fewer"
	case a > b:
		return "more"
	}
	return "equal"
}

func layoutName(l Layouts) string {
	if l == all(l.Q) {
		return l.Q.String()
	}
	return "different ones"
}

func windowName(w flash.Window) string {
	left, right := w.Reach()
	return fmt.Sprintf("left %v, right %v", left >= 0, right >= 0)
}

func lengthName(n int) string {
	switch {
	case n == 1:
		return "one"
	case n%16 == 0:
		return "whole tiles"
	}
	return "ragged"
}

func scaleName(scale float64) string {
	switch {
	case scale < 0:
		return "negative"
	case scale > 0:
		return "given"
	}
	return "default"
}

func blocksName(b flash.Blocks) string {
	switch {
	case b == flash.Blocks{}:
		return "none"
	case b.PerHead:
		return "for each head"
	case b.PerBatch:
		return "for each batch entry"
	}
	return "for all heads"
}

func pagesName(g flash.Pages) string {
	switch {
	case g == flash.Pages{}:
		return "none"
	case g.Indices > 0:
		return "compressed"
	case g.Size < 16:
		return "small"
	}
	return "dense"
}

func listsName(l flash.Lists) string {
	switch {
	case l == flash.Lists{}:
		return "none"
	case l.PerHead:
		return "for each key head"
	}
	return "for all key heads"
}

func sizeName(d int) string {
	for _, most := range []int{8, 16, 32, 64, 128, 256} {
		if d <= most {
			return fmt.Sprintf("up to %d", most)
		}
	}
	return "wide"
}

// drawn says whether what the case has together is chance.
func (c *Case) drawn() bool { return c.kind() == "random" || c.kind() == "mixed" }

// kind is what the case's name begins with: all of it where the name stands for special inputs, its first part where cases differ in sizes.
func (c *Case) kind() string {
	parts := strings.Split(c.Name, "/")
	switch parts[0] {
	case "numeric", "threshold", "magnitude", "grid":
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

// kernel is one that has to be compiled, as far as this file knows.
type kernel struct {
	name    string  // equal for two cases that run the same one
	seconds float64 // that a CPU compiles it
}

// compiles guesses what kernels a case needs on a target.
func (c *Case) compiles(t Target) []kernel {
	p, err := c.Problem.Normalize()
	if err != nil {
		return nil
	}
	whole := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	aligned := whole && !slices.ContainsFunc([]Layout{c.Layouts.Q, c.Layouts.K, c.Layouts.V},
		func(l Layout) bool { return l == Odd || l == OddBNHD })
	matrix := t.Tier == flash.TierMatrix
	same := fmt.Sprint(p.HeadDim, p.ValueDim, p.DType, p.KeyType, p.ValueType, p.Pages.Size, p.Dropout > 0, p.Sinks, p.MaxLogit,
		boundsOf(&p), blocksOf(&p), lengthsOf(&p), scoresOf(&p))
	columns := float64(max(p.HeadDim, 8) + max(p.ValueDim, 8))
	seconds := 0.3
	switch {
	case t.Implementation == flash.Standard && matrix: // three kernels
		seconds = 2.4
	case t.Implementation == flash.Standard:
		seconds = 0.8
	case matrix:
		seconds = columns / 6
		if max(p.HeadDim, p.ValueDim) > 256 { // in slices, and by teams
			seconds = 1 + columns/80
		}
	}
	forward := func(aligned, lse bool) kernel {
		return kernel{fmt.Sprint("forward ", t, same, rowsName(p.QueryLen), aligned, lse), seconds}
	}
	out := []kernel{forward(whole, true)} // of which a plan makes sure at once
	if aligned != whole || c.NoLSE {
		out = append(out, forward(aligned, !c.NoLSE))
	}
	if !c.hasGradients() || !t.hasGradients(c) {
		return out
	}
	of, seconds := "fused", 0.4 // whatever kernel ran forward
	switch {
	case t.Implementation == flash.Standard && matrix: // of whose five kernels some are the same
		of, seconds = "standard", 1.5
	case t.Implementation == flash.Standard:
		of, seconds = "standard", 0.6
	case matrix:
		seconds = columns / 3
	}
	for _, rows := range []string{"keys " + rowsName(p.KeyLen), "queries " + rowsName(p.QueryLen)} {
		out = append(out, kernel{fmt.Sprint("backward ", of, t.Tier, t.Tuning["form"], same, rows, aligned), seconds})
	}
	return out
}

// What of a problem is compiled into kernels, as text that is equal where they are: whether positions bound the keys from below and from
// above,
func boundsOf(p *flash.Problem) string {
	left, right := p.Window.Reach()
	return fmt.Sprint(left >= 0, right >= 0 || p.Causal != flash.CausalNone)
}

// blocks of a mask,
func blocksOf(p *flash.Problem) string { return fmt.Sprint(p.Blocks, p.MaskBlocks) }

// lengths of batch entries,
func lengthsOf(p *flash.Problem) string {
	packed := p.Packed != flash.Packed{}
	padded := p.KeyLengths || p.QueryLengths
	return fmt.Sprint(p.KeyLengths, p.QueryLengths, packed, padded && p.Causal == flash.CausalTopLeft)
}

// and what becomes of scores.
func scoresOf(p *flash.Problem) string {
	return fmt.Sprint(p.Bias.DType, p.Bias == flash.PerScore{}, p.Mask.DType, p.Mask == flash.PerScore{}, p.ScoreFunction, p.MaskFunction)
}

// rowsName tells numbers of rows apart for which tiles differ.
func rowsName(n int) string {
	switch {
	case n <= 8:
		return "up to 8"
	case n <= 128:
		return "up to 128"
	}
	return "many"
}

// seconds is what it takes a CPU to run a case.
func (c *Case) seconds() float64 {
	p, err := c.Problem.Normalize()
	if err != nil {
		return 0
	}
	pairs := float64(p.Batch) * float64(p.Heads) * float64(p.QueryLen) * float64(p.KeyLen)
	return 0.05 + pairs*float64(p.HeadDim+p.ValueDim)*4e-8
}

// cover picks, for each family of targets, cases that have every option that any case has on it, and every pair of options if that is
// asked; of those that do, cheap ones. Then it adds the cases that need no further kernel to be compiled and are run in a moment. The
// targets stand by the case's place.
func cover(cases []*Case, targets []Target, of coverage) [][]Target {
	families := map[string][]choice{}
	var order []string
	for at, c := range cases {
		for i, t := range targets {
			if !mayRun(c, t) {
				continue
			}
			name, options := c.coveredAs(t, of)
			if families[name] == nil {
				order = append(order, name)
			}
			families[name] = append(families[name], choice{at, i, options, c.compiles(t)})
		}
	}
	picked, compiled := make([][]Target, len(cases)), map[string]bool{}
	for _, name := range order {
		for _, ch := range pick(families[name], wanted(cases, targets), cases, compiled) {
			picked[ch.at] = append(picked[ch.at], targets[ch.target])
		}
	}
	return picked
}

// wanted gives the cases and targets, by their places, that are known to find planted mistakes: they are in a cover whatever else would do.
func wanted(cases []*Case, targets []Target) map[[2]int]bool {
	all := map[[2]int]bool{}
	for _, k := range killers() {
		at := slices.IndexFunc(cases, func(c *Case) bool { return c.Name == k.name })
		if at < 0 {
			continue
		}
		if i := slices.IndexFunc(targets, func(t Target) bool { return k.on(t) && mayRun(cases[at], t) }); i >= 0 {
			all[[2]int{at, i}] = true
		}
	}
	return all
}

// coveredAs says what a case on a target has to be covered, and with which others it is.
func (c *Case) coveredAs(t Target, of coverage) (family string, options []option) {
	family, options = t.family(), c.options(t)
	if of == inPairs {
		return family, options
	}
	for i := range options {
		options[i].concern = 0
		if o := &options[i]; o.axis == "kind" {
			o.value = shortKind(o.value, t.Tier)
		}
	}
	gradients := fmt.Sprint(c.hasGradients() && t.hasGradients(c))
	if t.Tier == flash.TierMatrix {
		family += ", form " + fmt.Sprint(t.Tuning["form"])
	}
	return string(t.Tier), append(options, option{"kernel", family + ", gradients " + gradients, 0})
}

// shortKind is what the short cover tells special inputs apart by: of numbers at the edge their sort, and on matrices, whose kernels share
// what becomes of scores with the scalar ones, that there are any.
func shortKind(kind string, tier flash.Tier) string {
	first, second, _ := strings.Cut(kind, "/")
	if second == "" || tier == flash.TierMatrix {
		return first
	}
	sort, _, _ := strings.Cut(second, "-")
	return first + "/" + sort
}

// killer is a case on a target that tools/mutate expects to find a mistake.
type killer struct{ list, name, target string }

func (k killer) on(t Target) bool { return strings.HasPrefix(t.String(), k.target) }

// killers reads them from the lists of mutants.
var killers = sync.OnceValue(func() (out []killer) {
	lists, err := filepath.Glob("../../../../tools/mutate/list_*.go")
	for _, list := range lists {
		var text []byte
		if text, err = os.ReadFile(list); err != nil {
			break
		}
		for _, call := range regexp.MustCompile(`\bconformance\("([^"]+)", (?:scalar|"([^"]+)")\)`).FindAllStringSubmatch(string(text),
			-1) {
			out = append(out, killer{list, call[1], cmp.Or(call[2], "flash2/scalar")}) // scalar is a constant there
		}
	}
	if err != nil {
		panic(err) // the lists are part of the tree
	}
	return out
})

// mayRun says whether the case runs on the target, as far as can be told without a plan.
func mayRun(c *Case, t Target) bool {
	const fewRows = 8 // for each key head: as many as scalar_decode takes, which has no dropout
	p, err := c.Problem.Normalize()
	if most := max(p.HeadDim, p.ValueDim); t.light && most > 16 &&
		(!slices.Contains(lightWide, c.Name) && !slices.Contains(lightQuantised, c.Name) || t.Implementation != flash.Flash ||
			t.MasksBlocks()) {
		return false // two fragments show what there is to see, wide heads' own kernel, and blocks of quantised keys
	}
	if c.once && (t.Implementation != flash.Flash || t.MasksBlocks() || t.Tuning["decode"] == 1) {
		return false // it takes long to run, and is about code that all kernels share
	}
	rows := p.QueryLen * p.Heads / max(p.KeyHeads, 1)
	few := rows <= fewRows && p.Dropout == 0
	if max(p.HeadDim, p.ValueDim) > plainDim && t.Tier == flash.TierMatrix { // matrix_latent takes up where scalar_decode ends
		few = rows > fewRows && p.Dropout == 0
	}
	return err == nil && t.skip(c) == "" && (t.Tuning["decode"] != 1 || few)
}

// pairs are the options of a choice by themselves and two by two.
func (ch *choice) pairs() []string {
	var out []string
	for i, a := range ch.options {
		out = append(out, a.axis+"="+a.value)
		for _, b := range ch.options[:i] {
			if a.concern&b.concern != 0 {
				out = append(out, b.axis+"="+b.value+", "+a.axis+"="+a.value)
			}
		}
	}
	return out
}

// pick takes from a family's choices those wanted, and then, again and again, the one with the most pairs that are not there yet for its
// time. compiled holds the names of kernels that other families compile, and gets those of what it takes.
func pick(all []choice, wanted map[[2]int]bool, cases []*Case, compiled map[string]bool) (out []choice) {
	ids := map[string]int{}
	pairs := make([][]int, len(all))
	for i := range all {
		drawn := cases[all[i].at].drawn()
		for _, name := range all[i].pairs() {
			id, ok := ids[name]
			if !ok && !drawn {
				id, ok = len(ids), true
				ids[name] = id
			}
			if ok {
				pairs[i] = append(pairs[i], id)
			}
		}
	}
	seen, taken := make([]bool, len(ids)), make([]bool, len(all))
	time := func(i int) (compile, run float64) {
		for _, k := range all[i].kernels {
			if !compiled[k.name] {
				compile += k.seconds
			}
		}
		return compile, cases[all[i].at].seconds()
	}
	take := func(i int) {
		taken[i] = true
		out = append(out, all[i])
		for _, k := range all[i].kernels {
			compiled[k.name] = true
		}
		for _, id := range pairs[i] {
			seen[id] = true
		}
	}
	for i, ch := range all {
		if wanted[[2]int{ch.at, ch.target}] {
			take(i)
		}
	}
	for {
		best, most := -1, 0.0
		for i := range all {
			gain := 0.0
			for _, id := range pairs[i] {
				if !seen[id] {
					gain++
				}
			}
			compile, run := time(i)
			if gain /= compile + run; gain > most {
				best, most = i, gain
			}
		}
		if best < 0 {
			break
		}
		take(best)
	}
	for i := range all {
		if compile, run := time(i); !taken[i] && compile == 0 && run < 0.05 {
			take(i)
		}
	}
	return out
}
