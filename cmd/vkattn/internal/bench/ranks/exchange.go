package ranks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/ring"
)

// tagMeasure is of messages between ranks that measure their link; a ring is not made yet.
const tagMeasure ring.Tag = 100

// MeasureExchange brings bytes from every rank to the next at once, by way of memory of the host, as rings of processes do: memory that
// ranks of one host map, where they can, else messages. It gives the slowest rank's link. Every rank calls it, with the same number.
func MeasureExchange(ctx context.Context, comm ring.Comm, d *flash.Device, bytes int) (l Link, err error) {
	rank, n := comm.Rank(), comm.Size()
	if n == 1 {
		links, err := MeasureLinks(ctx, []*flash.Device{d}, bytes)
		if err != nil {
			return l, err
		}
		return Slowest(links)
	}
	mover, err := hostmem.NewMover(d)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, mover.Close()) }()
	var ends [2]struct {
		tensor *flash.Tensor
		memory *hostmem.Memory
	}
	for i := range ends {
		if ends[i].tensor, err = d.NewTensor(flash.F32, 1, 1, 1, bytes/4); err != nil {
			return l, err
		}
		defer func() { err = errors.Join(err, ends[i].tensor.Close()) }()
		if ends[i].memory, err = hostmem.NewShared(bytes); err != nil {
			return l, err
		}
		defer func() { err = errors.Join(err, ends[i].memory.Close()) }()
	}
	next, before := (rank+1)%n, (rank-1+n)%n
	shown, err := ring.ShowMemory(ctx, comm, mover, ends[0].memory)
	if err != nil {
		return l, err
	}
	for i, x := range shown {
		if i != rank {
			defer func() { err = errors.Join(err, x[0].Close()) }()
		}
	}
	in, message := ends[1].memory, func(m *hostmem.Memory, at, n uint64) []byte { return m.Bytes()[at : at+n] }
	if shown != nil {
		in, message = shown[before][0], func(*hostmem.Memory, uint64, uint64) []byte { return nil }
	}
	once := func(size uint64) (seconds float64, err error) {
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
				return comm.Send(ctx, next, tagMeasure, message(ends[0].memory, at, n))
			})
		})
		wait.Go(func() {
			errs[1] = pieces(func(at, n uint64) error {
				if err := comm.Receive(ctx, before, tagMeasure, message(in, at, n)); err != nil {
					return err
				}
				return mover.ToDevice(ctx, ends[1].tensor, at, in, at, n)
			})
		})
		wait.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return 0, err
		}
		err = comm.Barrier(ctx)
		return time.Since(start).Seconds(), err
	}
	l = Link{From: rank, To: next, Apart: mover.Apart(), Imported: shown != nil}
	if l.GBps, l.Us, err = timeLink(uint64(bytes/4*4), once); err != nil {
		return l, err
	}
	all, err := gather(ctx, comm, l)
	if err != nil {
		return l, err
	}
	return Slowest(all)
}
