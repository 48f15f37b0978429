//go:build mpi

package mpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/vk"
)

// compute: a forward and a backward pass over the ranks, of a length that none of their numbers divides, against float64. All ranks make the same inputs, and
// what they compute is gathered.
func compute(ctx context.Context, c Comm) (err error) {
	p, err := flash.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 151, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight}.Normalize()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var messages []string
	d, err := flash.Open(flash.WithoutDiskCache(), flash.WithValidation(func(m flash.Message) {
		mu.Lock()
		defer mu.Unlock()
		messages = append(messages, m.ID+": "+m.Text)
	}))
	if errors.Is(err, vk.ErrLayerMissing) && os.Getenv("VKATTN_REQUIRE_VALIDATION") != "1" {
		d, err = flash.Open(flash.WithoutDiskCache())
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.Close())
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			err = errors.Join(err, errors.New(m))
		}
	}()
	r, err := ring.New(c, d)
	if err != nil {
		return err
	}
	plan, err := r.Plan(ctx, p, ring.Shard{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()

	source := rand.New(rand.NewPCG(3, uint64(c.Size())))
	random := func(shape [4]int) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		for i := range x.Data {
			x.Data[i] = float32(source.NormFloat64())
		}
		return x
	}
	in := ref.Problem{Q: random(p.QShape()), K: random(p.KShape()), V: random(p.VShape()), Options: ref.Options{Scale: p.Scale, Causal: ref.BottomRight}}
	do := random(p.OShape())
	queries, keys := plan.Queries(), plan.Keys()
	place := func(from *ref.Tensor, spans []ring.Span, columns int) *flash.Tensor {
		rows, values := 0, []float32(nil)
		for _, s := range spans {
			rows += s.Len()
		}
		heads := p.Heads
		if from != nil {
			heads = from.H
		}
		for h := range heads {
			for _, s := range spans {
				for i := s.Begin; i < s.End; i++ {
					if from != nil {
						values = append(values, from.Row(0, h, i)...)
					} else {
						for range columns { // poison
							values = append(values, 12345)
						}
					}
				}
			}
		}
		t, e := d.NewTensor(flash.F32, 1, heads, rows, columns)
		if e == nil {
			e = t.Upload(ctx, values)
		}
		err = errors.Join(err, e)
		return t
	}
	q, k, v := place(&in.Q, queries, p.HeadDim), place(&in.K, keys, p.HeadDim), place(&in.V, keys, p.ValueDim)
	o, lse, tdo := place(nil, queries, p.ValueDim), place(nil, queries, 1), place(&do, queries, p.ValueDim)
	poison := ref.NewTensor(1, p.KeyHeads, p.KeyLen, p.HeadDim)
	for i := range poison.Data {
		poison.Data[i] = 12345
	}
	dq, dk, dv := place(nil, queries, p.HeadDim), place(&poison, keys, p.HeadDim), place(&poison, keys, p.ValueDim)
	defer func() {
		for _, t := range []*flash.Tensor{q, k, v, o, lse, tdo, dq, dk, dv} {
			if t != nil {
				err = errors.Join(err, t.Close())
			}
		}
	}()
	if err != nil {
		return err
	}
	if err := plan.Forward(ctx, flash.Forward{Q: q, K: k, V: v, O: o, LSE: lse}); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	if err := plan.Backward(ctx, flash.Backward{Q: q, K: k, V: v, O: o, LSE: lse, DO: tdo, DQ: dq, DK: dk, DV: dv}); err != nil {
		return fmt.Errorf("backward: %w", err)
	}

	type share struct {
		Queries, Keys []ring.Span
		Values        [5][]float32
	}
	mine := share{Queries: queries, Keys: keys}
	for i, t := range []*flash.Tensor{o, lse, dq, dk, dv} {
		mine.Values[i] = make([]float32, t.Elements())
		if err := t.Download(ctx, mine.Values[i]); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := c.AllGather(ctx, raw)
	if err != nil {
		return err
	}
	var got [5]ref.Array
	for i, shape := range [][4]int{p.OShape(), p.LSEShape(), p.QShape(), p.KShape(), p.VShape()} {
		got[i] = ref.NewArray(shape[0], shape[1], shape[2], shape[3])
	}
	for _, raw := range all {
		var s share
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		for i, a := range got {
			spans, values := s.Queries, s.Values[i]
			if i > 2 {
				spans = s.Keys
			}
			for h := range a.H {
				for _, span := range spans {
					for n := span.Begin; n < span.End; n++ {
						row := a.Row(0, h, n)
						for col := range row {
							row[col] = float64(values[col])
						}
						values = values[len(row):]
					}
				}
			}
		}
	}
	wantO, wantLSE, err := ref.Forward(in)
	if err != nil {
		return err
	}
	plainO, _, err := ref.PlainForward(in, ref.F32)
	if err != nil {
		return err
	}
	grad, err := ref.Backward(in, do, nil)
	if err != nil {
		return err
	}
	plain, err := ref.PlainBackward(in, ref.F32, do, nil)
	if err != nil {
		return err
	}
	for name, v := range map[string]ref.Verdict{
		"o":   ref.CheckOutput(got[0].Data, wantO.Data, plainO.Data, ref.F32),
		"lse": ref.CheckLSE(got[1].Data, wantLSE.Data, nil, ref.F32),
		"dq":  ref.CheckGradient(got[2].Data, grad.DQ.Data, plain.DQ.Data, ref.F32),
		"dk":  ref.CheckGradient(got[3].Data, grad.DK.Data, plain.DK.Data, ref.F32),
		"dv":  ref.CheckGradient(got[4].Data, grad.DV.Data, plain.DV.Data, ref.F32),
	} {
		if !v.OK {
			err = errors.Join(err, fmt.Errorf("%s: %v", name, v))
		}
	}
	return err
}
