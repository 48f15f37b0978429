package conformance

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// Case is a problem with its inputs and what is right.
type Case struct {
	Name    string
	Problem flash.Problem
	Layouts Layouts
	Core    bool // run where time is short: Options.Quick, matrix tiers on a CPU
	Tight   bool // all outputs are tiny: the bounds' absolute slack shrinks with them
	NoLSE   bool // lse is not asked for
	// Gradients runs the backward pass too, on what forward left.
	Gradients bool
	// Rounding looks again at gradients that exceed plain attention's measure, by the bounds of rounding (ref.RoundingBounds): for problems
	// drawn at random, some of whose rows are badly conditioned. Of functions, biases and sinks of scores these bounds know nothing.
	Rounding bool
	Seed     uint64         // of dropout
	Offset   uint32         // the same
	Share    float64        // of the block mask's blocks that are attended to, where Problem.Blocks is set
	Sample   int            // number of rows, chosen at random, that are compared; 0 means all
	Tuning   map[string]int // forced besides the target's
	Backward map[string]int // the same of the backward kernels alone
	// Only restricts the case, its Tuning above all, to these implementations; nil means all.
	Only []flash.Implementation

	fill     func(r *rand.Rand, q, k, v ref.Tensor) // default: normal random numbers
	bits     func(mask, row, column int) bool       // the block mask, in place of Share
	do       float64                                // standard deviation of the gradient of o; 0 means 1
	seed     uint64
	vector   *ref.Vector                 // inputs from a golden file, and o and lse
	load     func() (*ref.Vector, error) // reads it
	lacks    []string                    // what it asks for and the library does not have: no target can run it
	partly   []string                    // the same of a part of it: the other outputs are compared
	every    bool                        // all that its file holds is to be compared, however long it takes
	operator *operator                   // of a case of an operator's suite
	once     bool                        // too slow to be run three times
	ready    sync.Once
	inputs   ref.Problem
	rows     []ref.Row // compared
	o, lse   []float64 // of these rows
	plainO   []float64
	plainL   []float64
	// plainO or what other ways to round its scores make of it, whichever is worst; for targets that round scores
	ties    []float64
	lengths func(r *rand.Rand, most int) int // of keys and queries, where the problem has them; default: drawLength
	packed  packed                           // where rows of packed sequences lie
	grads   *derivatives
	moved   *tangents // of a pass in forward mode; nil: there is none
	// the largest score of each head, and plain attention's, where the problem has them: of all rows, whatever is compared of others
	maxLogit, plainMax []float64
	cache              cache // where keys and values lie in one
	recent             bool  // lists begin with the keys nearest to a query's position and go back
	lost               bool  // with pages: some are none of the pool's
	// after, where a test sets it, is what else is looked at between the forward pass and gradients.
	after func(ctx context.Context, dev *flash.Device, plan *flash.Plan, f *flash.Forward) error
	// prepared, where a test sets it, is given a recording of each pass, with its commands, in place of a run: nothing runs or is compared.
	prepared func(*flash.Recording) error
	prepErr  error
}

// prepare computes inputs and answers, once.
func (c *Case) prepare() error {
	c.ready.Do(func() { c.prepErr = c.compute() })
	return c.prepErr
}

// release drops what prepare computed.
func (c *Case) release() {
	c.inputs, c.rows, c.vector, c.cache = ref.Problem{}, nil, nil, cache{}
	c.o, c.lse, c.plainO, c.plainL, c.ties, c.grads, c.moved = nil, nil, nil, nil, nil, nil, nil
	c.maxLogit, c.plainMax = nil, nil
}

