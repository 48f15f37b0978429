package kernel

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// What a self-check can judge. A weight is exp(s − lse), of two fp32 numbers: where these are of the order of 10⁹, as a function makes them
// that writes −10⁹ where others write −∞, a rounding of either is off by more than all weights of a row differ by, and whatever a kernel
// makes of the row says nothing of the kernel. Such rows are left out: what they give is not compared, and gradients get nothing of them.
// Of all others the tolerance grows with the roundings of their scores. Only a wrong result denies a kernel: one of which nothing can be
// judged passes.
const (
	roundingOfScores = 1.0 / (1 << 22) // of a score or lse, relative: a few of fp32's
	mostOfWeight     = 1.0 / (1 << 5)  // by which a weight of a row that is judged may be off, relative
	timesOfRows      = 8               // how much more than that its gradients may be
)

// judged is how far the weights of a self-check's rows may be off by roundings, relative; NaN for a row that is left out.
type judged []float64

// judgedForward is the oracle's o and lse of a self-check's inputs, and how far they may be judged.
func judgedForward(p *attn.Problem, in *ref.Problem) (o, lse ref.Array, rows judged, err error) {
	if o, lse, err = ref.Forward(*in); err == nil {
		rows, err = judge(p, in)
	}
	return o, lse, rows, err
}

// judge finds that, nil where no functions make scores: those of normally distributed numbers are of order 1.
func judge(p *attn.Problem, in *ref.Problem) (judged, error) {
	if !HasFunctions(p) {
		return nil, nil
	}
	large, err := ref.Magnitudes(*in)
	if err != nil {
		return nil, err
	}
	for i, x := range large.Data {
		if large.Data[i] = x * roundingOfScores; large.Data[i] > mostOfWeight {
			large.Data[i] = math.NaN()
		}
	}
	return large.Data, nil
}

// left is the share of rows that are not left out.
func (j judged) left() float64 {
	n := 0
	for _, x := range j {
		n += BoolInt(x == x)
	}
	return float64(n) / float64(max(1, len(j)))
}

// leftOf is that share of a self-check's inputs; 0 where they cannot be judged at all.
func leftOf(of *attn.Problem, in *ref.Problem) float64 {
	rows, err := judge(of, in)
	if err != nil {
		return 0
	}
	return rows.left()
}

// leaveOut makes what rows that are left out should give no numbers, which tell nothing; a row has d elements.
func (j judged) leaveOut(should []float64, d int) {
	for i, x := range j {
		if x != x {
			for at := range should[i*d : (i+1)*d] {
				should[i*d+at] = x
			}
		}
	}
}

// leaveOutOfMap is leaveOut of a map of all heads: of rows, and of the cells that hold one.
func (j judged) leaveOutOfMap(m *ref.MapResult, p *attn.Problem, of *ref.Map) {
	first, n := of.Queries[0], of.Queries[1]-of.Queries[0]
	for i, x := range j {
		row := i%p.QueryLen - first
		if x == x || row < 0 || row >= n {
			continue
		}
		b, h := i/p.QueryLen/p.Heads, i/p.QueryLen%p.Heads
		m.Entropy.Row(b, h, row)[0], m.Distance.Row(b, h, row)[0] = x, x
		cells := m.Cells.Row(b, h, ((row+1)*of.Rows-1)/n)
		for c := range cells {
			cells[c] = x
		}
	}
}

// put makes what rows that are left out take a number: 0 of gradients that come in, and +∞ of lse, with which no key has weight.
func (j judged) put(values []float32, d int, number float32) {
	for i, x := range j {
		for at := i * d; x != x && at < (i+1)*d && values != nil; at++ {
			values[at] = number
		}
	}
}

// roundings adds what roundings of scores may make of gradients, by name: gradients are linear in those that come in, so those of each row
// times how far its weights may be off are how far they may be.
func (j judged) roundings(in *ref.Problem, do ref.Tensor, dlse []float32, off map[string]float64) error {
	if j == nil {
		return nil
	}
	times := func(x []float32, d int) []float32 {
		if x == nil {
			return nil
		}
		out := make([]float32, len(x))
		for i, by := range j {
			for at := i * d; at < (i+1)*d && by == by; at++ {
				out[at] = x[at] * float32(by)
			}
		}
		return out
	}
	part := ref.Tensor{B: do.B, H: do.H, N: do.N, D: do.D, Data: times(do.Data, do.D)}
	g, err := ref.Backward(*in, part, times(dlse, 1))
	if err != nil {
		return err
	}
	add := func(name string, values []float64) {
		off[name] += timesOfRows * furthest(make([]float64, len(values)), values)
	}
	for name, x := range gradientsByName(g) {
		add(name, x.Data)
	}
	for name, x := range g.DCaptured {
		add(name, x)
	}
	return nil
}
