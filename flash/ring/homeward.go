package ring

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash/hostmem"
)

// delivery is the gradients of others' blocks on their way home, by remote step.
type delivery struct {
	sent  []ready
	given chan given
}

type given struct {
	step int
	pair
	written
}

// give hands over what jobs of a step compute, the latest that were submitted.
func (d *delivery) give(w *pass, step int, x pair, by []job) error {
	done, err := w.written(by)
	if err == nil {
		d.given <- given{step, x, done}
	}
	return err
}

// next waits for what is handed over next.
func (d *delivery) next(ctx context.Context) (x given, err error) {
	select {
	case x = <-d.given:
	case <-ctx.Done():
		return x, fmt.Errorf("ring: %w", context.Cause(ctx))
	}
	return x, nil
}

// deliver sends what give hands over.
func (w *pass) deliver(remote []step) (*delivery, []shared, error) {
	d := &delivery{sent: readies(len(remote)), given: make(chan given, len(remote))}
	var mem [slots]*hostmem.Memory
	for i := range mem {
		var err error
		if mem[i], err = w.memoryShown(fmt.Sprint("give", i), w.pairBytes()); err != nil {
			return nil, nil, err
		}
	}
	peers, err := w.show("give", mem)
	if err != nil {
		return nil, nil, err
	}
	w.others.Go(func() error {
		for range remote {
			x, err := d.next(w.ctx)
			if err != nil {
				return err
			}
			to := mem[x.step%slots]
			pieces := x.pieces(1)
			there := readies(len(pieces))
			w.others.Go(func() error { return w.bringHome(to, pieces, x.written, there) })
			if err := w.send(remote[x.step].owner, tagGradients, to, pieces, there, peers != nil); err != nil {
				return err
			}
			d.sent[x.step].is(hostmem.Point{})
		}
		return nil
	})
	return d, peers, nil
}

// collection is the gradients of the rank's own block that come home, by the step at which they were computed.
type collection struct {
	steps             []homecoming
	arrived, released []ready
	gradients         []pair
	added             int
}

// homecoming is what a rank adds to this rank's gradients: of some rows of its block.
type homecoming struct {
	from, number int
	slot         int // of the rank's memory, that they lie in
	rows         Span
	parts        []Span // of them that it computed
}

// collect receives what others computed of this rank's gradients.
func (w *pass) collect(peers []shared) (*collection, error) {
	rank := w.ring.Rank()
	c := &collection{}
	for _, from := range w.sched.receivers(rank) {
		launches := w.sched.launches(from, rank)
		h := homecoming{from: from, number: (from - rank + w.ring.Size()) % w.ring.Size(), rows: hull(launches),
			parts: union(keyRows(launches))}
		for n := 1; n < h.number; n++ { // its steps before
			if w.sched.sees(from, (from-n+w.ring.Size())%w.ring.Size()) {
				h.slot++
			}
		}
		h.slot %= slots
		c.steps = append(c.steps, h)
	}
	n := len(c.steps)
	c.arrived, c.gradients = readies(n), make([]pair, n)
	coming := make([]incoming, n)
	for i, s := range c.steps {
		c.gradients[i] = w.pair(fmt.Sprint("home", i%slots), w.problem.DType, s.rows.Len())
		coming[i] = incoming{s.from, s.slot, c.gradients[i].pieces(1), c.arrived[i : i+1]}
	}
	in, err := w.inbox("home", peers, n)
	if err != nil {
		return nil, err
	}
	c.released, err = w.receiveAll(tagGradients, coming, peers, in)
	return c, err
}

// addUpTo submits the sums of gradients that were computed at a step up to this one, in the order of steps.
//
// What ranks wait for lies two steps back: before it goes on, a rank adds what was computed then, and so frees a place for what comes home
// next; what it computes itself goes home without waiting for its next step. So nobody waits for somebody who waits for him, whichever
// steps ranks leave out.
func (c *collection) addUpTo(number int, w *pass, g *gradients) error {
	for c.added < len(c.steps) && c.steps[c.added].number <= number {
		i := c.added
		from := c.steps[i]
		if err := w.arrival(c.arrived[i]); err != nil {
			return err
		}
		for _, part := range from.parts {
			inside(g.keys, part, func(k int, at Span) { w.add(&g.ownParts[k], c.gradients[i], at.from(from.rows), g.own, at) })
		}
		if i+slots < len(c.steps) {
			if err := w.free(c.released[i], w.jobs); err != nil {
				return err
			}
		}
		c.added++
	}
	return nil
}
