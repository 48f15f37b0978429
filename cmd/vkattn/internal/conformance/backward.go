package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// gradientWork bounds the multiply-adds of one head dimension's pass over a case whose gradients are compared: the oracle and
// plain attention compute all of them.
const gradientWork = 1 << 26

// derivatives are what a case's backward pass is given and what is right.
type derivatives struct {
	do      ref.Tensor
	dlse    []float32 // nil: none
	answers [3][]float64
	plain   [3][]float64

	others map[string][2][]float64 // of what goes with scores, by name: what is right, and plain attention's; empty without
}

var gradientNames = [3]string{"dq", "dk", "dv"}

// differentiated marks the cases whose backward pass is run too. On a CPU driver, where each head dimension and layout is three
// more kernels to compile, it is a part of them.
func differentiated(s *suite) {
	for _, c := range s.cases {
		p := c.Problem
		switch {
		case c.Tight, c.Only != nil && !strings.HasPrefix(c.Name, "grid/slabs"), strings.HasPrefix(c.Name, "threshold/"):
			// outputs far from 1, or a matter of forward alone
		case !s.small, strings.HasPrefix(c.Name, "golden/"), strings.HasPrefix(c.Name, "heads/"), strings.HasPrefix(c.Name, "grid/"),
			strings.HasPrefix(c.Name, "dropout/"), strings.HasPrefix(c.Name, "numeric/huge"), strings.HasPrefix(c.Name, "mixed/"),
			strings.HasPrefix(c.Name, "scores/"), strings.HasPrefix(c.Name, "window/"), strings.HasPrefix(c.Name, "blocks/"),
			strings.HasPrefix(c.Name, "lengths/"), strings.HasPrefix(c.Name, "packed/"), strings.HasPrefix(c.Name, "classes/"),
			strings.HasPrefix(c.Name, "wide/"), strings.HasPrefix(c.Name, "lists/"):
			c.Gradients = true
		case c.Core:
			c.Gradients = p.DType == flash.F16 || hash(c.Name)%2 == 0
		default:
			c.Gradients = max(p.HeadDim, p.ValueDim) <= 64 && hash(c.Name)%4 == 0 || hash(c.Name)%8 == 0
		}
	}
}

// dropouts sweeps probabilities, seeds beyond 32 bits, offsets, and lengths around the groups of columns that share a draw.
func dropouts(s *suite) {
	for i, d := range []struct {
		p      float64
		nq, nk int
		d      int
	}{{0.1, 70, 90, 8}, {0.5, 33, 130, 16}, {0.9, 64, 64, 32}, {1.0 / 256, 20, 200, 16}, {0.2, 17, 15, 40}, {0.1, 1, 65, 16},
		{0.25, 96, 50, 64}} {
		for j, dtype := range dtypes {
			if i > 0 && i%3 != j {
				continue
			}
			if d.d <= 32 {
				d.d = s.dim(d.d)
			}
			c := s.add(&Case{Name: name(dtype, "dropout/p%.3f-%dx%d-d%d", d.p, d.nq, d.nk, d.d), Core: i == 0,
				Problem: flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: d.nq, KeyLen: d.nk, HeadDim: d.d, DType: dtype,
					Causal: causals[i%3], Dropout: d.p}})
			c.Seed, c.Offset = 0x123456789abcdef0+uint64(i), uint32(i*j)*0x40000001
		}
	}
}

// hasGradients says whether the case's backward pass is run too.
func (c *Case) hasGradients() bool {
	p, err := c.Problem.Normalize()
	work := float64(p.Batch) * float64(p.Heads) * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	return err == nil && c.Gradients && !c.NoLSE && (work <= gradientWork || c.every)
}

// drawGradients draws what the backward pass is given.
func (c *Case) drawGradients(random *rand.Rand) *derivatives {
	d := &derivatives{}
	if c.vector != nil {
		d.do = c.vector.DO
		return d
	}
	q, v := c.inputs.Q, c.inputs.V
	d.do = ref.NewTensor(q.B, q.H, q.N, v.D)
	size := c.do
	if size == 0 {
		size = 1
	}
	for i := range d.do.Data {
		d.do.Data[i] = float32(size * random.NormFloat64())
	}
	refType(c.Problem.DType).RoundAll(d.do.Data)
	spoilBeyond(d.do, c.inputs.QueryLens)
	if random.IntN(2) == 0 {
		d.dlse = make([]float32, q.B*q.H*q.N)
		for i := range d.dlse {
			d.dlse[i] = float32(random.NormFloat64())
		}
	}
	return d
}

