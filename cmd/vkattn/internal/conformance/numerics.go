package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// numerics holds scales and logits that strain the softmax.
func numerics(s *suite) {
	for i, scale := range []float64{-1, 0.3, 1e-4, 5, -7} {
		dtype := dtypes[i%len(dtypes)]
		s.add(&Case{Name: name(dtype, "numeric/scale%v", scale), Problem: flash.Problem{
			Batch: 1, Heads: 2, QueryLen: 48, KeyLen: 70, HeadDim: s.dim(32), DType: dtype, Scale: scale, Causal: causals[i%3]}})
	}
	for _, dtype := range dtypes {
		huge := flash.Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 150, HeadDim: s.dim(16), DType: dtype}
		s.add(&Case{Name: name(dtype, "numeric/huge-logits"), Problem: huge, Core: true, fill: scaled(30, 30, 1)})
		far := huge
		far.Scale = 0.25
		s.add(&Case{Name: name(dtype, "numeric/all-far-below-zero"), Problem: far, fill: opposed(-1)})
		s.add(&Case{Name: name(dtype, "numeric/all-far-above-zero"), Problem: far, fill: opposed(1)})
		s.add(&Case{Name: name(dtype, "numeric/all-equal"), Problem: huge, fill: scaled(0, 1, 1)})
		s.add(&Case{Name: name(dtype, "numeric/no-lse"), Problem: huge, NoLSE: true})
	}
}

// opposed makes every score about sign · 1024 where the scale is 1/4, where exp is infinite or 0: a running maximum that starts
// at 0 instead of −∞, or a mask that is only a large negative number, shows here.
func opposed(sign float32) func(*rand.Rand, ref.Tensor, ref.Tensor, ref.Tensor) {
	const level = 64
	return func(r *rand.Rand, q, k, v ref.Tensor) {
		normal(r, q, k, v)
		for b := range q.B {
			for h := range q.H {
				for i := range q.N {
					q.Row(b, h, i)[0] = level
				}
			}
			for h := range k.H {
				for j := range k.N {
					k.Row(b, h, j)[0] = sign * level
				}
			}
		}
	}
}

// Scores in these cases are given in log2, where the rescaling threshold of the softmax is 8: with
// scale = ln 2, q = (1, 1, 0, …) and k = (whole, fraction, 0, …) a key's score in log2 is whole +
// fraction, exactly so in every dtype up to the rounding of the fraction.

// thresholds holds the cases around the threshold by which rows are rescaled: P may reach 2^8 above a
// row's reference maximum before it moves.
func thresholds(s *suite) {
	for _, growth := range []float64{7.9, 8, 8.1} {
		for _, every := range []int{16, 32, 64, 128} { // keys, since tiles differ in size
			for _, dtype := range dtypes {
				if dtype != flash.F16 && every != 32 {
					continue
				}
				s.add(&Case{Name: name(dtype, "threshold/grow%v-every%d", growth, every), Core: every == 32,
					Problem: s.log2Problem(dtype, 9, 7*every),
					fill:    log2Scores(func(key int) float64 { return growth * float64(key/every) })})
			}
		}
	}
	const tiny = 65536
	for _, large := range []struct {
		place string
		at    int
	}{{"first", 0}, {"last", tiny}} {
		for _, gap := range []float64{7.9, 8.1, 16, 20} {
			for _, dtype := range dtypes {
				if dtype != flash.F16 && gap != 16 {
					continue
				}
				s.add(&Case{Name: name(dtype, "threshold/%d-tiny-large-%s-gap%v", tiny, large.place, gap),
					Core:    gap == 16 && dtype == flash.F16,
					Problem: s.log2Problem(dtype, 2, tiny+1),
					fill: log2Scores(func(key int) float64 {
						if key == large.at {
							return gap
						}
						return 0
					})})
			}
		}
	}
	// The same row both rises and falls: every row its own sawtooth.
	for _, dtype := range dtypes {
		s.add(&Case{Name: name(dtype, "threshold/sawtooth"), Problem: s.log2Problem(dtype, 70, 500),
			fill: log2Scores(func(key int) float64 { return float64(key*37%97) / 4 })})
	}
}

