package ring

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// A crossing is an exchange of all ranks with all: on the way in each rank gives every other that one's heads of its tokens, and on the way
// out that one's tokens of its heads. What goes from one rank to another is packed on the device, read into memory of the host, and
// unpacked where it arrives. Ranks send to the next first, to the one behind it then, and so on: at each moment every rank is sent to by
// one.
type crossing struct {
	name  string
	tag   Tag
	out   bool
	cargo []cargo
}

// rows is how many rows of a tensor go from one rank to another: tokens of the one that computes with them as a caller's.
func (c *crossing) rows(s *schedule, x cargo, from, to int) int {
	if c.out {
		return s.layout(x).rows(to)
	}
	return s.layout(x).rows(from)
}

// aligned is where the next tensor begins in memory of the host.
func aligned(n uint64) uint64 { return (n + 63) / 64 * 64 }

// bytes is the memory for what goes from one rank to another.
func (c *crossing) bytes(s *schedule, from, to int) (n uint64) {
	for _, x := range c.cargo {
		n += aligned(uint64(s.cargoBytes(x, c.rows(s, x, from, to))))
	}
	return n
}

// at is where, in memory of the host of the one, what goes to the other begins; for the number of ranks it is how much there is.
func (c *crossing) at(s *schedule, from, to int) (n uint64) {
	for other := range to {
		if other != from {
			n += c.bytes(s, from, other)
		}
	}
	return n
}

