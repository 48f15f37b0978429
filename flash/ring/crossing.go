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
func (w *pass) packed(c *crossing, name string, from, to int) []*flash.Tensor {
	out := make([]*flash.Tensor, len(c.cargo))
	for i, x := range c.cargo {
		dtype, shape := w.sched.shape(x, c.rows(w.sched, x, from, to))
		out[i] = w.tensor("heads."+x.name+"."+name, dtype, shape, w.sched.layout(x).most())
	}
	return out
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
	mem, err := w.memoryShown(c.name, int(c.at(w.sched, rank, ranks)))
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
	tensors := w.packed(c, fmt.Sprint("give", (to-rank+ranks)%ranks), rank, to)
	before := len(w.jobs)
	for i, t := range tensors {
		w.load(c, c.cargo[i], t, to)
	}
	x = outgoing{to: to, pieces: piecesOf(c.at(w.sched, rank, to), 1, tensors...)}
	x.there = readies(len(x.pieces))
	x.written, err = w.written(w.jobs[before:])
	return x, err
}

// load fills a packed tensor for another rank.
func (w *pass) load(c *crossing, x cargo, packed *flash.Tensor, to int) {
	switch {
	case c.out:
		w.eachSpan(x, to, func(of, at Span) { w.copies(w.rows(x.whole, of), w.rows(packed, at)) })
	case x.local == nil:
		w.zero(packed)
	default:
		w.copies(w.heads(x.local, to, w.ring.Size()), packed)
	}
}

// zero makes a tensor of the rank's own zeros at once.
func (w *pass) zero(t *flash.Tensor) {
	if w.err == nil {
		w.err = t.Upload(w.ctx, make([]float32, t.Elements()))
	}
}

// take brings what others give, and puts it and the rank's own share in their places.
func (w *pass) take(c *crossing, peers []shared) error {
	rank, ranks := w.ring.Rank(), w.ring.Size()
	places := make([][]*flash.Tensor, ranks-1)
	coming := make([]incoming, ranks-1)
	arrived := readies(ranks - 1)
	most := uint64(0)
	for i := range places {
		from := (rank - 1 - i + ranks) % ranks
		places[i] = w.packed(c, fmt.Sprint("take", i%slots), from, rank)
		begin := uint64(0)
		if peers != nil {
			begin = c.at(w.sched, from, rank)
		}
		coming[i] = incoming{from: from, pieces: piecesOf(begin, 1, places[i]...), there: arrived[i : i+1]}
		most = max(most, c.bytes(w.sched, from, rank))
	}
	var in *hostmem.Memory
	if peers == nil {
		var err error
		if in, err = w.memoryOf("in."+c.name, int(most)); err != nil {
			return err
		}
	}
	released, err := w.receiveAll(c.tag, coming, peers, in)
	if err != nil {
		return err
	}
	for _, x := range c.cargo {
		w.keep(c, x)
	}
	for i := range places {
		if err := w.arrival(arrived[i]); err != nil {
			return err
		}
		before := len(w.jobs)
		for k, t := range places[i] {
			w.unload(c, c.cargo[k], t, coming[i].from)
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
func (w *pass) keep(c *crossing, x cargo) {
	rank := w.ring.Rank()
	if x.local == nil {
		if !c.out {
			w.eachSpan(x, rank, func(of, _ Span) { w.zero(w.rows(x.whole, of)) })
		}
		return
	}
	local := w.heads(x.local, rank, w.ring.Size())
	w.eachSpan(x, rank, func(of, at Span) {
		if !c.out {
			w.copies(w.rows(local, at), w.rows(x.whole, of))
			return
		}
		for _, p := range w.present(x) {
			if p = meet(p, at); p.Len() > 0 {
				w.deposit(x, w.rows(x.whole, p.from(at).behind(of)), w.rows(local, p))
			}
		}
	})
}

// unload empties a packed tensor that came of another rank.
func (w *pass) unload(c *crossing, x cargo, packed *flash.Tensor, from int) {
	switch {
	case !c.out:
		w.eachSpan(x, from, func(of, at Span) { w.copies(w.rows(packed, at), w.rows(x.whole, of)) })
	case x.local != nil:
		to := w.heads(x.local, from, w.ring.Size())
		for _, p := range w.present(x) {
			w.deposit(x, w.rows(packed, p), w.rows(to, p))
		}
	}
}

// present is the rows of a rank's own tensor that are written: all but those of no sequence.
func (w *pass) present(x cargo) []Span {
	if w.sched.packed == nil {
		return []Span{{0, w.sched.layout(x).rows(w.ring.Rank())}}
	}
	return w.sched.slots(w.ring.Rank(), x.keys)
}

// deposit writes a result where the caller wants it, or adds it there, in fp32.
func (w *pass) deposit(x cargo, from, to *flash.Tensor) {
	if !x.add {
		w.copies(from, to)
		return
	}
	w.addTo(to, from, w.tensor("heads."+x.name+".sum", flash.F32, from.Shape(), w.sched.layout(x).most()))
}

// eachSpan goes over a rank's tokens: their positions in the whole, and their rows in the rank's tensors.
func (w *pass) eachSpan(x cargo, rank int, do func(of, at Span)) {
	spans := w.sched.layout(x).spans[rank]
	for i, at := range spansOf(spans) {
		do(spans[i], at)
	}
}
