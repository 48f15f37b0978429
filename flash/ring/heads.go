package ring

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// overHeads says whether heads are over devices: with one rank it has all of them anyhow.
func (p *Plan) overHeads() bool { return p.shard.Over == Heads && p.ring.Size() > 1 }

// ownHeads is the problem that a rank computes: all tokens of its share of the heads. Where a pair's place matters beyond its band, it says
// which heads.
func (p *Plan) ownHeads() flash.Problem {
	l, ranks := p.problem, p.ring.Size()
	l.Heads, l.KeyHeads = l.Heads/ranks, l.KeyHeads/ranks
	l.Bias, l.Mask = ofHeads(l.Bias, ranks), ofHeads(l.Mask, ranks)
	if p.sched.positional { // whatever positions are: sequences have their own
		l.Within = flash.Within{Queries: l.QueryLen, Keys: l.KeyLen, Head: p.ring.Rank() * l.Heads, Heads: p.problem.Heads}
	}
	return l
}

// headsLaunch is its launch.
func (w *pass) headsLaunch() launch {
	l, n := launch{problem: w.ownHeads()}, w.problem.Heads/w.ring.Size()
	l.blocks = wholePart(&w.problem, Span{0, w.problem.QueryLen}, Span{0, w.problem.KeyLen})
	l.blocks.heads = Span{w.ring.Rank() * n, (w.ring.Rank() + 1) * n}
	return l
}

// cargo is one tensor of an exchange.
type cargo struct {
	name  string
	keys  bool // of keys and key heads; otherwise of queries and query heads
	value bool // columns are ValueDim; otherwise HeadDim
	row   bool // a number a row, in fp32: lse and its like
	// local is the caller's: on the way in nil stands for zeros, and on the way out for what nobody wants. whole is of all tokens and the
	// rank's heads, and stands in to for the pass over these.
	local, whole *flash.Tensor
	to           **flash.Tensor
	add          bool // on the way out: to what local holds
}

// headsCrossings are the exchanges of a forward pass, of a caller's tensors and those of all tokens.
func headsCrossings(own, whole *flash.Forward) (in, out crossing) {
	in = crossing{name: "heads.in", tag: tagHeads, cargo: []cargo{{name: "q", local: own.Q, to: &whole.Q},
		{name: "k", keys: true, local: own.K, to: &whole.K}, {name: "v", keys: true, value: true, local: own.V, to: &whole.V}}}
	out = crossing{name: "heads.out", tag: tagTokens, out: true, cargo: []cargo{{name: "o", value: true, local: own.O, to: &whole.O},
		{name: "lse", row: true, local: own.LSE, to: &whole.LSE}}}
	return in, out
}

// gradientsCrossings are those of a backward pass.
func gradientsCrossings(own, whole *flash.Backward) (in, out crossing) {
	in, made := headsCrossings(&own.Forward, &whole.Forward)
	in.name = "heads.din"
	in.cargo = append(append(in.cargo, made.cargo...), cargo{name: "do", value: true, local: own.DO, to: &whole.DO})
	out = crossing{name: "heads.dout", tag: tagTokens, out: true, cargo: []cargo{{name: "dq", local: own.DQ, to: &whole.DQ},
		{name: "dk", keys: true, local: own.DK, to: &whole.DK}, {name: "dv", keys: true, value: true, local: own.DV, to: &whole.DV}}}
	for i := range out.cargo {
		out.cargo[i].add = own.Accumulate
	}
	return in, out
}

// crossings are the exchanges of either pass, of no tensors.
func crossings(backward bool) (in, out crossing) {
	var none flash.Backward
	if backward {
		return gradientsCrossings(&none, &none)
	}
	return headsCrossings(&none.Forward, &none.Forward)
}

// shape is that of so many rows of a rank's share of the heads.
func (s *schedule) shape(c cargo, rows int) (flash.DType, [4]int) {
	p := &s.problem
	dtype, heads, columns := p.DType, p.Heads, p.HeadDim
	if c.keys {
		heads = p.KeyHeads
	}
	if c.value {
		columns = p.ValueDim
	}
	if c.row {
		dtype, columns = flash.F32, 1
	}
	return dtype, [4]int{s.entries(), heads / s.ranks, rows, columns}
}

func (s *schedule) cargoBytes(c cargo, rows int) int {
	dtype, x := s.shape(c, rows)
	return x[0] * x[1] * x[2] * x[3] * dtype.Size()
}

// layout is which tokens each rank has of a tensor.
func (s *schedule) layout(c cargo) *layout {
	if c.keys {
		return &s.keys
	}
	return &s.queries
}

// wholes makes a crossing's tensors of all tokens.
func (w *pass) wholes(c *crossing) {
	for i := range c.cargo {
		x := &c.cargo[i]
		n, keys := tokens(&w.problem)
		if x.keys {
			n = keys
		}
		dtype, shape := w.sched.shape(*x, n)
		x.whole = w.tensor("heads."+x.name, dtype, shape, n)
		*x.to = x.whole
	}
}