func (s *suite) log2Problem(dtype flash.DType, nq, nk int) flash.Problem {
	return flash.Problem{Batch: 1, Heads: 1, QueryLen: nq, KeyLen: nk, HeadDim: s.dim(16), DType: dtype, Scale: math.Ln2}
}

// log2Scores gives key j of the first query the score(j) in log2; later queries have a half, a quarter,
// … of it, and every third the negative. v is 1 plus noise where the score is 0, −1 plus noise
// elsewhere, so that weights gone astray move o.
func log2Scores(score func(key int) float64) func(*rand.Rand, ref.Tensor, ref.Tensor, ref.Tensor) {
	return func(r *rand.Rand, q, k, v ref.Tensor) {
		for i := range q.N {
			x := float32(math.Ldexp(1, -(i % 4)))
			if i%3 == 2 {
				x = -x
			}
			q.Row(0, 0, i)[0], q.Row(0, 0, i)[1] = x, x
		}
		for j := range k.N {
			whole, fraction := math.Modf(score(j))
			k.Row(0, 0, j)[0], k.Row(0, 0, j)[1] = float32(whole), float32(fraction)
			sign := float32(1)
			if whole != 0 {
				sign = -1
			}
			for d := range v.D {
				v.Row(0, 0, j)[d] = sign + float32(0.25*r.NormFloat64())
			}
		}
	}
}

// magnitudes holds inputs far from 1, where a hidden conversion to fp16 gives infinity or zero: bf16
// and fp32 have the range of fp32.
func magnitudes(s *suite) {
	for _, dtype := range []flash.DType{flash.BF16, flash.F32} {
		for _, m := range []float64{1e6, 1e-10} {
			p := flash.Problem{Batch: 1, Heads: 2, QueryLen: 50, KeyLen: 66, HeadDim: s.dim(32), DType: dtype,
				Causal: flash.CausalBottomRight}
			p.Scale = 1 / (m * m * math.Sqrt(float64(p.HeadDim))) // so that scores are of order 1
			s.add(&Case{Name: name(dtype, "magnitude/all-%v", m), Core: dtype == flash.BF16, Problem: p, Tight: true,
				fill: scaled(m, m, m)})
			p.Scale = 0
			s.add(&Case{Name: name(dtype, "magnitude/v-%v", m), Problem: p, Tight: true, fill: scaled(1, 1, m)})
		}
	}
	// fp16 has its own ends: outputs near the largest number, and inputs among the subnormal ones.
	p := flash.Problem{Batch: 1, Heads: 2, QueryLen: 50, KeyLen: 66, HeadDim: s.dim(32), DType: flash.F16}
	// do·v would overflow plain attention
	s.add(&Case{Name: name(flash.F16, "magnitude/v-1e4"), Problem: p, fill: scaled(1, 1, 1e4), do: 1e-4})
	s.add(&Case{Name: name(flash.F16, "magnitude/v-1e-6"), Problem: p, Tight: true, fill: scaled(1, 1, 1e-6)})
}

