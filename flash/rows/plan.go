package rows

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// Rotation names the tensors of a rotation of rows; they may have any strides whose last is 1.
type Rotation struct {
	X *flash.Tensor // input
	Y *flash.Tensor // output, of X's shape; nil: X is turned in place
	// Of Problem's Rotary: fp32 tables, and positions, Int32 [1, 1, Batch, Rows] in row-major order; nil where it has none.
	Cos, Sin, Positions *flash.Tensor
	First               int32 // position of row 0, row i being at First + i, where Positions are not given
}

// Plan moves rows on a device: a rotation or an append. It may be used from several goroutines.
type Plan struct {
	dev         *flash.Device
	what        string // Rotation or Append
	rows        kernel.Rows
	program     *pass.Rows
	problem     attn.Problem   // of their type
	table       []attn.Operand // tensors, in the order of Recording.given
	inPlace     []attn.Operand // of a rotation without Y, of an append without RotatedQ
	frequencies *flash.Tensor

	mu     sync.Mutex
	kept   *Recording // of Rotate and Append, made by the first call
	closed bool
}

// PlanRotate builds the kernel that turns rows. The error is a [*flash.ArgumentError] for a problem that cannot be, a
// [*flash.UnsupportedError] where the device cannot.
//
// Rows are moved sixteen columns at a time, which is faster (on an H100 1.3 ×), where HeadDim is a multiple of 64, and of a rotation by
// halves Columns too (of one of neighbours, of 4), and rows of all tensors begin at multiples of 16 bytes; else two columns at a time, with
// the same result.
func PlanRotate(d *flash.Device, p RotateProblem) (_ *Plan, err error) {
	defer within.During("PlanRotate", &err)
	r := kernel.Rows{Batch: p.Batch, Heads: p.Heads, Rows: p.Rows, Dim: p.HeadDim, DType: attn.DType(p.DType), Inverse: p.Inverse}
	return plan(d, "Rotation", "RotateProblem", r, &p.Rotary)
}