func (w *pass) forwardHeads(f *flash.Forward) error {
	whole := *f
	in, out := headsCrossings(f, &whole)
	w.wholes(&in)
	w.wholes(&out)
	if err := w.cross(&in); err != nil {
		return err
	}
	l := w.headsLaunch()
	whole.Sinks = w.ownSinks(w.of.Sinks)
	w.beginLargest(1)
	whole.MaxLogit = w.largestRow(&l, &l.problem, w.ring.Rank())
	switch {
	case w.hosts == nil:
		whole.Blocks = w.blocksOf(&l)
		w.attend(&l, whole)
	case w.err == nil:
		w.err = w.hosts.Forward(w.ctx, whole)
	}
	if err := w.cross(&out); err != nil {
		return err
	}
	return w.giveLargest(f.MaxLogit)
}

func (w *pass) backwardHeads(b *flash.Backward) error {
	g := flash.Backward{Forward: b.Forward}
	in, out := gradientsCrossings(b, &g)
	statistics, err := w.anyGives(b.DLSE != nil)
	if err != nil {
		return err
	}
	if statistics { // those who have none send zeros
		in.name += ".dlse"
		in.cargo = append(in.cargo, cargo{name: "dlse", row: true, local: b.DLSE, to: &g.DLSE})
	}
	w.wholes(&in)
	w.wholes(&out)
	if err := w.cross(&in); err != nil {
		return err
	}
	g.Sinks = w.ownSinks(w.of.Sinks)
	var dsinks *flash.Tensor // by the rank's heads; 0 by others
	if b.DSinks != nil {
		dsinks = w.tensor("sum.dsinks", flash.F32, b.DSinks.Shape(), 1)
		w.fill(dsinks, 0)
		g.DSinks = w.ownSinks(dsinks)
	}
	g.DBias, g.DCaptured = w.ownBiasGradient(b), w.likeCaptured("part", b.DCaptured)
	switch l := w.headsLaunch(); {
	case w.hosts == nil:
		g.Blocks = w.blocksOf(&l)
		w.gradients(&l, g)
	case w.err == nil:
		w.err = w.hosts.Backward(w.ctx, g)
	}
	if err := w.cross(&out); err != nil {
		return err
	}
	if w.problem.Sinks {
		if err := w.reduce("DSinks", dsinks, b.DSinks, b.Accumulate); err != nil {
			return err
		}
	}
	if err := w.reduceCaptured(b, g.DCaptured); err != nil {
		return err
	}
	return w.giveBiasGradient(b, g.DBias)
}

// headsShareBias says whether heads share the bias, so that the gradient with respect to it is a sum over ranks that have heads.
func headsShareBias(p *flash.Problem) bool {
	return p.Bias != flash.PerScore{} && p.Bias.Heads == 1 && p.Heads > 1
}

// ownBiasGradient is where the rank's heads' gradient with respect to the bias is written: in place where nothing is added to it.
func (w *pass) ownBiasGradient(b *flash.Backward) *flash.Tensor {
	if b.DBias == nil || !b.Accumulate && !headsShareBias(&w.problem) {
		return b.DBias
	}
	shape := w.BiasShape()
	return w.tensor("part.dbias", b.DBias.DType(), shape, shape[2])
}

// giveBiasGradient brings it to the caller.
func (w *pass) giveBiasGradient(b *flash.Backward, own *flash.Tensor) error {
	shared := headsShareBias(&w.problem)
	if !shared && own == b.DBias {
		return w.err
	}
	var sum *flash.Tensor
	if own != nil {
		sum = w.tensor("sum.dbias", flash.F32, own.Shape(), own.Shape()[2])
	}
	if !shared {
		w.addTo(b.DBias, own, sum)
		return w.err
	}
	if own != nil {
		w.copies(own, sum)
	}
	return w.reduce("DBias", sum, b.DBias, b.Accumulate)
}

// ownSinks are the rank's heads' of sinks; nil of nil.
func (w *pass) ownSinks(t *flash.Tensor) *flash.Tensor {
	if t == nil {
		return nil
	}
	n := w.problem.Heads / w.ring.Size()
	return w.view(t, t.Offset()+uint64(4*n*w.ring.Rank()), flash.F32, [4]int{1, 1, 1, n}, [4]int{})
}

// anyGives says whether any rank has something.
func (w *pass) anyGives(mine bool) (bool, error) {
	said := []byte{0}
	if mine {
		said[0] = 1
	}
	all, err := w.ring.comm.AllGather(w.ctx, said)
	if err != nil {
		return false, err
	}
	for rank, x := range all {
		if len(x) != 1 {
			return false, &RankError{Rank: w.ring.name(rank), Err: fmt.Errorf("it is in another call than Backward")}
		}
		mine = mine || x[0] == 1
	}
	return mine, nil
}
