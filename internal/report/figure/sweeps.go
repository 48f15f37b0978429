package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/internal/bench"
)

// sweep is the rows that differ in one quantity only, the x of a figure.
type sweep struct {
	x    func(c bench.Case) float64
	name string
	// tie is the case with all removed that goes with x, so that rows of one sweep are equal; false: the case cannot be part
	// of one.
	tie func(c bench.Case) (bench.Case, bool)
	// want is the reports' own setting. Where the files do not have it, the sweep with most values of x is taken.
	want bench.Case
	// suite has the rows.
	suite string
	// instead is looked at where that finds nothing.
	instead *sweep
}

func square(c bench.Case) bool { return c.Nq == c.N && c.H == c.Hkv && c.D == c.Dv }

func setting(b, h, n, d int, causal bool) bench.Case {
	return bench.Case{DType: "float16", B: b, H: h, Hkv: h, Nq: n, N: n, D: d, Dv: d, Causal: causal}
}

func overSeq(want bench.Case, suite string) sweep {
	return sweep{name: "sequence length", x: func(c bench.Case) float64 { return float64(c.N) }, suite: suite, want: want,
		tie: func(c bench.Case) (bench.Case, bool) {
			ok := square(c)
			c.Impl, c.N, c.Nq = "", 0, 0
			return c, ok
		}}
}

// orTokens adds the papers' way: the batch shrinks as the sequence grows, and their product stays. B holds it, negative.
func (s sweep) orTokens() sweep {
	tie := s.tie
	other := s
	other.tie = func(c bench.Case) (bench.Case, bool) {
		tokens := c.B * c.N
		c, ok := tie(c)
		c.B = -tokens
		return c, ok
	}
	s.instead = &other
	return s
}

// bothMasks leaves the mask open.
func (s sweep) bothMasks() sweep {
	tie := s.tie
	s.tie = func(c bench.Case) (bench.Case, bool) {
		c, ok := tie(c)
		c.Causal = false
		return c, ok
	}
	return s
}

func overBatch() sweep {
	return sweep{name: "batch", x: func(c bench.Case) float64 { return float64(c.B) }, suite: "batch", want: setting(0, 32, 512, 64, true),
		tie: func(c bench.Case) (bench.Case, bool) {
			ok := square(c)
			c.Impl, c.B = "", 0
			return c, ok
		}}
}

func overHeads() sweep {
	return sweep{name: "heads", x: func(c bench.Case) float64 { return float64(c.H) }, suite: "heads", want: setting(16, 0, 512, 64, true),
		tie: func(c bench.Case) (bench.Case, bool) {
			ok := square(c)
			c.Impl, c.H, c.Hkv = "", 0, 0
			return c, ok
		}}
}

// overEmbedding keeps the heads: the head dimension grows with the embedding.
func overEmbedding() sweep {
	return sweep{name: "embedding (heads × head dimension)", x: func(c bench.Case) float64 { return float64(c.EmbDim()) }, suite: "embedding",
		want: setting(16, 16, 512, 0, true),
		tie: func(c bench.Case) (bench.Case, bool) {
			ok := square(c)
			c.Impl, c.D, c.Dv = "", 0, 0
			return c, ok
		}}
}

// overHeadDim keeps the embedding, which it notes in H.
func overHeadDim() sweep {
	return sweep{name: "head dimension", x: func(c bench.Case) float64 { return float64(c.D) }, suite: "head-dim",
		want: setting(16, 2048, 512, 0, true),
		tie: func(c bench.Case) (bench.Case, bool) {
			ok := square(c)
			c.Impl, c.H, c.Hkv, c.D, c.Dv = "", c.EmbDim(), c.EmbDim(), 0, 0
			return c, ok
		}}
}

// choose takes the reports' setting, or the tied case with the most values of x among the rows that count. At least two
// values make a figure.
func (s *set) choose(sw *sweep, counts func(item) bool) (bench.Case, bool) {
	tied, ok := s.chooseOne(sw, counts)
	if !ok && sw.instead != nil {
		*sw = *sw.instead
		return s.chooseOne(sw, counts)
	}
	return tied, ok
}

func (s *set) chooseOne(sw *sweep, counts func(item) bool) (bench.Case, bool) {
	want := sw.want
	values := map[bench.Case]map[float64]bool{}
	var order []bench.Case
	for _, it := range s.items {
		tied, ok := sw.tie(it.row.Case)
		if !ok || !counts(it) {
			continue
		}
		if values[tied] == nil {
			values[tied] = map[float64]bool{}
			order = append(order, tied)
		}
		values[tied][sw.x(it.row.Case)] = true
	}
	if len(values[want]) >= 2 {
		return want, true
	}
	best, most := bench.Case{}, 1
	for _, tied := range order {
		if len(values[tied]) > most {
			best, most = tied, len(values[tied])
		}
	}
	return best, most > 1
}

// fixed describes a tied case: what all points of a figure share.
func fixed(c bench.Case, sw string, masks bool) string {
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
		a := bench.AxisOf(name)
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

// missing lists the rows of a sweep that have no figures.
func (s *set) missing(f *Figure, sw sweep, tied bench.Case) {
	for _, it := range s.items {
		t, ok := sw.tie(it.row.Case)
		if !ok || t != tied || it.row.Error == "" {
			continue
		}
		mask := ""
		if it.row.Causal != tied.Causal {
			mask = ", causal"
		}
		f.Missing = append(f.Missing, fmt.Sprintf("%s at %s %s%s: %s", it.series, strings.SplitN(sw.name, " (", 2)[0], Number(sw.x(it.row.Case)), mask, it.row.Error))
	}
}

// Number writes a size as people do: 512, 1k, 16k.
func Number(v float64) string {
	if v >= 1024 && math.Mod(v, 1024) == 0 {
		return strconv.FormatFloat(v/1024, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