// differentiate computes the gradients, once the inputs are there.
func (c *Case) differentiate(random *rand.Rand) error {
	d, t := c.drawGradients(random), refType(c.Problem.DType)
	right, err := ref.Backward(c.inputs, d.do, d.dlse)
	if err != nil {
		return err
	}
	plain, err := ref.PlainBackward(c.inputs, t, d.do, d.dlse)
	if err != nil {
		return err
	}
	for i, x := range [3][]float64{plain.DQ.Data, plain.DK.Data, plain.DV.Data} {
		for j := range x {
			if math.IsNaN(x[j]) || math.IsInf(x[j], 0) {
				return fmt.Errorf("%s of plain attention is %v at element %d: it overflows, and cannot judge others",
					gradientNames[i], x[j], j)
			}
		}
	}
	d.others = map[string][2][]float64{}
	rights, plains := scoreGradients(right), scoreGradients(plain)
	for name := range rights {
		d.others[name] = [2][]float64{rights[name], plains[name]}
	}
	d.answers = [3][]float64{right.DQ.Data, right.DK.Data, right.DV.Data}
	d.plain = [3][]float64{plain.DQ.Data, plain.DK.Data, plain.DV.Data}
	if c.vector != nil { // what the file says is what is right
		for i, name := range gradientNames {
			if err := agree(name, c.vector, d.answers[i]); err != nil {
				return err
			}
			d.answers[i] = ref.Widen(c.vector.Answers[name])
		}
		for _, name := range scoreAnswers {
			if x := d.others[name]; x[0] != nil {
				d.others[name] = [2][]float64{ref.Widen(c.vector.Answers[name]), x[1]}
			}
		}
	}
	c.grads = d
	return nil
}

// backward runs the backward pass of a forward one that has run: overwriting, three times, then adding up.
func (c *Case) backward(ctx context.Context, dev *flash.Device, target Target, plan *flash.Plan, f *flash.Forward, scores *scoreTensors,
	r *Result) (err error) {
	info, err := plan.BackwardInfo()
	if err != nil {
		if unsupported(err) || target.formsGradients() && errors.Is(err, flash.ErrArgument) { // of a forced form no tile fits
			r.NoGradients = err.Error()
			return nil
		}
		return err
	}
	if err := target.formed(&info); err != nil {
		return err
	}
	why := strings.Join(info.WhyNotFaster, "; ")
	if strings.Contains(why, "self-check failed") { // another kernel, or another for one of the gradients, stepped in
		return errors.New(why)
	}
	r.Gradients, r.ForwardFailed = true, r.Failure != ""
	p, g := c.Problem, c.grads
	var more []*arena // of the gradients: do and dlse, which are given, then dq, dk and dv
	defer func() {
		for _, a := range more {
			a.close()
		}
	}()
	for i := range attn.BackwardOperands {
		o := &attn.BackwardOperands[i]
		if o.Of == "" || o.When != nil {
			continue
		}
		a, err := newArena(dev, c.place(o, true))
		if err != nil {
			return err
		}
		more = append(more, a)
	}
	if err := more[0].input(ctx, g.do.Data); err != nil {
		return err
	}
	b := flash.Backward{Forward: *f, DO: more[0].tensor, DQ: more[2].tensor, DK: more[3].tensor, DV: more[4].tensor}
	if g.dlse != nil {
		if err := more[1].input(ctx, g.dlse); err != nil {
			return err
		}
		b.DLSE = more[1].tensor
	}
	t := refType(p.DType)
	if c.prepared != nil {
		return c.prepareBackward(plan, b, scores, r)
	}
	var first [3][]byte
	times := runs
	if c.once {
		times = 1
	}
	for run := range times {
		if err := scores.poison(ctx, run); err != nil {
			return err
		}
		scores.want(&b)
		out, err := runBackward(ctx, plan, b, more[2:], run, nil)
		if err != nil {
			return err
		}
		if err := scores.read(ctx, c, run, r); err != nil {
			return err
		}
		if run == 0 {
			first = out
			var values [5][]float32
			for i := range out {
				values[i+2] = t.Decode(out[i])
				c.judge(gradientNames[i], values[i+2], g.answers[i], g.plain[i], t, r)
			}
			c.exactly(values, nil, r)
			continue
		}
		for i := range out {
			if !bytes.Equal(first[i], out[i]) {
				return fmt.Errorf("%s of run %d differs from the first in bits", gradientNames[i], run+1)
			}
		}
	}
	if !c.accumulates() {
		return nil
	}
	r.Accumulated = true
	// Added to what is there already: the same numbers, rounded once more.
	start := c.drawStart()
	b.Accumulate = true
	(&scoreTensors{}).want(&b)
	out, err := runBackward(ctx, plan, b, more[2:], times, &start)
	if err != nil {
		return err
	}
	var values [5][]float32
	for i := range out {
		values[i+2] = t.Decode(out[i])
		c.judgeSum(i, values[i+2], start[i], r)
	}
	c.exactly(values, &start, r)
	return nil
}

