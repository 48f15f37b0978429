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
	all := append(w.wantedOfQueries(b, &local), wanted{"K", b.K, local.KShape()}, wanted{"V", b.V, local.VShape()},
		wanted{"DK", b.DK, local.KShape()}, wanted{"DV", b.DV, local.VShape()})
	w.of = ofForward(&b.Forward)
	if err := w.check("Backward", append(all, w.of.wanted(w.Plan)...)); err != nil {
		return err
	}
	if err := w.checkCaptured("Backward", b.DCaptured); err != nil {
		return err
	}
	if w.ring.Size() == 1 {
		return w.gradients(&launch{problem: w.problem}, *b)
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
	g, err := w.newGradients(b, true)
	if err != nil {
		return err
	}
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
	if err := g.finish(w); err != nil {
		return err
	}
	return w.overAllQueries(g)
}

// wantedOfQueries are the tensors of a backward pass but for keys, values and gradients with respect to them.
func (w *pass) wantedOfQueries(b *flash.Backward, p *flash.Problem) []wanted {
	all := []wanted{{"Q", b.Q, p.QShape()}, {"O", b.O, p.OShape()}, {"LSE", b.LSE, p.LSEShape()}, {"DO", b.DO, p.OShape()},
		{"DQ", b.DQ, p.QShape()}}
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
func (w *pass) newGradients(b *flash.Backward, keys bool) (g *gradients, err error) {
	rank, p := w.ring.Rank(), &w.problem
	g = &gradients{b: b}
	g.queries = w.sched.ownQueries(rank, w.steps)
	g.dqParts = make([]int, len(g.queries))
	n := w.sched.queries.rows(rank)
	if g.dq, err = w.tensor("sum.dq", flash.F32, [4]int{w.sched.entries(), p.Heads, n, p.HeadDim}, n); err != nil {
		return nil, err
	}
	if keys {
		g.keys = w.sched.ownKeys(rank)
		g.ownParts = make([]int, len(g.keys))
		if g.own, err = w.pair("sum", flash.F32, w.sched.keys.rows(rank)); err != nil {
			return nil, err
		}
	}
	if b.Accumulate {
		for i, at := range g.queries {
			if err := g.begin(w, b.DQ, at, g.dq, &g.dqParts[i]); err != nil {
				return nil, err
			}
		}
		for i, at := range g.keys {
			for _, x := range [2][2]*flash.Tensor{{b.DK, g.own.k}, {b.DV, g.own.v}} {
				if err := g.begin(w, x[0], at, x[1], &g.ownParts[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := g.beginCaptured(w); err != nil {
		return nil, err
	}
	return g, g.beginBias(w)
}

// begin starts a sum with rows of a tensor of the caller's.
func (g *gradients) begin(w *pass, from *flash.Tensor, at Span, to *flash.Tensor, parts *int) error {
	x, err := w.rows(from, at)
	if err != nil {
		return err
	}
	y, err := w.rows(to, at)
	if err != nil {
		return err
	}
	*parts = 1
	return w.copies(x, y)
}

// statistics is some rows of lse or dlse, in row-major order by themselves as kernels want them, in a buffer of that name; nil of nil.
func (w *pass) statistics(name string, t *flash.Tensor, at Span) (*flash.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	from, err := w.rows(t, at)
	if err != nil || from == t {
		return from, err
	}
	to, err := w.tensor(name, flash.F32, from.Shape(), t.Shape()[2])
	if err != nil {
		return nil, err
	}
	return to, w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: from, Y: to})
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
func (w *pass) add(parts *int, from pair, of Span, to pair, at Span) error {
	r := rule(parts)
	x, err := from.rows(of)
	if err != nil {
		return err
	}
	y, err := to.rows(at)
	if err != nil {
		return err
	}
	if err := w.accumulate(r, flash.Accumulate{X: x.k, Y: y.k}); err != nil {
		return err
	}
	return w.accumulate(r, flash.Accumulate{X: x.v, Y: y.v})
}

// gradientsOf is the inputs of a launch with a block, and dq; what it gives by keys and values is not among them.
func (w *pass) gradientsOf(g *gradients, l *launch, block pair) (in flash.Backward, err error) {
	b := g.b
	if in.DQ, err = w.tensor("part.dq", w.problem.DType, l.problem.QShape(), b.Q.Shape()[2]); err != nil {
		return in, err
	}
	if in.Forward, err = w.forwardOf(l, &b.Forward, block); err != nil {
		return in, err
	}
	for _, x := range [][2]**flash.Tensor{{&in.O, &b.O}, {&in.DO, &b.DO}} {
		if *x[0], err = w.rows(*x[1], l.queries); err != nil {
			return in, err
		}
	}
	if in.LSE, err = w.statistics("part.lse", b.LSE, l.queries); err != nil {
		return in, err
	}
	if in.DLSE, err = w.statistics("part.dlse", b.DLSE, l.queries); err != nil {
		return in, err
	}
	if in.DCaptured, err = w.likeCaptured("part", b.DCaptured); err != nil {
		return in, err
	}
	in.DBias, err = w.biasGradient(g, l)
	return in, err
}

// launchGradients submits the backward pass of a launch: gradients with respect to its keys and values go to `to`, and those of its queries
// are added to their sums.
func (w *pass) launchGradients(g *gradients, l *launch, block, to pair, arrived []ready) error {
	if arrived != nil && l.pad > 0 { // rows are copied from it
		if err := w.arrival(arrived[0]); err != nil {
			return err
		}
	}
	in, err := w.gradientsOf(g, l, block)
	if err != nil {
		return err
	}
	in.DK, in.DV = to.k, to.v
	var padded pair
	if l.pad > 0 {
		if padded, err = w.pair("pad.d", w.problem.DType, l.problem.KeyLen); err != nil {
			return err
		}
		in.DK, in.DV = padded.k, padded.v
	}
	if err := w.eachGroup(l, arrived, func(part *launch, n, groups int) error {
		some := in
		if err := eachHeads(n, groups, &some.Q, &some.K, &some.V, &some.O, &some.LSE, &some.DO, &some.DLSE, &some.DQ, &some.DK,
			&some.DV); err != nil {
			return err
		}
		return w.gradients(part, some)
	}); err != nil {
		return err
	}
	if l.pad > 0 {
		from, err := padded.rows(Span{l.pad, l.problem.KeyLen})
		if err != nil {
			return err
		}
		if err := w.copies(from.k, to.k, from.v, to.v); err != nil {
			return err
		}
	}
	if err := w.addCaptured(g, in.DCaptured); err != nil {
		return err
	}
	if err := w.addBias(g, l, in.DBias); err != nil {
		return err
	}
	return inside(g.queries, l.ownQueries, func(i int, at Span) error {
		part, err := rows(in.DQ, at.from(l.queries))
		if err != nil {
			return err
		}
		sum, err := rows(g.dq, at)
		if err != nil {
			return err
		}
		return w.accumulate(rule(&g.dqParts[i]), flash.Accumulate{X: part, Y: sum})
	})
}

// gradientStep submits launches with the rank's own block.
func (w *pass) gradientStep(g *gradients, s step, block pair) error {
	w.number = s.number
	for i := range s.launches {
		l := &s.launches[i]
		part, err := w.pair("part.d", w.problem.DType, l.keys.Len())
		if err != nil {
			return err
		}
		if err := w.launchGradients(g, l, block, part, nil); err != nil {
			return err
		}
		if err := inside(g.keys, l.ownKeys, func(i int, at Span) error {
			return w.add(&g.ownParts[i], part, at.from(l.keys), g.own, at)
		}); err != nil {
			return err
		}
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
		if err := w.addHeld(gave, held.blocks[i], hull(s.launches), held.arrived[i][0]); err != nil {
			return err
		}
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
func (w *pass) addHeld(gave, block pair, at Span, arrived ready) error {
	if err := w.arrival(arrived); err != nil {
		return err
	}
	have, err := block.rows(at)
	if err != nil {
		return err
	}
	sums, err := w.pair("sum.give", flash.F32, at.Len())
	if err != nil {
		return err
	}
	if err := w.addTo(gave.k, have.k, sums.k); err != nil {
		return err
	}
	return w.addTo(gave.v, have.v, sums.v)
}

// remoteStep submits launches with the block of another rank, and gives the gradients that go home: of the rows that the step is about.
func (w *pass) remoteStep(g *gradients, s step, block pair, i int, arrived []ready) (pair, error) {
	at := hull(s.launches)
	out, err := w.pair(fmt.Sprint("give", i%slots), w.problem.DType, at.Len())
	if err != nil {
		return pair{}, err
	}
	if len(s.launches) == 1 {
		return out, w.launchGradients(g, &s.launches[0], block, out, arrived)
	}
	segments := segmentsOf(union(keyRows(s.launches)), keyRows(s.launches))
	parts := make([]int, len(segments))
	sums, err := w.pair("sum.give", flash.F32, at.Len())
	if err != nil {
		return pair{}, err
	}
	for i := range s.launches {
		l := &s.launches[i]
		part, err := w.pair("part.d", w.problem.DType, l.keys.Len())
		if err != nil {
			return pair{}, err
		}
		if err := w.launchGradients(g, l, block, part, arrived); err != nil {
			return pair{}, err
		}
		if err := inside(segments, l.ownKeys, func(i int, s Span) error {
			return w.add(&parts[i], part, s.from(l.keys), sums, s.from(at))
		}); err != nil {
			return pair{}, err
		}
	}
	for _, s := range segments {
		from, err := sums.rows(s.from(at))
		if err != nil {
			return pair{}, err
		}
		to, err := out.rows(s.from(at))
		if err != nil {
			return pair{}, err
		}
		if err := w.copies(from.k, to.k, from.v, to.v); err != nil {
			return pair{}, err
		}
	}
	return out, nil
}

// finish writes the caller's tensors. Keys that no query of any rank sees have gradient 0.
func (g *gradients) finish(w *pass) error {
	sums := []struct {
		segments []Span
		parts    []int
		of       []*flash.Tensor
		to       []*flash.Tensor
	}{{g.queries, g.dqParts, []*flash.Tensor{g.dq}, []*flash.Tensor{g.b.DQ}},
		{g.keys, g.ownParts, []*flash.Tensor{g.own.k, g.own.v}, []*flash.Tensor{g.b.DK, g.b.DV}}}
	for _, s := range sums {
		for i := range s.of {
			for k, at := range s.segments {
				to, err := w.rows(s.to[i], at)
				if err != nil {
					return err
				}
				if s.parts[k] == 0 {
					if err := w.fill(to, 0); err != nil {
						return err
					}
					continue
				}
				from, err := rows(s.of[i], at)
				if err != nil {
					return err
				}
				if err := w.copies(from, to); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
