package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Fill writes the inputs of a case.
type Fill func(r *rand.Rand, q, k, v ref.Tensor)

// Normal fills with normally distributed numbers of these standard deviations.
func Normal(q, k, v float64) Fill { return scaled(q, k, v) }

// FarFromZero makes every score about 724 (sign 1) or −724 (sign −1) before the scale is applied, with head dimension 32.
func FarFromZero(sign float32) Fill { return opposed(sign) }

// Inputs has the case's inputs drawn from a seed, by fill, and the gradient of o with a standard deviation of do (0: 1).
func (c *Case) Inputs(seed uint64, fill Fill, do float64) {
	c.seed, c.fill, c.do = seed, fill, do
}

// DTypes are the storage types that the device offers the target in.
func (t Target) DTypes() []flash.DType { return t.info.DTypes }

// HasBackward says whether its tier has a backward pass for them.
func (t Target) HasBackward() bool { return t.info.Backward != "" }

// Parts says whether the kernels of a target can take keys in parts.
func (t Target) Parts() bool { return t.Family() == flash.Flash.String() }

// Rig is what cases of one problem are run with one after the other by one goroutine: a target's plan with what its passes keep, and a
// slab.
type Rig struct {
	Slab *Slab
	Plan *flash.Plan

	target  Target
	weights *flash.Weights
}

