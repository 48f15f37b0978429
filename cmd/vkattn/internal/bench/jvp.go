package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/ref"
)

// tangentSet is what a pass in forward mode takes and gives besides a tensorSet's tensors.
type tangentSet struct{ lse, q, k, v, o, oLSE *flash.Tensor }

func (t *tangentSet) all() []*flash.Tensor { return []*flash.Tensor{t.lse, t.q, t.k, t.v, t.o, t.oLSE} }

func (d *Device) newTangents(ctx context.Context, p flash.Problem, in *inputs) (t tangentSet, err error) {
	if err = d.fill(ctx, []filled{{&t.q, p.DType, p.QShape(), in.q.place.bnhd, in.qt.bytes},
		{&t.k, p.DType, p.KShape(), in.k.place.bnhd, in.kt.bytes}, {&t.v, p.DType, p.VShape(), in.v.place.bnhd, in.vt.bytes},
		{&t.o, p.DType, p.OShape(), in.q.place.bnhd, nil}}); err != nil {
		return t, err
	}
	if t.lse, err = d.newLSE(p); err == nil {
		t.oLSE, err = d.newLSE(p)
	}
	return t, err
}

func (s *deviceShape) jvp(set int, mask masks) flash.JVP {
	t := &s.sets[set].moves
	return flash.JVP{Forward: s.forward(set, t.lse, mask), QTangent: t.q, KTangent: t.k, VTangent: t.v, OTangent: t.o, LSETangent: t.oLSE}
}

// measureJVP times the pass in forward mode of a plan on the sets, after a forward pass on each, with tangents of q, k and v, and compares
// what the last run gave with the reference.
func (s *deviceShape) measureJVP(ctx context.Context, row *result.Row, plan *flash.Plan, mask masks, limit time.Duration,
	verify bool) error {
	info, err := plan.JVPInfo()
	if err != nil {
		return err
	}
	row.JVPKernel = info.Kernel
	before := s.d.dev.Usage()
	first := &s.sets[0]
	runs, err := s.recordings(ctx, &row.JVP, before, first.bytes()+bytesOf(first.moves.all()...), func(i int) (*flash.Recording, error) {
		if verify {
			if err := poison(ctx, s.sets[i].moves.o); err != nil {
				return nil, err
			}
		}
		if err := plan.Forward(ctx, s.forward(i, s.sets[i].moves.lse, mask)); err != nil {
			return nil, err
		}
		s.d.dev.ResetPeak() // forward's own workspace is not this pass's
		r, err := plan.NewRecording(flash.ForJVP())
		if err != nil {
			return nil, err
		}
		return r, r.JVP(s.jvp(i, mask))
	})
	defer closeAll(runs)
	if err != nil {
		return err
	}
	model, err := tune.JVPModel(plan)
	if err != nil {
		return err
	}
	if row.JVP.LeastBytes, err = s.c.Least(tune.LeastJVPBytes); err != nil {
		return err
	}
	if err := count(row, &row.JVP, model, plan.Problem()); err != nil {
		return err
	}
	last, err := s.time(ctx, row, &row.JVP, row.JVPFLOPs(), limit, runs, func() error { return runs[0].JVP(s.jvp(0, mask)) })
	if err != nil || !verify {
		return err
	}
	res, err := s.checkJVP(ctx, last)
	if err != nil {
		return err
	}
	row.JVPCheck = res.outcome()
	if res.err != nil {
		return Wrong(fmt.Errorf("tangents: %w", res.err))
	}
	return nil
}

// checkJVP compares rows of the tangents of o and lse with float64: all of a small problem, else some of several heads.
func (s *deviceShape) checkJVP(ctx context.Context, last int) (checked, error) {
	set := &s.sets[last]
	var got, want, plain outputs
	res := checked{}
	for head := range heads(sampleRows(s.c, result.InputSeed)) {
		if err := ctx.Err(); err != nil {
			return res, err
		}
		p, local := set.in.head(s.c, head, uint32(last))
		d := set.in.tangents(s.c, head)
		o, lse, err := ref.JVPRows(p, local, d)
		if err != nil {
			return res, err
		}
		want.o, want.lse = append(want.o, slices.Concat(o...)...), append(want.lse, lse...)
		if o, lse, err = ref.PlainJVPRows(p, set.in.dtype, local, d); err != nil {
			return res, err
		}
		plain.o, plain.lse = append(plain.o, slices.Concat(o...)...), append(plain.lse, lse...)
		device, deviceLSE, err := readRows(ctx, s.c, set.moves.o, set.moves.oLSE, head)
		if err != nil {
			return res, err
		}
		got.o, got.lse = append(got.o, device...), append(got.lse, deviceLSE...)
		res.rows += len(head)
	}
	for i := range got.o {
		res.maxErr = max(res.maxErr, math.Abs(got.o[i]-want.o[i])) // max keeps a NaN
	}
	v := ref.CheckGradient(got.o, want.o, plain.o, set.in.dtype)
	if set.in.dtype != ref.F32 {
		res.bound = v.Bound
	}
	if !v.OK {
		res.err = fmt.Errorf("o's tangent is wrong: %v of %d rows checked", v, res.rows)
		return res, nil
	}
	if v := ref.CheckGradient(got.lse, want.lse, plain.lse, set.in.dtype); !v.OK {
		res.err = fmt.Errorf("lse's tangent is wrong: %v of %d rows checked", v, res.rows)
	}
	return res, nil
}

// tangents are those of the problem that head makes of the same rows.
func (in *inputs) tangents(c result.Case, rows []ref.Row) ref.Tangents {
	b, h := rows[0].B, rows[0].H
	own := c.Entry(b)
	kv := b*c.Hkv + h/(c.H/c.Hkv)
	q := ref.NewTensor(1, 1, own.Nq, c.D)
	for _, r := range rows {
		copy(q.Row(0, 0, r.I), in.qt.Floats((uint64(b*c.H+h)*uint64(c.Nq)+uint64(r.I))*uint64(c.D), c.D))
	}
	return ref.Tangents{Q: &q, K: &ref.Tensor{B: 1, H: 1, N: own.N, D: c.D, Data: in.kt.head(kv, own.N)},
		V: &ref.Tensor{B: 1, H: 1, N: own.N, D: c.Dv, Data: in.vt.head(kv, own.N)}}
}
