package main

import (
	"context"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
)

// wholeAttention attends over whole sequences, all of one length, and gives the gradients: what training needs. It is fp32.
//
// Queries and keys are turned on the device by the kernel that generation uses too, and their gradients back by the same one with Inverse,
// the gradient of a rotation being that by the negative angle. So no second rotation on the host has to agree with it about pairs and
// angles.
type wholeAttention struct {
	config
	owned
	plans      []*flash.Plan // of each layer; layers with the same window share one
	turn, back *rows.Plan
	layers     []wholeLayer
	do         [2]*flash.Tensor // as rows, and as heads
	grad       packed
	drop       uint32 // offset of dropout: another one in every step
}

// wholeLayer is what a layer's forward pass leaves on the device for its backward pass.
type wholeLayer struct {
	packed
	rows, o, lse *flash.Tensor
}

func newWholeAttention(dev *flash.Device, c config, batch, length int, dropout float64) (a *wholeAttention, err error) {
	a = &wholeAttention{config: c}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	shared := map[flash.Window]*flash.Plan{}
	for i := range c.layers {
		w := windowOf(c.seen(i))
		if shared[w] == nil {
			shared[w], err = a.plan(dev, flash.Problem{Batch: batch, Heads: c.heads, KeyHeads: c.keyHeads, QueryLen: length, HeadDim: c.dim,
				DType:  flash.F32,
				Causal: flash.CausalBottomRight, Window: w, Dropout: dropout})
			if err != nil {
				return a, err
			}
		}
		a.plans = append(a.plans, shared[w])
		var l wholeLayer
		if l.packed, err = a.packed(dev, flash.F32, c, batch, length); err != nil {
			return a, err
		}
		if l.rows, l.o, err = a.headRows(dev, batch, length); err != nil {
			return a, err
		}
		if l.lse, err = dev.NewLSE(batch, c.heads, length); err != nil {
			return a, err
		}
		a.owned = append(a.owned, l.lse)
		a.layers = append(a.layers, l)
	}
	if a.do[0], a.do[1], err = a.headRows(dev, batch, length); err != nil {
		return a, err
	}
	if a.grad, err = a.packed(dev, flash.F32, c, batch, length); err != nil {
		return a, err
	}
	r := rows.RotateProblem{Batch: batch, Heads: c.heads + c.keyHeads, Rows: length, HeadDim: c.dim, DType: flash.F32}
	if a.turn, err = a.rotation(dev, r); err != nil {
		return a, err
	}
	r.Inverse = true
	a.back, err = a.rotation(dev, r)
	return a, err
}

// headRows allocates rows of all query heads, and gives them as heads as well.
func (a *wholeAttention) headRows(dev *flash.Device, batch, length int) (rows, heads *flash.Tensor, err error) {
	if rows, err = a.rows(dev, flash.F32, batch, length, a.heads*a.dim); err != nil {
		return nil, nil, err
	}
	heads, err = headsOf(rows, 0, a.heads, a.dim)
	return rows, heads, err
}

// forward is a layer's pass, which attend runs and differentiate differentiates.
func (a *wholeAttention) forward(layer int) flash.Forward {
	l := &a.layers[layer]
	return flash.Forward{Q: l.q, K: l.k, V: l.v, O: l.o, LSE: l.lse, Seed: uint64(layer), Offset: a.drop}
}

// attend implements attention for a batch of whole sequences, one after the other.
func (a *wholeAttention) attend(ctx context.Context, layer int, qkv, o []float32) error {
	l := &a.layers[layer]
	if err := l.all.Upload(ctx, qkv); err != nil {
		return err
	}
	if err := a.turn.Rotate(ctx, rows.Rotation{X: l.turned}); err != nil { // q and k at once: their heads are neighbours
		return err
	}
	if err := a.plans[layer].Forward(ctx, a.forward(layer)); err != nil {
		return err
	}
	return l.rows.Download(ctx, o)
}

// differentiate gives the gradient of the loss by qkv from that by o, for the latest attend of the layer.
func (a *wholeAttention) differentiate(ctx context.Context, layer int, do, dqkv []float32) error {
	if err := a.do[0].Upload(ctx, do); err != nil {
		return err
	}
	err := a.plans[layer].Backward(ctx, flash.Backward{Forward: a.forward(layer), DO: a.do[1], DQ: a.grad.q, DK: a.grad.k, DV: a.grad.v})
	if err != nil {
		return err
	}
	if err := a.back.Rotate(ctx, rows.Rotation{X: a.grad.turned}); err != nil {
		return err
	}
	return a.grad.all.Download(ctx, dqkv)
}
