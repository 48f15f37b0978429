package ring

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// Backward computes the gradients by the rank's queries, keys and values, as [flash.Backward] says of the whole. Tensors are the rank's own, of the
// shapes of Plan.Local; O and LSE are what Forward wrote. Every rank calls it, with the same Accumulate.
//
// Given o and lse over all keys, the gradients of pairs of blocks add up: dq stays with its queries and is summed in fp32. What a rank adds to dk and
// dv of another goes home in the storage type, rounded once, and is summed there in fp32, by step. The order depends on the rank and the number of ranks
// alone.
//
// Half of what a rank computes with its own block waits until the end, where it hides the way home of the last gradients. Context and errors are those
// of Forward.
func (p *Plan) Backward(ctx context.Context, b flash.Backward) error {
	return p.run(ctx, func(w *pass) error { return w.backward(&b) })
}

func (w *pass) backward(b *flash.Backward) error {
	local := w.Local()
	all := []wanted{{"Q", b.Q, local.QShape()}, {"K", b.K, local.KShape()}, {"V", b.V, local.VShape()}, {"O", b.O, local.OShape()}, {"LSE", b.LSE, local.LSEShape()},
		{"DO", b.DO, local.OShape()}, {"DQ", b.DQ, local.QShape()}, {"DK", b.DK, local.KShape()}, {"DV", b.DV, local.VShape()}}
	if b.DLSE != nil {
		all = append(all, wanted{"DLSE", b.DLSE, local.LSEShape()})
	}
	if err := w.check("Backward", all); err != nil {
		return err
	}
	if b.DCaptured != (flash.Captured{}) {
		return badArgument("Backward.DCaptured", "given", "must be nil: gradients by captured tensors are not summed over ranks")
	}
	if l := w.alone(); l != nil && w.ring.Size() == 1 {
		return w.gradients(l, flash.Backward{Q: b.Q, K: b.K, V: b.V, O: b.O, LSE: b.LSE, DO: b.DO, DLSE: b.DLSE, DQ: b.DQ, DK: b.DK, DV: b.DV, Accumulate: b.Accumulate, Captured: b.Captured, Seed: b.Seed, Offset: b.Offset})
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
		out.give(i, gave, w.jobs[before:])
		if err := w.settle(before); err != nil { // the device has this step's work by now
			return err
		}
		if i > 0 {
			close(e.released[i-1])
		}
	}
	if err := w.gradientStep(g, last, pair{b.K, b.V}); err != nil {
		return err
	}
	if err := home.addUpTo(w.ring.Size(), w, g); err != nil {
		return err
	}
	return g.finish(w)
}

