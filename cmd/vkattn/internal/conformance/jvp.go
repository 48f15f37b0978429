package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	kernels "github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/ref"
)

// tangents are what a case's pass in forward mode is given, and what is right: of o, then of lse.
type tangents struct {
	ref.Tangents
	moving         kernels.Moving
	answers, plain [2][]float64
}

var (
	tangentNames   = [2]string{"o's tangent", "lse's tangent"}
	tangentAnswers = [2]string{"o_tangent", "lse_tangent"} // as golden vectors call them
)

// hasTangents says whether a pass in forward mode is run too: where gradients are; of golden vectors where they have tangents.
func (c *Case) hasTangents() bool {
	return c.hasGradients() && (c.Problem.Lists == flash.Lists{}) && (c.vector == nil || c.vector.Tangents != (ref.Tangents{}))
}

// drawTangents draws how inputs move, one of them at least, or takes what a golden vector has. What is hidden by lengths is no number.
func (c *Case) drawTangents() *tangents {
	if c.vector != nil {
		return &tangents{Tangents: c.vector.Tangents}
	}
	random := rand.New(rand.NewPCG(c.seed, hash(c.Name+" jvp")))
	in, d := &c.inputs, &tangents{}
	can := kernels.Moving(kernels.Movings - 1)
	if in.Bias == nil {
		can &^= kernels.BiasMoves
	}
	if in.Sinks == nil {
		can &^= kernels.SinksMove
	}
	for d.moving == 0 {
		d.moving = can & (kernels.Moving(random.IntN(kernels.Movings)) | kernels.Moving(random.IntN(kernels.Movings))) // most of them
	}
	like := func(of kernels.Moving, x *ref.Tensor, lens []int, t flash.DType) *ref.Tensor {
		if d.moving&of == 0 {
			return nil
		}
		out := ref.NewTensor(x.B, x.H, x.N, x.D)
		for i := range out.Data {
			out.Data[i] = float32(random.NormFloat64())
		}
		refType(t).RoundAll(out.Data)
		spoilBeyond(out, lens)
		return &out
	}
	t := c.Problem.DType
	d.Q, d.K = like(kernels.QMoves, &in.Q, in.QueryLens, t), like(kernels.KMoves, &in.K, in.KeyLens, t)
	d.V, d.Bias = like(kernels.VMoves, &in.V, in.KeyLens, t), like(kernels.BiasMoves, in.Bias, nil, c.Problem.Bias.DType)
	if d.moving&kernels.SinksMove != 0 {
		sinks := ref.NewTensor(1, 1, 1, len(in.Sinks))
		d.Sinks = like(kernels.SinksMove, &sinks, nil, flash.F32)
	}
	return d
}

// moveInputs computes the tangents of outputs, once the inputs are there.
func (c *Case) moveInputs() error {
	d := c.drawTangents()
	o, lse, err := ref.JVP(c.inputs, d.Tangents)
	if err != nil {
		return err
	}
	plainO, plainLSE, err := ref.PlainJVP(c.inputs, refType(c.Problem.DType), d.Tangents)
	if err != nil {
		return err
	}
	d.answers, d.plain = [2][]float64{o.Data, lse.Data}, [2][]float64{plainO.Data, plainLSE.Data}
	if c.vector != nil { // what the file says is what is right
		for i, name := range tangentAnswers {
			if err := agree(name, c.vector, d.answers[i]); err != nil {
				return err
			}
			d.answers[i] = ref.Widen(c.vector.Answers[name])
		}
	}
	c.moved = d
	return nil
}