func (c *Case) compute() error {
	p, err := c.Problem.Normalize()
	if err != nil {
		return err
	}
	t := refType(p.DType)
	random := rand.New(rand.NewPCG(c.seed, hash(c.Name)))
	if c.load != nil {
		if c.vector, err = c.load(); err != nil {
			return err
		}
		c.inputs = c.vector.Problem
	} else if c.operator != nil {
		c.inputs = c.operator.attention.Problem
	} else {
		c.inputs = ref.Problem{
			Options: optionsOf(&p),
			Q:       tensor(c.batch().QShape()), K: ref.NewTensor(p.Batch, p.KeyHeads, p.KeyLen, p.HeadDim),
			V: ref.NewTensor(p.Batch, p.KeyHeads, p.KeyLen, p.ValueDim),
		}
		if p.Dropout > 0 {
			c.inputs.Dropout = &ref.Dropout{P: p.Dropout, Seed: c.Seed, Offset: c.Offset}
		}
		c.drawScores(p, random)
		if p.Blocks != (flash.Blocks{}) {
			c.inputs.Blocks = c.drawBlocks(p, random)
		}
		fill := c.fill
		if fill == nil {
			fill = normal
		}
		fill(random, c.inputs.Q, c.inputs.K, c.inputs.V)
		c.drawLists(p, random)
		c.drawLengths(p, random)
		for _, x := range []ref.Tensor{c.inputs.Q, c.inputs.K, c.inputs.V} {
			t.RoundAll(x.Data)
		}
		if err := c.drawCache(p, random); err != nil {
			return err
		}
	}
	c.rows = ref.AllRows(c.inputs.Q)
	if c.Sample > 0 && c.Sample < len(c.rows) {
		all := c.rows
		c.rows = []ref.Row{all[0], all[len(all)-1]}
		for range c.Sample - 2 {
			c.rows = append(c.rows, all[random.IntN(len(all))])
		}
	}
	if c.prepared != nil {
		if c.hasGradients() {
			c.grads = c.drawGradients(random)
		}
		if c.hasTangents() {
			c.moved = c.drawTangents()
		}
		return nil
	}
	if c.o, c.lse, err = flatten(ref.ForwardRows(c.inputs, c.rows)); err != nil {
		return err
	}
	if c.plainO, c.plainL, err = flatten(ref.PlainForwardRows(c.inputs, t, c.rows)); err != nil {
		return err
	}
	if err := c.findMaxLogits(t); err != nil {
		return err
	}
	c.ties = c.plainO
	if t != ref.F32 && (c.Only == nil || slices.Contains(c.Only, flash.Standard)) {
		const sums = 1.0 / (1 << 18) // fp32 sums of up to 576 terms differ by less
		once := c.inputs.RoundedOnce()
		for _, p := range []ref.Problem{once, c.inputs.Nudged(-sums), c.inputs.Nudged(sums), once.Nudged(-sums), once.Nudged(sums)} {
			o, _, err := flatten(ref.PlainForwardRows(p, t, c.rows))
			if err != nil {
				return err
			}
			if ref.MaxDistance(o, c.o) > ref.MaxDistance(c.ties, c.o) {
				c.ties = o
			}
		}
	}
	if c.vector != nil { // what the file says is what is right
		if err := errors.Join(agree("o", c.vector, c.o), agree("lse", c.vector, c.lse)); err != nil {
			return err
		}
		c.o, c.lse = ref.Widen(c.vector.Answers["o"]), ref.Widen(c.vector.Answers["lse"])
	}
	if c.hasTangents() {
		if err := c.moveInputs(); err != nil {
			return err
		}
	}
	if c.hasGradients() {
		return c.differentiate(random)
	}
	return nil
}

// pick takes the compared rows of d elements out of a whole output.
func (c *Case) pick(values []float32, d int) []float64 {
	q := c.inputs.Q
	out := make([]float64, 0, len(c.rows)*d)
	for _, r := range c.rows {
		at := ((r.B*q.H+r.H)*q.N + r.I) * d
		out = append(out, ref.Widen(values[at:at+d])...)
	}
	return out
}

func flatten(o [][]float64, lse []float64, err error) ([]float64, []float64, error) {
	if err != nil {
		return nil, nil, err
	}
	flat := make([]float64, 0, len(o)*len(o[0]))
	for _, row := range o {
		flat = append(flat, row...)
	}
	return flat, lse, nil
}

