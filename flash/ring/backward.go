package ring

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// Backward computes the gradients with respect to the rank's queries, keys and values, as [flash.Backward] says of the whole. Tensors are
// the rank's own, of the shapes of Plan.Local; O and LSE are what Forward wrote. Every rank calls it, with the same Accumulate.
//
// Given o and lse over all keys, the gradients of pairs of blocks add up: dq stays with its queries and is summed in fp32. What a rank adds
// to dk and dv of another goes home in the storage type, rounded once, and is summed there in fp32, by step. The order depends on the rank
// and the number of ranks alone.
//
// DSinks, DCaptured, and DBias of a bias that queries share or that is of packed sequences, or over heads one that these share, are the
// whole gradient, of every rank: all give them, or none.
//
// Half of what a rank computes with its own block waits until the end, where it hides the way home of the last gradients. Context and
// errors are those of Forward.
func (p *Plan) Backward(ctx context.Context, b flash.Backward) error {
	return p.run(ctx, func(w *pass) error { return w.backward(&b) })
}

func (w *pass) backward(b *flash.Backward) error {
	if err := w.refuse("Backward", *b); err != nil {
		return err
	}
	local := w.Local()
	w.of = &b.Forward
	all := append(w.wantedOfBackward(b, &local), wanted{"K", b.K, local.KShape()}, wanted{"V", b.V, local.VShape()},
		wanted{"DK", b.DK, local.KShape()}, wanted{"DV", b.DV, local.VShape()})
	if err := w.check("Backward", all); err != nil {
		return err
	}
	if err := w.checkCaptured("Backward", b.DCaptured); err != nil {
		return err
	}
	if w.ring.Size() == 1 {
		w.gradients(&launch{problem: w.problem}, *b)
		return w.err
	}
	if err := w.takeSequences("Backward"); err != nil {
		return err
	}
	if w.overHeads() {
		return w.backwardHeads(b)
	}
	e, err := w.publish(pair{b.K, b.V})
	if err != nil {
		return err
	}
	g := w.newGradients(b, true)
	remote := w.remote()
	out, peers, err := w.deliver(remote)
	if err != nil {
		return err
	}
	home, err := w.collect(peers)
	if err != nil {
		return err
	}
	first, last := split(w.fine())
	if err := w.gradientStep(g, first, pair{b.K, b.V}); err != nil {
		return err
	}
	for i, s := range remote {
		if err := home.addUpTo(s.number-slots, w, g); err != nil {
			return err
		}
		if err := w.giveStep(g, s, i, e, nil, out); err != nil {
			return err
		}
	}
	if err := w.gradientStep(g, last, pair{b.K, b.V}); err != nil {
		return err
	}
	if err := home.addUpTo(w.ring.Size(), w, g); err != nil {
		return err
	}
	g.finish(w)
	return w.overAllQueries(g)
}

// wantedOfBackward are the tensors of a backward pass but for keys, values and gradients with respect to them.
func (w *pass) wantedOfBackward(b *flash.Backward, p *flash.Problem) []wanted {
	all := append(w.operandsWanted(), wanted{"Q", b.Q, p.QShape()}, wanted{"O", b.O, p.OShape()}, wanted{"LSE", b.LSE, p.LSEShape()},
		wanted{"DO", b.DO, p.OShape()}, wanted{"DQ", b.DQ, p.QShape()})
	for _, x := range []wanted{{"DLSE", b.DLSE, p.LSEShape()}, {"DBias", b.DBias, w.BiasShape()},
		{"DSinks", b.DSinks, [4]int{1, 1, 1, p.Heads}}} {
		if x.given != nil {
			all = append(all, x)
		}
	}
	return all
}

// fine is the local step of a backward pass: in pieces, so that some of it can wait.
func (w *pass) fine() step {
	s := w.local()
	if w.sched.packed == nil {
		s.launches = w.sched.finest(w.ring.Rank())
	}
	return s
}

// split halves what a step computes: the launches that go first, and those that hide the way home of the last gradients.
func split(s step) (first, last step) {
	first, last = s, s
	order := slices.Clone(s.launches)
	slices.SortStableFunc(order, func(a, b launch) int { return cmp.Compare(b.pairs, a.pairs) })
	all := 0.0
	for _, l := range order {
		all += l.pairs
	}
	n, sum := 0, 0.0
	for n < len(order) && sum < all/2 {
		sum += order[n].pairs
		n++
	}
	if n == 0 {
		n = len(order)
	}
	first.launches, last.launches = order[:n], order[n:]
	return first, last
}