// jvp runs the pass in forward mode of a forward one that has run, several times.
func (c *Case) jvp(ctx context.Context, dev *flash.Device, plan *flash.Plan, f *flash.Forward, r *Result) error {
	info, err := plan.JVPInfo()
	if err != nil {
		if unsupported(err) {
			r.NoTangents = err.Error()
			return nil
		}
		return err
	}
	if why := strings.Join(info.WhyNotFaster, "; "); strings.Contains(why, "self-check failed") {
		return errors.New(why)
	}
	r.ForwardFailed = r.Failure != ""
	r.Tangents = info.KernelName
	d, j := c.moved, flash.JVP{Forward: *f}
	j.Weights = nil
	var all []*arena
	defer func() {
		for _, a := range all {
			a.close()
		}
	}()
	given := func(name string, values *ref.Tensor) (*arena, error) {
		var a *arena
		for i := range attn.JVPOperands {
			if o := &attn.JVPOperands[i]; o.Name == name {
				if a, err = newArena(dev, c.place(o, true)); err != nil {
					return nil, err
				}
			}
		}
		all = append(all, a)
		if values == nil {
			return a, nil
		}
		return a, a.input(ctx, values.Data)
	}
	for _, x := range []struct {
		name string
		of   *ref.Tensor
		to   **flash.Tensor
	}{{"QTangent", d.Q, &j.QTangent}, {"KTangent", d.K, &j.KTangent}, {"VTangent", d.V, &j.VTangent}} {
		if x.of == nil {
			continue
		}
		a, err := given(x.name, x.of)
		if err != nil {
			return err
		}
		*x.to = a.tensor
	}
	if d.Bias != nil {
		s := c.Problem.Bias
		a, err := newArena(dev, place(c.Layouts.O, s.DType, [4]int{s.Batch, s.Heads, s.Queries, s.Keys}))
		if err != nil {
			return err
		}
		all = append(all, a)
		if err := a.input(ctx, d.Bias.Data); err != nil {
			return err
		}
		j.BiasTangent = a.tensor
	}
	if d.Sinks != nil {
		a, err := newArena(dev, place(Dense, flash.F32, [4]int{1, 1, 1, c.Problem.Heads}))
		if err != nil {
			return err
		}
		all = append(all, a)
		if err := a.input(ctx, d.Sinks.Data); err != nil {
			return err
		}
		j.SinksTangent = a.tensor
	}
	o, err := given("OTangent", nil)
	if err != nil {
		return err
	}
	lse, err := given("LSETangent", nil)
	if err != nil {
		return err
	}
	j.OTangent, j.LSETangent = o.tensor, lse.tensor
	if c.prepared != nil {
		return c.prepareWith(plan, func(rec *flash.Recording) error { return rec.JVP(j) }, flash.ForJVP())
	}
	var first [2][]byte
	times := runs
	if c.once {
		times = 1
	}
	for run := range times {
		outputs := [2]*arena{o, lse}
		for _, a := range outputs {
			if err := a.poison(ctx, run); err != nil {
				return err
			}
		}
		if err := plan.JVP(ctx, j); err != nil {
			return err
		}
		for i, a := range outputs {
			out, err := a.output(ctx, tangentNames[i], run)
			if err != nil {
				return err
			}
			if run > 0 {
				if !bytes.Equal(first[i], out) {
					return fmt.Errorf("%s of run %d differs from the first in bits", tangentNames[i], run+1)
				}
				continue
			}
			first[i] = out
			if err := c.judgeTangent(i, refType(a.dtype).Decode(out), r); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeTangent compares one of the tangents. What exceeds the measure of plain attention is looked at again as gradients are (exactly): it
// may be what roundings make of it, and no more. Plain attention keeps P, where kernels make it again of an lse in fp32, and takes lse's
// tangent off before it rounds: of a row that has its weight on one key it makes v's tangent without any error, where kernels, which round
// P ∘ ṡ, take off lsė·o what they added.
func (c *Case) judgeTangent(i int, got []float32, r *Result) error {
	d, t, failed := c.moved, refType(c.Problem.DType), r.Failure
	c.judge(tangentNames[i], got, d.answers[i], d.plain[i], t, r)
	if r.Failure == failed || failed != "" {
		return nil
	}
	o, lse, err := ref.JVPRounding(c.inputs, t, d.Tangents)
	if err != nil {
		return err
	}
	if at := ref.Exceeds(ref.Widen(got), d.answers[i], [2]ref.Array{o, lse}[i].Data, [2]ref.DType{t, ref.F32}[i]); at >= 0 {
		r.Failure += fmt.Sprintf("; and beyond what rounding explains, at element %d", at)
		return nil
	}
	r.ByRounding, r.Failure = r.Failure, ""
	return nil
}