func tensor(shape [4]int) ref.Tensor { return ref.NewTensor(shape[0], shape[1], shape[2], shape[3]) }

// normal fills with normally distributed numbers.
func normal(r *rand.Rand, q, k, v ref.Tensor) { scaled(1, 1, 1)(r, q, k, v) }

// scaled is normal with standard deviations for q, k and v.
func scaled(sq, sk, sv float64) func(*rand.Rand, ref.Tensor, ref.Tensor, ref.Tensor) {
	return func(r *rand.Rand, q, k, v ref.Tensor) {
		for i, t := range []ref.Tensor{q, k, v} {
			s := [3]float64{sq, sk, sv}[i]
			for i := range t.Data {
				t.Data[i] = float32(s * r.NormFloat64())
			}
		}
	}
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// check judges the outputs of a run: o and lse as decoded, every element of them.
func (c *Case) check(target Target, o, lse []float32, r *Result) {
	dv := c.inputs.V.D
	t := refType(c.Problem.DType)
	got := c.pick(o, dv)
	judge := ref.CheckOutput
	if c.Tight {
		judge = ref.CheckTight
	}
	plainO := c.plainO
	if target.Implementation == flash.Standard {
		plainO = c.ties
	}
	verdict := judge(got, c.o, plainO, t)
	if target.Implementation != flash.Standard && t != ref.F32 {
		if v := ref.CheckWithin(got, c.o, t, c.mostOff()); !v.OK || v.Err*verdict.Bound > verdict.Err*v.Bound {
			verdict = v
		}
	}
	r.note("o", verdict)
	r.MaxErr, r.Bound = verdict.Err, verdict.Bound
	if !verdict.OK {
		r.fail("o: %v%s", verdict, c.where(verdict.At, dv))
	}
	if c.held(target) {
		c.operator.judge(r, got, c.Problem.OShape())
	}
	for n := range c.rows {
		if !math.IsInf(c.lse[n], -1) {
			continue
		}
		for _, x := range got[n*dv : (n+1)*dv] {
			if x != 0 {
				r.fail("o: %v in row %+v, which has nothing to attend to: want 0", x, c.rows[n])
				break
			}
		}
	}
	// Elements that are not compared must at least be numbers.
	for i, x := range o {
		if x != x {
			r.fail("o: NaN at element %d", i)
			break
		}
	}
	if lse == nil {
		return
	}
	plain := c.plainL
	if target.Implementation != flash.Standard && t != ref.F32 {
		plain = nil // its scores are never rounded to 16 bits; in fp32 sums that cancel are as inexact as plain's
	}
	v := ref.CheckLSE(c.pick(lse, 1), c.lse, plain, t)
	r.note("lse", v)
	r.LSEErr, r.LSEBound = v.Err, v.Bound
	if !v.OK {
		r.fail("lse: %v%s", v, c.where(v.At, 1))
	}
}

// mostOff is what o may be off by at most where scores are not rounded to 16 bits. Plain attention's are: large ones leave it so far off
// that zeros would pass by its measure. Elsewhere P, v and o are rounded, to 2⁻⁹ of themselves at worst, and o is a mean of v, with dropout
// of what is left of it.
func (c *Case) mostOff() float64 {
	most := 0.0
	for _, x := range c.inputs.V.Data {
		if a := math.Abs(float64(x)); a > most && !math.IsInf(a, 0) { // not what lengths hide, which is no number
			most = a
		}
	}
	if d := c.inputs.Dropout; d != nil {
		most /= 1 - d.P
	}
	return most / 32
}

// where names the row of a compared element.
func (c *Case) where(at, d int) string {
	if at < 0 || at/d >= len(c.rows) {
		return ""
	}
	row := c.rows[at/d]
	return fmt.Sprintf(" (batch %d, head %d, row %d, dimension %d)", row.B, row.H, row.I, at%d)
}