// exactly looks again at gradients that failed: in fp32, where plain attention is without any error, and of random problems. Plain
// attention keeps P; kernels make it again from lse, whose own rounding to fp32 moves every P of a row by |lse|·2⁻²⁴; where a gradient
// cancels to nothing, as dq does where a query sees one key, no relative error can be asked for; where it nearly does, plain attention's
// is luck.
func (c *Case) exactly(values [5][]float32, start *[3][]float32, r *Result) {
	if r.Failure != "" && !r.ForwardFailed && (c.Problem.DType == flash.F32 || c.Rounding || c.cancels()) {
		c.lookAgain(values, start, r)
	}
}

// accumulates says whether gradients are also added to what is there.
func (c *Case) accumulates() bool { return hash(c.Name)%3 == 0 }

// drawStart draws what gradients are added to, where they are.
func (c *Case) drawStart() (start [3][]float32) {
	random := rand.New(rand.NewPCG(c.seed, 77))
	for i := range start {
		start[i] = make([]float32, len(c.grads.answers[i]))
		for j := range start[i] {
			start[i][j] = float32(random.NormFloat64())
		}
		refType(c.Problem.DType).RoundAll(start[i])
		c.nowhere(i, start[i])
	}
	return start
}

// cancels says whether plain attention has some gradient exactly.
func (c *Case) cancels() bool {
	for i, answer := range c.grads.answers {
		if ref.MaxDistance(c.grads.plain[i], answer) == 0 {
			return true
		}
	}
	return false
}

// judgeSum compares gradient i added to what was there already: the same numbers, rounded once more.
func (c *Case) judgeSum(i int, got, start []float32, r *Result) {
	t, g := refType(c.Problem.DType), c.grads
	sum, plain := make([]float64, len(start)), make([]float64, len(start))
	for j, x := range start {
		sum[j] = g.answers[i][j] + float64(x)
		plain[j] = float64(t.Round(float32(g.plain[i][j]) + x))
	}
	c.judge("accumulated "+gradientNames[i], got, sum, plain, t, r)
}

// runBackward poisons the gradients (or fills them with start), runs, and reads them back.
func runBackward(ctx context.Context, plan *flash.Plan, b flash.Backward, grads []*arena, run int,
	start *[3][]float32) (out [3][]byte, err error) {
	for i, a := range grads {
		var values []float32
		if start != nil {
			values = start[i]
		}
		if err := a.begin(ctx, run, values); err != nil {
			return out, err
		}
	}
	if err := plan.Backward(ctx, b); err != nil {
		return out, err
	}
	for i, a := range grads {
		if out[i], err = a.output(ctx, gradientNames[i], run); err != nil {
			return out, err
		}
	}
	return out, nil
}

// judge compares one gradient.
func (c *Case) judge(name string, got []float32, right, plain []float64, t ref.DType, r *Result) {
	v := ref.CheckGradient(ref.Widen(got), right, plain, t)
	r.note(name, v)
	if v.Err/v.Bound > r.GradErr/max(r.GradBound, 1e-300) || r.GradBound == 0 {
		r.GradErr, r.GradBound = v.Err, v.Bound
	}
	if !v.OK {
		r.fail("%s: %v", name, v)
	}
}
