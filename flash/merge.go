package flash

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// MergeProblem puts attention over disjoint keys together. With o_n and lse_n of part n as a forward pass over its keys alone gives them,
//
//	lse[b, h, i]  = log Σ_n exp(lse_n[b, h, i])
//	o[b, h, i, :] = Σ_n exp(lse_n[b, h, i] − lse[b, h, i]) · o_n[b, h, i, :]
//
// are those of attention over the keys of all parts, whatever the kernels, tiles and masks that the parts come from. Logarithms are
// natural. lse_n is finite, or −∞ where a part has no key for a row: what stands in that row of o_n is not used. A row that no part has a
// key for gives o = 0 and lse = −∞. Sums and weights are fp32 for all parts together, in a fixed order: o is rounded once, and the same
// inputs give the same bits.
//
// A sink stands in the sum of each part that is given one: give it to one part alone.
//
// Source: Ye et al., FlashInfer (2025), composition of attention states; Juravsky et al., Hydragen (2024), for a prefix that requests
// share.
type MergeProblem struct {
	Parts                            int // from 1 to 4096
	Batch, Heads, QueryLen, ValueDim int // of o [Batch, Heads, QueryLen, ValueDim]
	DType                            DType
	// Parts, or the result, are fp32 whatever DType: parts that were not rounded yet, or a result that is a part of another merge.
	PartsF32, ResultF32 bool
	// Stacked says that all parts lie in one pair of tensors, of shapes [Parts·Batch, Heads, QueryLen, ValueDim] and [Parts·Batch, Heads,
	// QueryLen, 1]: the batch entries of part 0, then those of part 1, and so on.
	Stacked bool
}

// check says which field of the problem cannot be.
func (p *MergeProblem) check() error {
	for _, f := range []struct {
		name        string
		value, most int
	}{{"Parts", p.Parts, kernel.MostMerged}, {"Batch", p.Batch, math.MaxInt32 / 2}, {"Heads", p.Heads, math.MaxInt32 / 2},
		{"QueryLen", p.QueryLen, math.MaxInt32 / 2}, {"ValueDim", p.ValueDim, 1 << 16}} {
		if f.value < 1 || f.value > f.most {
			return badArgument("MergeProblem."+f.name, f.value, "must be from 1 to %d", f.most)
		}
	}
	if p.DType > BF16 {
		return badArgument("MergeProblem.DType", uint8(p.DType), "must be F32, F16 or BF16")
	}
	return nil
}

// tensors is the number of pairs of tensors that hold the parts.
func (p *MergeProblem) tensors() int {
	if p.Stacked {
		return 1
	}
	return p.Parts
}

// operands lists the tensors: o_n and lse_n of each pair, then o and lse.
func (p *MergeProblem) operands() []attn.Operand {
	shape := func(batch, columns int) func(*attn.Problem) [4]int {
		return func(*attn.Problem) [4]int { return [4]int{batch, p.Heads, p.QueryLen, columns} }
	}
	as := func(f32 bool) func(*attn.Problem) attn.DType {
		t := attn.DType(p.DType)
		if f32 {
			t = attn.F32
		}
		return func(*attn.Problem) attn.DType { return t }
	}
	batch := p.Batch
	if p.Stacked {
		batch *= p.Parts
	}
	var table []attn.Operand
	for i := range p.tensors() {
		table = append(table, attn.Operand{Name: fmt.Sprintf("Parts[%d].O", i), Shape: shape(batch, p.ValueDim), Type: as(p.PartsF32)},
			attn.Operand{Name: fmt.Sprintf("Parts[%d].LSE", i), Shape: shape(batch, 1), Type: as(true)})
	}
	return append(table, attn.Operand{Name: "O", Shape: shape(p.Batch, p.ValueDim), Type: as(p.ResultF32), Output: true},
		attn.Operand{Name: "LSE", Shape: shape(p.Batch, 1), Statistics: true, Output: true, Optional: true})
}

// Part is attention over some of the keys: the outputs of a forward pass, or of another merge. It may be a pair of views, of parts of
// tensors.
type Part struct {
	O   *Tensor // [Batch, Heads, QueryLen, ValueDim], of any strides whose last is 1
	LSE *Tensor // fp32 [Batch, Heads, QueryLen, 1], the rows of a head one behind the other, batch entries and heads of any strides
}

// Merge names the tensors of a merge. Parts may overlap one another; outputs are overwritten, and overlap no other tensor of the merge.
type Merge struct {
	Parts []Part  // inputs: as many as the problem's, or one pair of tensors where those are Stacked
	O     *Tensor // output, of any strides whose last is 1
	LSE   *Tensor // output, fp32 [Batch, Heads, QueryLen, 1] in row-major order; nil: not written
}

// problem is what the tensors are a merge of; where they do not fit together, one that they do not fit.
func (m *Merge) problem() (MergeProblem, error) {
	if err := m.O.usable("Merge.O"); err != nil {
		return MergeProblem{}, err
	}
	if len(m.Parts) == 0 {
		return MergeProblem{}, badArgument("len(Merge.Parts)", 0, "must be at least 1")
	}
	first := m.Parts[0].O
	if err := first.usable("Merge.Parts[0].O"); err != nil {
		return MergeProblem{}, err
	}
	shape, stack := m.O.Shape(), first.Shape()[0]/m.O.Shape()[0]
	p := MergeProblem{Parts: len(m.Parts), Batch: shape[0], Heads: shape[1], QueryLen: shape[2], ValueDim: shape[3], DType: m.O.DType()}
	if len(m.Parts) == 1 && stack > 1 {
		p.Parts, p.Stacked = stack, true
	}
	if t := first.DType(); p.DType == F32 {
		p.DType, p.ResultF32 = t, t != F32
	} else {
		p.PartsF32 = t == F32
	}
	return p, nil
}

