package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/vkattn/vkattn/flash"
)

// attention is this library's part: the tensors stay on the device, and each pass is a recording made once. A matrix of
// tokens × width lies in memory as [batch, length, heads, dim], so nothing is rearranged on the way.
type attention struct {
	plan              *flash.Plan
	pass              flash.Backward // and the forward pass in it
	forward, backward *flash.Recording
	tensors           []*flash.Tensor
	offset            uint32 // of dropout: another one in every step
	raw               []byte
}

func newAttention(dev *flash.Device, s shape, dropout float64) (a *attention, err error) {
	a = &attention{}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	a.plan, err = dev.Plan(flash.Problem{Batch: s.batch, Heads: s.heads, QueryLen: s.length, HeadDim: s.dim,
		DType: flash.F32, Causal: flash.CausalBottomRight, Dropout: dropout})
	if err != nil {
		return a, err
	}
	p := &a.pass
	for _, t := range []**flash.Tensor{&p.Q, &p.K, &p.V, &p.O, &p.DO, &p.DQ, &p.DK, &p.DV} {
		if *t, err = dev.NewTensorBNHD(flash.F32, s.batch, s.heads, s.length, s.dim); err != nil {
			return a, err
		}
		a.tensors = append(a.tensors, *t)
	}
	if p.LSE, err = dev.NewLSE(s.batch, s.heads, s.length); err != nil {
		return a, err
	}
	a.tensors = append(a.tensors, p.LSE)
	p.Seed = 2026
	if a.forward, err = a.plan.NewRecording(); err != nil {
		return a, err
	}
	a.backward, err = a.plan.NewRecording(flash.ForBackward())
	return a, err
}

func (a *attention) close() error {
	err := errors.Join(a.forward.Close(), a.backward.Close(), a.plan.Close())
	for _, t := range a.tensors {
		err = errors.Join(err, t.Close())
	}
	return err
}

// run computes o from q, k and v.
func (a *attention) run(ctx context.Context, q, k, v, o []float64) error {
	a.pass.Offset = a.offset
	if err := errors.Join(a.upload(ctx, a.pass.Q, q), a.upload(ctx, a.pass.K, k), a.upload(ctx, a.pass.V, v)); err != nil {
		return err
	}
	if err := a.forward.Forward(a.pass.Forward); err != nil {
		return err
	}
	if err := submit(ctx, a.forward); err != nil {
		return err
	}
	return a.download(ctx, a.pass.O, o)
}

// differentiate computes dq, dk and dv from do, for the inputs of the latest run.
func (a *attention) differentiate(ctx context.Context, do, dq, dk, dv []float64) error {
	if err := a.upload(ctx, a.pass.DO, do); err != nil {
		return err
	}
	if err := a.backward.Backward(a.pass); err != nil {
		return err
	}
	if err := submit(ctx, a.backward); err != nil {
		return err
	}
	return errors.Join(a.download(ctx, a.pass.DQ, dq), a.download(ctx, a.pass.DK, dk), a.download(ctx, a.pass.DV, dv))
}

func submit(ctx context.Context, r *flash.Recording) error {
	pending, err := r.Submit()
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}

func (a *attention) upload(ctx context.Context, t *flash.Tensor, x []float64) error {
	a.raw = a.raw[:0]
	for _, v := range x {
		a.raw = binary.NativeEndian.AppendUint32(a.raw, math.Float32bits(float32(v)))
	}
	return t.UploadBytes(ctx, a.raw)
}

func (a *attention) download(ctx context.Context, t *flash.Tensor, x []float64) error {
	a.raw = append(a.raw[:0], make([]byte, 4*len(x))...)
	if err := t.DownloadBytes(ctx, a.raw); err != nil {
		return err
	}
	for i := range x {
		x[i] = float64(math.Float32frombits(binary.NativeEndian.Uint32(a.raw[4*i:])))
	}
	return nil
}