func plan(d *flash.Device, what, problem string, r kernel.Rows, by *Rotary) (_ *Plan, err error) {
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
	if flash.DType(r.DType) > flash.BF16 {
		return nil, badArgument(problem+".DType", uint8(r.DType), "must be F32, F16 or BF16")
	}
	env, err := within.Env(d)
	if err != nil {
		return nil, err
	}
	if why := env.Caps.LacksRows(&r); why != "" {
		return nil, &flash.UnsupportedError{What: what, Reasons: []string{why}}
	}
	p := &Plan{dev: d, what: what, problem: attn.Problem{DType: r.DType}}
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
			if p.frequencies, err = within.Allocate(d, "frequencies", attn.Int32, [4]int{1, 1, 1, turn.Columns}); err != nil {
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
	if p.program, err = pass.NewRows(env, &r); err != nil {
		return nil, within.Fail(d, err)
	}
	return p, nil
}

// operands lists the tensors that rows are moved with.
func (p *Plan) operands() {
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
func (p *Plan) Close() (err error) {
	defer within.During("Plan.Close", &err)
	if p == nil || p.dev == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return errors.Join(p.kept.Close(), p.frequencies.Close())
}

// made says why a plan that no device made cannot be used.
func (p *Plan) made() error {
	if p == nil || p.dev == nil {
		return badArgument("Plan", "nil or zero", "must come from PlanRotate or PlanAppend")
	}
	return nil
}

// usable says why nothing can be done with the plan; p.mu is not held.
func (p *Plan) usable() error {
	if err := p.made(); err != nil {
		return err
	}
	p.mu.Lock()
	err := p.open()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = within.Env(p.dev)
	return err
}

// open is ErrClosed after Close; p.mu is held.
func (p *Plan) open() error {
	if p.closed {
		return fmt.Errorf("%w: Plan", flash.ErrClosed)
	}
	return nil
}

// Rotate turns rows and waits.
func (p *Plan) Rotate(ctx context.Context, t Rotation) (err error) {
	defer within.During("Rotate", &err)
	return p.run(ctx, func(r *Recording) error { return r.Rotate(t) })
}

// run prepares the recording that the plan keeps, submits it and waits.
func (p *Plan) run(ctx context.Context, prepare func(*Recording) error) error {
	if err := p.made(); err != nil {
		return err
	}
	if ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	if err := p.usable(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(); err != nil { // it may have been closed since
		return err
	}
	if p.kept == nil {
		var err error
		if p.kept, err = p.recording(nil); err != nil {
			return err
		}
	}
	if err := prepare(p.kept); err != nil {
		return err
	}
	pending, err := p.kept.Submit()
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}

// mostGiven is the most tensors that a caller gives: those of an Append.
const mostGiven = 16

// Recording holds the commands of a rotation or an append, with descriptors of its own. It can be written into any number of command
// buffers, or submitted by itself again and again, one submission at a time. It belongs to one goroutine at a time.
type Recording struct {
	plan     *Plan
	commands *flash.Recording

	// What Rotate or Append was called with, which place puts where kernels find it.
	given   [mostGiven]*flash.Tensor
	to      []*kernel.Operand
	inPlace bool
	first   int32

	tensors []*flash.Tensor // that the commands use: those given, and frequencies
	ops     kernel.RowOperands
	entries kernel.Operand // Append.TokenBatch
	placing func() error   // place: made once, since rewriting allocates nothing
}

// NewRecording makes an empty recording, timed with [flash.WithTimestamps]. It lives until its own Close, or the device's.
func (p *Plan) NewRecording(opts ...flash.RecordingOption) (_ *Recording, err error) {
	defer within.During("NewRecording", &err)
	if err := p.usable(); err != nil {
		return nil, err
	}
	return p.recording(opts)
}

func (p *Plan) recording(opts []flash.RecordingOption) (_ *Recording, err error) {
	r := &Recording{plan: p, tensors: make([]*flash.Tensor, mostGiven, mostGiven+1)}
	r.placing = r.place
	if o := &r.ops; p.what == "Rotation" {
		r.to = []*kernel.Operand{&o.K, &o.X, &o.Cos, &o.Sin, &o.Positions}
	} else {
		r.to = []*kernel.Operand{&o.K, &o.V, &o.X, &o.Y, &o.At, &o.Counts, &r.entries, &o.Table, &o.Starts, &o.KeyScales, &o.ValueScales,
			&o.Q, &o.Z, &o.Cos, &o.Sin, &o.Positions}
	}
	if p.frequencies != nil {
		r.tensors = append(r.tensors, p.frequencies)
		r.ops.Frequencies = kernel.Operand{Binding: within.Bound(p.frequencies)}
	}
	r.commands, err = within.NewRecording(p.dev, access.Commands[*flash.Tensor]{Name: "Recording", Tensors: r.tensors, Options: opts,
		Info:  kernel.RecordingInfo(p.program.Dispatches(), false),
		Write: func(w *kernel.Recorder) error { return p.program.Record(w, &r.ops) }}, "Rotate or Append")
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Rotate prepares the recording for these tensors, in place of what it held before. After the first time it allocates nothing.
func (r *Recording) Rotate(t Rotation) (err error) {
	defer within.During("Recording.Rotate", &err)
	if err := r.is("Rotation"); err != nil {
		return err
	}
	r.given = [mostGiven]*flash.Tensor{t.X, t.Y, t.Cos, t.Sin, t.Positions}
	r.inPlace, r.first = t.Y == nil, t.First
	return within.Rewrite(r.commands, r.placing)
}

// place checks what the caller gave and puts it where kernels find it.
func (r *Recording) place() error {
	p, o, table := r.plan, &r.ops, r.plan.table
	if r.inPlace {
		table = p.inPlace
	}
	if err := within.Place(p.dev, p.what, table, &p.problem, r.given[:len(table)], r.to); err != nil {
		return err
	}
	copy(r.tensors, r.given[:])
	o.First, o.InPlace = r.first, r.inPlace
	switch {
	case r.inPlace && p.what == "Rotation":
		o.X = o.K
	case r.inPlace:
		o.Z = o.Q
	}
	if p.rows.Packed {
		o.At = r.entries
	}
	return nil
}

// made says why a recording that no plan made cannot be used.
func (r *Recording) made() error {
	if r == nil || r.plan == nil {
		return badArgument("Recording", "nil or zero", "must come from Plan.NewRecording")
	}
	return nil
}

// is says why the recording cannot be given these commands.
func (r *Recording) is(what string) error {
	if err := r.made(); err != nil {
		return err
	}
	if r.plan.what != what {
		return badArgument("Recording", r.plan.what, "its plan must be one for a %s", what)
	}
	return nil
}

// Record writes the commands into a command buffer of the caller's, as [flash.Recording.Record] does.
func (r *Recording) Record(cmd uintptr) (err error) {
	defer within.During("Recording.Record", &err)
	if err := r.made(); err != nil {
		return err
	}
	return r.commands.Record(cmd)
}

// Submit runs the commands on the device's queue and returns without waiting.
func (r *Recording) Submit() (_ flash.Pending, err error) {
	defer within.During("Recording.Submit", &err)
	if err := r.made(); err != nil {
		return flash.Pending{}, err
	}
	return r.commands.Submit()
}

// Commands is for [flash.Device.Submit], which submits recordings together; nil of a recording that no plan made.
func (r *Recording) Commands() *flash.Recording {
	if r == nil {
		return nil
	}
	return r.commands
}

// Close frees the descriptors, after waiting for the recording's own submission. Closing again, or nil, does nothing.
func (r *Recording) Close() (err error) {
	defer within.During("Recording.Close", &err)
	if r == nil || r.plan == nil {
		return nil
	}
	return r.commands.Close()
}