// grids holds problems that do not fit one dispatch, or one dimension of it.
func grids(s *suite) {
	split := map[string]int{"max_groups": 3}
	for _, dtype := range dtypes {
		s.add(&Case{Name: name(dtype, "grid/split"), Tuning: split, Problem: flash.Problem{
			Batch: 2, Heads: 5, KeyHeads: 1, QueryLen: 70, KeyLen: 90, HeadDim: s.dim(16), DType: dtype, Causal: flash.CausalBottomRight}})
	}
	// The matrix of scores cut into buffers by heads, then by rows of each head.
	for _, slab := range []struct {
		by    string
		bytes int
	}{{"heads", 40000}, {"rows", 3000}} {
		s.add(&Case{Name: name(flash.F16, "grid/slabs-by-%s", slab.by), Only: []flash.Implementation{flash.Standard},
			Tuning: map[string]int{"max_slab": slab.bytes}, Problem: flash.Problem{
				Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 90, HeadDim: s.dim(16), DType: flash.F16,
				Causal: flash.CausalBottomRight}})
		s.add(&Case{Name: name(flash.BF16, "grid/slabs-of-lengths-by-%s", slab.by), Only: []flash.Implementation{flash.Standard},
			Tuning: map[string]int{"max_slab": slab.bytes}, Gradients: true, Problem: flash.Problem{
				Batch: 4, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 90, HeadDim: s.dim(16), DType: flash.BF16,
				Causal: flash.CausalBottomRight, KeyLengths: true, QueryLengths: true}})
	}
	// dS cut by key heads: what is masked, and what sinks take, must be there in each slab.
	kept, bytes := flash.Problem{Batch: 2, Heads: 8, KeyHeads: 4, QueryLen: 300, KeyLen: 333, HeadDim: 64, DType: flash.F16,
		Causal: flash.CausalBottomRight, Sinks: true}, 1<<20
	if s.small {
		kept.QueryLen, kept.KeyLen, kept.HeadDim, bytes = 45, 61, s.dim(64), 24<<10
	}
	kept.Mask = flash.PerScore{DType: flash.Bool, Batch: 2, Heads: 8, Queries: kept.QueryLen, Keys: kept.KeyLen}
	s.add(&Case{Name: name(flash.F16, "scores/kept-slabs"), Only: []flash.Implementation{flash.Flash}, Core: true, Gradients: true,
		Backward: map[string]int{keepDS: 1, "max_slab": bytes}, Problem: kept})
	s.add(&Case{Name: name(flash.F16, "grid/batch-times-heads-70000"), Sample: 300, once: s.small, Problem: flash.Problem{
		Batch: 70, Heads: 1000, KeyHeads: 500, QueryLen: 1, KeyLen: 2, HeadDim: 1, DType: flash.F16}})
}

// large holds sizes for real GPUs; a sample of rows is compared.
func large(s *suite) {
	for _, dtype := range dtypes {
		for _, d := range []int{64, 128, 256} {
			for _, causal := range causals[:2] {
				s.add(&Case{Name: name(dtype, "large/2048-d%d/%v", d, causal), Sample: 200, Problem: flash.Problem{
					Batch: 2, Heads: 8, KeyHeads: 4, QueryLen: 2048, HeadDim: d, DType: dtype, Causal: causal}})
			}
		}
		s.add(&Case{Name: name(dtype, "large/ragged"), Sample: 200, Layouts: all(OddBNHD), Problem: flash.Problem{
			Batch: 1, Heads: 12, QueryLen: 1531, KeyLen: 2777, HeadDim: 96, DType: dtype, Causal: flash.CausalBottomRight}})
	}
	s.add(&Case{Name: name(flash.F16, "large/decode"), Sample: 64, Problem: flash.Problem{
		Batch: 1, Heads: 32, KeyHeads: 8, QueryLen: 1, KeyLen: 65536, HeadDim: 128, DType: flash.F16, Causal: flash.CausalBottomRight}})
	s.add(&Case{Name: name(flash.F16, "large/16384"), Sample: 100, Problem: flash.Problem{
		Batch: 1, Heads: 2, QueryLen: 16384, HeadDim: 64, DType: flash.F16, Causal: flash.CausalBottomRight}})
	s.add(&Case{Name: name(flash.F16, "large/batch64"), Sample: 100, Problem: flash.Problem{
		Batch: 64, Heads: 32, QueryLen: 128, HeadDim: 64, DType: flash.F16}})
}

// random adds problems drawn from the seed.
func random(s *suite, n int, small bool) {
	for i := range n {
		r := rand.New(rand.NewPCG(s.seed, uint64(i)))
		c := Draw(func(low, high int) int { return low + r.IntN(high-low+1) }, small)
		c.Name = fmt.Sprintf("random/%03d/%v", i, refType(c.Problem.DType))
		s.add(c)
	}
}

