package ring

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/score"
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
	whole   flash.Problem // of all ranks, with hosts
	hosts   *Plan         // the ring over hosts that this rank's heads are in; nil

	busy     sync.Mutex // a pass is under way
	mu       sync.Mutex
	launches map[string]*launchPlan // by problem
	sums     map[flash.AccumulateProblem]*summer
	buffers  map[string]*flash.Tensor
	host     map[string]*hostmem.Memory
	peers    map[string][]shared // what other ranks of this host show, by name; nil where bytes are sent
	opened   []*hostmem.Memory   // of other processes, among these
	mover    *hostmem.Mover
	passes   int // how many there were
	seen     seen
	waited   time.Duration
	trace    *Trace
	broken   error // what ended a pass: ranks no longer agree on what was said
}

// Plan is called by every rank with the same problem, of all tokens, and the same shard. It compares these before any work: where ranks
// differ every one of them gets a [*ShardError] that names what. The context bounds how long ranks wait for one another: one that does not
// come is an error of the others then.
//
// Dropout drops the weights that it drops on one device, and functions see the places of the whole; of packed sequences those of each
// sequence. Of a padded batch, with KeyLengths or QueryLengths, ranks cut all entries at the same places: who has what is beyond a short
// one's end has little to do, where sequences packed one behind the other are cut evenly.
//
// A problem has no Pages, Lists or MaskBlocks, and with Packed its keys are packed too. Where keys are moved ([Keys]) chunks begin where
// blocks of Blocks do, so that each has one or more, and there are no Blocks beside Packed; where there is a Mask of bits, but beside
// Packed, each chunk has 64 keys or more.
func (r *Ring) Plan(ctx context.Context, problem flash.Problem, shard Shard) (_ *Plan, err error) {
	if ctx == nil {
		ctx = context.Background()
	}
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
	if shard.Over == Both {
		p, err := r.inHosts(problem, shard)
		if err != nil {
			r.comm.Abort(err)
		}
		return p, err
	}
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
		launches: map[string]*launchPlan{}, sums: map[flash.AccumulateProblem]*summer{}, buffers: map[string]*flash.Tensor{},
		host: map[string]*hostmem.Memory{}, peers: map[string][]shared{}}
}

// prepare makes what the plan's steps need. After an error nothing is left.
func (p *Plan) prepare() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.mover, err = hostmem.NewMover(p.ring.dev); err != nil {
		return err
	}
	if p.ring.Size() == 1 && !p.sched.streamed {
		_, err = p.launch(p.problem)
		return err
	}
	if p.hosts != nil {
		return nil
	}
	if p.overHeads() {
		_, err = p.launch(p.ownHeads())
		return err
	}
	if p.problem.Sinks && p.sched.packed != nil { // in each pass; otherwise in backward passes alone
		if _, err := p.launch(p.sched.sinksAlone(p.ring.Rank())); err != nil {
			return err
		}
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
	if p.Packed != (flash.Packed{}) && p.Packed.Keys == 0 {
		return badArgument("Problem.Packed.Keys", 0, "must be the rows of all keys: packed queries beside a batch of keys are not spread "+
			"over ranks")
	}
	other := *p // less what can be
	other.Batch, other.Heads, other.KeyHeads, other.QueryLen, other.KeyLen, other.HeadDim, other.ValueDim, other.DType = 0, 0, 0,
		0, 0, 0, 0, 0
	other.Scale, other.Dropout, other.ScoreFunction, other.MaskFunction = 0, 0, score.Function{}, score.MaskFunction{}
	other.Packed, other.Bias, other.Mask, other.Sinks = flash.Packed{}, flash.PerScore{}, flash.PerScore{}, false
	other.KeyLengths, other.QueryLengths, other.Blocks, other.MaxLogit = false, false, flash.Blocks{}, false
	unmask(&other)
	if p.KeyType == p.DType {
		other.KeyType = 0
	}
	if p.ValueType == p.DType {
		other.ValueType = 0
	}
	for i, v := 0, reflect.ValueOf(other); i < v.NumField(); i++ {
		if !v.Field(i).IsZero() {
			return badArgument("Problem."+v.Type().Field(i).Name, "set", "must be zero: it is not spread over ranks")
		}
	}
	return nil
}

// Problem is the plan's problem, of all tokens, with defaults filled in.
func (p *Plan) Problem() flash.Problem {
	if p.hosts != nil {
		return p.whole
	}
	return p.problem
}

// Order is the order of the shard, with Auto decided.
func (p *Plan) Order() Order {
	if p.hosts != nil {
		return p.hosts.Order()
	}
	return p.sched.order
}

