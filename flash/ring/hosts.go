package ring

import (
	"errors"

	"github.com/vkattn/vkattn/flash"
)

// Heads over the ranks of a host, and a ring over hosts ([Both]). It is heads over devices whose attention, in between the two exchanges,
// is a ring: of the ranks that have the same heads, one of each host, with all tokens of their hosts.

// First tags of the two, behind those of a ring alone.
const (
	tagsOfHost  Tag = 16
	tagsOfHosts Tag = 32
)

// inHosts is the ring over hosts of a plan for all ranks, and the heads over the ranks of a host; each has a plan.
func (r *Ring) inHosts(problem flash.Problem, shard Shard) (*Plan, error) {
	n := shard.PerHost
	host, index := r.Rank()/n, r.Rank()%n
	var neighbours, alike []int
	for rank := range r.Size() {
		if rank/n == host {
			neighbours = append(neighbours, rank)
		}
		if rank%n == index {
			alike = append(alike, rank)
		}
	}
	over := newPlan(&Ring{newSubset(r.comm, alike, tagsOfHosts), r.dev}, ofHost(problem, n), Shard{Order: shard.Order, Over: Keys})
	over.sched.head, over.sched.heads = index*over.problem.Heads, problem.Heads
	over.steps = over.sched.steps(host)
	p := newPlan(&Ring{newSubset(r.comm, neighbours, tagsOfHost), r.dev}, withinHost(problem, over.sched, host),
		Shard{Order: Plain, Over: Heads})
	p.whole, p.hosts = problem, over
	p.problem.Blocks = problem.Blocks // which the ring takes
	if err := over.prepare(); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, errors.Join(err, over.Close())
	}
	return p, nil
}

// ofHost is the problem of one rank of each host, of so many ranks: all tokens of its heads.
func ofHost(p flash.Problem, perHost int) flash.Problem {
	p.Heads, p.KeyHeads = p.Heads/perHost, p.KeyHeads/perHost
	p.Bias, p.Mask = ofHeads(p.Bias, perHost), ofHeads(p.Mask, perHost)
	return p
}

// withinHost is the problem whose heads are over the ranks of a host: the host's tokens, which are cut wherever that is even.
func withinHost(p flash.Problem, over *schedule, host int) flash.Problem {
	p.QueryLen, p.KeyLen = over.entryQueries.rows(host), over.entryKeys.rows(host)
	p.Blocks = flash.Blocks{}
	for _, of := range []*flash.PerScore{&p.Bias, &p.Mask} {
		if of.Queries > 1 {
			of.Queries = p.QueryLen
		}
	}
	return p
}

// of are the positions of some rows of a rank's tensors.
func (l *layout) of(rank int, rows Span) (out []Span) {
	for i, at := range spansOf(l.spans[rank]) {
		if x := meet(at, rows); x.Len() > 0 {
			out = append(out, x.from(at).behind(l.spans[rank][i]))
		}
	}
	return out
}

// tokensOf are the positions, in the whole, of a rank's tokens, which are some of its host's.
func (p *Plan) tokensOf(own, hosts *layout) []Span {
	return hosts.of(p.hosts.ring.Rank(), own.spans[p.ring.Rank()][0])
}

// checkHosts says what of a problem cannot be over hosts.
func (s Shard) checkHosts(p *flash.Problem, ranks int) error {
	switch n := s.PerHost; {
	case s.Over != Both && n != 0:
		return badArgument("Shard.PerHost", n, "must be 0 with Shard.Over = %v", s.Over)
	case s.Over != Both:
		return nil
	case n < 1 || ranks%n != 0:
		return badArgument("Shard.PerHost", n, "must divide the number of ranks, %d", ranks)
	case p.KeyHeads%n != 0:
		return badArgument("Problem.KeyHeads", p.KeyHeads, "must be a multiple of %d, the ranks of a host", n)
	case s.over(p, ranks) != Both:
		return nil
	case p.Packed != flash.Packed{}:
		return badArgument("Problem.Packed", p.Packed, "must be zero with Shard.Over = Both: rows of no sequence, which no pass may "+
			"write, lie in what ranks of a host exchange")
	case p.Blocks.PerHead:
		return badArgument("Problem.Blocks.PerHead", true, "must be false with Shard.Over = Both: a rank would need its heads' alone")
	}
	return nil
}

// hostsModel counts heads over the ranks of hosts inside a ring over these.
type hostsModel struct {
	perHost int
	ring    *Model      // over hosts, of the heads of one rank
	within  []*schedule // of each host
}

func newHostsModel(p flash.Problem, shard Shard, ranks int) *hostsModel {
	n := shard.PerHost
	over := newSchedule(ofHost(p, n), Shard{Order: shard.Order, Over: Keys}, ranks/n)
	h := &hostsModel{perHost: n, ring: &Model{sched: over, over: Keys}}
	for host := range ranks / n {
		h.within = append(h.within, newSchedule(withinHost(p, over, host), Shard{Order: Plain, Over: Heads}, n))
	}
	return h
}

// moved adds what ranks of a host exchange to what the ring moves.
func (h *hostsModel) moved(rank int) Moved {
	b := h.ring.Moved(rank / h.perHost)
	in := (&Model{sched: h.within[rank/h.perHost], over: Heads}).Moved(rank % h.perHost)
	// Gatherings are over all ranks.
	others := float64(h.perHost*h.ring.sched.ranks - 1)
	all := func(ring, host float64) float64 {
		return others * (ring/float64(h.ring.sched.ranks-1) + host/float64(h.perHost-1))
	}
	return Moved{b.ForwardSent + in.ForwardSent, b.ForwardReceived + in.ForwardReceived, b.BackwardSent + in.BackwardSent,
		b.BackwardReceived + in.BackwardReceived, all(b.ForwardGathered, in.ForwardGathered),
		all(b.BackwardGathered, in.BackwardGathered)}
}

// predict is the ring over hosts, and the exchanges of the host whose take longest.
func (h *hostsModel) predict(v Speeds, backward bool) Times {
	t := h.ring.predict(v, backward)
	longest := 0.0
	for _, s := range h.within {
		longest = max(longest, s.predictHeads(v, backward))
	}
	return Times{One: t.One * float64(h.perHost), Ranks: t.Ranks + longest, Waiting: t.Waiting + longest}
}

// memory is that of the rank with most: its own tokens', what the exchanges hold, among it all of the host's tokens of its heads, and what
// the ring holds beside these.
func (h *hostsModel) memory() (most float64) {
	for _, s := range h.within {
		most = max(most, (&Model{sched: s, over: Heads}).Memory())
	}
	return most + h.ring.Memory() - h.ring.tensors()
}