// Draw makes a problem from choices: pick(low, high) gives a number of that range, ends included.
// Small problems have few different head dimensions, each of which is another kernel to compile.
func Draw(pick func(low, high int) int, small bool) *Case {
	length, dims := 400, func() int { return pick(1, 256) }
	if small {
		few := []int{1, 8, 16, 20, 33, 64, 65, 80, 128}
		length, dims = 120, func() int { return few[pick(0, len(few)-1)] }
	}
	p := flash.Problem{
		Batch: pick(1, 3), KeyHeads: pick(1, 3), QueryLen: pick(1, length), KeyLen: pick(1, length),
		HeadDim: dims(), DType: dtypes[pick(0, 2)], Causal: causals[pick(0, 2)],
	}
	p.Heads = p.KeyHeads * pick(1, 4)
	if pick(0, 3) == 0 {
		p.ValueDim = dims()
	}
	if pick(0, 3) == 0 {
		p.Scale = float64(pick(1, 200)) / 100 * float64(2*pick(0, 1)-1)
	}
	layout := func() Layout { return Layout(pick(0, int(layoutEnd)-1)) }
	c := &Case{Problem: p, Layouts: all(Dense)}
	switch pick(0, 2) {
	case 0:
		c.Layouts = all(layout())
	case 1:
		c.Layouts = Layouts{layout(), layout(), layout(), layout()}
	}
	c.seed = uint64(pick(0, 1<<30))
	c.NoLSE = pick(0, 5) == 0
	spread := []float64{0.1, 1, 1, 4}[pick(0, 3)]
	if p.DType == flash.F32 && p.Scale != 0 {
		spread = min(spread, 1) // fp32 cannot add scores of hundreds up to the 1e-5 that lse must keep
	}
	if pick(0, 15) == 15 { // wide heads, and little else: theirs are the slowest kernels to compile and to run
		wide := func() int {
			if small {
				return []int{264, 320, 576}[pick(0, 2)]
			}
			return pick(1, flash.MaxHeadDim)
		}
		c.Problem.HeadDim, c.Problem.ValueDim = wide(), wide()
		c.Problem.QueryLen, c.Problem.KeyLen = min(p.QueryLen, 80), min(p.KeyLen, 80)
	}
	c.fill = scaled(spread, spread, 1)
	if r := rand.New(rand.NewPCG(9, c.seed)); c.Problem.KeyLen >= 16 && r.IntN(5) == 0 {
		own := func(n int) int { return []int{1, n}[r.IntN(2)] }
		c.Problem.Mask = flash.PerScore{DType: []flash.DType{flash.Bool, flash.Bit}[r.IntN(2)],
			Batch: own(p.Batch), Heads: own(p.Heads), Queries: own(c.Problem.QueryLen), Keys: c.Problem.KeyLen}
	}
	padded := pick(0, 9)
	c.Problem.KeyLengths, c.Problem.QueryLengths = padded == 0 || padded == 1, padded == 1 || padded == 2
	if r := rand.New(rand.NewPCG(10, c.seed)); r.IntN(6) == 0 {
		c.Pack(r, r.IntN(4) > 0)
	}
	if r := rand.New(rand.NewPCG(11, c.seed)); r.IntN(5) == 0 && c.Problem.Packed.Keys == 0 &&
		max(c.Problem.HeadDim, c.Problem.ValueDim) <= plainDim {
		c.drawStorage(r)
	}
	c.Problem.MaxLogit = rand.New(rand.NewPCG(12, c.seed)).IntN(4) == 0
	if r := rand.New(rand.NewPCG(13, c.seed)); r.IntN(8) == 0 && c.Problem.Packed == (flash.Packed{}) && c.Problem.Dropout == 0 &&
		c.Problem.Blocks == (flash.Blocks{}) {
		c.Problem.Lists = flash.Lists{Keys: 1 + r.IntN(2*c.Problem.KeyLen), PerHead: r.IntN(3) == 0}
		c.recent = r.IntN(2) == 0
	}
	if r := rand.New(rand.NewPCG(14, c.seed)); r.IntN(6) == 0 && c.takesBlocks() {
		size := func() int { return []int{1 + r.IntN(80), 8 << r.IntN(5)}[r.IntN(2)] }
		c.Problem.Blocks = flash.Blocks{Queries: size(), Keys: size(), PerHead: r.IntN(2) == 0, PerBatch: r.IntN(3) == 0}
		c.Share = []float64{0.1, 0.5, 0.9}[r.IntN(3)]
	}
	return c
}
