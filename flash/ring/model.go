package ring

import "github.com/vkattn/vkattn/flash"

// Model is what a problem on some ranks computes and moves, without a device: the schedule, counted.
type Model struct {
	sched *schedule
	over  Over
	hosts *hostsModel // with Both
}

// NewModel counts a problem. Its error is that of [Ring.Plan].
func NewModel(problem flash.Problem, shard Shard, ranks int) (*Model, error) {
	problem, err := problem.Normalize()
	if err == nil {
		err = supported(&problem)
	}
	if err == nil && ranks < 1 {
		err = badArgument("ranks", ranks, "must be at least 1")
	}
	if err == nil {
		err = shard.check(&problem, ranks)
	}
	if err != nil {
		return nil, err
	}
	shard.Over = shard.over(&problem, ranks)
	m := &Model{over: shard.Over}
	if m.over == Both {
		m.hosts = newHostsModel(problem, shard, ranks)
		return m, nil
	}
	m.sched = newSchedule(problem, shard, ranks)
	return m, nil
}

// Sequences is the model of packed sequences that start there, as Forward.QueryStarts and KeyStarts say. A model of a problem with Packed
// assumes them one behind the other, each as long as one can be, as long as there are rows. The error is an [*flash.ArgumentError] where
// the problem has no packed sequences, or has another number of them.
func (m *Model) Sequences(queryStarts, keyStarts []int32) (*Model, error) {
	if m.hosts != nil {
		return m.withRing(m.hosts.ring.Sequences(queryStarts, keyStarts))
	}
	s := *m.sched
	if s.packed == nil || s.padded {
		return nil, badArgument("Problem.Packed", s.problem.Packed, "must be set: without it there are no sequences")
	}
	for name, starts := range map[string][]int32{"queryStarts": queryStarts, "keyStarts": keyStarts} {
		if len(starts) != s.problem.Batch+1 {
			return nil, badArgument("len("+name+")", len(starts), "must be %d, Problem.Batch + 1", s.problem.Batch+1)
		}
	}
	s.packed = newSequences(&s.problem, queryStarts, keyStarts)
	return &Model{sched: &s, over: m.over}, nil
}

// Lengths is the model of the same packed sequences that use so many rows of their slots, or of a padded batch whose entries do, as
// Forward.QueryLengths and KeyLengths say; nil of a problem without QueryLengths or KeyLengths. What travels is what it was but for blocks
// that nobody sees then: rows that are not used go with those around them. The error is an [*flash.ArgumentError] of lengths that the
// problem does not have, or of another number of them.
func (m *Model) Lengths(queryLengths, keyLengths []int32) (*Model, error) {
	if m.hosts != nil {
		return m.withRing(m.hosts.ring.Lengths(queryLengths, keyLengths))
	}
	s := *m.sched
	for _, x := range []struct {
		name string
		has  bool
		of   []int32
	}{{"queryLengths", s.problem.QueryLengths, queryLengths}, {"keyLengths", s.problem.KeyLengths, keyLengths}} {
		want := 0
		if x.has {
			want = s.problem.Batch
		}
		if len(x.of) != want {
			return nil, badArgument("len("+x.name+")", len(x.of), "must be %d: Problem.Batch where the problem has them, else 0", want)
		}
	}
	if s.packed != nil { // which a problem with lengths has, but over heads
		s.packed = s.packed.using(queryLengths, keyLengths)
	}
	return &Model{sched: &s, over: m.over}, nil
}

// withRing is the model with another ring over hosts.
func (m *Model) withRing(ring *Model, err error) (*Model, error) {
	if err != nil {
		return nil, err
	}
	hosts := *m.hosts
	hosts.ring = ring
	return &Model{over: m.over, hosts: &hosts}, nil
}

// Step is what a rank computes with one block, and what it sends and receives for that, in bytes.
type Step struct {
	Number   int     // how many ranks away the block's owner is
	Pairs    float64 // of queries and keys, of all heads
	Received float64 // of the block: keys and values
	Sent     float64 // of the rank's own block, to the rank that is as far away on the other side
	Gave     float64 // of gradients with respect to the block's keys and values, in a backward pass
	Got      float64 // of gradients with respect to the rank's own
}

// Steps are those of a rank, its own block's first. One that neither computes nor moves anything is left out. With heads over devices it is
// one, of the pairs of the rank's heads. With Both, owners are hosts.
func (m *Model) Steps(rank int) []Step {
	if m.hosts != nil {
		return m.hosts.ring.Steps(rank / m.hosts.perHost)
	}
	s := m.sched
	if m.overHeads() {
		return []Step{{Pairs: s.pairs() / float64(s.ranks)}}
	}
	var out []Step
	for n := range s.ranks {
		owner, receiver := (rank-n+s.ranks)%s.ranks, (rank+n)%s.ranks
		x := Step{Number: n}
		launches := s.launches(rank, owner)
		for _, l := range launches {
			x.Pairs += l.pairs * float64(s.entries()*s.problem.Heads)
		}
		if n > 0 && len(launches) > 0 {
			rows := hull(launches)
			x.Received, x.Gave = s.bytes(s.keys.rows(owner)), s.bytes(rows.Len())
		}
		if n > 0 && s.sees(receiver, rank) {
			rows := hull(s.launches(receiver, rank))
			x.Sent, x.Got = s.bytes(s.keys.rows(rank)), s.bytes(rows.Len())
		}
		if x != (Step{Number: n}) {
			out = append(out, x)
		}
	}
	return out
}