// packed is buffers for what goes from one rank to another.
func (w *pass) packed(c *crossing, name string, from, to int) ([]*flash.Tensor, error) {
	out := make([]*flash.Tensor, len(c.cargo))
	for i, x := range c.cargo {
		dtype, shape := w.sched.shape(x, c.rows(w.sched, x, from, to))
		var err error
		if out[i], err = w.tensor("heads."+x.name+"."+name, dtype, shape, w.sched.layout(x).most()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// outgoing is what a rank gives to another.
type outgoing struct {
	to     int
	pieces []piece
	there  []ready
	written
}

// cross exchanges a crossing's tensors. When it returns, what others gave is under way to where it belongs, on the device's queue.
func (w *pass) cross(c *crossing) error {
	rank, ranks := w.ring.Rank(), w.ring.Size()
	mem, err := w.memoryOf(c.name, int(c.at(w.sched, rank, ranks)))
	if err != nil {
		return err
	}
	peers, err := w.show(c.name, [slots]*hostmem.Memory{mem})
	if err != nil {
		return err
	}
	var give []outgoing
	for n := 1; n < ranks; n++ {
		x, err := w.pack(c, (rank+n)%ranks)
		if err != nil {
			return err
		}
		give = append(give, x)
	}
	w.others.Go(func() error {
		for _, x := range give {
			if err := w.bringHome(mem, x.pieces, x.written, x.there); err != nil {
				return err
			}
		}
		return nil
	})
	for _, x := range give {
		w.others.Go(func() error {
			return w.send(x.to, c.tag, mem, x.pieces, x.there, peers != nil)
		})
	}
	return w.take(c, peers)
}

// pack submits the copies of what another rank is given.
func (w *pass) pack(c *crossing, to int) (x outgoing, err error) {
	rank, ranks := w.ring.Rank(), w.ring.Size()
	tensors, err := w.packed(c, fmt.Sprint("give", (to-rank+ranks)%ranks), rank, to)
	if err != nil {
		return x, err
	}
	before := len(w.jobs)
	for i, t := range tensors {
		if err := w.load(c, c.cargo[i], t, to); err != nil {
			return x, err
		}
	}
	x = outgoing{to: to, pieces: piecesOf(c.at(w.sched, rank, to), 1, tensors...)}
	x.there = readies(len(x.pieces))
	x.written, err = w.written(w.jobs[before:])
	return x, err
}

// load fills a packed tensor for another rank.
func (w *pass) load(c *crossing, x cargo, packed *flash.Tensor, to int) error {
	if c.out {
		return w.eachSpan(x, to, func(of, at Span) error { return w.copyRows(x.whole, of, packed, at) })
	}
	if x.local == nil {
		return packed.Upload(w.ctx, make([]float32, packed.Elements()))
	}
	from, err := heads(x.local, to, w.ring.Size())
	if err != nil {
		return err
	}
	return w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: from, Y: packed})
}

// take brings what others give, and puts it and the rank's own share in their places.
func (w *pass) take(c *crossing, peers []shared) error {
	rank, ranks := w.ring.Rank(), w.ring.Size()
	places := make([][]*flash.Tensor, ranks-1)
	pieces := make([][]piece, ranks-1)
	most := uint64(0)
	for i := range places {
		from := (rank - 1 - i + ranks) % ranks
		var err error
		if places[i], err = w.packed(c, fmt.Sprint("take", i%slots), from, rank); err != nil {
			return err
		}
		begin := uint64(0)
		if peers != nil {
			begin = c.at(w.sched, from, rank)
		}
		pieces[i] = piecesOf(begin, 1, places[i]...)
		most = max(most, c.bytes(w.sched, from, rank))
	}
	var in *hostmem.Memory
	if peers == nil {
		var err error
		if in, err = w.memoryOf("in."+c.name, int(most)); err != nil {
			return err
		}
	}
	arrived, released := readies(ranks-1), readies(ranks-1)
	w.others.Go(func() error {
		for i := range places {
			var free hostmem.Point
			if i >= slots {
				var err error
				if free, err = released[i-slots].await(w.ctx); err != nil {
					return err
				}
			}
			from := (rank - 1 - i + ranks) % ranks
			var theirs *hostmem.Memory
			if peers != nil {
				theirs = peers[from].memory[0]
			}
			if err := w.receive(from, c.tag, pieces[i], theirs, in, arrived[i:i+1], free); err != nil {
				return err
			}
		}
		return nil
	})
	for _, x := range c.cargo {
		if err := w.keep(c, x); err != nil {
			return err
		}
	}
	for i := range places {
		if err := w.arrival(arrived[i]); err != nil {
			return err
		}
		before := len(w.jobs)
		for k, t := range places[i] {
			if err := w.unload(c, c.cargo[k], t, (rank-1-i+ranks)%ranks); err != nil {
				return err
			}
		}
		if i+slots < ranks-1 { // the place is for another then
			if err := w.free(released[i], w.jobs[before:]); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep puts the rank's own share in its place.
func (w *pass) keep(c *crossing, x cargo) error {
	rank := w.ring.Rank()
	if x.local == nil {
		if c.out {
			return nil
		}
		return w.eachSpan(x, rank, func(of, _ Span) error {
			to, err := rows(x.whole, of)
			if err != nil {
				return err
			}
			return to.Upload(w.ctx, make([]float32, to.Elements()))
		})
	}
	local, err := heads(x.local, rank, w.ring.Size())
	if err != nil {
		return err
	}
	return w.eachSpan(x, rank, func(of, at Span) error {
		if c.out {
			for _, p := range w.present(x) {
				p = meet(p, at)
				if p.Len() == 0 {
					continue
				}
				from, err := rows(x.whole, Span{of.Begin + p.Begin - at.Begin, of.Begin + p.End - at.Begin})
				if err != nil {
					return err
				}
				to, err := rows(local, p)
				if err != nil {
					return err
				}
				if err := w.deposit(x, from, to); err != nil {
					return err
				}
			}
			return nil
		}
		return w.copyRows(local, at, x.whole, of)
	})
}

// unload empties a packed tensor that came of another rank.
func (w *pass) unload(c *crossing, x cargo, packed *flash.Tensor, from int) error {
	if !c.out {
		return w.eachSpan(x, from, func(of, at Span) error { return w.copyRows(packed, at, x.whole, of) })
	}
	if x.local == nil {
		return nil
	}
	to, err := heads(x.local, from, w.ring.Size())
	if err != nil {
		return err
	}
	for _, p := range w.present(x) {
		source, err := rows(packed, p)
		if err != nil {
			return err
		}
		target, err := rows(to, p)
		if err != nil {
			return err
		}
		if err := w.deposit(x, source, target); err != nil {
			return err
		}
	}
	return nil
}

// present is the rows of a rank's own tensor that are written: all but those of no sequence.
func (w *pass) present(x cargo) []Span {
	l := w.sched.layout(x)
	if w.sched.packed == nil {
		return []Span{{0, l.rows(w.ring.Rank())}}
	}
	starts := w.sched.packed.queries
	if x.keys {
		starts = w.sched.packed.keys
	}
	return l.rowsIn(w.ring.Rank(), slotRows(starts))
}

// deposit writes a result where the caller wants it, or adds it there, in fp32.
func (w *pass) deposit(x cargo, from, to *flash.Tensor) error {
	if !x.add {
		return w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: from, Y: to})
	}
	sum, err := w.tensor("heads."+x.name+".sum", flash.F32, from.Shape(), w.sched.layout(x).most())
	if err != nil {
		return err
	}
	return w.addTo(to, from, sum)
}

// eachSpan goes over a rank's tokens: their positions in the whole, and their rows in the rank's tensors.
func (w *pass) eachSpan(x cargo, rank int, do func(of, at Span) error) error {
	spans := w.sched.layout(x).spans[rank]
	for i, at := range spansOf(spans) {
		if err := do(spans[i], at); err != nil {
			return err
		}
	}
	return nil
}

// copyRows copies rows of one tensor to rows of another.
func (w *pass) copyRows(from *flash.Tensor, of Span, to *flash.Tensor, at Span) error {
	x, err := rows(from, of)
	if err != nil {
		return err
	}
	y, err := rows(to, at)
	if err != nil {
		return err
	}
	return w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: x, Y: y})
}
