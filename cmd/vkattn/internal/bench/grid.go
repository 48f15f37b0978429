package bench

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
)

// Grid is a sweep: every combination of its axes is a case. An empty axis
// takes its default (Defaults). The embedding width, the heads and the head
// dimension are tied by EmbDim = Heads × HeadDim: two of the three are enough,
// and if all three are given every combination must agree.
type Grid struct {
	Impls    []string
	DTypes   []string
	Batch    []int
	Tokens   int // > 0: the batch is Tokens / Seq (the papers keep batch·seq at 16k)
	Heads    []int
	KVHeads  []int // 0 means as many as Heads
	QueryLen []int // 0 means as many as Seq
	Seq      []int
	HeadDim  []int
	ValueDim []int // 0 means the same as HeadDim
	EmbDim   []int
	Causal   []bool
	Window   []int    // 0 means none
	Scores   []string // score functions, as ParseScore spells them; "" is none
	Biases   []string // shapes, as ParseBias spells them; "" is none
	Masks    []string // besides the causal one and the window, as ParseMask spells them; "" is none
	Sinks    []bool
	Dropout  []float64
	Packed   []string  // packed sequences, as ParsePacked spells them; "" is a batch
	Used     []string  // keys in use, as ParseUsed spells them; "" is all
	Pages    []int     // rows of a page of keys and values; 0 means none
	Caches   []string  // types of keys and values, as ParseCache spells them; "" is that of q
	Density  []float64 // of blocksparse: shares of nonzero blocks; default 1
	Tunings  []Tuning  // of flash2, flash1 and blocksparse, the implementations whose tile this is about; "" is the library's choice

	Passes Passes // the zero value: forward
}

// Defaults are the reports' usual setting: batch 16, 32 heads of 64, fp16. Of
// axes that are not named, the value is zero, or what zero stands for.
var Defaults = Grid{
	Impls:   []string{"standard", "flash2"},
	DTypes:  []string{"float16"},
	Batch:   []int{16},
	Heads:   []int{32},
	Seq:     []int{512, 1024, 2048},
	HeadDim: []int{64},
	Causal:  []bool{false, true},
	Density: []float64{1},
}

// Override returns the grid with every axis that o names replaced by o's.
func (g Grid) Override(o Grid) Grid {
	for _, a := range Axes {
		a.override(&g, &o)
	}
	if len(o.Batch) > 0 { // a batch given by hand unties it from the sequence length
		g.Tokens = 0
	}
	if o.Tokens > 0 {
		g.Batch, g.Tokens = nil, o.Tokens
	}
	return g
}

// Wants says whether the grid has the case's value on every axis that it names.
func (g Grid) Wants(c Case) bool {
	for _, a := range Axes {
		if !a.wants(&g, &c) {
			return false
		}
	}
	return true
}

// Expand returns the cases of the grid, implementations innermost, so that
// cases of one shape stand together. The first impossible combination is an
// error that names it.
func (g Grid) Expand() ([]Case, error) {
	if g.Tokens > 0 && len(g.Batch) > 0 {
		return nil, fmt.Errorf("batch and tokens are both given: with tokens the batch is tokens / seq")
	}
	if g.Tokens < 0 {
		return nil, fmt.Errorf("tokens is %d: it must be positive", g.Tokens)
	}
	g = g.withDefaults()
	if _, err := g.headShapes(); err != nil {
		return nil, err
	}
	for _, a := range Axes {
		if err := a.clean(&g); err != nil {
			return nil, err
		}
	}
	cases, err := g.loop(problemLoops, []Case{{}})
	if err != nil {
		return nil, err
	}
	for _, c := range cases {
		if err := c.validate(); err != nil {
			return nil, fmt.Errorf("case %s: %w", c, err)
		}
	}
	if cases, err = g.loop(ownLoops, cases); err != nil {
		return nil, err
	}
	return Distinct(cases), nil
}

