package ring

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// hostPair is keys and values, or gradients with respect to them, of all tokens in memory of the host.
type hostPair struct{ k, v *hostmem.Memory }

// checkHost says which memory is missing or too short.
func (w *pass) checkHost(call string, h hostPair, k, v string) error {
	p := &w.problem
	size := func(shape [4]int) int { return shape[0] * shape[1] * shape[2] * shape[3] * p.DType.Size() }
	for _, x := range []struct {
		name string
		of   *hostmem.Memory
		want int
	}{{k, h.k, size(p.KShape())}, {v, h.v, size(p.VShape())}} {
		if got := len(x.of.Bytes()); got < x.want {
			return badArgument(call+"."+x.name, fmt.Sprintf("%d bytes", got),
				"must be at least %d bytes of the host: all keys, or values, in row-major order", x.want)
		}
	}
	return nil
}

// runs calls f with each run of bytes that some rows of a block have in one piece, one for each batch entry and head: where it stands in a
// tensor, which has the block's rows from the first on, and on the host.
func (w *pass) runs(of, block Span, on pair, first int, host hostPair, f func(t *flash.Tensor, offset uint64, h *hostmem.Memory, at,
	n uint64) error) error {
	if !w.sched.padded {
		return w.entryRuns(0, of, of.behind(block), on, first, host, f)
	}
	for b := range w.problem.Batch { // one behind the other on the device, and on the host as a caller has them
		entry := Span{b * block.Len(), (b + 1) * block.Len()}
		if part := meet(of, entry); part.Len() > 0 {
			if err := w.entryRuns(b, part, part.from(entry).behind(block), on, first, host, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// entryRuns are the runs of some rows of a block that are such keys: of one entry of a padded batch, or of all entries.
func (w *pass) entryRuns(entry int, of, keys Span, on pair, first int, host hostPair, f func(t *flash.Tensor, offset uint64,
	h *hostmem.Memory, at, n uint64) error) error {
	p := &w.problem
	_, all := tokens(p)
	for _, x := range []struct {
		t    *flash.Tensor
		h    *hostmem.Memory
		cols int
	}{{on.k, host.k, p.HeadDim}, {on.v, host.v, p.ValueDim}} {
		row, held := x.cols*p.DType.Size(), 0
		if x.t != nil {
			held = x.t.Shape()[2]
		}
		for i := range w.sched.entries() * p.KeyHeads {
			if err := f(x.t, uint64((i*held+of.Begin-first)*row), x.h, uint64(((entry*p.KeyHeads+i)*all+keys.Begin)*row),
				uint64(keys.Len()*row)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fromHost brings blocks to buffers of a name, one after the other.
func (w *pass) fromHost(s *Stream, name string, host hostPair) (*exchange, error) {
	steps := w.remote()
	e := newExchange(len(steps), 1)
	for i, st := range steps {
		e.blocks[i] = w.pair(fmt.Sprint(name, i%slots), w.problem.DType, w.sched.keys.rows(st.owner))
	}
	if w.err != nil {
		return nil, w.err
	}
	w.others.Go(func() (err error) {
		var copies moves
		defer func() { err = copies.end(err) }()
		for i, st := range steps {
			var free, end hostmem.Point
			if i >= slots {
				if free, err = e.released[i-slots].await(w.ctx); err != nil {
					return err
				}
			}
			block, all := s.blocks[st.owner], Span{0, w.sched.keys.rows(st.owner)}
			if err := w.runs(all, block, e.blocks[i], 0, host, func(t *flash.Tensor, offset uint64, h *hostmem.Memory, at,
				n uint64) error {
				m, err := w.mover.StartToDevice(w.ctx, t, offset, h, at, n, free)
				if err != nil {
					return err
				}
				end = m.End()
				return copies.add(m, nil)
			}); err != nil {
				return err
			}
			e.arrived[i][0].is(end)
		}
		return nil
	})
	return e, nil
}

// toHost takes gradients of blocks as they are computed. Each block's are complete then: every query is on the device. What no step
// computes is 0, or stays as it is where they are added to what there is.
func (w *pass) toHost(s *Stream, host hostPair, add bool) *delivery {
	steps := w.remote()
	d := &delivery{sent: readies(len(steps)), given: make(chan given, len(steps))}
	launches := make([][]launch, len(s.blocks))
	for _, st := range steps {
		launches[st.owner] = st.launches
	}
	w.others.Go(func() (err error) {
		var copies moves
		defer func() { err = copies.end(err) }()
		for range steps {
			x, err := d.next(w.ctx)
			if err != nil {
				return err
			}
			if err := x.wait(); err != nil {
				return err
			}
			b := steps[x.step].owner
			block, written := s.blocks[b], hull(launches[b])
			parts, _ := w.sched.written(b, launches[b])
			for _, part := range parts {
				if err := w.runs(part, block, x.pair, written.Begin, host,
					func(t *flash.Tensor, offset uint64, h *hostmem.Memory, at, n uint64) error {
						m, err := w.mover.StartToHost(w.ctx, h, at, t, offset, n, x.at)
						if err != nil {
							return err
						}
						return copies.add(m, nil)
					}); err != nil {
					return err
				}
			}
			if err := copies.end(nil); err != nil {
				return err
			}
			d.sent[x.step].is(hostmem.Point{})
		}
		for b, block := range s.blocks {
			_, unseen := w.sched.written(b, launches[b])
			if add {
				unseen = nil
			}
			for _, part := range unseen {
				_ = w.runs(part, block, pair{}, 0, host, func(_ *flash.Tensor, _ uint64, h *hostmem.Memory, at, n uint64) error {
					clear(h.Bytes()[at : at+n])
					return nil
				})
			}
		}
		return nil
	})
	return d
}
