package flash

import (
	"context"
	"errors"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Attention computes o [B,Hq,Nq,Dv] of a problem for slices in row-major order: q [B,Hq,Nq,D], k [B,Hk,Nk,D], v [B,Hk,Nk,Dv]. Values are
// rounded to the problem's DType (the zero value is F32) on the way in. It runs on the best device of the machine, which is opened by the
// first call and kept; each call plans, allocates, copies and frees, so a loop does better with a [Plan]. Problems with dropout or a block
// mask need one, for their seed or mask. Errors are those of [Open], [Device.Plan] and [Plan.Forward].
func Attention(ctx context.Context, q, k, v []float32, p Problem) ([]float32, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	d, err := defaultDevice()
	if err != nil {
		return nil, err
	}
	return d.Attention(ctx, q, k, v, p)
}

// Attention is the function [Attention] on this device.
func (d *Device) Attention(ctx context.Context, q, k, v []float32, p Problem) (o []float32, err error) {
	defer during("Attention", &err)
	if p, err = p.Normalize(); err != nil {
		return nil, err
	}
	plain := p.attn()
	if plain.DropThreshold() > 0 {
		return nil, badArgument("Problem.Dropout", p.Dropout, "needs a seed, which Plan.Forward takes")
	}
	if p.Blocks != (Blocks{}) {
		return nil, badArgument("Problem.Blocks", p.Blocks, "needs a block mask, which Plan.Forward takes")
	}
	if kernel.NeedsMore(&plain) || len(p.Captures()) > 0 {
		return nil, badArgument("Problem", p, "needs tensors beside q, k and v, which Plan.Forward takes")
	}
	for _, s := range []struct {
		name  string
		len   int
		shape [4]int
	}{{"q", len(q), p.QShape()}, {"k", len(k), p.KShape()}, {"v", len(v), p.VShape()}} {
		if n, _ := attn.Elements(s.shape); uint64(s.len) != n {
			return nil, badArgument("len("+s.name+")", s.len, "must be %d, for shape %v", n, s.shape)
		}
	}
	plan, err := d.Plan(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()

	var t [4]*Tensor
	for i, shape := range [...][4]int{p.QShape(), p.KShape(), p.VShape(), p.OShape()} {
		if t[i], err = d.NewTensor(p.DType, shape[0], shape[1], shape[2], shape[3]); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, t[i].Close()) }()
	}
	for i, values := range [...][]float32{q, k, v} {
		if err := t[i].Upload(ctx, values); err != nil {
			return nil, err
		}
	}
	f := Forward{Q: t[0], K: t[1], V: t[2], O: t[3]}
	if p.MaskBlocks != (Blocks{}) {
		if f.MaskBlocks, err = d.NewMaskBlocks(ctx, p); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.MaskBlocks.Close()) }()
	}
	if err := plan.Forward(ctx, f); err != nil {
		return nil, err
	}
	o = make([]float32, t[3].Elements())
	if err := t[3].Download(ctx, o); err != nil {
		return nil, err
	}
	return o, nil
}

var shared struct {
	sync.Mutex
	dev *Device
}

// defaultDevice gives the process's own device, opened anew when there is none or the last one was lost.
func defaultDevice() (*Device, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.dev != nil && shared.dev.usable() == nil {
		return shared.dev, nil
	}
	if shared.dev != nil {
		shared.dev.Close() // lost: its error was reported when it happened
		shared.dev = nil
	}
	d, err := Open()
	if err != nil {
		return nil, err
	}
	shared.dev = d
	return d, nil
}
