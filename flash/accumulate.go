package flash

import (
	"context"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// AccumulateRule is what becomes of x and y.
type AccumulateRule uint8

const (
	// AccumulateCopy is y = x: from one type to the other, and from one layout to the other.
	AccumulateCopy = AccumulateRule(kernel.AccumulateCopy)
	// AccumulateAdd is y = y + x, for gradients of parts, which add up. Y is fp32.
	AccumulateAdd = AccumulateRule(kernel.AccumulateAdd)
	// AccumulateJoin joins attention x over some keys to attention y over others, as [MergeProblem] says of two parts. Y is fp32.
	AccumulateJoin = AccumulateRule(kernel.AccumulateJoin)
)

// AccumulateProblem is a running sum or merge for a loop over blocks of keys ([Problem].Within), kept in fp32. Each block costs one
// rounding, and memory does not grow with their number:
//
//	copy   y = x
//	add    y = y + x
//	join   lse = log(exp(YLSE) + exp(XLSE)),   y = exp(YLSE − lse)·y + exp(XLSE − lse)·x
//
// A row of x is not used where XLSE is −∞, nor one of y where YLSE is. The order is fixed: the same inputs give the same bits.
type AccumulateProblem struct {
	Rule  AccumulateRule
	Shape [4]int // of x and y: batch, heads, rows, columns
	X, Y  DType  // each F32, or both of one type
}

// check says which field of the problem cannot be.
func (p *AccumulateProblem) check() error {
	for i, n := range p.Shape {
		if n < 1 || n > math.MaxInt32/2 {
			return badArgument(fmt.Sprintf("AccumulateProblem.Shape[%d]", i), n, "must be from 1 to %d", math.MaxInt32/2)
		}
	}
	if n, ok := attn.Elements(p.Shape); !ok || n > math.MaxUint32 {
		return badArgument("AccumulateProblem.Shape", p.Shape, "must be of at most 2³²−1 elements")
	}
	switch {
	case p.Rule > AccumulateJoin:
		return badArgument("AccumulateProblem.Rule", uint8(p.Rule), "must be AccumulateCopy, AccumulateAdd or AccumulateJoin")
	case p.X > BF16:
		return badArgument("AccumulateProblem.X", uint8(p.X), "must be F32, F16 or BF16")
	case p.Y > BF16 || p.Y != F32 && p.X != F32 && p.X != p.Y:
		return badArgument("AccumulateProblem.Y", uint8(p.Y), "must be F32, or where X is not F32 as X")
	case p.Rule != AccumulateCopy && p.Y != F32:
		return badArgument("AccumulateProblem.Y", p.Y, "must be F32: sums are")
	}
	return nil
}

// operands lists the tensors, as of the problem.
func (p *AccumulateProblem) operands() []attn.Operand {
	shape := func(columns int) func(*attn.Problem) [4]int {
		return func(*attn.Problem) [4]int { return [4]int{p.Shape[0], p.Shape[1], p.Shape[2], columns} }
	}
	of := func(t DType) func(*attn.Problem) attn.DType {
		return func(*attn.Problem) attn.DType { return attn.DType(t) }
	}
	join := func(*attn.Problem) bool { return p.Rule == AccumulateJoin }
	return []attn.Operand{
		{Name: "X", Shape: shape(p.Shape[3]), Type: of(p.X)},
		{Name: "Y", Shape: shape(p.Shape[3]), Type: of(p.Y), Output: true},
		{Name: "XLSE", Shape: shape(1), Type: of(F32), When: join},
		{Name: "YLSE", Shape: shape(1), Type: of(F32), Statistics: true, When: join},
		{Name: "LSE", Shape: shape(1), Type: of(F32), Statistics: true, When: join, Output: true},
	}
}

// Accumulate names the tensors. Y is read and overwritten, but for AccumulateCopy, which only overwrites it.
type Accumulate struct {
	X, Y *Tensor // of any strides whose last is 1

	// Of AccumulateJoin, nil otherwise: fp32 [batch, heads, rows, 1]. XLSE has the rows of a head one behind the other, of any strides
	// else; YLSE and LSE are in row-major order. LSE is an output, and not YLSE: two tensors take turns.
	XLSE, YLSE, LSE *Tensor
}

// AccumulatePlan accumulates on a device. It may be used from several goroutines.
type AccumulatePlan struct {
	tensorsPlan
	problem AccumulateProblem
}

// PlanAccumulate builds the kernel. The error is an [*ArgumentError] for a problem that cannot be, an [*UnsupportedError] where the device
// cannot.
func (d *Device) PlanAccumulate(p AccumulateProblem) (_ *AccumulatePlan, err error) {
	defer during("PlanAccumulate", &err)
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	t := p.X
	if t == F32 {
		t = p.Y
	}
	if why := d.env.Caps.LacksAccumulate(attn.DType(t)); why != "" {
		return nil, &UnsupportedError{What: "Accumulate", Reasons: []string{why}}
	}
	plan := &AccumulatePlan{problem: p}
	plan.dev, plan.name, plan.does, plan.table = d, "AccumulatePlan", "Accumulate", plan.problem.operands()
	plan.program, err = pass.NewAccumulate(d.env, &kernel.Accumulate{Rule: int(p.Rule), Shape: p.Shape, DType: attn.DType(t),
		XF32: p.X == F32, YF32: p.Y == F32})
	if err != nil {
		return nil, d.fail(err)
	}
	if err := d.adopt(plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// made says why a plan that no device made cannot be used.
func (p *AccumulatePlan) made() error {
	if p == nil || p.dev == nil {
		return badArgument("AccumulatePlan", "nil or zero", "must come from Device.PlanAccumulate")
	}
	return nil
}

// Accumulate does it and waits. The error is an [*ArgumentError] for a tensor that does not fit its place, the context's own where it is
// cancelled, after the device has finished.
func (p *AccumulatePlan) Accumulate(ctx context.Context, a Accumulate) (err error) {
	defer during("Accumulate", &err)
	if err := p.made(); err != nil {
		return err
	}
	return p.run(ctx, p.recording, func(r *Recording) error { return r.Accumulate(a) })
}

// Close frees what the plan keeps, after waiting for what it has in flight. Closing again does nothing.
func (p *AccumulatePlan) Close() (err error) {
	defer during("AccumulatePlan.Close", &err)
	if p.made() != nil {
		return nil
	}
	p.dev.disown(p)
	return p.release()
}

// NewRecording makes an empty recording for [Recording.Accumulate].
func (p *AccumulatePlan) NewRecording(opts ...RecordingOption) (_ *Recording, err error) {
	defer during("NewRecording", &err)
	if err := p.made(); err != nil {
		return nil, err
	}
	return p.newRecording(opts)
}

// Accumulate prepares a recording of an [AccumulatePlan] for these tensors, in place of what it held before. After the first time it
// allocates nothing.
func (r *Recording) Accumulate(a Accumulate) (err error) {
	defer during("Recording.Accumulate", &err)
	if err := r.beginSmall("Accumulate"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	copy(r.small.given, []*Tensor{a.X, a.Y, a.XLSE, a.YLSE, a.LSE})
	return r.writeSmall()
}
