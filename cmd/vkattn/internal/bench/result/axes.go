package result

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/flash"
)

// Axes is the table of axes, in the order of the keys in files. A new axis is a field of Grid and of Case, and a line here.
var Axes = []Axis{
	{Name: "impl", Usage: "`list` of implementations: standard, flash1, flash (flash2), blocksparse",
		Key: "impl", Sure: true, Own: true, Label: "impl", Left: true, Cell: func(c Case) string { return c.Impl },
		Text: func(c Case) string { return c.Impl },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Impls }, field: func(c *Case) *string { return &c.Impl },
			from: each(ParseImpl)}},
	{Name: "dtype", Usage: "`list` of storage types: fp16, bf16, fp32", Usual: "fp16",
		Key: "dtype", Sure: true, Label: "dtype", Left: true, Cell: func(c Case) string { return c.DType }, Told: told("%s"),
		Text: func(c Case) string { return c.DType },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.DTypes }, field: func(c *Case) *string { return &c.DType },
			from: each(ParseDType), spell: ParseDType}},
	{Name: "batch", Usage: "`list` of batch sizes", Size: true,
		Key: "B", Sure: true, Label: "batch", Cell: func(c Case) string { return strconv.Itoa(c.B) }, Told: told("batch %s"),
		Text: func(c Case) string { return fmt.Sprintf("B%d", c.B) },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.Batch }, field: func(c *Case) *int { return &c.B },
			from: ints("batch"), rule: counts}},
	{Name: "heads", Usage: "`list` of numbers of query heads", Size: true,
		Key: "H", Sure: true, Label: "heads", Cell: func(c Case) string { return pair(c.H, c.Hkv, " on ") }, Told: told("%s heads"),
		Text: func(c Case) string { return "H" + pair(c.H, c.Hkv, "/") },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.Heads }, field: func(c *Case) *int { return &c.H },
			from: ints("heads"), rule: counts, tied: true}},
	{Name: "kv-heads", Usage: "`list` of numbers of key/value heads", Usual: "as many as heads", Size: true,
		Key: "Hkv", Sure: true,
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.KVHeads }, field: func(c *Case) *int { return &c.Hkv },
			from: ints("kv-heads"), zero: func(c Case) int { return c.H }, rule: counts}},
	{Name: "q-len", Usage: "`list` of query lengths, where they differ from seq (1: decoding)", Size: true,
		Key: "Nq", Sure: true, Label: "q len", Cell: queries, Told: toldQueries,
		Text: func(c Case) string { return unlessEmpty("Nq", queries(c)) },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.QueryLen }, field: func(c *Case) *int { return &c.Nq },
			from: ints("q-len"), zero: func(c Case) int { return c.N }, rule: counts}},
	{Name: "seq", Usage: "`list` of sequence lengths; 4k is 4096", Size: true,
		Key: "N", Sure: true, Label: "seq", Cell: func(c Case) string { return strconv.Itoa(c.N) }, Told: told("seq %s"),
		Text: func(c Case) string { return fmt.Sprintf("N%d", c.N) },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.Seq }, field: func(c *Case) *int { return &c.N },
			from: ints("seq"), rule: counts}},
	{Name: "head-dim", Usage: "`list` of head dimensions", Size: true,
		Key: "D", Sure: true, Label: "head dim", Cell: func(c Case) string { return pair(c.D, c.Dv, "/") }, Told: told("head dim %s"),
		Text: func(c Case) string { return "D" + pair(c.D, c.Dv, "/") },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.HeadDim }, field: func(c *Case) *int { return &c.D },
			from: ints("head-dim"), rule: dimension, tied: true}},
	{Name: "value-dim", Usage: "`list` of head dimensions of v and o", Usual: "head-dim", Size: true,
		Key: "Dv",
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.ValueDim }, field: func(c *Case) *int { return &c.Dv },
			from: ints("value-dim"), zero: func(c Case) int { return c.D }, rule: dimension}},
	{Name: "emb-dim", Usage: "`list` of embedding widths, heads × head-dim", Size: true,
		Key: "emb_dim", Label: "emb dim", Cell: func(c Case) string { return strconv.Itoa(c.EmbDim()) }, Told: told("emb dim %s"),
		axisValues: embedding{values[int]{list: func(g *Grid) *[]int { return &g.EmbDim }, from: ints("emb-dim"), tied: true}}},
	{Name: "tokens", Usage: "keep batch × seq at this `number`, in place of --batch", Size: true, axisValues: tokens{}},
	{Name: "causal", Usage: "causal `mask`: true, false or both", Usual: "both", Alone: "true", Whole: true,
		Key: "causal", Sure: true, Label: "causal", Left: true, Cell: func(c Case) string { return choose(c.Causal, "yes", "no") },
		Told: func(cell string) string { return choose(cell == "yes", "causal", "not causal") },
		Text: func(c Case) string { return choose(c.Causal, "causal", "") },
		axisValues: values[bool]{list: func(g *Grid) *[]bool { return &g.Causal }, field: func(c *Case) *bool { return &c.Causal },
			from: last(ParseCausal)}},
	{Name: "window", Usage: "`list` of sliding windows: keys that a query sees before its position and, if not causal, after it; 0: all",
		Usual: "0", Size: true,
		Key: "window", Label: "window", Cell: func(c Case) string { return number(float64(c.Window)) }, Told: toldUnlessEmpty("window "),
		Text: func(c Case) string { return positive("window", float64(c.Window)) },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.Window }, field: func(c *Case) *int { return &c.Window },
			from: ParseWindows, rule: reach}},
	{Name: "score", Usage: "`list` of score functions: none, alibi (the paper's slopes), softcap=30, t5 (32 buckets, distances up to 128)",
		Usual: "none",
		Key:   "score", Label: "score", Left: true, Cell: func(c Case) string { return c.Score }, Told: told("%s"),
		Text: func(c Case) string { return c.Score },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Scores }, field: func(c *Case) *string { return &c.Score },
			from: each(ParseScore), spell: ParseScore}},
	{Name: "bias", Usage: biasUsage(), Usual: "none",
		Key: "bias", Label: "bias", Left: true, Cell: func(c Case) string { return c.Bias }, Told: toldUnlessEmpty("bias "),
		Text: func(c Case) string { return unlessEmpty("bias ", c.Bias) },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Biases }, field: func(c *Case) *string { return &c.Bias },
			from: each(ParseBias), spell: ParseBias}},
	{Name: "mask", Usage: "`list` of masks besides causal and window: none, documents=8 (so many of equal length), prefix=256 (the first " +
		"keys are seen by all, later ones causally)", Usual: "none",
		Key: "mask", Label: "mask", Left: true, Cell: func(c Case) string { return c.Mask }, Told: told("%s"),
		Text: func(c Case) string { return c.Mask },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Masks }, field: func(c *Case) *string { return &c.Mask },
			from: each(ParseMask), spell: ParseMask}},
	{Name: "sinks", Usage: "a `logit` without a value beside each head's scores: true, false or both", Usual: "false", Alone: "true",
		Whole: true,
		Key:   "sinks", Label: "sinks", Left: true, Cell: func(c Case) string { return choose(c.Sinks, "yes", "") },
		Told: func(cell string) string { return choose(cell == "yes", "sinks", "") },
		Text: func(c Case) string { return choose(c.Sinks, "sinks", "") },
		axisValues: values[bool]{list: func(g *Grid) *[]bool { return &g.Sinks }, field: func(c *Case) *bool { return &c.Sinks },
			from: last(parseBools("sinks"))}},
	{Name: "max-logit", Usage: "the `largest` score of each head as an output besides: true, false or both", Usual: "false", Alone: "true",
		Whole: true,
		Key:   "max_logit", Label: "max logit", Left: true, Cell: func(c Case) string { return choose(c.MaxLogit, "yes", "") },
		Told: func(cell string) string { return choose(cell == "yes", "largest scores", "") },
		Text: func(c Case) string { return choose(c.MaxLogit, "max logit", "") },
		axisValues: values[bool]{list: func(g *Grid) *[]bool { return &g.MaxLogit }, field: func(c *Case) *bool { return &c.MaxLogit },
			from: last(parseBools("max-logit"))}},
	{Name: "listed", Usage: "`list` of how many keys each query has a list of (sparse attention), from all over those it sees; 0: no lists",
		Usual: "0", Size: true,
		Key: "listed", Label: "listed", Cell: func(c Case) string { return number(float64(c.Listed)) },
		Told: toldUnlessEmpty("listed keys "),
		Text: func(c Case) string { return positive("listed", float64(c.Listed)) },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.Listed }, field: func(c *Case) *int { return &c.Listed },
			from: fromZero("listed"), rule: reach}},
	{Name: "dropout", Usage: "`list` of probabilities of dropping a weight, each taken to the nearest 1/256", Usual: "0",
		Key: "dropout", Label: "dropout", Cell: func(c Case) string { return number(c.Dropout) }, Told: toldUnlessEmpty("dropout "),
		Text: func(c Case) string { return positive("dropout", c.Dropout) },
		axisValues: values[float64]{list: func(g *Grid) *[]float64 { return &g.Dropout },
			field: func(c *Case) *float64 { return &c.Dropout },
			from:  ParseDropouts, rule: probability}},
	{Name: "packed", Usage: "`list` of what lengths sequences have that lie one behind the other: none (a batch), equal, mixed (32 " +
		"documents of which the longest is seq)", Usual: "none",
		Key: "packed", Label: "packed", Left: true, Cell: func(c Case) string { return c.Packed },
		Told: toldUnlessEmpty("packed, lengths "),
		Text: func(c Case) string { return unlessEmpty("packed ", c.Packed) },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Packed }, field: func(c *Case) *string { return &c.Packed },
			from: each(ParsePacked), spell: ParsePacked}},
	{Name: "used", Usage: "`list` of how many of the seq rows of keys each batch entry uses: all, mixed (as 32 documents are long, the " +
		"longest seq)", Usual: "all",
		Key: "used", Label: "used", Left: true, Cell: func(c Case) string { return c.Used }, Told: toldUnlessEmpty("keys in use "),
		Text: func(c Case) string { return unlessEmpty("used ", c.Used) },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Used }, field: func(c *Case) *string { return &c.Used },
			from: each(ParseUsed), spell: ParseUsed}},
	{Name: "page",
		Usage: "`list` of rows of the pages that keys and values lie in, shuffled over pools; 0: each batch entry's in one piece",
		Usual: "0",
		Key:   "page", Label: "page", Cell: func(c Case) string { return number(float64(c.Page)) }, Told: toldUnlessEmpty("pages of "),
		Text: func(c Case) string { return positive("page", float64(c.Page)) },
		axisValues: values[int]{list: func(g *Grid) *[]int { return &g.Pages }, field: func(c *Case) *int { return &c.Page },
			from: fromZero("page"), rule: reach}},
	{Name: "cache", Usage: "`list` of types of keys and values: none (that of q), q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, fp8, fp8_e5m2",
		Usual: "none",
		Key:   "cache", Label: "cache", Left: true, Cell: func(c Case) string { return c.Cache }, Told: toldUnlessEmpty("keys and values "),
		Text: func(c Case) string { return c.Cache },
		axisValues: values[string]{list: func(g *Grid) *[]string { return &g.Caches }, field: func(c *Case) *string { return &c.Cache },
			from: each(ParseCache), spell: ParseCache}},
	{Name: "latent", Usage: "`values` are the first columns of keys, where they lie, as multi-head latent attention has it: true, false " +
		"or both", Usual: "false", Alone: "true", Whole: true,
		Key: "latent", Label: "latent", Left: true, Cell: func(c Case) string { return choose(c.Latent, "yes", "") },
		Told: func(cell string) string { return choose(cell == "yes", "values in keys", "") },
		Text: func(c Case) string { return choose(c.Latent, "latent", "") },
		axisValues: values[bool]{list: func(g *Grid) *[]bool { return &g.Latent }, field: func(c *Case) *bool { return &c.Latent },
			from: last(parseBools("latent"))}},
	{Name: "density", Usage: "`list` of shares of nonzero blocks of blocksparse's mask, of 128 × 128, such as 0.25 or 5%", Usual: "1",
		Key: "density", Own: true, Label: "density", Cell: func(c Case) string { return number(c.Density) },
		Text: func(c Case) string { return positive("density", c.Density) },
		axisValues: values[float64]{list: func(g *Grid) *[]float64 { return &g.Density },
			field: func(c *Case) *float64 { return &c.Density },
			from:  ParseDensities, rule: share,
			only: func(c Case) bool { return c.Impl == BlockSparse }}},
	{Name: "tuning", Usage: "override the flash kernels' `tiles`, such as br=64,bc=32 or, of the backward pass, kv_bc=32; several sweep",
		Usual: "as tuned, else built in", Whole: true,
		Key: "tuning", Own: true, Label: "tuning", Left: true, Cell: func(c Case) string { return string(c.Tuning) },
		Text: func(c Case) string { return string(c.Tuning) },
		axisValues: values[Tuning]{list: func(g *Grid) *[]Tuning { return &g.Tunings }, field: func(c *Case) *Tuning { return &c.Tuning },
			from: each(ParseTuning), spell: Tuning.sorted,
			only: func(c Case) bool { return hasTiles(c.Impl) || c.Impl == flash.Flash1.String() }}},
	{Name: "pass", Usage: "`list` of passes to time: fwd, bwd, both, jvp (forward mode, beside fwd)", Usual: "fwd", axisValues: passAxis{}},
}

