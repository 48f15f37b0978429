package ranks

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/internal/bench"
)

// Result is a problem on several devices beside one. Times are of the wall: from when every rank begins until the last has ended.
type Result struct {
	Device  string `json:"device"`
	Problem string `json:"problem"`
	Tokens  int    `json:"tokens"`
	Ranks   int    `json:"ranks"`
	Order   string `json:"order"`
	Direct  bool   `json:"direct"` // ranks copy from one another's memory, which their devices import

	Fwd, Bwd Pass    // Bwd is zero where it was not asked for
	Both     float64 `json:"both_speedup,omitempty"` // of a forward and a backward pass together

	BlockBytes int     `json:"block_bytes"` // keys and values of a rank
	MemoryOne  uint64  `json:"memory_one"`  // of the device: tensors and workspace, on one
	MemoryRank uint64  `json:"memory_rank"` // on the rank that has most
	MaxErr     float64 `json:"max_err"`
	Error      string  `json:"error,omitempty"`
}

// Pass is one pass on one device, and on the ranks.
type Pass struct {
	One    float64 `json:"one_ms,omitempty"` // median
	Ranks  float64 `json:"ranks_ms,omitempty"`
	Waited float64 `json:"waited_ms,omitempty"` // by the rank whose device waited longest for what had not arrived, median
	Speed  float64 `json:"speedup,omitempty"`
}

// Options say how much is measured.
type Options struct {
	Backward bool
	Stream   bool          // on one device, with keys and values from the host
	Runs     int           // of each, at least
	Least    time.Duration // spent on each, at least
	Timeout  time.Duration // of a pass
}

// passes are times of forward and backward passes in milliseconds.
type passes struct{ fwd, bwd, fwdWaited, bwdWaited []float64 }

