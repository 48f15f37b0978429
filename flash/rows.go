package flash

import (
	"context"
	"errors"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Rotation names the tensors of a rotation of rows; they may have any strides whose last is 1.
type Rotation struct {
	X *Tensor // input
	Y *Tensor // output, of X's shape; nil: X is turned in place
	// Of Problem's Rotary: fp32 tables, and positions, Int32 [1, 1, Batch, Rows] in row-major order; nil where it has none.
	Cos, Sin, Positions *Tensor
	First               int32 // position of row 0, row i being at First + i, where Positions are not given

	Uses struct{ X, Y, Cos, Sin, Positions TensorUse } // what barriers a recording begins and ends with; the zero value is right for most
}

// Append names the tensors of new rows and the caches that they are written into; they may have any strides whose last is 1.
type Append struct {
	K, V                 *Tensor // inputs; V is nil with KeysOnly
	KeyCache, ValueCache *Tensor // [Batch, KeyHeads, CacheRows, ·], of which the rows named are written; they overlap no other tensor
	At                   *Tensor // first row that is written, for each batch entry: Int32 [1, 1, 1, Batch]
	Cos, Sin, Positions  *Tensor // as of Rotation

	Uses struct{ K, V, KeyCache, ValueCache, At, Cos, Sin, Positions TensorUse }
}

// RowPlan moves rows on a device: a rotation or an append. It may be used from several goroutines.
type RowPlan struct {
	smallPlan[*RowRecording]
	what        string // Rotation or Append
	rows        kernel.Rows
	program     *kernel.RowProgram
	problem     attn.Problem   // of their type
	table       []attn.Operand // tensors, in the order of given
	inPlace     []attn.Operand // of a rotation without Y
	frequencies *Tensor
}

// PlanRotate builds the kernel that turns rows. The error is an [*ArgumentError] for a problem that cannot be, an [*UnsupportedError] where
// the device cannot.
func (d *Device) PlanRotate(p RotateProblem) (_ *RowPlan, err error) {
	defer during("PlanRotate", &err)
	r := kernel.Rows{Batch: p.Batch, Heads: p.Heads, Rows: p.Rows, Dim: p.HeadDim, DType: attn.DType(p.DType), Inverse: p.Inverse}
	return d.planRows("Rotation", "RotateProblem", r, &p.Rotary)
}

// PlanAppend builds the kernel that writes rows into caches. Errors are as of PlanRotate.
func (d *Device) PlanAppend(p AppendProblem) (_ *RowPlan, err error) {
	defer during("PlanAppend", &err)
	if p.ValueDim == 0 && !p.KeysOnly {
		p.ValueDim = p.HeadDim
	}
	switch {
	case p.KeysOnly && p.ValueDim != 0:
		return nil, badArgument("AppendProblem.ValueDim", p.ValueDim, "must be 0 where there are keys only")
	case p.CacheRows < 1 || p.CacheRows > math.MaxInt32/2:
		return nil, badArgument("AppendProblem.CacheRows", p.CacheRows, "must be from 1 to %d", math.MaxInt32/2)
	case p.Circular && p.Rows > p.CacheRows:
		return nil, badArgument("AppendProblem.Rows", p.Rows, "must be at most CacheRows = %d of a circular cache", p.CacheRows)
	}
	r := kernel.Rows{Batch: p.Batch, Heads: p.KeyHeads, Rows: p.Rows, Dim: p.HeadDim, ValueDim: p.ValueDim, DType: attn.DType(p.DType),
		CacheRows: p.CacheRows, Circular: p.Circular}
	return d.planRows("Append", "AppendProblem", r, p.Rotary)
}

func (d *Device) planRows(what, problem string, r kernel.Rows, by *Rotary) (_ *RowPlan, err error) {
	for _, f := range []struct {
		name        string
		value, most int
	}{{"Batch", r.Batch, math.MaxInt32 / 2}, {"Heads", r.Heads, math.MaxInt32 / 2}, {"Rows", r.Rows, math.MaxInt32 / 2}, {"HeadDim", r.Dim, 1 << 16}} {
		if f.value < 1 || f.value > f.most {
			return nil, badArgument(problem+"."+f.name, f.value, "must be from 1 to %d", f.most)
		}
	}
	if r.ValueDim < 0 || r.ValueDim > 1<<16 {
		return nil, badArgument(problem+".ValueDim", r.ValueDim, "must be from 1 to %d", 1<<16)
	}
	if DType(r.DType) > BF16 {
		return nil, badArgument(problem+".DType", uint8(r.DType), "must be F32, F16 or BF16")
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	if why := d.env.Caps.LacksRows(r.DType); why != "" {
		return nil, &UnsupportedError{What: what, Reasons: []string{why}}
	}
	p := &RowPlan{what: what, problem: attn.Problem{DType: r.DType}}
	p.dev, p.name = d, "RowPlan"
	if by != nil {
		turn, err := by.check(r.Dim)
		if err != nil {
			return nil, err
		}
		r.Columns, r.Interleaved, r.Positions, r.TableRows = turn.Columns, turn.Interleaved, turn.Positions, turn.Table
		switch {
		case turn.PerToken:
			r.Turn = kernel.ByToken
		case turn.Table > 0:
			r.Turn = kernel.ByTable
		default:
			r.Turn = kernel.ByFrequencies
			if p.frequencies, err = d.allocate("frequencies", Int32, [4]int{1, 1, 1, turn.Columns}, attn.Contiguous); err != nil {
				return nil, err
			}
			if err = p.frequencies.UploadBytes(context.Background(), kernel.FrequencyWords(turn.Frequencies)); err != nil {
				return nil, errors.Join(err, p.frequencies.Close())
			}
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.frequencies.Close())
		}
	}()
	p.rows = r
	p.operands()
	for i := range p.table {
		o := &p.table[i]
		if n, ok := attn.Elements(o.Shape(nil)); o.In(nil) && (!ok || n > math.MaxUint32) {
			return nil, badArgument(problem, o.Shape(nil), "%s would have more than 2³²−1 elements", o.Name)
		}
	}
	if p.program, err = kernel.NewRowProgram(d.env, &r); err != nil {
		return nil, d.fail(err)
	}
	return p, d.adopt(p)
}

// operands lists the tensors that rows are moved with.
func (p *RowPlan) operands() {
	r := &p.rows
	shape := func(of ...int) func(*attn.Problem) [4]int {
		return func(*attn.Problem) [4]int { return [4]int(of) }
	}
	when := func(in bool) func(*attn.Problem) bool { return func(*attn.Problem) bool { return in } }
	as := func(t attn.DType) func(*attn.Problem) attn.DType { return func(*attn.Problem) attn.DType { return t } }
	tables := shape(1, 1, r.TableRows, r.Columns/2)
	if r.Turn == kernel.ByToken {
		tables = shape(r.Batch, 1, r.Rows, r.Columns/2)
	}
	tabled := when(r.Turn == kernel.ByTable || r.Turn == kernel.ByToken)
	turning := []attn.Operand{{Name: "Cos", Shape: tables, Type: as(attn.F32), When: tabled}, {Name: "Sin", Shape: tables, Type: as(attn.F32), When: tabled},
		{Name: "Positions", Shape: shape(1, 1, r.Batch, r.Rows), Type: as(attn.Int32), When: when(r.Positions), Statistics: true}}
	keys := shape(r.Batch, r.Heads, r.Rows, r.Dim)
	if p.what == "Rotation" {
		p.table = append([]attn.Operand{{Name: "X", Shape: keys}, {Name: "Y", Shape: keys, Output: true}}, turning...)
		p.inPlace = append([]attn.Operand{{Name: "X", Shape: keys, Output: true}, {Name: "Y", Shape: keys, Optional: true}}, turning...)
		return
	}
	values := when(r.ValueDim > 0)
	p.table = append([]attn.Operand{{Name: "K", Shape: keys}, {Name: "V", Shape: shape(r.Batch, r.Heads, r.Rows, r.ValueDim), When: values},
		{Name: "KeyCache", Shape: shape(r.Batch, r.Heads, r.CacheRows, r.Dim), Output: true},
		{Name: "ValueCache", Shape: shape(r.Batch, r.Heads, r.CacheRows, r.ValueDim), When: values, Output: true},
		{Name: "At", Shape: shape(1, 1, 1, r.Batch), Type: as(attn.Int32), Statistics: true}}, turning...)
}

// Close frees what the plan keeps, after waiting for what it has in flight. Closing again does nothing.
func (p *RowPlan) Close() (err error) {
	defer during("RowPlan.Close", &err)
	if p == nil || p.dev == nil {
		return nil
	}
	p.dev.disown(p)
	return p.release()
}

func (p *RowPlan) release() error { return errors.Join(p.smallPlan.release(), p.frequencies.Close()) }

// made says why a plan that no device made cannot be used.
func (p *RowPlan) made() error {
	if p == nil || p.dev == nil {
		return badArgument("RowPlan", "nil or zero", "must come from Device.PlanRotate or PlanAppend")
	}
	return nil
}

// Rotate turns rows and waits.
func (p *RowPlan) Rotate(ctx context.Context, t Rotation) (err error) {
	defer during("Rotate", &err)
	if err := p.made(); err != nil {
		return err
	}
	return p.run(ctx, p.recording, func(r *RowRecording) error { return r.Rotate(t) })
}

// Append writes rows into caches and waits.
func (p *RowPlan) Append(ctx context.Context, t Append) (err error) {
	defer during("Append", &err)
	if err := p.made(); err != nil {
		return err
	}
	return p.run(ctx, p.recording, func(r *RowRecording) error { return r.Append(t) })
}

// mostRowTensors is the most tensors that rows are moved with, frequencies among them.
const mostRowTensors = 9

// RowRecording holds the commands of a rotation or an append, with descriptors of its own. It can be written into any number of command buffers, or
// submitted by itself again and again, one submission at a time. It belongs to one goroutine at a time.
type RowRecording struct {
	smallRecording
	plan *RowPlan
	ops  kernel.RowOperands
}

// NewRecording makes an empty recording. It lives until its own Close, or the device's.
func (p *RowPlan) NewRecording() (_ *RowRecording, err error) {
	defer during("NewRecording", &err)
	if err := p.made(); err != nil {
		return nil, err
	}
	if err := p.usable(); err != nil {
		return nil, err
	}
	return p.recording()
}

func (p *RowPlan) recording() (*RowRecording, error) {
	n := p.program.Dispatches()
	r := &RowRecording{plan: p}
	r.dev, r.name, r.first, r.tensors = p.dev, "RowRecording", "Rotate or Append", make([]heldTensor, mostRowTensors)
	if err := r.open(pipeline.RecordingInfo{MaxDispatches: n, MaxBindings: 8 * n}); err != nil {
		return nil, err
	}
	return r, nil
}

// Rotate prepares the recording for these tensors, in place of what it held before. After the first time it allocates nothing.
func (r *RowRecording) Rotate(t Rotation) (err error) {
	defer during("RowRecording.Rotate", &err)
	if err := r.start("Rotation"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	o, u, table := &r.ops, &t.Uses, r.plan.table
	all := [...]given{{t.X, u.X, &o.K}, {t.Y, u.Y, &o.X}, {t.Cos, u.Cos, &o.Cos}, {t.Sin, u.Sin, &o.Sin}, {t.Positions, u.Positions, &o.Positions}}
	if o.InPlace = t.Y == nil; o.InPlace {
		table = r.plan.inPlace
	}
	if err := place("Rotation", table, all[:], r.plan.dev, &r.plan.problem); err != nil {
		return err
	}
	if o.InPlace {
		o.X = o.K
	}
	o.First = t.First
	return r.write(all[:])
}

// Append is Rotate for a plan of PlanAppend.
func (r *RowRecording) Append(t Append) (err error) {
	defer during("RowRecording.Append", &err)
	if err := r.start("Append"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	o, u := &r.ops, &t.Uses
	all := [...]given{{t.K, u.K, &o.K}, {t.V, u.V, &o.V}, {t.KeyCache, u.KeyCache, &o.X}, {t.ValueCache, u.ValueCache, &o.Y}, {t.At, u.At, &o.At},
		{t.Cos, u.Cos, &o.Cos}, {t.Sin, u.Sin, &o.Sin}, {t.Positions, u.Positions, &o.Positions}}
	if err := place("Append", r.plan.table, all[:], r.plan.dev, &r.plan.problem); err != nil {
		return err
	}
	return r.write(all[:])
}

// made says why a recording that no plan made cannot be used.
func (r *RowRecording) made() error {
	if r == nil || r.plan == nil {
		return badArgument("RowRecording", "nil or zero", "must come from RowPlan.NewRecording")
	}
	return nil
}

// start says why the recording cannot be given these commands, or locks it.
func (r *RowRecording) start(what string) error {
	if err := r.made(); err != nil {
		return err
	}
	if r.plan.what != what {
		return badArgument("RowRecording", r.plan.what, "its plan must be one for a %s", what)
	}
	return r.begin()
}

// write makes the commands; r.mu is held.
func (r *RowRecording) write(all []given) error {
	p := r.plan
	clear(r.tensors)
	for i := range all {
		r.tensors[i] = heldTensor{all[i].tensor, all[i].use}
	}
	if p.frequencies != nil {
		r.tensors[mostRowTensors-1].tensor = p.frequencies
		r.ops.Frequencies = p.frequencies.bound
	}
	err := r.reset()
	if err == nil {
		err = p.program.Record(&r.writer, &r.ops)
	}
	r.ready = err == nil
	return p.dev.fail(err)
}

// Record writes the commands into a command buffer of the caller's, as [Recording.Record] does.
func (r *RowRecording) Record(cmd uintptr) (err error) {
	defer during("RowRecording.Record", &err)
	if err := r.made(); err != nil {
		return err
	}
	return r.record(cmd)
}

// Submit runs the commands on the device's queue and returns without waiting; Wait waits for them.
func (r *RowRecording) Submit() (err error) {
	defer during("RowRecording.Submit", &err)
	if err := r.made(); err != nil {
		return err
	}
	return r.submit()
}

// Wait waits for the latest submission. A cancelled context makes it return the context's error, but not before the device has finished with the
// memory. Without a submission it returns at once.
func (r *RowRecording) Wait(ctx context.Context) (err error) {
	defer during("RowRecording.Wait", &err)
	if err := r.made(); err != nil {
		return err
	}
	return r.waitFor(ctx)
}

// Close frees the descriptors, after waiting for the recording's own submission. Closing again, or nil, does nothing.
func (r *RowRecording) Close() (err error) {
	defer during("RowRecording.Close", &err)
	if r == nil || r.plan == nil {
		return nil
	}
	return r.close()
}
