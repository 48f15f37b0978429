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
}

// RowPlan moves rows on a device: a rotation or an append. It may be used from several goroutines.
type RowPlan struct {
	smallPlan[*RowRecording]
	what        string // Rotation or Append
	rows        kernel.Rows
	program     *kernel.RowProgram
	problem     attn.Problem   // of their type
	table       []attn.Operand // tensors, in the order of given
	inPlace     []attn.Operand // of a rotation without Y, of an append without RotatedQ
	frequencies *Tensor
}

// PlanRotate builds the kernel that turns rows. The error is an [*ArgumentError] for a problem that cannot be, an [*UnsupportedError] where
// the device cannot.
//
// Rows are moved sixteen columns at a time, which is faster (on an H100 1.3 ×), where HeadDim is a multiple of 64, and of a rotation by
// halves Columns too (of one of neighbours, of 4), and rows of all tensors begin at multiples of 16 bytes; else two columns at a time, with
// the same result.
func (d *Device) PlanRotate(p RotateProblem) (_ *RowPlan, err error) {
	defer during("PlanRotate", &err)
	r := kernel.Rows{Batch: p.Batch, Heads: p.Heads, Rows: p.Rows, Dim: p.HeadDim, DType: attn.DType(p.DType), Inverse: p.Inverse}
	return d.planRows("Rotation", "RotateProblem", r, &p.Rotary)
}

func (d *Device) planRows(what, problem string, r kernel.Rows, by *Rotary) (_ *RowPlan, err error) {
	heads, rows := "Heads", "Rows"
	if r.Scattered {
		heads = "KeyHeads"
	}
	if r.Packed {
		rows = "Tokens"
	}
	for _, f := range []struct {
		name        string
		value, most int
	}{{"Batch", r.Batch, math.MaxInt32 / 2}, {heads, r.Heads, math.MaxInt32 / 2}, {rows, r.Rows, math.MaxInt32 / 2},
		{"HeadDim", r.Dim, 1 << 16}} {
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
	if why := d.env.Caps.LacksRows(&r); why != "" {
		return nil, &UnsupportedError{What: what, Reasons: []string{why}}
	}
	p := &RowPlan{what: what, problem: attn.Problem{DType: r.DType}}
	p.dev, p.name = d, "RowPlan"
	if by != nil {
		turn, err := by.check(r.Dim)
		if err != nil {
			return nil, err
		}
		r.Columns, r.Interleaved, r.Positions, r.TableRows = turn.Columns, turn.Interleaved, turn.Positions || r.Packed, turn.Table
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
	entries := r.Batch // of tensors of rows
	if r.Packed {
		entries = 1
	}
	tables := shaped(1, 1, r.TableRows, r.Columns/2)
	if r.Turn == kernel.ByToken {
		tables = shaped(entries, 1, r.Rows, r.Columns/2)
	}
	tabled := when(r.Turn == kernel.ByTable || r.Turn == kernel.ByToken)
	turning := []attn.Operand{
		{Name: "Cos", Shape: tables, Type: typed(attn.F32), When: tabled},
		{Name: "Sin", Shape: tables, Type: typed(attn.F32), When: tabled},
		{Name: "Positions", Shape: shaped(1, 1, entries, r.Rows), Type: typed(attn.Int32), When: when(r.Positions), Statistics: true}}
	if p.what == "Rotation" {
		rows := shaped(r.Batch, r.Heads, r.Rows, r.Dim)
		p.table = append([]attn.Operand{{Name: "X", Shape: rows}, {Name: "Y", Shape: rows, Output: true}}, turning...)
		p.inPlace = append([]attn.Operand{{Name: "X", Shape: rows, Output: true}, {Name: "Y", Shape: rows, Optional: true}}, turning...)
		return
	}
	p.table = appendOperands(r, entries, turning, false)
	p.inPlace = appendOperands(r, entries, turning, true)
}

// shaped, when and typed are fields of operands that are known beforehand.
func shaped(of ...int) func(*attn.Problem) [4]int {
	return func(*attn.Problem) [4]int { return [4]int(of) }
}
func when(in bool) func(*attn.Problem) bool { return func(*attn.Problem) bool { return in } }
func typed(t attn.DType) func(*attn.Problem) attn.DType {
	return func(*attn.Problem) attn.DType { return t }
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

// mostRowTensors is the most tensors that rows are moved with: those of an Append, and frequencies.
const mostRowTensors = 16 + 1

// RowRecording holds the commands of a rotation or an append, with descriptors of its own. It can be written into any number of command
// buffers, or submitted by itself again and again, one submission at a time. It belongs to one goroutine at a time.
type RowRecording struct {
	smallRecording
	plan    *RowPlan
	ops     kernel.RowOperands
	entries kernel.Operand // Append.TokenBatch
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
	r.dev, r.name, r.first, r.tensors = p.dev, "RowRecording", "Rotate or Append", make([]*Tensor, mostRowTensors)
	if err := r.open(pipeline.RecordingInfo{MaxDispatches: n, MaxBindings: p.program.Bindings() * n}); err != nil {
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
	o, table := &r.ops, r.plan.table
	all := [...]given{{t.X, &o.K}, {t.Y, &o.X}, {t.Cos, &o.Cos}, {t.Sin, &o.Sin}, {t.Positions, &o.Positions}}
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
		r.tensors[i] = all[i].tensor
	}
	if p.frequencies != nil {
		r.tensors[mostRowTensors-1] = p.frequencies
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

// Wait waits for the latest submission. A cancelled context makes it return the context's error, but not before the device has finished
// with the memory. Without a submission it returns at once.
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
