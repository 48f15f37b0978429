package heads

import (
	"context"
	"errors"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// Pictures are maps of some heads of a batch entry.
type Pictures struct {
	Cells         [][]float32 // of each head
	Rows, Columns int
	Time          time.Duration // of the device, of the maps of all these heads; 0 where it does not tell
	Kernel        string
}

// Map computes maps of a batch entry's heads on a device; rows and columns are the most cells.
func (h *Heads) Map(ctx context.Context, dev *flash.Device, of flash.Map, rows, columns int) (out *Pictures, err error) {
	p := h.Problem
	var owned []interface{ Close() error }
	defer func() {
		for _, x := range owned {
			err = errors.Join(err, x.Close())
		}
	}()
	tensor := func(t flash.DType, s [4]int, values []float32) *flash.Tensor {
		x, e := dev.NewTensor(t, s[0], s[1], s[2], s[3])
		if e == nil {
			owned = append(owned, x)
			if values != nil {
				e = x.Upload(ctx, values)
			}
		}
		err = errors.Join(err, e)
		return x
	}
	plan, err := dev.Plan(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	f := flash.Forward{Q: tensor(p.DType, p.QShape(), h.Q), K: tensor(p.DType, p.KShape(), h.K), O: tensor(p.DType, p.OShape(), nil),
		LSE: tensor(flash.F32, p.LSEShape(), nil)}
	f.V = f.K // of the same shape; o is not looked at
	of.Forward = f
	fill := func(r *flash.Range, n int) int {
		if *r == (flash.Range{}) {
			r.End = n
		}
		return r.End - r.Begin
	}
	heads, batches := fill(&of.Heads, p.Heads), fill(&of.Batches, p.Batch)
	out = &Pictures{Rows: min(rows, fill(&of.Queries, p.QueryLen)), Columns: min(columns, fill(&of.Keys, p.KeyLen))}
	if batches != 1 || heads < 1 || out.Rows < 1 || out.Columns < 1 {
		return nil, errors.New("a map must be of one batch entry, and of some heads, queries and keys")
	}
	if of.Out = tensor(flash.F32, [4]int{1, heads, out.Rows, out.Columns}, nil); err != nil {
		return nil, err
	}
	if err = plan.Forward(ctx, f); err != nil {
		return nil, err
	}
	rec, err := plan.NewMapRecording(flash.WithTimestamps())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rec.Close()) }()
	if err = rec.Map(of); err != nil {
		return nil, err
	}
	for range 2 { // the first time a device may still be waking up
		pending, err := rec.Submit()
		if err == nil {
			err = pending.Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	out.Time, _ = rec.GPUTime()
	info, err := plan.MapInfo()
	if err != nil {
		return nil, err
	}
	out.Kernel = info.Kernel
	all := make([]float32, heads*out.Rows*out.Columns)
	if err = of.Out.Download(ctx, all); err != nil {
		return nil, err
	}
	for i := range heads {
		out.Cells = append(out.Cells, all[i*out.Rows*out.Columns:(i+1)*out.Rows*out.Columns])
	}
	return out, nil
}
