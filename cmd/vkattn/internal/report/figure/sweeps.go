package figure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// sweep is the rows that differ in one quantity only, the x of a figure.
type sweep struct {
	x    func(c result.Case) float64
	name string
	// tie is the case with all removed that goes with x, so that rows of one sweep are equal; false: the case cannot be part
	// of one.
	tie func(c result.Case) (result.Case, bool)
	// want is the reports' own setting. Where the files do not have it, the sweep with most values of x is taken.
	want result.Case
	// suite has the rows.
	suite string
	// instead is another way to sweep the same, and second says that this is one.
	instead *sweep
	second  bool
}

func square(c result.Case) bool { return c.Nq == c.N && c.H == c.Hkv && c.D == c.Dv }

func setting(b, h, n, d int, causal bool) result.Case {
	return result.Case{DType: "float16", B: b, H: h, Hkv: h, Nq: n, N: n, D: d, Dv: d, Causal: causal}
}

func overSeq(want result.Case, suite string) sweep {
	return sweep{name: "sequence length", x: func(c result.Case) float64 { return float64(c.N) }, suite: suite, want: want,
		tie: func(c result.Case) (result.Case, bool) {
			ok := square(c)
			c.Impl, c.N, c.Nq = "", 0, 0
			return c, ok
		}}
}

// orTokens adds the papers' way: the batch shrinks as the sequence grows, and their product stays. B holds it, negative.
func (s sweep) orTokens() sweep {
	tie := s.tie
	other := s
	other.tie = func(c result.Case) (result.Case, bool) {
		tokens := c.B * c.N
		c, ok := tie(c)
		c.B = -tokens
		return c, ok
	}
	other.second = true
	s.instead = &other
	return s
}

// bothMasks leaves the mask open.
func (s sweep) bothMasks() sweep {
	tie := s.tie
	s.tie = func(c result.Case) (result.Case, bool) {
		c, ok := tie(c)
		c.Causal = false
		return c, ok
	}
	return s
}

func overBatch() sweep {
	return sweep{name: "batch", x: func(c result.Case) float64 { return float64(c.B) }, suite: "batch", want: setting(0, 32, 512, 64, true),
		tie: func(c result.Case) (result.Case, bool) {
			ok := square(c)
			c.Impl, c.B = "", 0
			return c, ok
		}}
}

func overHeads() sweep {
	return sweep{name: "heads", x: func(c result.Case) float64 { return float64(c.H) }, suite: "heads", want: setting(16, 0, 512, 64, true),
		tie: func(c result.Case) (result.Case, bool) {
			ok := square(c)
			c.Impl, c.H, c.Hkv = "", 0, 0
			return c, ok
		}}
}

// overEmbedding keeps the heads: the head dimension grows with the embedding.
func overEmbedding() sweep {
	return sweep{name: "embedding (heads × head dimension)", x: func(c result.Case) float64 { return float64(c.EmbDim()) },
		suite: "embedding",
		want:  setting(16, 16, 512, 0, true),
		tie: func(c result.Case) (result.Case, bool) {
			ok := square(c)
			c.Impl, c.D, c.Dv = "", 0, 0
			return c, ok
		}}
}

// overHeadDim keeps the embedding, which it notes in H.
func overHeadDim() sweep {
	return sweep{name: "head dimension", x: func(c result.Case) float64 { return float64(c.D) }, suite: "head-dim",
		want: setting(16, 2048, 512, 0, true),
		tie: func(c result.Case) (result.Case, bool) {
			ok := square(c)
			c.Impl, c.H, c.Hkv, c.D, c.Dv = "", c.EmbDim(), c.EmbDim(), 0, 0
			return c, ok
		}}
}

