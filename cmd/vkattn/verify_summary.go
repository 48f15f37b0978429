package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
)

// What was checked, in two tables: on each kernel the forward and the backward pass by types, and the same by options of the problem.

// checkedOption is a column of the second table: cases with an option.
type checkedOption struct {
	name, legend string
	has          func(r *conformance.Result, backward bool) bool
}

var checkedOptions = []checkedOption{
	{"full", "no causal mask", func(r *conformance.Result, _ bool) bool {
		return r.Problem.Batch > 0 && r.Problem.Causal == flash.CausalNone
	}},
	{"diag", "causal, the diagonal at the bottom right",
		func(r *conformance.Result, _ bool) bool { return r.Problem.Causal == flash.CausalBottomRight }},
	{"top", "causal, the diagonal at the top left",
		func(r *conformance.Result, _ bool) bool { return r.Problem.Causal == flash.CausalTopLeft }},
	{"gqa", "query heads share key heads", func(r *conformance.Result, _ bool) bool {
		return r.Problem.KeyHeads != 0 && r.Problem.KeyHeads != r.Problem.Heads
	}},
	{"dv", "values have another dimension than keys", func(r *conformance.Result, _ bool) bool {
		return r.Problem.ValueDim != 0 && r.Problem.ValueDim != r.Problem.HeadDim
	}},
	{"odd", "rows that are no whole 16 bytes", func(r *conformance.Result, _ bool) bool {
		size, dv := r.DType.Size(), r.Problem.ValueDim
		return r.Problem.HeadDim*size%16 != 0 || dv*size%16 != 0
	}},
	{"gaps", "rows not side by side, or from an odd element on",
		func(r *conformance.Result, _ bool) bool { return r.Layouts != conformance.Layouts{} }},
	{"drop", "dropout", func(r *conformance.Result, _ bool) bool { return r.Problem.Dropout > 0 }},
	{"blk", "a block mask", func(r *conformance.Result, _ bool) bool { return r.Problem.Blocks != flash.Blocks{} }},
	{"len", "batch entries with lengths of keys or queries", func(r *conformance.Result, _ bool) bool {
		return r.Problem.KeyLengths ||
			r.Problem.QueryLengths
	}},
	{"cls", "blocks of scores classed by a mask function",
		func(r *conformance.Result, _ bool) bool { return r.Problem.MaskBlocks != flash.Blocks{} }},
	{"lse", "forward: lse is asked for", func(r *conformance.Result, backward bool) bool { return !backward && !r.NoLSE }},
	{"add", "backward: gradients are also added to others", func(r *conformance.Result, backward bool) bool {
		return backward &&
			r.Accumulated
	}},
}

// coverage counts the cases of one pass on one target.
type coverage struct {
	types   map[flash.DType]*passes
	options []passes
	all     passes
	skipped int
}

// passes are cases that ran.
type passes struct{ passed, failed int }

func (p *passes) add(ok bool) {
	if ok {
		p.passed++
	} else {
		p.failed++
	}
}

// String is the number of cases that passed, or of those that failed with an exclamation mark.
func (p *passes) String() string {
	switch {
	case p == nil || *p == passes{}:
		return "."
	case p.failed > 0:
		return fmt.Sprintf("%d!", p.failed)
	}
	return fmt.Sprint(p.passed)
}

var checkedTypes = []flash.DType{flash.F32, flash.F16, flash.BF16}

// covered counts results by target, in their order, forward and backward.
func covered(results []conformance.Result) (order []string, of map[string]*[2]coverage) {
	of = map[string]*[2]coverage{}
	for i := range results {
		r := &results[i]
		if r.Target == "" {
			continue // no kernel could run it
		}
		c := of[r.Target]
		if c == nil {
			c = &[2]coverage{}
			for pass := range c {
				c[pass] = coverage{types: map[flash.DType]*passes{}, options: make([]passes, len(checkedOptions))}
			}
			of[r.Target] = c
			order = append(order, r.Target)
		}
		if r.Skipped != "" {
			c[0].skipped++
			continue
		}
		c[0].count(r, false, !r.ForwardFailed)
		if r.Gradients {
			c[1].count(r, true, r.Pass || r.ForwardFailed)
		}
	}
	return order, of
}

func (c *coverage) count(r *conformance.Result, backward, ok bool) {
	if c.types[r.DType] == nil {
		c.types[r.DType] = &passes{}
	}
	c.types[r.DType].add(ok)
	c.all.add(ok)
	for i, o := range checkedOptions {
		if o.has(r, backward) {
			c.options[i].add(ok)
		}
	}
}

// printCoverage prints the two tables.
func printCoverage(w io.Writer, results []conformance.Result, wide, color bool) {
	if len(results) == 0 {
		return
	}
	order, of := covered(results)
	header := []string{"kernel", "pass"}
	for _, t := range checkedTypes {
		header = append(header, t.String())
	}
	types := newText(w, wide, nil, append(header, "passed", "failed", "skipped"), "llrrrrrr")
	header = []string{"kernel", "pass"}
	for _, o := range checkedOptions {
		header = append(header, o.name)
	}
	options := newText(w, wide, []string{"odd", "gaps", "dv", "top", "add", "lse", "cls", "len", "drop", "blk"}, header,
		"ll"+strings.Repeat("r", len(checkedOptions)))
	cell := func(p *passes) string {
		if s := p.String(); color && p != nil && p.failed > 0 {
			return text.FgRed.Sprint(s)
		} else {
			return s
		}
	}
	for _, target := range order {
		for pass, name := range []string{"forward", "backward"} {
			c := &of[target][pass]
			if pass == 1 && c.all == (passes{}) {
				continue
			}
			row := []string{target, name}
			if pass == 1 {
				row[0] = ""
			}
			first := append([]string{}, row...)
			for _, t := range checkedTypes {
				first = append(first, cell(c.types[t]))
			}
			skipped := fmt.Sprint(c.skipped)
			if pass == 1 {
				skipped = ""
			}
			types.Row(append(first, fmt.Sprint(c.all.passed), cell(&passes{failed: c.all.failed}), skipped)...)
			row[1] = []string{"fwd", "bwd"}[pass]
			for i := range c.options {
				row = append(row, cell(&c.options[i]))
			}
			options.Row(row...)
		}
	}
	fmt.Fprint(w, "cases by type: how many passed, or with ! how many failed; a dot is none\n\n")
	printText(w, types)
	fmt.Fprint(w, "\ncases by option\n\n")
	printText(w, options)
	fmt.Fprintln(w)
	for _, o := range checkedOptions {
		if !slices.Contains(options.Dropped(), o.name) {
			fmt.Fprintf(w, "  %-5s %s\n", o.name, o.legend)
		}
	}
	fmt.Fprintln(w)
}