// Over is what goes from rank to rank, with Either decided.
func (p *Plan) Over() Over {
	if p.hosts != nil {
		return Both
	}
	return p.shard.Over
}

// Queries are the positions of the rank's queries in the whole sequence, or their rows among all packed ones, in the order in which its
// tensors have them: up to two spans.
func (p *Plan) Queries() []Span {
	if p.hosts != nil {
		return p.tokensOf(&p.sched.entryQueries, &p.hosts.sched.entryQueries)
	}
	return p.sched.own(&p.sched.entryQueries, p.ring.Rank())
}

// Keys are those of its keys and values.
func (p *Plan) Keys() []Span {
	if p.hosts != nil {
		return p.tokensOf(&p.sched.entryKeys, &p.hosts.sched.entryKeys)
	}
	return p.sched.own(&p.sched.entryKeys, p.ring.Rank())
}

// Local is the problem of the rank's own tensors: QueryLen and KeyLen, or those of Packed, are its numbers of queries and keys, so that
// [flash.Problem].QShape and its like are the shapes of its tensors. Those of Bias and Mask are Plan.BiasShape and Plan.MaskShape.
func (p *Plan) Local() flash.Problem {
	l := p.problem
	queries, keys := p.sched.entryQueries.rows(p.ring.Rank()), p.sched.entryKeys.rows(p.ring.Rank())
	if p.sched.streamed { // all of both
		queries, keys = tokens(&l)
	}
	if l.Packed != (flash.Packed{}) {
		l.Packed = flash.Packed{Queries: queries, Keys: keys}
		return l
	}
	l.QueryLen, l.KeyLen = queries, keys
	l.Bias, l.Mask = partOf(l.Bias, queries, keys), partOf(l.Mask, queries, keys)
	return l
}

// launch gives the plan of a launch, made when it is first asked for. p.mu need not be held.
func (p *Plan) launch(problem flash.Problem) (*flash.Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprint(problem.String(), problem.Within)
	if l := p.launches[name]; l != nil {
		l.used = p.passes
		return l.plan, nil
	}
	l, err := p.ring.dev.Plan(problem)
	if err == nil {
		p.launches[name] = &launchPlan{l, p.passes}
	}
	return l, err
}

// launchPlan is the plan of a launch, and in which pass it was last used.
type launchPlan struct {
	plan *flash.Plan
	used int
}

func (l *launchPlan) lastUsed() int { return l.used }
func (l *launchPlan) close() error  { return l.plan.Close() }

// Waited is how long the latest pass's work was not submitted because blocks or gradients had not arrived; where queues wait for one
// another, the copy of the last piece, of 16 MiB at most, is not counted.
func (p *Plan) Waited() time.Duration {
	if p.hosts != nil {
		return p.waited + p.hosts.waited
	}
	return p.waited
}

// Direct says whether ranks copy from one another's memory, which their devices import: ranks of one process, or on Linux of several of one
// host. Otherwise its Comm moves bytes. Before the first pass it is false.
func (p *Plan) Direct() bool {
	for _, shown := range p.peers {
		if shown != nil {
			return true
		}
	}
	return false
}

// BlockBytes is the size of keys and values of the rank that has most: what travels at each step, and in a backward pass as much again.
func (p *Plan) BlockBytes() int {
	if p.hosts != nil {
		return p.hosts.BlockBytes()
	}
	return p.blockBytes()
}

// Close frees the plan's buffers. Passes must have ended. It waits for no message; where ranks of one process copy from one another's
// memory, it waits until copies from this rank's are over: after a pass that failed, until that of the rank which copies has failed too.
// Another process that copies has mapped the memory itself, and keeps it.
func (p *Plan) Close() (err error) {
	if p.hosts != nil {
		err = p.hosts.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.launches {
		err = errors.Join(err, l.close())
	}
	for _, s := range p.sums {
		err = errors.Join(err, s.close())
	}
	for _, b := range p.buffers {
		err = errors.Join(err, b.Close())
	}
	for _, m := range p.opened {
		err = errors.Join(err, m.Close())
	}
	for _, m := range p.host {
		err = errors.Join(err, m.Close())
	}
	err = errors.Join(err, p.seen.tensor.Close(), p.seen.blocks.close(), p.mover.Close())
	p.launches, p.sums, p.buffers, p.host, p.opened = nil, nil, nil, nil, nil
	if p.broken == nil {
		p.broken = fmt.Errorf("%w: ring.Plan", flash.ErrClosed)
	}
	return err
}
