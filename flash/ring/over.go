package ring

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
)

// Over says what goes from rank to rank. A rank's tensors are the same with either, its tokens, of all heads, but for Bias and Mask
// (Plan.BiasShape).
type Over uint8

const (
	// Either is Heads where [Shard].Speeds are measured, heads divide, and a forward and a backward pass together are predicted to be
	// faster with it, by [Model.Forward] and [Model.Backward]; with Speeds.Backward zero, a forward pass alone. It is Keys otherwise, and
	// where both take as long. Bytes alone do not decide: what goes around a ring is hidden behind kernels, and the exchanges of heads are
	// not. [Model.Moved] counts them. It is Keys of a problem with Bias or Mask too: what a rank gives of these would differ.
	Either Over = iota
	// Keys sends keys and values around the ring, and gradients with respect to them home (Liu, Zaharia and Abbeel, "Ring Attention",
	// 2023).
	Keys
	// Heads gives each rank all tokens of its share of the heads in one exchange of all with all, and brings results back in another
	// (Jacobs et al., "DeepSpeed Ulysses", 2023, section 3). In between attention is that of one device. Rank r of W has query heads
	// r·Heads/W up to (r+1)·Heads/W and the key heads that they read: KeyHeads must be a multiple of W. A bias or a mask tensor does not
	// travel: a rank gives what its heads have of it, for all queries and keys, and all of one that heads share.
	Heads
	// Both is Heads over the ranks of a host, Shard.PerHost of them, inside a ring of Keys over hosts: a host's ranks have all of its
	// tokens, of their share of the heads, and keys and values go between the ranks of hosts that have the same heads. KeyHeads must be a
	// multiple of PerHost. Bias and Mask have a rank's heads, where they have numbers for each, the rows of its host's queries, and all
	// keys. There is no Packed, and no block mask of each head.
	Both
	overs
)

// String gives the name.
func (o Over) String() string {
	if o >= overs {
		return fmt.Sprintf("Over(%d)", uint8(o))
	}
	return [...]string{"either", "keys", "heads", "both"}[o]
}

// checkOver says what is wrong with Over and Speeds for a normalized problem.
func (s Shard) checkOver(p *flash.Problem, ranks int) error {
	if s.Over >= overs {
		return badArgument("Shard.Over", uint8(s.Over), "must be Either, Keys, Heads or Both")
	}
	if err := s.checkHosts(p, ranks); err != nil {
		return err
	}
	if s.Over == Heads && p.KeyHeads%ranks != 0 {
		return badArgument("Problem.KeyHeads", p.KeyHeads, "must be a multiple of %d, the number of ranks, with Shard.Over = Heads; Keys "+
			"takes any", ranks)
	}
	v := s.Speeds
	for _, x := range [...]float64{v.Forward, v.Backward, v.Link, v.Latency} {
		if !(x >= 0) || math.IsInf(x, 1) {
			return badArgument("Shard.Speeds", v, "must be finite, and not below 0")
		}
	}
	if v != (Speeds{}) && (v.Forward == 0 || v.Link == 0) {
		return badArgument("Shard.Speeds", v, "must have Forward and Link, or be zero")
	}
	return nil
}

// slower is what counts of two ranks' speeds.
func (v Speeds) slower(o Speeds) Speeds {
	switch {
	case v == Speeds{}:
		return o
	case o == Speeds{}:
		return v
	}
	return Speeds{Forward: min(v.Forward, o.Forward), Backward: min(v.Backward, o.Backward), Link: min(v.Link, o.Link),
		Latency: max(v.Latency, o.Latency)}
}

// over is Over with Either decided, for a shard that was checked.
func (s Shard) over(p *flash.Problem, ranks int) Over {
	switch {
	case s.Over == Both && s.PerHost == 1:
		return Keys
	case s.Over == Both && s.PerHost == ranks:
		return Heads
	case s.Over != Either:
		return s.Over
	}
	if s.Speeds == (Speeds{}) || ranks == 1 || p.KeyHeads%ranks != 0 || (p.Bias != flash.PerScore{} || p.Mask != flash.PerScore{}) {
		return Keys
	}
	time := func(o Over) float64 {
		s.Over = o
		m := Model{sched: newSchedule(*p, s, ranks), over: o}
		t := m.Forward(s.Speeds).Ranks
		if s.Speeds.Backward > 0 {
			t += m.Backward(s.Speeds).Ranks
		}
		return t
	}
	if time(Heads) < time(Keys) {
		return Heads
	}
	return Keys
}