// loopOrder names the axes of the outermost loops of a sweep, in that order; the others follow in the order of the table, and the
// innermost are those that are no part of the problem, so that cases of one shape stand together. An axis whose zero stands for
// another's value comes after that one.
var loopOrder = []string{"dtype", "emb-dim", "value-dim", "kv-heads", "batch", "seq", "tokens", "q-len"}

// The loops of a sweep: over problems, and over who computes them.
var problemLoops, ownLoops = loops(false), loops(true)

// loops gives the axes of problems, or those of who computes them, outermost loop first.
func loops(own bool) (out []Axis) {
	for _, a := range inOrder(Axes, loopOrder, func(a Axis) string { return a.Name }) {
		if a.Own == own {
			out = append(out, a)
		}
	}
	return out
}

// AxisOf finds an axis by the name of its flag; nil where there is none.
func AxisOf(name string) *Axis {
	for i := range Axes {
		if Axes[i].Name == name {
			return &Axes[i]
		}
	}
	return nil
}

// Parse puts what the axis's flag was given into a grid. An error begins with the name of the flag.
func (a *Axis) Parse(g *Grid, list []string) error { return a.parse(g, a.Name, list) }

// embedding is the width heads × head dimension, whose loop is that of the heads and the head dimension.
type embedding struct{ values[int] }

