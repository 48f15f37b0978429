package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// Ring is one rank: its device, and its way to the others.
type Ring struct {
	comm Comm
	dev  *flash.Device
}

// New makes a rank of a communicator and a device. Both stay the caller's, and must outlive it.
func New(comm Comm, dev *flash.Device) (*Ring, error) {
	if comm == nil {
		return nil, badArgument("comm", "nil", "must be one of Local's, or of another communicator's")
	}
	if dev == nil || dev.Handle() == 0 {
		return nil, badArgument("dev", "nil or zero", "must come from flash.Open or flash.Attach")
	}
	return &Ring{comm: comm, dev: dev}, nil
}

// Rank is the rank's number, and Size how many there are.
func (r *Ring) Rank() int { return r.comm.Rank() }

// Size is the number of ranks.
func (r *Ring) Size() int { return r.comm.Size() }

// Device is the rank's device.
func (r *Ring) Device() *flash.Device { return r.dev }

// Plan is how one problem runs on the ranks, seen from one of them. Its passes are called by every rank, in the same order.
//
// A plan has its buffers to itself: one pass at a time.
type Plan struct {
	ring    *Ring
	problem flash.Problem
	shard   Shard
	sched   *schedule
	steps   []step

	busy     sync.Mutex // a pass is under way
	mu       sync.Mutex
	launches map[string]*flash.Plan // by problem
	sums     map[flash.AccumulateProblem]*summer
	buffers  map[string]*flash.Tensor
	host     map[string]*flash.HostMemory
	peers    map[string][]shared // what other ranks of this process show, by name; nil where they are not in it
	mover    *flash.Mover
	waited   time.Duration
	trace    *Trace
	broken   error // what ended a pass: ranks no longer agree on what was said
}

// Plan is called by every rank with the same problem, of all tokens, and the same shard. It compares these before any work: where ranks differ every one
// of them gets a [*ShardError] that names what. The context bounds how long ranks wait for one another: one that does not come is an error of the
// others then.
//
// Dropout drops the weights that it drops on one device, and functions see the places of the whole. A problem has no Packed, KeyLengths, QueryLengths,
// Pages, Blocks, Classes, Bias, Mask or Sinks; sequences one behind the other are a mask function, such as [score.Documents].
func (r *Ring) Plan(ctx context.Context, problem flash.Problem, shard Shard) (_ *Plan, err error) {
	problem, bad := problem.Normalize()
	if bad == nil {
		bad = supported(&problem)
	}
	if bad == nil {
		bad = shard.check(&problem, r.Size())
	}
	if shard.Speeds, err = r.agree(ctx, problem, shard, bad); err != nil {
		return nil, err
	}
	shard.Over = shard.over(&problem, r.Size())
	p := newPlan(r, problem, shard)
	p.steps = p.sched.steps(r.Rank())
	if err := p.prepare(); err != nil {
		r.comm.Abort(err)
		return nil, err
	}
	return p, nil
}

func newPlan(r *Ring, problem flash.Problem, shard Shard) *Plan {
	return &Plan{ring: r, problem: problem, shard: shard, sched: newSchedule(problem, shard, r.Size()),
		launches: map[string]*flash.Plan{}, sums: map[flash.AccumulateProblem]*summer{}, buffers: map[string]*flash.Tensor{},
		host: map[string]*flash.HostMemory{}, peers: map[string][]shared{}}
}

// prepare makes what the plan's steps need. After an error nothing is left.
func (p *Plan) prepare() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.mover, err = p.ring.dev.NewMover(); err != nil {
		return err
	}
	if p.overHeads() {
		_, err = p.launch(p.ownHeads())
		return err
	}
	for _, s := range p.steps {
		for _, l := range s.launches {
			if s.number > 0 {
				l = l.group(p.groups())
			}
			if _, err := p.launch(l.problem); err != nil {
				return err
			}
		}
	}
	return nil
}

// supported says what of a problem cannot be spread over ranks.
func supported(p *flash.Problem) error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Packed", p.Packed != flash.Packed{}}, {"KeyLengths", p.KeyLengths}, {"QueryLengths", p.QueryLengths}, {"Pages", p.Pages != flash.Pages{}},
		{"Blocks", p.Blocks != flash.Blocks{}}, {"Classes", p.Classes != flash.Blocks{}}, {"Bias", p.Bias != flash.PerScore{}},
		{"Mask", p.Mask != flash.PerScore{}}, {"Sinks", p.Sinks}, {"Within", p.Within != flash.Within{}},
		{"KeyType", p.KeyType != p.DType}, {"ValueType", p.ValueType != p.DType},
	} {
		if f.set {
			return badArgument("Problem."+f.name, "set", "must be zero: it is not spread over ranks")
		}
	}
	return nil
}

// Problem is the plan's problem, of all tokens, with defaults filled in.
func (p *Plan) Problem() flash.Problem { return p.problem }

// Order is the order of the shard, with Auto decided.
func (p *Plan) Order() Order { return p.sched.order }

// Over is what goes from rank to rank, with Either decided.
func (p *Plan) Over() Over { return p.shard.Over }

// Queries are the positions of the rank's queries in the whole sequence, in the order in which its tensors have them: up to two spans.
func (p *Plan) Queries() []Span { return append([]Span(nil), p.sched.queries.spans[p.ring.Rank()]...) }

// Keys are those of its keys and values.
func (p *Plan) Keys() []Span { return append([]Span(nil), p.sched.keys.spans[p.ring.Rank()]...) }

// Local is the problem of the rank's own tensors: QueryLen and KeyLen are its numbers of queries and keys, so that [flash.Problem].QShape and its
// like are the shapes of its tensors.
func (p *Plan) Local() flash.Problem {
	l := p.problem
	l.QueryLen, l.KeyLen = p.sched.queries.rows(p.ring.Rank()), p.sched.keys.rows(p.ring.Rank())
	return l
}

// launch gives the plan of a launch, made when it is first asked for. p.mu need not be held.
func (p *Plan) launch(problem flash.Problem) (*flash.Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := problem.String()
	if l := p.launches[name]; l != nil {
		return l, nil
	}
	l, err := p.ring.dev.Plan(problem)
	if err == nil {
		p.launches[name] = l
	}
	return l, err
}

// Waited is how long the latest pass's work on the device was held up by blocks or gradients that had not arrived.
func (p *Plan) Waited() time.Duration { return p.waited }

// Direct says whether ranks copy from one another's memory, which their devices import. Before the first pass it is false.
func (p *Plan) Direct() bool {
	for _, shown := range p.peers {
		if shown != nil {
			return true
		}
	}
	return false
}

// BlockBytes is the size of keys and values of the rank that has most: what travels at each step, and in a backward pass as much again.
func (p *Plan) BlockBytes() int { return p.blockBytes() }

// Close frees the plan's buffers. It waits for nobody: passes must have ended.
func (p *Plan) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, l := range p.launches {
		err = errors.Join(err, l.Close())
	}
	for _, s := range p.sums {
		err = errors.Join(err, s.close())
	}
	for _, b := range p.buffers {
		err = errors.Join(err, b.Close())
	}
	for _, m := range p.host {
		err = errors.Join(err, m.Close())
	}
	err = errors.Join(err, p.mover.Close())
	p.launches, p.sums, p.buffers, p.host = nil, nil, nil, nil
	if p.broken == nil {
		p.broken = fmt.Errorf("%w: ring.Plan", flash.ErrClosed)
	}
	return err
}