// Merge puts parts together and waits, as [MergeProblem] says, for a problem that follows from the tensors: a single pair with more batch
// entries than O holds stacked parts. Each call plans; a loop does better with [Device.PlanMerge].
func (d *Device) Merge(ctx context.Context, m Merge) (err error) {
	defer during("Merge", &err)
	if err := d.usable(); err != nil {
		return err
	}
	p, err := m.problem()
	if err != nil {
		return err
	}
	plan, err := d.PlanMerge(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	return plan.Merge(ctx, m)
}

// MergePlan merges on a device. It may be used from several goroutines.
type MergePlan struct {
	tensorsPlan
	problem MergeProblem
}

// PlanMerge builds the kernel that merges. The error is an [*ArgumentError] for a problem that cannot be, an [*UnsupportedError] where the
// device cannot, a [*MemoryError] where a workspace passes what it can bind.
//
// Bound by memory, a merge reads each part once. Four pairs of tensors go into one dispatch, and any number of stacked parts; more pairs
// are a chain of dispatches with sums in fp32 between them, which cost about as much again as the parts.
func (d *Device) PlanMerge(p MergeProblem) (_ *MergePlan, err error) {
	defer during("PlanMerge", &err)
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	if p.DType == F32 {
		p.PartsF32, p.ResultF32 = false, false // they are so anyway
	}
	if why := d.env.Caps.LacksMerge(attn.DType(p.DType)); why != "" {
		return nil, &UnsupportedError{What: "Merge", Reasons: []string{why}}
	}
	plan := &MergePlan{problem: p}
	plan.dev, plan.name, plan.does, plan.table, plan.first = d, "MergePlan", "Merge", plan.problem.operands(), 2
	for i := range plan.table {
		o := &plan.table[i]
		if n, ok := attn.Elements(o.Shape(nil)); !ok || n > math.MaxUint32 {
			return nil, badArgument("MergeProblem", o.Shape(nil), "%s would have more than 2³²−1 elements", o.Name)
		}
	}
	plan.program, err = pass.NewMerge(d.env, &kernel.Merge{Parts: p.Parts, Stacked: p.Stacked, Batch: p.Batch, Heads: p.Heads,
		QueryLen: p.QueryLen,
		ValueDim: p.ValueDim, DType: attn.DType(p.DType), PartsF32: p.PartsF32, ResultF32: p.ResultF32})
	if err != nil {
		return nil, d.fail(err)
	}
	if err := d.adopt(plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// made says why a plan that no device made cannot be used.
func (p *MergePlan) made() error {
	if p == nil || p.dev == nil {
		return badArgument("MergePlan", "nil or zero", "must come from Device.PlanMerge")
	}
	return nil
}

// WorkspaceBytes is the device memory that each recording of the plan takes beside its tensors: none for up to four pairs of them, or
// stacked parts.
func (p *MergePlan) WorkspaceBytes() (n uint64) {
	if p.made() != nil {
		return 0
	}
	for _, size := range p.program.Scratch() {
		n += size
	}
	return n
}

// Merge puts parts together and waits. The error is an [*ArgumentError] for a tensor that does not fit its place, the context's own where
// it is cancelled, after the device has finished.
func (p *MergePlan) Merge(ctx context.Context, m Merge) (err error) {
	defer during("Merge", &err)
	if err := p.made(); err != nil {
		return err
	}
	return p.run(ctx, p.recording, func(r *Recording) error { return r.Merge(m) })
}

// Close frees what the plan keeps, after waiting for what it has in flight. Closing again does nothing.
func (p *MergePlan) Close() (err error) {
	defer during("MergePlan.Close", &err)
	if p.made() != nil {
		return nil
	}
	p.dev.disown(p)
	return p.release()
}

// NewRecording makes an empty recording for [Recording.Merge].
func (p *MergePlan) NewRecording(opts ...RecordingOption) (_ *Recording, err error) {
	defer during("NewRecording", &err)
	if err := p.made(); err != nil {
		return nil, err
	}
	return p.newRecording(opts)
}

// Merge prepares a recording of a [MergePlan] for these tensors, in place of what it held before. After the first time it allocates
// nothing.
func (r *Recording) Merge(m Merge) (err error) {
	defer during("Recording.Merge", &err)
	if err := r.beginSmall("Merge"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	given := r.small.given
	n := len(given)/2 - 1
	if len(m.Parts) != n {
		return badArgument("len(Merge.Parts)", len(m.Parts), "must be %d, as the plan's problem has pairs of tensors", n)
	}
	for i := range m.Parts {
		given[2*i], given[2*i+1] = m.Parts[i].O, m.Parts[i].LSE
	}
	given[2*n], given[2*n+1] = m.O, m.LSE
	return r.writeSmall()
}
