package ring

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// Tags of messages between two ranks.
const (
	tagBlock       Tag = iota // pieces of keys and values
	tagTaken                  // they were copied
	tagGradients              // pieces of gradients with respect to them
	tagHome                   // they were copied
	tagHeads                  // pieces of heads, to the rank that computes them
	tagHeadsTaken             // they were copied
	tagTokens                 // pieces of results, to the rank that has their tokens
	tagTokensTaken            // they were copied
)

// ready is something that becomes so once: where queues wait for one another, as soon as all that it takes was submitted.
type ready struct {
	said chan struct{}
	at   *hostmem.Point // up to which the device has it; the zero point: it has it
}

// is says that it is ready from a point of the device's work on.
func (r ready) is(at hostmem.Point) {
	*r.at = at
	close(r.said)
}

// await waits for it, or for the end of the context, and gives the point.
func (r ready) await(ctx context.Context) (hostmem.Point, error) {
	select {
	case <-r.said:
		return *r.at, nil
	case <-ctx.Done():
		return hostmem.Point{}, fmt.Errorf("ring: %w", context.Cause(ctx))
	}
}

func readies(n int) []ready {
	out := make([]ready, n)
	for i := range out {
		out[i] = ready{make(chan struct{}), new(hostmem.Point)}
	}
	return out
}

// slots is how many blocks of others are on a device at once: while one is computed with, the next arrives.
const slots = 2

// pieceBytes is what a block is cut into on its way, so that it is read from one device while its beginning is written to another: long
// beside what a copy costs to begin, some 50 µs. It is a variable for tests.
var pieceBytes uint64 = 16 << 20

// pair is keys and values, or their gradients.
type pair struct{ k, v *flash.Tensor }

// piece is some bytes of a pair, of a group of heads, and where they stand in memory of the host.
type piece struct {
	of            *flash.Tensor
	offset, at, n uint64
	group         int
}

// pieces cuts a pair, of a number of groups. Tensors of other ranks that are as long are cut the same.
func (p pair) pieces(groups int) []piece { return piecesOf(0, groups, p.k, p.v) }

// piecesOf cuts tensors that stand in memory of the host one behind the other, group after group.
func piecesOf(begin uint64, groups int, tensors ...*flash.Tensor) (out []piece) {
	for g := range groups {
		place := begin
		for _, t := range tensors {
			n := t.Bytes() / uint64(groups)
			for at := uint64(0); at < n; at += pieceBytes {
				from := uint64(g)*n + at
				out = append(out, piece{t, from, place + from, min(pieceBytes, n-at), g})
			}
			place += aligned(t.Bytes())
		}
	}
	return out
}

// pair makes buffers for keys and values of so many rows.
func (w *pass) pair(name string, dtype flash.DType, rows int) pair {
	g, most := &w.problem, w.sched.keys.most()
	if w.sched.packed != nil {
		most = max(most, granule) // some of a sequence, with rows before them
	}
	n := w.sched.entries()
	return pair{w.tensor(name+".k", dtype, [4]int{n, g.KeyHeads, rows, g.HeadDim}, most),
		w.tensor(name+".v", dtype, [4]int{n, g.KeyHeads, rows, g.ValueDim}, most)}
}

// pairBytes is the bytes of memory of the host for a pair of as many keys and values as any rank has.
func (p *Plan) pairBytes() int { return p.blockBytes() + 128 } // values begin at a multiple of 64

// memoryOf is memory of the host, of a name, which has as many bytes in each pass. It is kept for the next.
func (p *Plan) memoryOf(name string, bytes int) (*hostmem.Memory, error) {
	return p.memoryBy(hostmem.New, name, bytes)
}

func (p *Plan) memoryBy(alloc func(int) (*hostmem.Memory, error), name string, bytes int) (*hostmem.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.host[name]; m != nil {
		return m, nil
	}
	m, err := alloc(bytes)
	if err == nil {
		p.host[name] = m
	}
	return m, err
}

// blockBytes is the size of the largest block.
func (p *Plan) blockBytes() int {
	g := &p.problem
	return p.sched.entries() * g.KeyHeads * p.sched.keys.most() * (g.HeadDim + g.ValueDim) * g.DType.Size()
}

// send tells a rank of each piece in memory of the host as it gets there, or sends it, and waits until all were taken.
func (w *pass) send(to int, tag Tag, mem *hostmem.Memory, pieces []piece, there []ready, direct bool) error {
	for i, x := range pieces {
		if _, err := there[i].await(w.ctx); err != nil {
			return err
		}
		var data []byte
		if !direct {
			data = mem.Bytes()[x.at : x.at+x.n]
		}
		if err := w.ring.comm.Send(w.ctx, to, tag, data); err != nil {
			return err
		}
	}
	if direct {
		return w.ring.comm.Receive(w.ctx, to, tag+1, nil)
	}
	return nil
}

