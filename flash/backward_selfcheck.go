package flash

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/pipeline"
)

// trial is a small problem for the kernels of a backward pass: some blocks of rows and columns, the last ones ragged, the
// diagonal across them when causal.
func (s *matrixBackwardProgram) trial() Problem {
	small := s.problem
	small.Dropout = 0 // what is compiled with dropout keeps every weight then: the scalar kernels need none
	small.Scale = 1 / math.Sqrt(float64(small.HeadDim))
	if small.Causal != CausalNone {
		small.Causal = CausalBottomRight
	}
	small.Batch, small.KeyHeads, small.Heads = 1, 1, 2
	kv, q := &s.kv.tile, &s.q.tile
	small.QueryLen = max(q.rows(), kv.BC) + q.fragment.M/2 + 1
	small.KeyLen = max(kv.rows(), q.BC) + q.fragment.M/2 + 3
	if small.Causal == CausalNone && !q.masks(&s.problem) {
		small.KeyLen = ceilDiv(small.KeyLen, q.BC) * q.BC
	}
	return small
}

// backwardTrial runs the kernels of a variant and the scalar tier's on the same random inputs, and says where they differ by
// more than rounding can explain; "" for nowhere.
func (d *Device) backwardTrial(s *matrixBackwardProgram, aligned, accumulate bool) (wrong string, err error) {
	p := s.trial()
	mine := &matrixBackwardProgram{dev: d, problem: p, layout: s.layout}
	for _, part := range [][2]*matrixBackwardPart{{&mine.kv, &s.kv}, {&mine.q, &s.q}} {
		part[0].keys, part[0].module, part[0].tile = part[1].keys, part[1].module, part[1].tile
		if part[0].grid, err = newGrid(part[1].tile.groups(&p), 0); err != nil {
			return "", err
		}
		// The very pipelines that are in question, not others of the small problem.
		for piece := range part[1].tile.pieces() {
			k, err := s.kernel(part[1], piece, aligned, accumulate)
			if err != nil {
				return "", err
			}
			part[0].kernels[piece][boolInt(aligned)+2*boolInt(accumulate)].Store(k)
		}
	}
	if mine.delta, err = newDeltaProgram(d, &p, newTuning(nil)); err != nil {
		return "", err
	}
	fwd, err := scalarForward{}.plan(d, &p, newTuning(nil))
	if err != nil {
		return "", err
	}
	scalar, err := scalarBackward{}.plan(d, &p, nil, newTuning(nil))
	if err != nil {
		return "", err
	}
	return d.compareBackward(&p, gradientVariant{aligned: aligned, accumulate: accumulate}, fwd, scalar, mine.run)
}

// compareBackward runs a backward program and another one's dispatches, tried, on the same random inputs and what a forward program
// made of them, and says where gradients differ by more than rounding can explain; "" for nowhere. Both have the same workspace.
func (d *Device) compareBackward(p *Problem, v gradientVariant, fwd program, scalar backwardProgram, tried func(*recorder, *gradients) error) (wrong string, err error) {
	t := &trialTensors{dev: d}
	defer t.close()
	rng := rand.New(rand.NewPCG(2, uint64(p.HeadDim)))
	g := gradients{accumulate: v.accumulate, hasDLSE: v.dlse, drop: draw{seed: 0x1234567890, offset: 3}}
	for _, x := range []struct {
		to    *operand
		shape [4]int
	}{{&g.q, p.QShape()}, {&g.k, p.KShape()}, {&g.v, p.VShape()}, {&g.do, p.OShape()}} {
		values := make([]float32, product(x.shape))
		for j := range values {
			values[j] = float32(rng.NormFloat64())
		}
		if *x.to, err = t.add(p.DType, x.shape, v.aligned, values); err != nil {
			return "", err
		}
	}
	if g.o, err = t.add(p.DType, p.OShape(), v.aligned, nil); err != nil {
		return "", err
	}
	if g.lse, err = t.add(F32, p.LSEShape(), true, nil); err != nil {
		return "", err
	}
	if v.dlse {
		values := make([]float32, product(p.LSEShape()))
		for j := range values {
			values[j] = float32(rng.NormFloat64())
		}
		if g.dlse, err = t.add(F32, p.LSEShape(), true, values); err != nil {
			return "", err
		}
	}
	if k, ok := fwd.(keeper); ok {
		if g.weights, err = t.allocAll(k.kept()); err != nil {
			return "", err
		}
	}
	r := &recorder{count: d.counting}
	if r.scratch, err = t.allocAll(scalar.scratch()); err != nil {
		return "", err
	}
	const dispatches = 64 // more than a small problem has
	f := operands{q: g.q, k: g.k, v: g.v, o: g.o, lse: g.lse, hasLSE: true, drop: g.drop, weights: g.weights}
	if err := d.once(func(rec *pipeline.Recording) error { r.rec = rec; return fwd.record(r, &f) }, dispatches); err != nil {
		return "", err
	}
	var got [2][3][]float32
	for i, record := range []func(*recorder, *gradients) error{scalar.record, tried} {
		outputs := [3]*operand{&g.dq, &g.dk, &g.dv}
		shapes := [3][4]int{p.QShape(), p.KShape(), p.VShape()}
		for n, to := range outputs {
			var start []float32
			if v.accumulate {
				start = make([]float32, product(shapes[n]))
				for j := range start {
					start[j] = float32(j%7) - 3
				}
			}
			if *to, err = t.add(p.DType, shapes[n], v.aligned, start); err != nil {
				return "", err
			}
		}
		if err := d.once(func(rec *pipeline.Recording) error { r.rec = rec; return record(r, &g) }, dispatches); err != nil {
			return "", err
		}
		for n, from := range outputs {
			if got[i][n], err = t.download(p.DType, shapes[n], from); err != nil {
				return "", err
			}
		}
	}
	tolerance := map[DType]float64{F16: 1e-2, BF16: 8e-2}[p.DType]
	for n, name := range [3]string{"dq", "dk", "dv"} {
		for i, want := range got[0][n] {
			have := float64(got[1][n][i])
			if !(math.Abs(have-float64(want)) <= tolerance*math.Max(1, math.Abs(float64(want)))) { // not >: NaN is wrong
				return fmt.Sprintf("%s[%d] is %.6g and the scalar tier's %.6g (%v)", name, i, have, want, p), nil
			}
		}
	}
	return "", nil
}