// gradients are the sums of a backward pass, in fp32: by segment of the rank's queries and of its own keys.
type gradients struct {
	b                 *flash.Backward
	queries, keys     []Span // segments
	dq                *flash.Tensor
	own               pair
	dqParts, ownParts []int         // how many parts each segment has
	dbias             *flash.Tensor // where launches share a bias: its gradient, in fp32
	dcaptured         flash.Captured
}

func spansOf(of []Span) (out []Span) {
	at := 0
	for _, s := range of {
		out = append(out, Span{at, at + s.Len()})
		at += s.Len()
	}
	return out
}

// newGradients makes the sums: those by keys and values only where the rank has such.
func (w *pass) newGradients(b *flash.Backward, keys bool) *gradients {
	rank, p := w.ring.Rank(), &w.problem
	g := &gradients{b: b, queries: w.sched.ownQueries(rank, w.steps)}
	g.dqParts = make([]int, len(g.queries))
	n := w.sched.queries.rows(rank)
	g.dq = w.tensor("sum.dq", flash.F32, [4]int{w.sched.entries(), p.Heads, n, p.HeadDim}, n)
	if keys {
		g.keys = w.sched.ownKeys(rank)
		g.ownParts = make([]int, len(g.keys))
		g.own = w.pair("sum", flash.F32, w.sched.keys.rows(rank))
	}
	if b.Accumulate {
		for i, at := range g.queries {
			w.copies(w.rows(b.DQ, at), w.rows(g.dq, at))
			g.dqParts[i] = 1
		}
		for i, at := range g.keys {
			w.copyPair(w.pairRows(pair{b.DK, b.DV}, at), w.pairRows(g.own, at))
			g.ownParts[i] = 1
		}
	}
	g.beginCaptured(w)
	g.beginBias(w)
	return g
}

// statistics is some rows of lse or dlse, in row-major order by themselves as kernels want them, in a buffer of that name; nil of nil.
func (w *pass) statistics(name string, t *flash.Tensor, at Span) *flash.Tensor {
	if t == nil {
		return nil
	}
	from := w.rows(t, at)
	if from == t {
		return t
	}
	to := w.tensor(name, flash.F32, from.Shape(), t.Shape()[2])
	w.copies(from, to)
	return to
}

// rule is that of the next part of a sum.
func rule(parts *int) flash.AccumulateRule {
	*parts++
	if *parts == 1 {
		return flash.AccumulateCopy
	}
	return flash.AccumulateAdd
}

// add adds rows of gradients with respect to keys and values to rows of sums.
func (w *pass) add(parts *int, from pair, of Span, to pair, at Span) {
	r, x, y := rule(parts), w.pairRows(from, of), w.pairRows(to, at)
	w.accumulate(r, flash.Accumulate{X: x.k, Y: y.k})
	w.accumulate(r, flash.Accumulate{X: x.v, Y: y.v})
}

// gradientsOf is the inputs of a launch with a block, and dq; what it gives by keys and values is not among them.
func (w *pass) gradientsOf(g *gradients, l *launch, block pair) flash.Backward {
	b := g.b
	in := flash.Backward{Forward: w.forwardOf(l, &b.Forward, block), DO: w.rows(b.DO, l.queries),
		DLSE: w.statistics("part.dlse", b.DLSE, l.queries), DQ: w.tensor("part.dq", w.problem.DType, l.problem.QShape(), b.Q.Shape()[2]),
		DBias: w.biasGradient(g, l), DCaptured: w.likeCaptured("part", b.DCaptured)}
	in.O, in.LSE = w.rows(b.O, l.queries), w.statistics("part.lse", b.LSE, l.queries)
	return in
}

