package ring

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Tags of messages between two ranks, of which there is one of each in a pass.
const (
	tagKeys Tag = iota
	tagValues
	tagKeyGradients
	tagValueGradients
)

// ready is something that becomes so once.
type ready chan struct{}

// await waits for it, or for the end of the context.
func (r ready) await(ctx context.Context) error {
	select {
	case <-r:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ring: %w", context.Cause(ctx))
	}
}

func readies(n int) []ready {
	out := make([]ready, n)
	for i := range out {
		out[i] = make(ready)
	}
	return out
}

// slots is how many blocks of others are on a device at once: while one is computed with, the next arrives.
const slots = 2

// pair is keys and values, or their gradients.
type pair struct{ k, v *flash.Tensor }

// list is both with their tags; first is that of k.
func (p pair) list(first Tag) []tagged { return []tagged{{p.k, first}, {p.v, first + 1}} }

type tagged struct {
	*flash.Tensor
	tag Tag
}

// pair makes buffers for keys and values of so many rows.
func (p *Plan) pair(name string, dtype flash.DType, rows int) (out pair, err error) {
	g, most := &p.problem, p.sched.keys.most()
	if out.k, err = p.tensor(name+".k", dtype, [4]int{g.Batch, g.KeyHeads, rows, g.HeadDim}, most); err == nil {
		out.v, err = p.tensor(name+".v", dtype, [4]int{g.Batch, g.KeyHeads, rows, g.ValueDim}, most)
	}
	return out, err
}

// bytes is a buffer of the host, of a name.
func (p *Plan) bytes(name string, n uint64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uint64(len(p.host[name])) < n {
		p.host[name] = make([]byte, n)
	}
	return p.host[name][:n]
}

// exchange is the blocks on their way in a pass.
type exchange struct {
	arrived, released []ready // by remote step
	blocks            []pair
}

// publish sends this rank's block to those who need it, and brings theirs.
func (w *pass) publish(own pair) (*exchange, error) {
	rank := w.ring.Rank()
	if to := w.sched.receivers(rank); len(to) > 0 {
		mine, err := w.pair("own", w.problem.DType, w.sched.keys.rows(rank))
		if err != nil {
			return nil, err
		}
		var copies [2]sum
		for i, x := range [2][2]*flash.Tensor{{own.k, mine.k}, {own.v, mine.v}} {
			if copies[i], err = w.accumulation(flash.AccumulateCopy, flash.Accumulate{X: x[0], Y: x[1]}); err != nil {
				return nil, err
			}
			w.jobs = append(w.jobs, copies[i])
		}
		if err := w.settle(len(w.jobs)); err != nil {
			return nil, err
		}
		w.others.Go(func() error {
			for i, t := range mine.list(tagKeys) {
				raw := w.bytes(fmt.Sprint("own", i), t.Bytes())
				if err := t.DownloadBytes(w.ctx, raw); err != nil {
					return err
				}
			}
			for _, to := range to {
				for i, t := range mine.list(tagKeys) {
					if err := w.ring.comm.Send(w.ctx, to, t.tag, w.bytes(fmt.Sprint("own", i), t.Bytes())); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	remote := w.remote()
	e := &exchange{arrived: readies(len(remote)), released: readies(len(remote)), blocks: make([]pair, len(remote))}
	for i, s := range remote {
		var err error
		if e.blocks[i], err = w.pair(fmt.Sprint("block", i%slots), w.problem.DType, w.sched.keys.rows(s.owner)); err != nil {
			return nil, err
		}
	}
	w.others.Go(func() error {
		for i, s := range remote {
			if i >= slots {
				if err := e.released[i-slots].await(w.ctx); err != nil {
					return err
				}
			}
			for _, t := range e.blocks[i].list(tagKeys) {
				raw := w.bytes("block", t.Bytes())
				if err := w.ring.comm.Receive(w.ctx, s.owner, t.tag, raw); err != nil {
					return err
				}
				if err := t.UploadBytes(w.ctx, raw); err != nil {
					return err
				}
			}
			close(e.arrived[i])
		}
		return nil
	})
	return e, nil
}

// remote are the steps with blocks of other ranks.
func (p *Plan) remote() []step {
	var out []step
	for _, s := range p.steps {
		if s.number > 0 {
			out = append(out, s)
		}
	}
	return out
}

// local is the step with the rank's own block, which may have no launches.
func (p *Plan) local() step {
	if len(p.steps) > 0 && p.steps[0].number == 0 {
		return p.steps[0]
	}
	return step{owner: p.ring.Rank()}
}

// delivery is the gradients of others' blocks on their way home, by remote step.
type delivery struct {
	sent  []ready
	given chan given
}

type given struct {
	step int
	pair
}

// give hands over what a step computed, which the device has finished.
func (d *delivery) give(step int, x pair) { d.given <- given{step, x} }

// deliver sends what give hands over.
func (w *pass) deliver(remote []step) *delivery {
	d := &delivery{sent: readies(len(remote)), given: make(chan given, len(remote))}
	w.others.Go(func() error {
		for range remote {
			var x given
			select {
			case x = <-d.given:
			case <-w.ctx.Done():
				return fmt.Errorf("ring: %w", context.Cause(w.ctx))
			}
			for _, t := range x.list(tagKeyGradients) {
				raw := w.bytes("give", t.Bytes())
				if err := t.DownloadBytes(w.ctx, raw); err != nil {
					return err
				}
				if err := w.ring.comm.Send(w.ctx, remote[x.step].owner, t.tag, raw); err != nil {
					return err
				}
			}
			close(d.sent[x.step])
		}
		return nil
	})
	return d
}

// collection is the gradients of the rank's own block that come home, by the step at which they were computed.
type collection struct {
	steps             []homecoming
	arrived, released []ready
	gradients         []pair
}

// homecoming is what a rank adds to this rank's gradients: of some rows of its block.
type homecoming struct {
	from         int
	rows, chunks Span
}

// collect receives what others computed of this rank's gradients.
func (w *pass) collect() (*collection, error) {
	rank := w.ring.Rank()
	c := &collection{}
	for _, from := range w.sched.receivers(rank) {
		rows, chunks := touched(w.sched.launches(from, rank))
		c.steps = append(c.steps, homecoming{from, rows, chunks})
	}
	c.arrived, c.released, c.gradients = readies(len(c.steps)), readies(len(c.steps)), make([]pair, len(c.steps))
	for i, s := range c.steps {
		var err error
		if c.gradients[i], err = w.pair(fmt.Sprint("home", i%slots), w.problem.DType, s.rows.Len()); err != nil {
			return nil, err
		}
	}
	w.others.Go(func() error {
		for i, s := range c.steps {
			if i >= slots {
				if err := c.released[i-slots].await(w.ctx); err != nil {
					return err
				}
			}
			for _, t := range c.gradients[i].list(tagKeyGradients) {
				raw := w.bytes("home", t.Bytes())
				if err := w.ring.comm.Receive(w.ctx, s.from, t.tag, raw); err != nil {
					return err
				}
				if err := t.UploadBytes(w.ctx, raw); err != nil {
					return err
				}
			}
			close(c.arrived[i])
		}
		return nil
	})
	return c, nil
}
