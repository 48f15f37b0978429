package heads

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/lists"
	"github.com/vkattn/vkattn/flash"
)

// Pictures are maps of some heads of a batch entry.
type Pictures struct {
	Cells         [][]float32 // of each head
	Rows, Columns int
	Time          time.Duration // of the device, of the maps of all these heads; 0 where it does not tell
	Kernel        string
}

// Listed are problems with lists of keys: attention over the keys that are listed alone, and what its maps are of, for which a mask of
// lists.Lists.Bits stands for the lists.
func Listed(p flash.Problem, l *lists.Lists) (attending, mapped flash.Problem) {
	attending, mapped = p, p
	attending.Lists = flash.Lists{Keys: l.Longest, PerHead: l.Heads > 1}
	mapped.Mask = flash.PerScore{DType: flash.Bit, Batch: 1, Heads: l.Shown(p.Heads), Queries: p.QueryLen, Keys: p.KeyLen}
	return attending, mapped
}

// ListsShape is that of the tensor of numbers.
func ListsShape(l *lists.Lists) [4]int { return [4]int{1, l.Heads, l.Queries, l.Longest} }

// BitsLayout is the shape and the strides of the tensor of bits.
func BitsLayout(l *lists.Lists, heads int) (shape, strides [4]int) {
	row := 32 * l.Pitch()
	return [4]int{1, l.Shown(heads), l.Queries, l.Keys}, [4]int{l.Shown(heads) * l.Queries * row, l.Queries * row, row, 1}
}

// Map computes maps of a batch entry's heads on a device; rows and columns are the most cells.
func (h *Heads) Map(ctx context.Context, dev *flash.Device, of flash.Map, rows, columns int) (out *Pictures, err error) {
	p := h.Problem
	var owned []interface{ Close() error }
	defer func() {
		for _, x := range slices.Backward(owned) {
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
	attending, mapped := p, p
	if h.Lists != nil {
		attending, mapped = Listed(p, h.Lists)
	}
	planned := func(p flash.Problem) *flash.Plan {
		plan, e := dev.Plan(p)
		if e == nil {
			owned = append(owned, plan)
		}
		err = errors.Join(err, e)
		return plan
	}
	plan := planned(mapped)
	if err != nil {
		return nil, err
	}
	f := flash.Forward{Q: tensor(p.DType, p.QShape(), h.Q), K: tensor(p.DType, p.KShape(), h.K), O: tensor(p.DType, p.OShape(), nil),
		LSE: tensor(flash.F32, p.LSEShape(), nil)}
	f.V = f.K // of the same shape; o is not looked at
	of.Forward = f
	forward := plan
	if l := h.Lists; l != nil {
		forward = planned(attending)
		f.Lists = tensor(flash.Int32, ListsShape(l), l.Numbers)
		bits := l.Bits(p.Heads)
		whole := tensor(flash.Bool, [4]int{1, 1, 1, len(bits)}, nil)
		if err != nil {
			return nil, err
		}
		if err = whole.UploadBytes(ctx, bits); err != nil {
			return nil, err
		}
		shape, strides := BitsLayout(l, p.Heads)
		if of.Mask, err = whole.View(0, flash.Bit, shape, strides); err != nil {
			return nil, err
		}
	}
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
	if err = forward.Forward(ctx, f); err != nil {
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
