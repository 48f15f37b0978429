package conformance

import (
	"math"

	"github.com/vkattn/vkattn/flash"
)

// fewQueries holds what decoding asks for: a few queries, on key heads of their own or shared, against keys enough for parts. A kernel of
// its own runs these, and the other cases have more rows than it takes.
func fewQueries(s *suite) {
	type shape struct {
		batch, heads, keyHeads, nq, nk int
		causal                         flash.Causal
	}
	shapes := []shape{
		{1, 4, 1, 1, 700, flash.CausalNone}, {2, 2, 2, 1, 333, flash.CausalBottomRight}, {1, 8, 1, 1, 1030, flash.CausalNone},
		{3, 6, 2, 2, 150, flash.CausalBottomRight}, {1, 1, 1, 8, 517, flash.CausalBottomRight}, {1, 2, 2, 5, 129, flash.CausalTopLeft},
		{1, 4, 2, 4, 3, flash.CausalBottomRight}, {1, 2, 1, 3, 1, flash.CausalTopLeft},
	}
	dims := []int{1, 7, 16, 29, 33, 40, 64, 72, 80, 96, 127, 128, 160, 192, 255, 256, 576}
	if s.small {
		dims = []int{7, 40, 64, 96, 127, 128, 192, 256, 576}
	}
	for i, d := range dims {
		for j, dtype := range dtypes {
			if s.small && (i+j)%len(dtypes) != 0 {
				continue
			}
			x := shapes[(i+3*j)%len(shapes)]
			s.add(&Case{Name: name(dtype, "few/d%d", d), Problem: flash.Problem{Batch: x.batch, Heads: x.heads, KeyHeads: x.keyHeads,
				QueryLen: x.nq,
				KeyLen:   x.nk, HeadDim: d, ValueDim: dims[(i+j)%len(dims)], DType: dtype, Causal: x.causal}})
		}
	}
	for i, x := range shapes {
		dtype := dtypes[i%len(dtypes)]
		s.add(&Case{Name: name(dtype, "few/%dx%d", x.nq, x.nk), Layouts: all(Layout(i) % layoutEnd), NoLSE: i%3 == 2,
			Problem: flash.Problem{Batch: x.batch,
				Heads: x.heads, KeyHeads: x.keyHeads, QueryLen: x.nq, KeyLen: x.nk, HeadDim: s.dim(16 * (1 + i%3)), DType: dtype,
				Causal: x.causal, Scale: []float64{0, -0.7}[i%2]}})
	}
	for _, dtype := range dtypes {
		p := flash.Problem{Batch: 1, Heads: 6, KeyHeads: 2, QueryLen: 2, KeyLen: 300, HeadDim: s.dim(32), DType: dtype}
		s.add(&Case{Name: name(dtype, "few/huge-logits"), Problem: p, fill: scaled(10, 10, 1)})
		far := p
		far.Scale = 1 / math.Sqrt(32)
		s.add(&Case{Name: name(dtype, "few/all-far-below-zero"), Problem: far, fill: opposed(-1)})
		s.add(&Case{Name: name(dtype, "few/all-far-above-zero"), Problem: far, fill: opposed(1)})
		s.add(&Case{Name: name(dtype, "few/split"), Problem: p, Tuning: map[string]int{"max_groups": 3}})
	}
}
