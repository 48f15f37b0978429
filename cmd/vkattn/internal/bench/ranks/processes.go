package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

// told is what a rank tells the others: after a pass, after a round of passes, and after all rounds.
type told struct {
	Waited float64 // after a pass: by the rank's host in it, in ms
	More   bool    // after a round, of rank 0: there is another
	Memory uint64  // after all: bytes of the rank's device at most
	MaxErr float64 // after all: of the rank's rows that were compared
}

// gather gives every rank what each of them has.
func gather[T any](ctx context.Context, comm ring.Comm, mine T) ([]T, error) {
	raw, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := comm.AllGather(ctx, raw)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for i, raw := range all {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return out, nil
}

// MeasureProcesses is Measure where ranks are processes. All of them call it with the same problem; the first runs it alone while the
// others wait. Times are those of the first, from a barrier to a barrier. After an error the communicator serves no more.
func MeasureProcesses(ctx context.Context, comm ring.Comm, d *flash.Device, p flash.Problem, o Options) (r Result) {
	r.Device, r.Ranks, r.Tokens = d.Info().Name, comm.Size(), p.QueryLen
	fail := func(err error) Result {
		comm.Abort(err)
		r.Failure = bench.FailureOf(err)
		return r
	}
	p, err := p.Normalize()
	if err != nil {
		return fail(err)
	}
	r.Problem = p.String()
	data := newNoise(p.DType)
	var one passes
	if comm.Rank() == 0 {
		if one, err = o.one(ctx, d, data, p, &r); err != nil {
			return fail(fmt.Errorf("on one device: %w", err))
		}
	}
	if err := comm.Barrier(ctx); err != nil {
		return fail(err)
	}
	many, err := measureRank(ctx, comm, d, data, p, o.shardOf(&p, one), o, &r)
	if err != nil {
		return fail(err)
	}
	o.compare(&r, &p, one, many)
	return r
}

// measureRank times the ring as one of its ranks.
func measureRank(ctx context.Context, comm ring.Comm, d *flash.Device, data *noise, p flash.Problem, shard ring.Shard, o Options,
	r *Result) (out passes, err error) {
	d.ResetPeak()
	before := d.Usage().Current
	rk, err := ring.New(comm, d)
	if err != nil {
		return out, err
	}
	plan, err := rk.Plan(ctx, p, shard)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	s, err := newSet(ctx, d, data, plan.Local(), plan.Queries(), plan.Keys(), o.Backward)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return out, err
	}
	// pass gives its time in ms, from barrier to barrier, and the longest that any rank's host waited in it for what had not arrived.
	pass := func(run func(context.Context) error) (took, waited float64, err error) {
		limited, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		if err := comm.Barrier(limited); err != nil {
			return 0, 0, err
		}
		begun := time.Now()
		if err := run(limited); err != nil {
			return 0, 0, err
		}
		if err := comm.Barrier(limited); err != nil {
			return 0, 0, err
		}
		took = ms(time.Since(begun))
		all, err := gather(limited, comm, told{Waited: ms(plan.Waited())})
		for _, x := range all {
			waited = max(waited, x.Waited)
		}
		return took, waited, err
	}
	forward := func(ctx context.Context) error { return plan.Forward(ctx, s.forward()) }
	backward := func(ctx context.Context) error { return plan.Backward(ctx, s.backward()) }
	start := time.Now()
	for n := -1; ; n++ {
		fwd, fwdWaited, err := pass(forward)
		if err != nil {
			return out, err
		}
		if n >= 0 {
			out.fwd, out.fwdWaited = append(out.fwd, fwd), append(out.fwdWaited, fwdWaited)
		}
		if o.Backward {
			bwd, bwdWaited, err := pass(backward)
			if err != nil {
				return out, err
			}
			if n >= 0 {
				out.bwd, out.bwdWaited = append(out.bwd, bwd), append(out.bwdWaited, bwdWaited)
			}
		}
		if n < 0 {
			start = time.Now()
		}
		all, err := gather(ctx, comm, told{More: n < 0 || !o.enough(n+1, start)})
		if err != nil {
			return out, err
		}
		if !all[0].More {
			break
		}
	}
	for i, run := range []func(context.Context) error{forward, backward} {
		if i == 1 && !o.Backward {
			break
		}
		if out.traced[i], err = tracePass(ctx, comm, plan, o, run); err != nil {
			return out, err
		}
	}
	off, err := data.check(ctx, p, s.o, plan.Queries())
	if err != nil {
		return out, err
	}
	all, err := gather(ctx, comm, told{Memory: d.Usage().Peak - before, MaxErr: off})
	for _, x := range all {
		r.MemoryRank, off = max(r.MemoryRank, x.Memory), max(off, x.MaxErr)
	}
	r.Check = checkOf(off, len(all))
	r.Order, r.Direct, r.BlockBytes = plan.Order().String(), plan.Direct(), plan.BlockBytes()
	o.count(r, p, plan.Over())
	return out, err
}

// tracePass runs one more pass, and gives what every rank did in it: times count from when that rank left the barrier before.
func tracePass(ctx context.Context, comm ring.Comm, plan *ring.Plan, o Options, run func(context.Context) error) ([]noted, error) {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var trace ring.Trace
	plan.Trace(&trace)
	defer plan.Trace(nil)
	if err := comm.Barrier(limited); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := run(limited); err != nil {
		return nil, err
	}
	return gather(limited, comm, notes(comm.Rank(), trace.Take(), begun, time.Now()))
}