// loop repeats every case for the values of some axes.
func (g Grid) loop(axes []Axis, cases []Case) (_ []Case, err error) {
	for _, a := range axes {
		if cases, err = a.vary(cases, &g); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// withDefaults fills the empty axes.
func (g Grid) withDefaults() Grid {
	d := Defaults
	if g.Tokens > 0 {
		d.Batch = []int{1} // a placeholder: the batch follows from the sequence length
	}
	// Of heads, head-dim and emb-dim, two given ones fix the third.
	switch {
	case len(g.EmbDim) > 0 && len(g.Heads) > 0:
		d.HeadDim = nil
	case len(g.EmbDim) > 0:
		d.Heads = nil
	}
	out := d.Override(g)
	if g.Tokens > 0 {
		out.Batch, out.Tokens = d.Batch, g.Tokens
	}
	for _, a := range Axes {
		a.fill(&out)
	}
	return out
}

type headShape struct{ heads, dim int }

// headShapes resolves EmbDim = Heads × HeadDim.
func (g Grid) headShapes() ([]headShape, error) {
	var out []headShape
	switch {
	case len(g.EmbDim) == 0:
		for _, h := range g.Heads {
			for _, d := range g.HeadDim {
				out = append(out, headShape{h, d})
			}
		}
	case len(g.Heads) > 0 && len(g.HeadDim) > 0:
		for _, e := range g.EmbDim {
			for _, h := range g.Heads {
				for _, d := range g.HeadDim {
					if h*d != e {
						return nil, fmt.Errorf("emb-dim is %d: it must be heads × head-dim, which is %d × %d = %d (leave one of the "+
							"three out)", e, h, d, h*d)
					}
					out = append(out, headShape{h, d})
				}
			}
		}
	case len(g.Heads) > 0:
		for _, e := range g.EmbDim {
			for _, h := range g.Heads {
				if h < 1 || e%h != 0 {
					return nil, fmt.Errorf("emb-dim is %d: it must be a multiple of heads, which is %d", e, h)
				}
				out = append(out, headShape{h, e / h})
			}
		}
	default:
		for _, e := range g.EmbDim {
			for _, d := range g.HeadDim {
				if d < 1 || e%d != 0 {
					return nil, fmt.Errorf("emb-dim is %d: it must be a multiple of head-dim, which is %d", e, d)
				}
				out = append(out, headShape{e / d, d})
			}
		}
	}
	return out, nil
}

// Distinct drops repeated cases, keeping the first of each.
func Distinct(cases []Case) []Case {
	seen := make(map[Case]bool, len(cases))
	out := cases[:0:0]
	for _, c := range cases {
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}

// ParseInts reads a comma list of positive integers; "4k" is 4096 and "2m" is
// 2·1024²; the largest is 2³⁰−1, as far as a length of flash.Problem goes. name
// is what it is for, for the error.
func ParseInts(name string, list []string) ([]int, error) { return parseInts(name, 1, list) }

// parseInts is that of integers from a least one on.
func parseInts(name string, least int, list []string) ([]int, error) {
	var out []int
	for _, s := range list {
		text, unit := strings.ToLower(strings.TrimSpace(s)), 1
		switch {
		case strings.HasSuffix(text, "k"):
			text, unit = text[:len(text)-1], 1<<10
		case strings.HasSuffix(text, "m"):
			text, unit = text[:len(text)-1], 1<<20
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < least || v > (1<<30-1)/unit {
			return nil, fmt.Errorf("%s %q: it must be a comma list of integers from %d to 2³⁰−1, such as 512,1024,4k", name, s, least)
		}
		out = append(out, v*unit)
	}
	return out, nil
}

// ParseWindows reads a list of reaches of windows, 0 for none.
func ParseWindows(list []string) ([]int, error) { return fromZero("window")(list) }

// fromZero is ParseInts where 0 stands for none.
func fromZero(name string) func([]string) ([]int, error) {
	return func(list []string) ([]int, error) { return parseInts(name, 0, list) }
}

// ParseCausal reads true, false or both.
func ParseCausal(s string) ([]bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "yes", "1":
		return []bool{true}, nil
	case "false", "no", "0":
		return []bool{false}, nil
	case "both":
		return []bool{false, true}, nil
	}
	return nil, fmt.Errorf("causal %q: it must be true, false or both", s)
}

// ParseDropouts reads a list of probabilities: 0, or from 1/512, the first that
// does not round to none of 256, to below 511/512, the last that does not round
// to all.
func ParseDropouts(list []string) ([]float64, error) {
	var out []float64
	for _, s := range list {
		v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(v >= 0 && v < 511.0/512) {
			return nil, fmt.Errorf("dropout %q: it must be at least 0 and below 511/512", s)
		}
		if p := (attn.Problem{Dropout: v}); v > 0 && p.DropThreshold() == 0 {
			return nil, fmt.Errorf("dropout %q: it must be 0 or at least 1/512, for probabilities are taken to the nearest 1/256, and "+
				"this would be 0", s)
		}
		out = append(out, v)
	}
	return out, nil
}
