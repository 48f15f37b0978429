package conformance

import (
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
)

// one is one of them.
func one(r *rand.Rand, of ...int) int { return of[r.IntN(len(of))] }

// mixed holds cases that have many options at once, where other cases have one each: options that only go wrong together are found here,
// and few cases, with few kernels among them, have every pair of options.
func mixed(s *suite) {
	// At least two keys: with one, dQ is 0 but for δ, which has the rounding of o, and plain attention has no error to measure that by.
	for i := range 40 {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		heads := [][2]int{{1, 1}, {2, 2}, {4, 2}, {3, 1}}[r.IntN(4)]
		dims := [][2]int{{8, 8}, {8, 16}, {16, 8}, {5, 3}}[i%4] // few, for each is another kernel
		c := &Case{NoLSE: r.IntN(3) == 0, Problem: flash.Problem{
			Batch: 1 + r.IntN(2), Heads: heads[0], KeyHeads: heads[1], QueryLen: one(r, 1, 16, 33, 64, 70),
			KeyLen:  one(r, 2, 16, 33, 64, 77),
			HeadDim: dims[0], ValueDim: dims[1], DType: dtypes[i%3], Causal: causals[r.IntN(3)]}}
		if r.IntN(2) == 0 {
			c.Problem.Dropout, c.Seed, c.Offset = 0.25, r.Uint64(), r.Uint32()
		}
		for _, f := range features {
			if f.mixed != nil {
				f.mixed(uint64(i), &c.Problem)
			}
		}
		c.Problem.MaxLogit = rand.New(rand.NewPCG(12, uint64(i))).IntN(4) == 0
		layout := func() Layout { return Layout(r.IntN(int(layoutEnd))) }
		c.Layouts = all(layout())
		if r.IntN(4) == 0 {
			c.Layouts = Layouts{layout(), layout(), layout(), layout()}
		}
		c.Name = name(c.Problem.DType, "mixed/%02d", i)
		s.add(c)
	}
}