// launchGradients submits the backward pass of a launch: gradients with respect to its keys and values go to `to`, and those of its queries
// are added to their sums.
func (w *pass) launchGradients(g *gradients, l *launch, block, to pair, arrived []ready) error {
	if err := w.padsArrive(l, arrived); err != nil {
		return err
	}
	in, written := w.gradientsOf(g, l, block), to
	if l.pad > 0 {
		written = w.pair("pad.d", w.problem.DType, l.problem.KeyLen)
	}
	in.DK, in.DV = written.k, written.v
	if err := w.eachGroup(l, arrived, func(part *launch, n, groups int) {
		some := in
		w.eachHeads(n, groups, &some.Q, &some.K, &some.V, &some.O, &some.LSE, &some.DO, &some.DLSE, &some.DQ, &some.DK, &some.DV)
		w.gradients(part, some)
	}); err != nil {
		return err
	}
	if l.pad > 0 {
		w.copyPair(w.pairRows(written, Span{l.pad, l.problem.KeyLen}), to)
	}
	w.addCaptured(g, in.DCaptured)
	w.addBias(g, l, in.DBias)
	inside(g.queries, l.ownQueries, func(i int, at Span) {
		w.accumulate(rule(&g.dqParts[i]), flash.Accumulate{X: w.rows(in.DQ, at.from(l.queries)), Y: w.rows(g.dq, at)})
	})
	return nil
}

// gradientStep submits launches with the rank's own block.
func (w *pass) gradientStep(g *gradients, s step, block pair) error {
	w.number = s.number
	return w.eachLaunch(g, s, block, nil, g.keys, func(i int, part pair, of, at Span) { w.add(&g.ownParts[i], part, of, g.own, at) })
}

// eachLaunch submits launches with a block, and adds what each gives by keys and values, rows `of` of a part, to segments of these.
func (w *pass) eachLaunch(g *gradients, s step, block pair, arrived []ready, segments []Span, add func(i int, part pair,
	of, at Span)) error {
	for i := range s.launches {
		l := &s.launches[i]
		part := w.pair("part.d", w.problem.DType, l.keys.Len())
		if err := w.launchGradients(g, l, block, part, arrived); err != nil {
			return err
		}
		inside(segments, l.ownKeys, func(i int, at Span) { add(i, part, at.from(l.keys), at) })
	}
	return nil
}

// giveStep is step s of a backward pass, remote step i, with the block that e brings: once there is room for what it gives, its launches
// are submitted, and out is handed their gradients, added to those that held brings; nil: to none.
func (w *pass) giveStep(g *gradients, s step, i int, e, held *exchange, out *delivery) error {
	if i >= slots {
		if err := w.arrival(out.sent[i-slots]); err != nil {
			return err
		}
	}
	before := len(w.jobs)
	w.number = s.number
	gave, err := w.remoteStep(g, s, e.blocks[i], i, e.arrived[i])
	if err != nil {
		return err
	}
	if held != nil {
		if err := w.arrival(held.arrived[i][0]); err != nil {
			return err
		}
		w.addHeld(gave, held.blocks[i], hull(s.launches))
	}
	if err := out.give(w, i, gave, w.jobs[before:]); err != nil {
		return err
	}
	if held == nil {
		return w.passed(i, before, e)
	}
	return w.passed(i, before, e, held)
}

// addHeld adds what some rows of a block held to a step's gradients.
func (w *pass) addHeld(gave, block pair, at Span) {
	have, sums := w.pairRows(block, at), w.pair("sum.give", flash.F32, at.Len())
	w.addTo(gave.k, have.k, sums.k)
	w.addTo(gave.v, have.v, sums.v)
}

// remoteStep submits launches with the block of another rank, and gives the gradients that go home: of the rows that the step is about.
func (w *pass) remoteStep(g *gradients, s step, block pair, i int, arrived []ready) (pair, error) {
	at := hull(s.launches)
	out := w.pair(fmt.Sprint("give", i%slots), w.problem.DType, at.Len())
	if len(s.launches) == 1 {
		return out, w.launchGradients(g, &s.launches[0], block, out, arrived)
	}
	segments := segmentsOf(union(keyRows(s.launches)), keyRows(s.launches))
	parts := make([]int, len(segments))
	sums := w.pair("sum.give", flash.F32, at.Len())
	err := w.eachLaunch(g, s, block, arrived, segments, func(i int, part pair, of, to Span) {
		w.add(&parts[i], part, of, sums, to.from(at))
	})
	for _, s := range segments {
		w.copyPair(w.pairRows(sums, s.from(at)), w.pairRows(out, s.from(at)))
	}
	return out, err
}

// finish writes the caller's tensors. Keys that no query of any rank sees have gradient 0.
func (g *gradients) finish(w *pass) {
	for i, at := range g.queries {
		w.give(g.dq, g.b.DQ, at, g.dqParts[i])
	}
	for i, at := range g.keys {
		w.give(g.own.k, g.b.DK, at, g.ownParts[i])
		w.give(g.own.v, g.b.DV, at, g.ownParts[i])
	}
}