// bytes is keys and values of so many tokens.
func (s *schedule) bytes(tokens int) float64 {
	p := &s.problem
	return float64(s.entries()*p.KeyHeads*tokens) * float64((p.HeadDim+p.ValueDim)*p.DType.Size())
}

// Memory is the bytes that the rank with most tokens holds on its device for both passes: its tensors, blocks of others on their way, and
// sums in fp32. It falls with the number of ranks.
func (m *Model) Memory() float64 {
	if m.hosts != nil {
		return m.hosts.memory()
	}
	s, p, tensors := m.sched, &m.sched.problem, m.tensors()
	nk := s.keys.most()
	if s.ranks == 1 {
		return tensors
	}
	if m.overHeads() {
		return tensors + s.heldOverHeads()
	}
	places := 1 + 3*slots + 1.0 // its own block, blocks, gradients going home and coming, and those of a launch
	row := m.row
	sums := row(p.HeadDim, 4) + row(p.ValueDim, 4) + 2*row(1, 4) + row(p.HeadDim, p.DType.Size()) + row(p.ValueDim,
		p.DType.Size()) + row(1, 4)
	return tensors + places*s.bytes(nk) + sums + s.bytes(nk)*4/float64(p.DType.Size())
}

// row is the bytes of so many numbers of so many bytes for each query and head of the rank with most.
func (m *Model) row(columns, size int) float64 {
	s := m.sched
	return float64(s.queries.most()) * float64(s.entries()*s.problem.Heads) * float64(columns*size)
}

// tensors is the bytes of a rank's own.
func (m *Model) tensors() float64 {
	s, p := m.sched, &m.sched.problem
	return 2*m.row(p.HeadDim, p.DType.Size()) + 2*m.row(p.ValueDim, p.DType.Size()) + m.row(1, 4) + 2*s.bytes(s.keys.most())
}

// Speeds are those of a device and of its link to others.
type Speeds struct {
	Forward, Backward float64 // operations a second, as [flash.Problem].ForwardFLOPs counts them
	Link              float64 // bytes a second, in each direction
	Latency           float64 // seconds, of each message
}

// Times are the seconds of a pass.
type Times struct {
	One     float64 // on one device
	Ranks   float64 // on the slowest rank
	Waiting float64 // of it for blocks, on that rank
}

// Forward predicts a forward pass: a rank computes with a block while the next arrives, two at most being on the device.
func (m *Model) Forward(v Speeds) Times { return m.predict(v, false) }

// Backward predicts a backward pass: gradients go home beside the next step, the last ones beside half of the rank's own block.
func (m *Model) Backward(v Speeds) Times { return m.predict(v, true) }

func (m *Model) predict(v Speeds, backward bool) (t Times) {
	if m.hosts != nil {
		return m.hosts.predict(v, backward)
	}
	s, p := m.sched, &m.sched.problem
	perPair := 2 * float64(p.HeadDim+p.ValueDim) / v.Forward
	if backward {
		perPair = 2.5 * 2 * float64(p.HeadDim+p.ValueDim) / v.Backward
	}
	t.One = s.pairs() * perPair
	if m.overHeads() {
		t.Waiting = s.predictHeads(v, backward)
		t.Ranks = t.One/float64(s.ranks) + t.Waiting
		return t
	}
	for _, rank := range someRanks(s.ranks) {
		var arrived, done, sent float64 // when the last block was there, the device was free, and the last gradients were home
		var ends []float64
		waiting, last := 0.0, 0.0
		for _, x := range m.Steps(rank) {
			compute := x.Pairs * perPair
			if x.Number == 0 {
				if backward {
					compute, last = compute/2, compute/2
				}
				done += compute
				continue
			}
			if x.Received > 0 {
				free := 0.0
				if len(ends) >= slots {
					free = ends[len(ends)-slots]
				}
				arrived = max(arrived, free) + x.Received/v.Link + v.Latency
				waiting += max(0, arrived-done)
				done = max(done, arrived) + compute
				ends = append(ends, done)
			}
			if backward {
				sent = max(sent, done) + max(x.Gave, x.Got)/v.Link + v.Latency
			}
		}
		done += last
		if sent > done {
			waiting += sent - done
			done = sent
		}
		if done > t.Ranks {
			t.Ranks, t.Waiting = done, waiting
		}
	}
	return t
}

// someRanks are those that a forecast looks at: all, or of many some of the first, in the middle and of the last, between which the others
// lie.
func someRanks(n int) (out []int) {
	for r := range n {
		if n <= 16 || r < 2 || r >= n-2 || r == n/2 {
			out = append(out, r)
		}
	}
	return out
}
