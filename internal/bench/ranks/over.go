package ranks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/internal/bench"
)

// Overs lists what [Options].Over takes.
var Overs = []string{bench.OverRing, bench.OverHeads, OverAuto}

// OverAuto leaves the choice to the plan.
const OverAuto = "auto"

// shardOf is the shard that is asked for. To choose, a plan needs the speeds of one device, which has just run the problem, and of the link.
func (o *Options) shardOf(p *flash.Problem, one passes) ring.Shard {
	switch o.Over {
	case bench.OverHeads:
		return ring.Shard{Over: ring.Heads}
	case OverAuto:
		s := ring.Shard{Over: ring.Either}
		if len(one.fwd) > 0 { // elsewhere the first rank's count
			s.Speeds = ring.Speeds{Forward: p.ForwardFLOPs() / bench.Median(one.fwd) * 1e3, Link: o.Link.GBps * 1e9, Latency: o.Link.Us / 1e6}
			if len(one.bwd) > 0 {
				s.Speeds.Backward = p.BackwardFLOPs() / bench.Median(one.bwd) * 1e3
			}
		}
		return s
	}
	return ring.Shard{Over: ring.Keys}
}

// count says what was taken, and what either exchange moves to the rank that receives most, in the passes that are measured.
func (o *Options) count(r *Result, p flash.Problem, over ring.Over) {
	name := func(over ring.Over) string {
		if over == ring.Heads {
			return bench.OverHeads
		}
		return bench.OverRing
	}
	r.Over = name(over)
	if o.Over == OverAuto {
		r.Chosen, r.LinkGBps, r.LatencyUs = true, o.Link.GBps, o.Link.Us
	}
	for _, x := range []struct {
		over ring.Over
		to   *float64
	}{{ring.Keys, &r.RingBytes}, {ring.Heads, &r.HeadsBytes}} {
		m, err := ring.NewModel(p, ring.Shard{Over: x.over}, r.Ranks)
		if err != nil { // heads do not divide
			continue
		}
		for rank := range r.Ranks {
			moved := m.Moved(rank)
			n := moved.ForwardReceived
			if o.Backward {
				n += moved.BackwardReceived
			}
			*x.to = max(*x.to, n)
		}
	}
}

// Slowest is what counts of links between devices: the slowest, and the longest latency. Without any between devices, as of one, those with the host count.
func Slowest(links []Link) (Link, error) {
	between := false
	for _, l := range links {
		between = between || l.From >= 0 && l.To >= 0
	}
	out := Link{GBps: math.Inf(1)}
	for _, l := range links {
		if between && (l.From < 0 || l.To < 0) {
			continue
		}
		if !(l.GBps > 0) || math.IsInf(l.GBps, 0) || !(l.Us >= 0) || math.IsInf(l.Us, 0) {
			return out, fmt.Errorf("a link of %v GB/s and %v µs: 'vkattn info --links --json' writes them", l.GBps, l.Us)
		}
		out.GBps, out.Us = min(out.GBps, l.GBps), max(out.Us, l.Us)
	}
	if math.IsInf(out.GBps, 0) {
		return out, errors.New("no link: 'vkattn info --links --json' writes them")
	}
	return out, nil
}

// Tags of messages between ranks that measure their link; a ring is not made yet.
const tagMeasure ring.Tag = 100

// MeasureExchange sends bytes from every rank to the next at once, by way of memory of the host, as rings of processes do, and gives the slowest rank's link.
// Every rank calls it, with the same number.
func MeasureExchange(ctx context.Context, comm ring.Comm, d *flash.Device, bytes int) (l Link, err error) {
	rank, n := comm.Rank(), comm.Size()
	if n == 1 {
		links, err := MeasureLinks(ctx, []*flash.Device{d}, bytes)
		if err != nil {
			return l, err
		}
		return Slowest(links)
	}
	mover, err := d.NewMover()
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, mover.Close()) }()
	var ends [2]struct {
		tensor *flash.Tensor
		memory *flash.HostMemory
	}
	for i := range ends {
		if ends[i].tensor, err = d.NewTensor(flash.F32, 1, 1, 1, bytes/4); err != nil {
			return l, err
		}
		defer func() { err = errors.Join(err, ends[i].tensor.Close()) }()
		if ends[i].memory, err = flash.NewHostMemory(bytes); err != nil {
			return l, err
		}
		defer func() { err = errors.Join(err, ends[i].memory.Close()) }()
	}
	once := func(size uint64) (float64, error) {
		if err := comm.Barrier(ctx); err != nil {
			return 0, err
		}
		start := time.Now()
		var wait sync.WaitGroup
		var errs [2]error
		pieces := func(do func(at, n uint64) error) error {
			for at := uint64(0); at < size; at += linkPiece {
				if err := do(at, min(linkPiece, size-at)); err != nil {
					comm.Abort(err)
					return err
				}
			}
			return nil
		}
		wait.Go(func() {
			errs[0] = pieces(func(at, n uint64) error {
				if err := mover.ToHost(ctx, ends[0].memory, at, ends[0].tensor, at, n); err != nil {
					return err
				}
				return comm.Send(ctx, (rank+1)%comm.Size(), tagMeasure, ends[0].memory.Bytes()[at:at+n])
			})
		})
		wait.Go(func() {
			errs[1] = pieces(func(at, n uint64) error {
				if err := comm.Receive(ctx, (rank-1+comm.Size())%comm.Size(), tagMeasure, ends[1].memory.Bytes()[at:at+n]); err != nil {
					return err
				}
				return mover.ToDevice(ctx, ends[1].tensor, at, ends[1].memory, at, n)
			})
		})
		wait.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return 0, err
		}
		err := comm.Barrier(ctx)
		return time.Since(start).Seconds(), err
	}
	var long, short []float64
	for i := range linkRuns + 1 {
		a, err := once(uint64(bytes / 4 * 4))
		if err != nil {
			return l, err
		}
		b, err := once(smallMessage)
		if err != nil {
			return l, err
		}
		if i > 0 { // the first imports
			long, short = append(long, a), append(short, b)
		}
	}
	l = Link{From: rank, To: (rank + 1) % n, GBps: float64(bytes/4*4) / bench.Median(long) / 1e9, Us: bench.Median(short) * 1e6, Apart: mover.Apart()}
	all, err := gather(ctx, comm, l)
	if err != nil {
		return l, err
	}
	return Slowest(all)
}