// NewRig plans a problem for a target, and no other: more is the tuning of the forward kernel besides the target's, backward that of the
// backward kernels. The slab stays the caller's. A problem that the target declines is [flash.ErrUnsupported].
func NewRig(dev *flash.Device, t Target, p flash.Problem, more, backward map[string]int, s *Slab) (*Rig, error) {
	plan, err := dev.Plan(p, t.options(more, backward)...)
	if err != nil {
		return nil, err
	}
	if tier := plan.ForwardInfo().Tier; plan.Implementation() != t.Implementation || tier != t.Tier {
		return nil, errors.Join(fmt.Errorf("asked for %v, the plan is %v/%s", t, plan.Implementation(), tier), plan.Close())
	}
	r := &Rig{Slab: s, Plan: plan, target: t}
	if r.weights, err = plan.NewWeights(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close frees what NewRig made.
func (g *Rig) Close() error { return errors.Join(g.weights.Close(), g.Plan.Close()) }

// How says what a rig does with a case.
type How struct {
	Accumulate bool // gradients are added to what is there
	Times      int  // runs, that must give the same bits; 0 is one
}

// Run runs a case of the rig's problem: both passes are submitted one behind the other, and all outputs checked as Case.Run does.
func (g *Rig) Run(ctx context.Context, c *Case, how How) (r Result) {
	start := time.Now()
	r = Result{
		Case: c.Name, Implementation: g.target.Implementation, Tier: g.target.Tier, Target: g.target.String(),
		DType: c.Problem.DType, Problem: c.Problem, Kernel: g.Plan.ForwardInfo().Kernel,
	}
	defer func() {
		r.Duration = time.Since(start)
		r.Pass = r.Failure == ""
	}()
	if err := c.prepare(); err != nil {
		r.fail("the case itself: %v", err)
		return r
	}
	if err := g.run(ctx, c, how, &r); err != nil {
		r.fail("%v", err)
	}
	return r
}

// laid is a case in a slab.
type laid struct {
	q, k, v, do, dlse  *part
	o, lse, dq, dk, dv *part // without gradients, the last three are nil
}

func (c *Case) lay(s *Slab) (*laid, error) {
	var inputs, outputs []placement
	lay := func(table []attn.Operand) {
		for i := range table {
			if o := &table[i]; o.When != nil {
				continue // plans here have none
			} else if o.Output {
				outputs = append(outputs, c.place(o, c.Layouts.O != Dense))
			} else {
				inputs = append(inputs, c.place(o, c.Layouts.O != Dense))
			}
		}
	}
	lay(attn.ForwardOperands[:])
	if c.grads != nil {
		gradients := slices.DeleteFunc(slices.Clone(attn.BackwardOperands[:]), func(o attn.Operand) bool { return o.Of == "" })
		lay(gradients)
	}
	parts, err := s.lay(inputs, outputs)
	if err != nil {
		return nil, err
	}
	at := &laid{q: &parts[0], k: &parts[1], v: &parts[2], o: &parts[len(inputs)], lse: &parts[len(inputs)+1]}
	if c.grads != nil {
		at.do, at.dlse = &parts[3], &parts[4]
		at.dq, at.dk, at.dv = &parts[7], &parts[8], &parts[9]
	}
	return at, nil
}

func (g *Rig) run(ctx context.Context, c *Case, how How, r *Result) (err error) {
	s := g.Slab
	at, err := c.lay(s)
	if err != nil {
		return err
	}
	f := flash.Forward{Q: at.q.tensor, K: at.k.tensor, V: at.v.tensor, O: at.o.tensor, LSE: at.lse.tensor, Seed: c.Seed, Offset: c.Offset}
	if c.NoLSE {
		f.LSE = nil
	}
	free, err := bind(ctx, g.Plan.Device(), c.Problem, &c.inputs, &f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()
	if c.Problem.MaskBlocks != (flash.Blocks{}) { // of functions that capture nothing
		if f.MaskBlocks, err = g.Plan.Device().NewMaskBlocks(ctx, c.Problem); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.MaskBlocks.Close()) }()
	}
	at.q.fill(s.bytes(at.q), c.inputs.Q.Data)
	at.k.fill(s.bytes(at.k), c.inputs.K.Data)
	at.v.fill(s.bytes(at.v), c.inputs.V.Data)
	var b *flash.Backward
	var start *[3][]float32
	if c.grads != nil {
		f.Weights = g.weights
		b = &flash.Backward{Forward: f, DO: at.do.tensor, DQ: at.dq.tensor, DK: at.dk.tensor, DV: at.dv.tensor, Accumulate: how.Accumulate}
		b.LSE = at.lse.tensor
		at.do.fill(s.bytes(at.do), c.grads.do.Data)
		at.dlse.poison(s.bytes(at.dlse), 0)
		if c.grads.dlse != nil {
			at.dlse.fill(s.bytes(at.dlse), c.grads.dlse)
			b.DLSE = at.dlse.tensor
		}
		if how.Accumulate {
			drawn := c.drawStart()
			start = &drawn
		}
	}
	var first [5][]byte
	for run := range max(1, how.Times) {
		outputs, err := g.once(ctx, at, f, b, start, run)
		if err != nil {
			return err
		}
		if run == 0 {
			first = outputs
			g.judge(c, outputs, start, r)
			continue
		}
		for i := range outputs {
			if !bytes.Equal(first[i], outputs[i]) {
				return fmt.Errorf("%s of run %d differs from the first in bits", outputNames[i], run+1)
			}
		}
	}
	return nil
}

var outputNames = [5]string{"o", "lse", gradientNames[0], gradientNames[1], gradientNames[2]}

// once runs the passes and gives the outputs, packed; those that there are not are nil.
func (g *Rig) once(ctx context.Context, at *laid, f flash.Forward, b *flash.Backward, start *[3][]float32,
	run int) (out [5][]byte, err error) {
	s := g.Slab
	parts := [5]*part{at.o, at.lse, at.dq, at.dk, at.dv}
	for i, p := range parts {
		if p == nil {
			continue
		}
		p.poison(s.bytes(p), run)
		if i >= 2 && start != nil {
			p.write(s.bytes(p), start[i-2])
		}
	}
	if err := s.send(ctx); err != nil {
		return out, err
	}
	pending, err := g.Plan.SubmitForward(f)
	if err != nil {
		return out, err
	}
	var behind flash.Pending
	var submitted error
	if b != nil {
		behind, submitted = g.Plan.SubmitBackward(*b)
	}
	err = errors.Join(pending.Wait(ctx), submitted)
	if b != nil && submitted == nil {
		err = errors.Join(err, behind.Wait(ctx))
	}
	if err != nil {
		return out, err
	}
	if err := s.fetch(ctx); err != nil {
		return out, err
	}
	for i, p := range parts {
		if p == nil {
			continue
		}
		if i == 1 && f.LSE == nil { // it must still be as it was
			if !bytes.Equal(s.back[p.at:][:p.placement.bytes()], s.bytes(p)) {
				return out, errors.New("lse: memory was written although no lse was asked for")
			}
			continue
		}
		if out[i], err = s.collect(p, outputNames[i], run); err != nil {
			return out, err
		}
	}
	return out, nil
}

// judge compares the outputs of the first run. What exceeds plain attention's measure is looked at once more: see [ref.RoundingBounds].
func (g *Rig) judge(c *Case, out [5][]byte, start *[3][]float32, r *Result) {
	t := refType(c.Problem.DType)
	var values [5][]float32
	for i, b := range out {
		if b == nil {
			continue
		}
		values[i] = t.Decode(b)
		if i == 1 {
			values[i] = ref.F32.Decode(b)
		}
	}
	c.check(g.target, values[0], values[1], r)
	for i := range gradientNames {
		switch got := values[i+2]; {
		case got == nil:
		case start != nil:
			c.judgeSum(i, got, start[i], r)
		default:
			c.judge(gradientNames[i], got, c.grads.answers[i], c.grads.plain[i], t, r)
		}
	}
	if r.Failure == "" {
		return
	}
	c.lookAgain(values, start, r)
}