// Over is what the model counts, with Either decided.
func (m *Model) Over() Over { return m.over }

func (m *Model) overHeads() bool { return m.over == Heads && m.sched.ranks > 1 }

// Moved is the bytes that a rank sends and receives in its passes.
type Moved struct {
	ForwardSent, ForwardReceived   float64
	BackwardSent, BackwardReceived float64 // without DLSE; with it heads over devices move as much again as for LSE
	// What it gets from all others besides, and gives to each: where packed sequences lie, and gradients with respect to sinks, biases and
	// captured tensors that ranks sum, where all are asked for.
	ForwardGathered, BackwardGathered float64
}

// Moved counts what a rank sends and receives.
func (m *Model) Moved(rank int) (b Moved) {
	if m.hosts != nil {
		return m.hosts.moved(rank)
	}
	s := m.sched
	b.ForwardGathered, b.BackwardGathered = m.gathered(false), m.gathered(true)
	if m.overHeads() {
		b.BackwardGathered += float64(s.ranks - 1) // whether there is DLSE
		b.ForwardSent, b.ForwardReceived = s.exchanged(false, rank)
		b.BackwardSent, b.BackwardReceived = s.exchanged(true, rank)
		return b
	}
	for _, x := range m.Steps(rank) {
		b.ForwardSent += x.Sent
		b.ForwardReceived += x.Received
		b.BackwardSent += x.Sent + x.Gave
		b.BackwardReceived += x.Received + x.Got
	}
	return b
}

// gathered is the bytes that a rank gets in gatherings of a pass.
func (m *Model) gathered(backward bool) float64 {
	s, numbers := m.sched, 0
	p := &s.problem
	if p.Packed != (flash.Packed{}) {
		numbers += 2 * (p.Batch + 1)
	}
	for _, has := range []bool{p.QueryLengths, p.KeyLengths} {
		if has {
			numbers += p.Batch
		}
	}
	if p.MaxLogit && !backward {
		numbers += p.Batch * p.Heads
	}
	if p.Blocks != (flash.Blocks{}) {
		numbers += 8 // of a sum over its bits
	}
	if backward && p.Sinks {
		numbers += p.Heads
	}
	if backward && (!m.overHeads() && s.sharedBias() || m.overHeads() && headsShareBias(p)) {
		numbers += p.Bias.Batch * p.Bias.Heads * p.Bias.Queries * p.Bias.Keys
	}
	if all, has := hasGradients(p); backward {
		for i := range all {
			if has[i] {
				numbers += all[i].Elements()
			}
		}
	}
	return 4 * float64(numbers) * float64(s.ranks-1)
}

// exchanged is the bytes that a rank sends and receives in the exchanges of heads of a pass.
func (s *schedule) exchanged(backward bool, rank int) (sent, received float64) {
	in, out := crossings(backward)
	for _, c := range []*crossing{&in, &out} {
		one, other := s.crossed(c, rank)
		sent, received = sent+one, received+other
	}
	return sent, received
}

// crossed is the same of one exchange.
func (s *schedule) crossed(c *crossing, rank int) (sent, received float64) {
	for other := range s.ranks {
		for _, x := range c.cargo {
			if other != rank {
				sent += float64(s.cargoBytes(x, c.rows(s, x, rank, other)))
				received += float64(s.cargoBytes(x, c.rows(s, x, other, rank)))
			}
		}
	}
	return sent, received
}

// predictHeads is the seconds that a pass takes for its two exchanges, on the rank that takes longest: nothing is computed meanwhile.
func (s *schedule) predictHeads(v Speeds, backward bool) (t float64) {
	in, out := crossings(backward)
	for _, c := range []*crossing{&in, &out} {
		longest := 0.0
		for rank := range s.ranks {
			sent, received := s.crossed(c, rank)
			longest = max(longest, max(sent, received)/v.Link+v.Latency*float64(s.ranks-1))
		}
		t += longest
	}
	return t
}

// heldOverHeads is the bytes of a rank's device besides its own tensors, for both passes: all tokens of its heads, what it gives to each of
// the others, and places for what comes.
func (s *schedule) heldOverHeads() (n float64) {
	in, out := crossings(true)
	for _, c := range []*crossing{&in, &out} {
		for _, x := range c.cargo {
			all, keys := tokens(&s.problem)
			most := s.queries.most()
			if x.keys {
				all, most = keys, s.keys.most()
			}
			n += float64(s.cargoBytes(x, all) + (s.ranks-1+min(slots, s.ranks-1))*s.cargoBytes(x, most))
		}
	}
	return n
}