// receive brings pieces of another rank to the device: from its own memory, or by way of this rank's. It says of each group when it is
// there. Copies begin after a point: where they go is free then.
func (w *pass) receive(from int, tag Tag, pieces []piece, theirs, mine *hostmem.Memory, there []ready, free hostmem.Point) (err error) {
	var copies moves
	defer func() { err = copies.end(err) }()
	last := func(i int) bool { return i+1 == len(pieces) || pieces[i+1].group != pieces[i].group }
	if theirs != nil {
		for i, x := range pieces {
			if err := w.ring.comm.Receive(w.ctx, from, tag, nil); err != nil {
				return err
			}
			m, err := w.mover.StartToDevice(w.ctx, x.of, x.offset, theirs, x.at, x.n, free)
			if err != nil {
				return err
			}
			if last(i) {
				there[x.group].is(m.End())
			}
			if err := copies.add(m, nil); err != nil {
				return err
			}
		}
		if err := copies.end(nil); err != nil {
			return err
		}
		return w.ring.comm.Send(w.ctx, from, tag+1, nil)
	}
	var uploads errgroup.Group
	uploads.SetLimit(1)
	for i, x := range pieces {
		if err := w.ring.comm.Receive(w.ctx, from, tag, mine.Bytes()[x.at:x.at+x.n]); err != nil {
			return orFirst(err, uploads.Wait())
		}
		uploads.Go(func() error {
			m, err := w.mover.StartToDevice(w.ctx, x.of, x.offset, mine, x.at, x.n, free)
			if err != nil {
				return err
			}
			if last(i) {
				there[x.group].is(m.End())
			}
			return copies.add(m, nil)
		})
	}
	return uploads.Wait()
}

// incoming is what comes of another rank.
type incoming struct {
	from, slot int // of that rank's memory, where it is shown
	pieces     []piece
	there      []ready // by group of the pieces
}

// receiveAll brings what comes to the device, one after the other: each when its place, which what came that many slots before it had, is
// free, as released says of each that has a successor.
func (w *pass) receiveAll(tag Tag, all []incoming, peers []shared, in *hostmem.Memory) (released []ready, err error) {
	released = readies(len(all))
	if w.err != nil {
		return nil, w.err
	}
	w.others.Go(func() error {
		for i, x := range all {
			var free hostmem.Point
			if i >= slots {
				var err error
				if free, err = released[i-slots].await(w.ctx); err != nil {
					return err
				}
			}
			var theirs *hostmem.Memory
			if peers != nil {
				theirs = peers[x.from].memory[x.slot]
			}
			if err := w.receive(x.from, tag, x.pieces, theirs, in, x.there, free); err != nil {
				return err
			}
		}
		return nil
	})
	return released, nil
}

func orFirst(err, first error) error {
	if first != nil {
		return first
	}
	return err
}

// exchange is the blocks on their way in a pass.
type exchange struct {
	arrived  [][]ready // by remote step and group of heads
	released []ready
	blocks   []pair
}

// newExchange is for steps and groups.
func newExchange(steps, groups int) *exchange {
	e := &exchange{arrived: make([][]ready, steps), released: readies(steps), blocks: make([]pair, steps)}
	for i := range e.arrived {
		e.arrived[i] = readies(groups)
	}
	return e
}

// publish sends this rank's block to those who need it, and brings theirs.
func (w *pass) publish(own pair) (*exchange, error) {
	rank := w.ring.Rank()
	mem, err := w.memoryShown("own", w.pairBytes())
	if err != nil {
		return nil, err
	}
	peers, err := w.show("own", [slots]*hostmem.Memory{mem})
	if err != nil {
		return nil, err
	}
	if to := w.sched.receivers(rank); len(to) > 0 {
		mine := w.pair("own", w.problem.DType, w.sched.keys.rows(rank))
		// A copy on the device's own queue comes after whatever wrote the caller's tensors.
		before := len(w.jobs)
		w.eachEntry(w.sched.keys.rows(rank), func(at Span) { w.copyPair(w.pairRows(own, at), w.pairRows(mine, at)) })
		written, err := w.written(w.jobs[before:])
		if err != nil {
			return nil, err
		}
		pieces := mine.pieces(w.groups())
		there := readies(len(pieces))
		w.others.Go(func() error { return w.bringHome(mem, pieces, written, there) })
		for _, to := range to {
			w.others.Go(func() error { return w.send(to, tagBlock, mem, pieces, there, peers != nil) })
		}
	}
	remote := w.remote()
	e := newExchange(len(remote), w.groups())
	coming := make([]incoming, len(remote))
	for i, s := range remote {
		e.blocks[i] = w.pair(fmt.Sprint("block", i%slots), w.problem.DType, w.sched.keys.rows(s.owner))
		coming[i] = incoming{from: s.owner, pieces: e.blocks[i].pieces(w.groups()), there: e.arrived[i]}
	}
	in, err := w.inbox("block", peers, len(remote))
	if err != nil {
		return nil, err
	}
	e.released, err = w.receiveAll(tagBlock, coming, peers, in)
	return e, err
}

// inbox is memory of this rank's that messages are received in, where there are any.
func (w *pass) inbox(name string, peers []shared, messages int) (*hostmem.Memory, error) {
	if peers != nil || messages == 0 {
		return nil, nil
	}
	return w.memoryOf("in."+name, w.pairBytes())
}

// arrival waits for something of another rank's, and counts how long. What is submitted from now on has it.
func (w *pass) arrival(r ready) error {
	if w.err != nil {
		return w.err
	}
	start := time.Now()
	at, err := r.await(w.ctx)
	w.waited += time.Since(start)
	w.trace.add(Event{What: Waiting, Step: w.number, Begin: start, End: time.Now()}, 0)
	if err != nil || at == (hostmem.Point{}) {
		return err
	}
	return w.mover.After(at)
}

// remote are the steps with blocks of other ranks.
func (w *pass) remote() []step {
	var out []step
	for _, s := range w.steps {
		if s.number > 0 {
			out = append(out, s)
		}
	}
	return out
}

// local is the step with the rank's own block, which may have no launches.
func (w *pass) local() step {
	if len(w.steps) > 0 && w.steps[0].number == 0 {
		return w.steps[0]
	}
	return step{owner: w.ring.Rank()}
}