func (embedding) vary(cases []Case, g *Grid) ([]Case, error) {
	shapes, err := g.headShapes()
	var out []Case
	for _, c := range cases {
		for _, s := range shapes {
			c.H, c.D = s.heads, s.dim
			out = append(out, c)
		}
	}
	return out, err
}

// unvaried are the values of an axis that is no list of a grid and no field of a case.
type unvaried struct{}

func (unvaried) fill(*Grid)                                 {}
func (unvaried) clean(*Grid) error                          { return nil }
func (unvaried) vary(cases []Case, _ *Grid) ([]Case, error) { return cases, nil }
func (unvaried) wants(*Grid, *Case) bool                    { return true }
func (unvaried) in(*Case) any                               { return nil }
func (unvaried) clear(*Case)                                {}
func (unvaried) derive(*Case)                               {}
func (unvaried) read(*Case) error                           { return nil }
func (unvaried) check(string, *Case) error                  { return nil }

// tokens is the product batch × sequence length, from which the batch follows.
type tokens struct{ unvaried }

func (tokens) given(g *Grid) bool { return g.Tokens > 0 }

func (t tokens) override(g, o *Grid) {
	if t.given(o) {
		g.Tokens = o.Tokens
	}
}

func (tokens) parse(g *Grid, name string, list []string) error {
	given, err := ParseInts(name, list)
	switch {
	case err != nil:
		return err
	case len(given) > 1:
		return errors.New("tokens: it must be one number")
	case len(given) == 1:
		g.Tokens = given[0]
	}
	return nil
}