// fine is the local step of a backward pass: in pieces, so that some of it can wait.
func (p *Plan) fine() step {
	s := p.local()
	if p.ring.Size() > 1 {
		s.launches = p.sched.finest(p.ring.Rank())
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

// gradients are the sums of a backward pass, in fp32: by chunk of queries and by chunk of the rank's own keys.
type gradients struct {
	b        *flash.Backward
	queries  []Span // rows of the rank's tensors
	keys     []Span
	dq       []*flash.Tensor
	dqParts  []int // how many parts, of each sum
	own      []pair
	ownParts []int
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
func (w *pass) newGradients(b *flash.Backward, keys bool) (*gradients, error) {
	rank, p := w.ring.Rank(), &w.problem
	g := &gradients{b: b, queries: spansOf(w.sched.queries.spans[rank])}
	if keys {
		g.keys = spansOf(w.sched.keys.spans[rank])
	}
	g.dqParts, g.ownParts = make([]int, len(g.queries)), make([]int, len(g.keys))
	for i, at := range g.queries {
		dq, err := w.tensor(fmt.Sprint("sum.dq", i), flash.F32, [4]int{p.Batch, p.Heads, at.Len(), p.HeadDim}, at.Len())
		if err != nil {
			return nil, err
		}
		g.dq = append(g.dq, dq)
		if b.Accumulate {
			if err := g.begin(w, b.DQ, at, dq, &g.dqParts[i]); err != nil {
				return nil, err
			}
		}
	}
	for i, at := range g.keys {
		own, err := w.pair(fmt.Sprint("sum", i), flash.F32, at.Len())
		if err != nil {
			return nil, err
		}
		g.own = append(g.own, own)
		if b.Accumulate {
			for _, x := range [2][2]*flash.Tensor{{b.DK, own.k}, {b.DV, own.v}} {
				g.ownParts[i] = 0
				if err := g.begin(w, x[0], at, x[1], &g.ownParts[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	return g, nil
}

// begin starts a sum with rows of a tensor of the caller's.
func (g *gradients) begin(w *pass, from *flash.Tensor, at Span, to *flash.Tensor, parts *int) error {
	x, err := rows(from, at)
	if err != nil {
		return err
	}
	*parts = 1
	return w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: x, Y: to})
}

// statistics is some rows of lse or dlse, in row-major order by themselves as kernels want them, in a buffer of that name; nil of nil.
func (w *pass) statistics(name string, t *flash.Tensor, at Span) (*flash.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	from, err := rows(t, at)
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

// add adds rows of gradients by keys and values to sums.
func (g *gradients) add(w *pass, parts *int, from pair, at Span, to pair) error {
	r := rule(parts)
	for _, x := range [2][2]*flash.Tensor{{from.k, to.k}, {from.v, to.v}} {
		part, err := rows(x[0], at)
		if err != nil {
			return err
		}
		if err := w.accumulate(r, flash.Accumulate{X: part, Y: x[1]}); err != nil {
			return err
		}
	}
	return nil
}

// launchGradients submits the backward pass of a launch: gradients by its keys and values go to `to`, and those by its queries are added to their sums.
func (w *pass) launchGradients(g *gradients, l *launch, block, to pair, arrived []ready) error {
	b, p := g.b, &w.problem
	in := flash.Backward{DK: to.k, DV: to.v, Captured: b.Captured, Seed: b.Seed, Offset: b.Offset}
	dq, err := w.tensor("part.dq", p.DType, l.problem.QShape(), b.Q.Shape()[2])
	if err != nil {
		return err
	}
	in.DQ = dq
	for _, x := range []struct {
		to **flash.Tensor
		of *flash.Tensor
		at Span
	}{{&in.Q, b.Q, l.queries}, {&in.K, block.k, l.keys}, {&in.V, block.v, l.keys}, {&in.O, b.O, l.queries}, {&in.DO, b.DO, l.queries}} {
		if *x.to, err = rows(x.of, x.at); err != nil {
			return err
		}
	}
	if in.LSE, err = w.statistics("part.lse", b.LSE, l.queries); err != nil {
		return err
	}
	if in.DLSE, err = w.statistics("part.dlse", b.DLSE, l.queries); err != nil {
		return err
	}
	groups := max(1, len(arrived))
	for n := range groups {
		if arrived != nil {
			if err := w.arrival(arrived[n]); err != nil {
				return err
			}
		}
		part, some := l.group(groups), in
		if err := eachHeads(n, groups, &some.Q, &some.K, &some.V, &some.O, &some.LSE, &some.DO, &some.DLSE, &some.DQ, &some.DK, &some.DV); err != nil {
			return err
		}
		if err := w.gradients(&part, some); err != nil {
			return err
		}
	}
	for c := l.queryChunks.Begin; c < l.queryChunks.End; c++ {
		part, err := rows(dq, Span{g.queries[c].Begin - l.queries.Begin, g.queries[c].End - l.queries.Begin})
		if err != nil {
			return err
		}
		if err := w.accumulate(rule(&g.dqParts[c]), flash.Accumulate{X: part, Y: g.dq[c]}); err != nil {
			return err
		}
	}
	return nil
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
		for c := l.keyChunks.Begin; c < l.keyChunks.End; c++ {
			at := g.keys[c]
			if err := g.add(w, &g.ownParts[c], part, Span{at.Begin - l.keys.Begin, at.End - l.keys.Begin}, g.own[c]); err != nil {
				return err
			}
		}
	}
	return nil
}

// touched is the rows of a block that launches compute gradients of, and which chunks these are.
func touched(launches []launch) (rows, chunks Span) {
	for i, l := range launches {
		if i == 0 {
			rows, chunks = l.keys, l.keyChunks
			continue
		}
		rows = Span{min(rows.Begin, l.keys.Begin), max(rows.End, l.keys.End)}
		chunks = Span{min(chunks.Begin, l.keyChunks.Begin), max(chunks.End, l.keyChunks.End)}
	}
	return rows, chunks
}

// remoteStep submits launches with the block of another rank, and gives the gradients that go home: of the rows that the step touches.
func (w *pass) remoteStep(g *gradients, s step, block pair, i int, arrived []ready) (pair, error) {
	at, chunks := touched(s.launches)
	out, err := w.pair(fmt.Sprint("give", i%slots), w.problem.DType, at.Len())
	if err != nil {
		return pair{}, err
	}
	if len(s.launches) == 1 {
		return out, w.launchGradients(g, &s.launches[0], block, out, arrived)
	}
	blockKeys := spansOf(w.sched.keys.spans[s.owner])
	sums, parts := make([]pair, len(blockKeys)), make([]int, len(blockKeys))
	for c := chunks.Begin; c < chunks.End; c++ {
		if sums[c], err = w.pair(fmt.Sprint("sum.give", c), flash.F32, blockKeys[c].Len()); err != nil {
			return pair{}, err
		}
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
		for c := l.keyChunks.Begin; c < l.keyChunks.End; c++ {
			if err := g.add(w, &parts[c], part, Span{blockKeys[c].Begin - l.keys.Begin, blockKeys[c].End - l.keys.Begin}, sums[c]); err != nil {
				return pair{}, err
			}
		}
	}
	for c := chunks.Begin; c < chunks.End; c++ {
		for _, x := range [2][2]*flash.Tensor{{sums[c].k, out.k}, {sums[c].v, out.v}} {
			to, err := rows(x[1], Span{blockKeys[c].Begin - at.Begin, blockKeys[c].End - at.Begin})
			if err != nil {
				return pair{}, err
			}
			if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: x[0], Y: to}); err != nil {
				return pair{}, err
			}
		}
	}
	return out, nil
}

// finish writes the caller's tensors. Keys that no query of any rank sees have gradient 0.
func (g *gradients) finish(w *pass) error {
	for c, at := range g.queries {
		to, err := rows(g.b.DQ, at)
		if err != nil {
			return err
		}
		if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: g.dq[c], Y: to}); err != nil {
			return err
		}
	}
	for c, at := range g.keys {
		for _, x := range [2][2]*flash.Tensor{{g.own[c].k, g.b.DK}, {g.own[c].v, g.b.DV}} {
			to, err := rows(x[1], at)
			if err != nil {
				return err
			}
			if g.ownParts[c] == 0 {
				if err := to.Upload(w.ctx, make([]float32, to.Elements())); err != nil {
					return err
				}
				continue
			}
			if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: x[0], Y: to}); err != nil {
				return err
			}
		}
	}
	return nil
}
