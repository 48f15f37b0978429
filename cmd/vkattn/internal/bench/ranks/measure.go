package ranks

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/ring"
)

// Result is a problem on several devices beside one.
type Result = result.RingRow

// Options say how much is measured.
type Options struct {
	Backward bool
	Stream   bool          // on one device, with keys and values from the host
	Runs     int           // of each, at least
	Least    time.Duration // spent on each, at least
	Most     time.Duration // spent on each, after which two runs are enough; 0: no limit
	Timeout  time.Duration // of a pass
	Over     string        // one of Overs; "": a ring
	PerHost  int           // ranks of a host, with OverBoth
	Link     Link          // that predictions are made from, and a choice with OverAuto
	Alone    *Alone        // what is known of one device; nil: it is measured
	// Lanes, where set, gets all that ranks did in the pass that is traced; the row has what follows the same at once as one.
	Lanes func(backward bool, lanes []result.RingLane)
}

// passes are times of forward and backward passes in milliseconds, and what ranks did in one more of each; nil where that is not known.
type passes struct {
	fwd, bwd, fwdWaited, bwdWaited []float64
	traced                         [2][]noted
}

// enough says whether that was long and often enough.
func (o *Options) enough(n int, since time.Time) bool {
	took := time.Since(since)
	return n >= o.Runs && took >= o.Least || n >= fewestRuns && o.Most > 0 && took >= o.Most
}

// fewestRuns is how often passes that take very long run.
const fewestRuns = 2

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// Measure runs a problem on the first of the devices alone, and then on all of them.
func Measure(ctx context.Context, devices []*flash.Device, p flash.Problem, o Options) (r Result) {
	r.Device, r.Ranks, r.Tokens = devices[0].Info().Name, len(devices), p.QueryLen
	fail := func(err error) Result {
		r.Failure = bench.FailureOf(err)
		return r
	}
	p, err := p.Normalize()
	if err != nil {
		return fail(err)
	}
	r.Problem = p.String()
	data := newNoise(p.DType)
	one, err := o.one(ctx, devices[0], data, p, &r)
	if err != nil {
		return fail(fmt.Errorf("on one device: %w", err))
	}
	var many passes
	if o.Stream {
		many, err = measureStream(ctx, devices[0], data, p, o, &r)
	} else {
		many, err = measureRanks(ctx, devices, data, p, o.shardOf(&p, one), o, &r)
	}
	if err != nil {
		return fail(err)
	}
	o.compare(&r, &p, one, many)
	return r
}

// one gives what the problem takes on one device: what is known of it, or what it measures.
func (o *Options) one(ctx context.Context, d *flash.Device, data *noise, p flash.Problem, r *Result) (passes, error) {
	if one, known := o.Alone.use(r, o.Backward); known {
		return one, nil
	}
	one, err := measureOne(ctx, d, data, p, *o, r)
	if err == nil && o.Alone != nil {
		o.Alone.measured(r, one)
	}
	return one, err
}

// compare sets the times of the passes.
func (o *Options) compare(r *Result, p *flash.Problem, one, many passes) {
	pass := func(one, many, waited []float64) result.RingPass {
		if len(one) == 0 || len(many) == 0 {
			return result.RingPass{}
		}
		x := result.RingPass{One: result.Median(one), Ranks: result.Median(many), Waited: result.Median(waited)}
		x.Speed = x.One / x.Ranks
		return x
	}
	r.Fwd, r.Bwd = pass(one.fwd, many.fwd, many.fwdWaited), pass(one.bwd, many.bwd, many.bwdWaited)
	for i, p := range []*result.RingPass{&r.Fwd, &r.Bwd} {
		if all := many.traced[i]; len(all) > 0 && p.Ranks > 0 {
			p.Traced = summary(all)
			if o.Lanes != nil {
				o.Lanes(i == 1, p.Traced.Lanes)
			}
			p.Traced.Lanes = merged(p.Traced.Lanes, p.Traced.Ms)
		}
	}
	if r.Bwd.Ranks > 0 {
		r.Both = (r.Fwd.One + r.Bwd.One) / (r.Fwd.Ranks + r.Bwd.Ranks)
	}
	o.predict(r, p)
}

// set is the tensors of a device.
type set struct {
	q, k, v, o, lse, do, dq, dk, dv *flash.Tensor
}

func (s *set) close() error {
	var err error
	for _, t := range []*flash.Tensor{s.q, s.k, s.v, s.o, s.lse, s.do, s.dq, s.dk, s.dv} {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}
	return err
}

// newSet makes tensors of some queries and keys; without keys, which lie elsewhere then, none of these and their gradients.
func newSet(ctx context.Context, d *flash.Device, data *noise, p flash.Problem, queries, keys []ring.Span,
	backward bool) (s *set, err error) {
	s = &set{}
	make1 := func(to **flash.Tensor, number, heads, columns int, spans []ring.Span) {
		if err == nil {
			*to, err = data.tensor(ctx, d, number, heads, columns, spans)
		}
	}
	blank := func(to **flash.Tensor, dtype flash.DType, shape [4]int) {
		if err == nil {
			*to, err = d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		}
	}
	make1(&s.q, ofQ, p.Heads, p.HeadDim, queries)
	if keys != nil {
		make1(&s.k, ofK, p.KeyHeads, p.HeadDim, keys)
		make1(&s.v, ofV, p.KeyHeads, p.ValueDim, keys)
	}
	blank(&s.o, p.DType, p.OShape())
	blank(&s.lse, flash.F32, p.LSEShape())
	if backward {
		make1(&s.do, ofDO, p.Heads, p.ValueDim, queries)
		blank(&s.dq, p.DType, p.QShape())
	}
	if backward && keys != nil {
		blank(&s.dk, p.DType, p.KShape())
		blank(&s.dv, p.DType, p.VShape())
	}
	runtime.GC() // of gigabytes on the host
	return s, err
}