// choose takes the reports' setting where the rows that count have it; else the setting that the most sources have, of these one of
// the source named first, and of these the one with the most values of x. At least two values make a figure. The sweep becomes the
// one that the setting is of.
func (s *set) choose(sw *sweep, counts func(item) bool) (result.Case, bool) {
	var all []candidate
	for next := sw; next != nil; next = next.instead {
		of := s.candidates(next, counts)
		if i := slices.IndexFunc(of, func(c candidate) bool { return c.tied == next.want }); i >= 0 {
			*sw = *next
			return next.want, true
		}
		all = append(all, of...)
	}
	if len(all) == 0 {
		return result.Case{}, false
	}
	best := slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.sources, a.sources), cmp.Compare(a.first, b.first), cmp.Compare(a.way, b.way),
			cmp.Compare(b.values, a.values))
	})
	for range best.way {
		*sw = *sw.instead
	}
	return best.tied, true
}

// candidate is a setting that a figure may have.
type candidate struct {
	tied    result.Case
	values  int // of x
	sources int // that have two of them
	first   int // source of these
	way     int // how many times sweep.instead leads to its sweep
}

// candidates are the settings of which one source has two values of x, in the order of the rows.
func (s *set) candidates(sw *sweep, counts func(item) bool) []candidate {
	type values = map[float64]bool
	all := map[result.Case][]values{} // by source
	var order []result.Case
	for _, it := range s.items {
		tied, ok := sw.tie(it.row.Case)
		if !ok || !counts(it) {
			continue
		}
		if all[tied] == nil {
			all[tied] = make([]values, len(s.sources))
			order = append(order, tied)
		}
		if all[tied][it.source] == nil {
			all[tied][it.source] = values{}
		}
		all[tied][it.source][sw.x(it.row.Case)] = true
	}
	var out []candidate
	for _, tied := range order {
		c := candidate{tied: tied}
		union := values{}
		for i, v := range all[tied] {
			maps.Copy(union, v)
			if len(v) >= 2 {
				if c.sources == 0 {
					c.first = i
				}
				c.sources++
			}
		}
		c.values = len(union)
		if c.sources > 0 {
			if sw.second {
				c.way = 1
			}
			out = append(out, c)
		}
	}
	return out
}

// absent names the sources that have rows with the figure's quantity, but none in it.
func (s *set) absent(f *Figure, counts, drawn func(item) bool) {
	has, in := make([]bool, len(s.sources)), make([]bool, len(s.sources))
	for _, it := range s.items {
		if counts(it) {
			has[it.source] = true
			in[it.source] = in[it.source] || drawn(it)
		}
	}
	for i := range s.sources {
		if has[i] && !in[i] {
			f.Absent = append(f.Absent, s.sources[i].Label)
		}
	}
}

// fixed describes a tied case: what all points of a figure share.
func fixed(c result.Case, sw string, masks bool) string {
	parts := []string{c.DType}
	add := func(v int, format string) {
		if v > 0 {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add(c.B, "batch %d")
	if c.B < 0 {
		parts = append(parts, Number(float64(-c.B))+" tokens (batch × sequence length)")
	}
	if sw == "head dimension" {
		add(c.H, "embedding %d")
	} else {
		add(c.H, "%d heads")
	}
	add(c.N, "sequence length %d")
	add(c.D, "head dimension %d")
	if c.Dropout > 0 {
		parts = append(parts, fmt.Sprintf("dropout %g", c.Dropout))
	}
	for _, name := range []string{"window", "score", "bias", "mask", "sinks"} {
		a := result.AxisOf(name)
		if text := a.Told(a.Cell(c)); text != "" {
			parts = append(parts, text)
		}
	}
	if masks {
		if c.Causal {
			parts = append(parts, "causal")
		} else {
			parts = append(parts, "not causal")
		}
	}
	return strings.Join(parts, ", ")
}

// missing lists the rows of a sweep that have no figures, each with the word for its reason; the tables of all rows have the whole of it.
func (s *set) missing(f *Figure, sw sweep, tied result.Case) {
	for _, it := range s.items {
		t, ok := sw.tie(it.row.Case)
		if !ok || t != tied || it.row.Error == "" {
			continue
		}
		mask := ""
		if it.row.Causal != tied.Causal {
			mask = ", causal"
		}
		f.Missing = append(f.Missing, fmt.Sprintf("%s at %s %s%s: %s", it.series, strings.SplitN(sw.name, " (", 2)[0],
			Number(sw.x(it.row.Case)), mask, it.row.Reason.Word()))
	}
}