// enough says whether that was long and often enough.
func (o *Options) enough(n int, since time.Time) bool {
	return n >= o.Runs && time.Since(since) >= o.Least
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// Measure runs a problem on the first of the devices alone, and then on all of them.
func Measure(ctx context.Context, devices []*flash.Device, p flash.Problem, shard ring.Shard, o Options) (r Result) {
	r.Device, r.Ranks, r.Tokens = devices[0].Info().Name, len(devices), p.QueryLen
	fail := func(err error) Result {
		r.Error = err.Error()
		return r
	}
	p, err := p.Normalize()
	if err != nil {
		return fail(err)
	}
	r.Problem = p.String()
	data := newNoise(p.DType)
	one, err := measureOne(ctx, devices[0], data, p, o, &r)
	if err != nil {
		return fail(fmt.Errorf("on one device: %w", err))
	}
	var many passes
	if o.Stream {
		many, err = measureStream(ctx, devices[0], data, p, o, &r)
	} else {
		many, err = measureRanks(ctx, devices, data, p, shard, o, &r)
	}
	if err != nil {
		return fail(err)
	}
	r.compare(one, many)
	return r
}

// compare sets the times of the passes.
func (r *Result) compare(one, many passes) {
	pass := func(one, many, waited []float64) Pass {
		if len(one) == 0 {
			return Pass{}
		}
		x := Pass{One: bench.Median(one), Ranks: bench.Median(many), Waited: bench.Median(waited)}
		x.Speed = x.One / x.Ranks
		return x
	}
	r.Fwd, r.Bwd = pass(one.fwd, many.fwd, many.fwdWaited), pass(one.bwd, many.bwd, many.bwdWaited)
	if r.Bwd.Ranks > 0 {
		r.Both = (r.Fwd.One + r.Bwd.One) / (r.Fwd.Ranks + r.Bwd.Ranks)
	}
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

func newSet(ctx context.Context, d *flash.Device, data *noise, p flash.Problem, queries, keys []ring.Span, backward bool) (s *set, err error) {
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
	make1(&s.k, ofK, p.KeyHeads, p.HeadDim, keys)
	make1(&s.v, ofV, p.KeyHeads, p.ValueDim, keys)
	blank(&s.o, p.DType, p.OShape())
	blank(&s.lse, flash.F32, p.LSEShape())
	if backward {
		make1(&s.do, ofDO, p.Heads, p.ValueDim, queries)
		blank(&s.dq, p.DType, p.QShape())
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
	return flash.Backward{Q: s.q, K: s.k, V: s.v, O: s.o, LSE: s.lse, DO: s.do, DQ: s.dq, DK: s.dk, DV: s.dv}
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
	start := time.Now()
	for n := -1; n < 0 || !o.enough(n, start); n++ {
		t0 := time.Now()
		if err := plan.Forward(ctx, s.forward()); err != nil {
			return out, err
		}
		t1 := time.Now()
		if o.Backward {
			if err := plan.Backward(ctx, s.backward()); err != nil {
				return out, err
			}
		}
		if t2 := time.Now(); n >= 0 {
			out.fwd = append(out.fwd, ms(t1.Sub(t0)))
			if o.Backward {
				out.bwd = append(out.bwd, ms(t2.Sub(t1)))
			}
		} else {
			start = time.Now()
		}
	}
	r.MemoryOne = d.Usage().Peak - before
	return out, nil
}

// measureRanks times the ring.
func measureRanks(ctx context.Context, devices []*flash.Device, data *noise, p flash.Problem, shard ring.Shard, o Options, r *Result) (out passes, err error) {
	comms, err := ring.Local(len(devices))
	if err != nil {
		return out, err
	}
	var mu sync.Mutex
	errs := make([]error, len(devices))
	waited := [2][]float64{}
	more := true
	var wait sync.WaitGroup
	for rank := range devices {
		wait.Go(func() {
			errs[rank] = func() (err error) {
				d, comm := devices[rank], comms[rank]
				defer func() {
					if err != nil {
						comm.Abort(err)
					}
				}()
				d.ResetPeak()
				before := d.Usage().Current
				rk, err := ring.New(comm, d)
				if err != nil {
					return err
				}
				plan, err := rk.Plan(ctx, p, shard)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, plan.Close()) }()
				s, err := newSet(ctx, d, data, plan.Local(), plan.Queries(), plan.Keys(), o.Backward)
				defer func() { err = errors.Join(err, s.close()) }()
				if err != nil {
					return err
				}
				start := time.Now()
				for n := -1; ; n++ {
					var at [3]time.Time
					for i, run := range []func(context.Context) error{
						func(ctx context.Context) error { return plan.Forward(ctx, s.forward()) },
						func(ctx context.Context) error {
							if !o.Backward {
								return nil
							}
							return plan.Backward(ctx, s.backward())
						},
					} {
						if err := comm.Barrier(ctx); err != nil {
							return err
						}
						at[i] = time.Now()
						limited, cancel := context.WithTimeout(ctx, o.Timeout)
						err := run(limited)
						cancel()
						if err != nil {
							return err
						}
						w := ms(plan.Waited())
						if err := comm.Barrier(ctx); err != nil {
							return err
						}
						at[i+1] = time.Now()
						mu.Lock()
						for len(waited[i]) <= n+1 {
							waited[i] = append(waited[i], 0)
						}
						waited[i][n+1] = max(waited[i][n+1], w)
						mu.Unlock()
						if rank == 0 && n >= 0 {
							t := ms(at[i+1].Sub(at[i]))
							if i == 0 {
								out.fwd = append(out.fwd, t)
							} else if o.Backward {
								out.bwd = append(out.bwd, t)
							}
						}
					}
					if n < 0 {
						start = time.Now()
					}
					if rank == 0 {
						mu.Lock()
						more = n < 0 || !o.enough(n+1, start)
						mu.Unlock()
					}
					if err := comm.Barrier(ctx); err != nil {
						return err
					}
					mu.Lock()
					stop := !more
					mu.Unlock()
					if err := comm.Barrier(ctx); err != nil {
						return err
					}
					if stop {
						break
					}
				}
				off, err := data.check(ctx, p, s.o, plan.Queries())
				mu.Lock()
				defer mu.Unlock()
				r.MemoryRank = max(r.MemoryRank, d.Usage().Peak-before)
				r.MaxErr = max(r.MaxErr, off)
				r.Order, r.Direct, r.BlockBytes = plan.Order().String(), plan.Direct(), plan.BlockBytes()
				return err
			}()
		})
	}
	wait.Wait()
	out.fwdWaited, out.bwdWaited = waited[0][min(1, len(waited[0])):], waited[1][min(1, len(waited[1])):]
	return out, errors.Join(errs...)
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
	var s set
	defer func() { err = errors.Join(err, s.close()) }()
	var host []*flash.HostMemory
	defer func() {
		for _, m := range host {
			err = errors.Join(err, m.Close())
		}
	}()
	if s.q, err = data.tensor(ctx, d, ofQ, p.Heads, p.HeadDim, all); err != nil {
		return out, err
	}
	blank := func(to **flash.Tensor, dtype flash.DType, shape [4]int) {
		if err == nil {
			*to, err = d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		}
	}
	blank(&s.o, p.DType, p.OShape())
	blank(&s.lse, flash.F32, p.LSEShape())
	if o.Backward && err == nil {
		if s.do, err = data.tensor(ctx, d, ofDO, p.Heads, p.ValueDim, all); err == nil {
			blank(&s.dq, p.DType, p.QShape())
		}
	}
	for _, x := range [][2]int{{ofK, p.HeadDim}, {ofV, p.ValueDim}, {ofK, p.HeadDim}, {ofV, p.ValueDim}} {
		if err != nil || len(host) == 2 && !o.Backward {
			break
		}
		var m *flash.HostMemory
		if m, err = data.host(x[0], p.KeyHeads, x[1], p.KeyLen); err == nil {
			host = append(host, m)
		}
	}
	if err != nil {
		return out, err
	}
	start := time.Now()
	for n := -1; n < 0 || !o.enough(n, start); n++ {
		t0 := time.Now()
		if err := stream.Forward(ctx, ring.StreamForward{Q: s.q, O: s.o, LSE: s.lse, K: host[0], V: host[1]}); err != nil {
			return out, err
		}
		t1, waited := time.Now(), ms(stream.Plan().Waited())
		if o.Backward {
			if err := stream.Backward(ctx, ring.StreamBackward{Q: s.q, O: s.o, LSE: s.lse, DO: s.do, DQ: s.dq, K: host[0], V: host[1], DK: host[2], DV: host[3]}); err != nil {
				return out, err
			}
		}
		if t2 := time.Now(); n >= 0 {
			out.fwd, out.fwdWaited = append(out.fwd, ms(t1.Sub(t0))), append(out.fwdWaited, waited)
			if o.Backward {
				out.bwd, out.bwdWaited = append(out.bwd, ms(t2.Sub(t1))), append(out.bwdWaited, ms(stream.Plan().Waited()))
			}
		} else {
			start = time.Now()
		}
	}
	r.MaxErr, err = data.check(ctx, p, s.o, all)
	r.MemoryRank = d.Usage().Peak - before
	r.Order, r.Direct, r.BlockBytes = fmt.Sprintf("%d blocks", stream.Blocks()), true, stream.Plan().BlockBytes()
	return out, err
}