func (s *set) forward() flash.Forward {
	return flash.Forward{Q: s.q, K: s.k, V: s.v, O: s.o, LSE: s.lse}
}
func (s *set) backward() flash.Backward {
	return flash.Backward{Forward: s.forward(), DO: s.do, DQ: s.dq, DK: s.dk, DV: s.dv}
}

// times runs passes of one device, once before and then as long and often as is asked for; waited, where there is such, is how long the
// host waited in the latest, in ms.
func (o *Options) times(forward, backward func() error, waited func() float64) (out passes, err error) {
	pass := func(run func() error, took, wait *[]float64, counts bool) error {
		begun := time.Now()
		if err := run(); err != nil || !counts {
			return err
		}
		*took = append(*took, ms(time.Since(begun)))
		if waited != nil {
			*wait = append(*wait, waited())
		}
		return nil
	}
	start := time.Now()
	for n := -1; n < 0 || !o.enough(n, start); n++ {
		if n == 0 {
			start = time.Now()
		}
		if err := pass(forward, &out.fwd, &out.fwdWaited, n >= 0); err != nil {
			return out, err
		}
		if !o.Backward {
			continue
		}
		if err := pass(backward, &out.bwd, &out.bwdWaited, n >= 0); err != nil {
			return out, err
		}
	}
	return out, nil
}

// measureOne times a plan of the whole problem.
func measureOne(ctx context.Context, d *flash.Device, data *noise, p flash.Problem, o Options, r *Result) (out passes, err error) {
	d.ResetPeak()
	before := d.Usage().Current
	plan, err := d.Plan(p)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	all := []ring.Span{{End: p.QueryLen}}
	s, err := newSet(ctx, d, data, p, all, []ring.Span{{End: p.KeyLen}}, o.Backward)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return out, err
	}
	out, err = o.times(func() error { return plan.Forward(ctx, s.forward()) }, func() error { return plan.Backward(ctx, s.backward()) },
		nil)
	r.MemoryOne = d.Usage().Peak - before
	return out, err
}

// measureRanks times the ranks of this process.
func measureRanks(ctx context.Context, devices []*flash.Device, data *noise, p flash.Problem, shard ring.Shard, o Options,
	r *Result) (out passes, err error) {
	comms, err := ring.Local(len(devices))
	if err != nil {
		return out, err
	}
	all, errs, rows := make([]passes, len(devices)), make([]error, len(devices)), make([]Result, len(devices))
	var wait sync.WaitGroup
	for rank := range devices {
		wait.Go(func() {
			rows[rank] = *r
			if all[rank], errs[rank] = measureRank(ctx, comms[rank], devices[rank], data, p, shard, o, &rows[rank]); errs[rank] != nil {
				comms[rank].Abort(errs[rank])
			}
		})
	}
	wait.Wait()
	*r = rows[0] // as all others
	return all[0], errors.Join(errs...)
}

// measureStream times attention whose keys and values come from the host.
func measureStream(ctx context.Context, d *flash.Device, data *noise, p flash.Problem, o Options, r *Result) (out passes, err error) {
	d.ResetPeak()
	before := d.Usage().Current
	stream, err := ring.NewStream(d, p, 0)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	all := []ring.Span{{End: p.QueryLen}}
	s, err := newSet(ctx, d, data, p, all, nil, o.Backward)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return out, err
	}
	var k, v, dk, dv *hostmem.Memory
	for _, x := range []struct {
		to              **hostmem.Memory
		number, columns int
		wanted          bool
	}{{&k, ofK, p.HeadDim, true}, {&v, ofV, p.ValueDim, true}, {&dk, ofK, p.HeadDim, o.Backward}, {&dv, ofV, p.ValueDim, o.Backward}} {
		if !x.wanted {
			continue
		}
		if *x.to, err = data.host(x.number, p.KeyHeads, x.columns, p.KeyLen); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, (*x.to).Close()) }()
	}
	f := ring.StreamForward{Q: s.q, O: s.o, LSE: s.lse, K: k, V: v}
	forward := func() error {
		return stream.Forward(ctx, f)
	}
	backward := func() error {
		return stream.Backward(ctx, ring.StreamBackward{StreamForward: f, DO: s.do, DQ: s.dq, DK: dk, DV: dv})
	}
	if out, err = o.times(forward, backward, func() float64 { return ms(stream.Plan().Waited()) }); err != nil {
		return out, err
	}
	for i, run := range []func() error{forward, backward} {
		if i == 1 && !o.Backward {
			break
		}
		var trace ring.Trace
		stream.Plan().Trace(&trace)
		begun := time.Now()
		if err := run(); err != nil {
			return out, err
		}
		out.traced[i] = []noted{notes(0, trace.Take(), begun, time.Now())}
	}
	off, err := data.check(ctx, p, s.o, all)
	r.Check = checkOf(off, 1)
	r.Over = result.OverHost
	r.MemoryRank = d.Usage().Peak - before
	r.Order, r.Direct, r.BlockBytes = fmt.Sprintf("%d blocks", stream.Blocks()), true, stream.Plan().BlockBytes()
	return out, err
}