func (t tokens) vary(cases []Case, g *Grid) ([]Case, error) {
	if !t.given(g) {
		return cases, nil
	}
	for i := range cases {
		n := cases[i].N
		if n < 1 || g.Tokens%n != 0 {
			return nil, fmt.Errorf("seq is %d: it must divide tokens, which is %d", n, g.Tokens)
		}
		cases[i].B = g.Tokens / n
	}
	return cases, nil
}

// passAxis is the passes to time: no part of a case, but of a Job.
type passAxis struct{ unvaried }

func (passAxis) given(g *Grid) bool { return g.Passes != (Passes{}) }

func (a passAxis) override(g, o *Grid) {
	if a.given(o) {
		g.Passes = o.Passes
	}
}

func (passAxis) parse(g *Grid, _ string, list []string) (err error) {
	g.Passes, err = ParsePasses(list)
	return err
}

// What the table reads flags with.

func ints(name string) func([]string) ([]int, error) {
	return func(list []string) ([]int, error) { return ParseInts(name, list) }
}

func each[T any](one func(string) (T, error)) func([]string) ([]T, error) {
	return func(list []string) (out []T, err error) {
		for _, s := range list {
			v, err := one(s)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
}

// last takes the last of several, as flags with one value do.
func last(one func(string) ([]bool, error)) func([]string) ([]bool, error) {
	return func(list []string) ([]bool, error) {
		if len(list) == 0 || list[len(list)-1] == "" {
			return nil, nil
		}
		return one(list[len(list)-1])
	}
}

// What the table requires of values: what a wrong one must be.

func counts(v int) string { return choose(v < 1, "at least 1", "") }
func reach(v int) string  { return choose(v < 0, "at least 0", "") }
func dimension(v int) string {
	return choose(v < 1 || v > flash.MaxHeadDim, fmt.Sprintf("between 1 and %d", flash.MaxHeadDim), "")
}
func probability(v float64) string {
	return choose(v >= 0 && v < 511.0/512, "", "at least 0 and below 511/512")
}
func share(v float64) string { return choose(v >= 0 && v <= 1, "", "from 0 (no block mask) to 1") }

// How the table shows values.

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

func told(format string) func(string) string {
	return func(cell string) string { return fmt.Sprintf(format, cell) }
}

func unlessEmpty(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func toldUnlessEmpty(prefix string) func(string) string {
	return func(cell string) string { return unlessEmpty(prefix, cell) }
}

func toldQueries(cell string) string {
	switch cell {
	case "":
		return ""
	case "1":
		return "1 query"
	}
	return cell + " queries"
}

// queries is the query length where it differs from the keys'.
func queries(c Case) string {
	if c.Nq == c.N {
		return ""
	}
	return strconv.Itoa(c.Nq)
}

// pair is two numbers, or one where they agree.
func pair(a, b int, between string) string {
	if a == b {
		return strconv.Itoa(a)
	}
	return strings.Join([]string{strconv.Itoa(a), strconv.Itoa(b)}, between)
}

func positive(name string, v float64) string {
	if v > 0 {
		return fmt.Sprintf("%s %g", name, v)
	}
	return ""
}
