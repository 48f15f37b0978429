package bench

import (
	"errors"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/pipeline"
)

// Beside are the names of what programs record beside the passes of a problem.
var Beside = []string{"append", "merge", "accumulate"}

// besides makes tensors, and closes what was made when all is done.
type besides struct {
	d    *Device
	p    flash.Problem
	made []func() error
	err  error
}

func (b *besides) close() (err error) {
	for i := range b.made {
		err = errors.Join(err, b.made[len(b.made)-1-i]())
	}
	return err
}

func (b *besides) tensor(t flash.DType, shape [4]int) *flash.Tensor {
	x, err := b.d.dev.NewTensor(t, shape[0], shape[1], shape[2], shape[3])
	b.err, b.made = errors.Join(b.err, err), append(b.made, x.Close)
	return x
}

// output is o in a type, with lse.
func (b *besides) output(t flash.DType) flash.Part {
	shape := [4]int{b.p.Batch, b.p.Heads, b.p.QueryLen, b.p.ValueDim}
	o := b.tensor(t, shape)
	shape[3] = 1
	return flash.Part{O: o, LSE: b.tensor(flash.F32, shape)}
}

// ListBeside gives what one of them does, for rows like those of a case: append writes the keys and values of as many tokens as there are
// queries into a cache of as many as there are keys, merge puts o and lse of two parts of the keys together, accumulate joins them to
// running ones in fp32.
func (d *Device) ListBeside(c result.Case, what string) (_ ListedPass, err error) {
	b := &besides{d: d}
	if b.p, err = c.Problem(); err != nil {
		return ListedPass{}, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	out := ListedPass{Case: c, Beside: what, Kernel: what}
	switch what {
	case "append":
		out.Listing, err = b.append()
	case "merge":
		out.Listing, err = b.merge()
	default:
		out.Listing, err = b.accumulate()
	}
	return out, err
}

func (b *besides) append() (*pipeline.Listing, error) {
	p, n := &b.p, min(b.p.QueryLen, b.p.KeyLen)
	plan, err := rows.PlanAppend(b.d.dev, rows.AppendProblem{Batch: p.Batch, KeyHeads: p.KeyHeads, Rows: n, CacheRows: p.KeyLen,
		HeadDim: p.HeadDim, ValueDim: p.ValueDim, DType: p.DType})
	return listed(b, plan.Close, err, func() (*rows.Recording, error) { return plan.NewRecording() }, func(r *rows.Recording) error {
		of := func(rows, columns int) *flash.Tensor {
			return b.tensor(p.DType, [4]int{p.Batch, p.KeyHeads, rows, columns})
		}
		t := rows.Append{K: of(n, p.HeadDim), V: of(n, p.ValueDim), KeyCache: of(p.KeyLen, p.HeadDim), ValueCache: of(p.KeyLen, p.ValueDim),
			At: b.tensor(flash.Int32, [4]int{1, 1, 1, p.Batch})}
		return errors.Join(b.err, r.Append(t))
	})
}

func (b *besides) merge() (*pipeline.Listing, error) {
	p := &b.p
	plan, err := b.d.dev.PlanMerge(flash.MergeProblem{Parts: 2, Batch: p.Batch, Heads: p.Heads, QueryLen: p.QueryLen, ValueDim: p.ValueDim,
		DType: p.DType})
	return listed(b, plan.Close, err, func() (*flash.Recording, error) { return plan.NewRecording() }, func(r *flash.Recording) error {
		parts, to := []flash.Part{b.output(p.DType), b.output(p.DType)}, b.output(p.DType)
		return errors.Join(b.err, r.Merge(flash.Merge{Parts: parts, O: to.O, LSE: to.LSE}))
	})
}

func (b *besides) accumulate() (*pipeline.Listing, error) {
	p := &b.p
	plan, err := b.d.dev.PlanAccumulate(flash.AccumulateProblem{Rule: flash.AccumulateJoin, X: p.DType, Y: flash.F32,
		Shape: [4]int{p.Batch, p.Heads, p.QueryLen, p.ValueDim}})
	return listed(b, plan.Close, err, func() (*flash.Recording, error) { return plan.NewRecording() }, func(r *flash.Recording) error {
		x, y := b.output(p.DType), b.output(flash.F32)
		lse := b.tensor(flash.F32, [4]int{p.Batch, p.Heads, p.QueryLen, 1})
		return errors.Join(b.err, r.Accumulate(flash.Accumulate{X: x.O, Y: y.O, XLSE: x.LSE, YLSE: y.LSE, LSE: lse}))
	})
}

// listed lists a recording of a plan, both of which are closed with the rest.
func listed[R interface {
	tune.Commands
	Close() error
}](b *besides, closePlan func() error, err error, recording func() (R, error), prepare func(R) error) (*pipeline.Listing, error) {
	b.made = append(b.made, closePlan)
	if err != nil {
		return nil, err
	}
	return tune.List(b.d.dev, func() (R, error) {
		r, err := recording()
		b.made = append(b.made, r.Close)
		if err != nil {
			return r, err
		}
		return r, prepare(r)
	})
}
