package ring

import "github.com/vkattn/vkattn/flash"

// Sinks are what sums over launches begin with, so that they count once: launches over keys know nothing of them. Two launches know: one
// that tells rows of packed sequences that are used, whose lse is the sink at first, from those that are not; and one whose gradient with
// respect to sinks is the rank's, while nobody looks at its others.

// sinksAlone is the problem of these: all of the rank's queries, and one key of zeros, since a problem has one at least. No packed sequence
// has it, and the gradient with respect to sinks depends on keys by lse and o alone, which are given. What a chunk has of a packed sequence
// is a sequence here, in the order of the rank's rows.
func (s *schedule) sinksAlone(rank int) flash.Problem {
	p, rows := &s.problem, s.queries.rows(rank)
	alone := flash.Problem{Batch: p.Batch, Heads: p.Heads, KeyHeads: p.KeyHeads, QueryLen: rows, KeyLen: 1, HeadDim: p.HeadDim,
		ValueDim: p.ValueDim, DType: p.DType,
		Scale: p.Scale, Sinks: true}
	if s.packed != nil {
		alone.Batch *= len(s.queries.spans[rank])
		alone.QueryLen = min(p.QueryLen, rows)
		alone.Packed, alone.QueryLengths = flash.Packed{Queries: rows, Keys: 1}, true
	}
	return alone
}

// sinkNumbers are the starts of queries and of keys for it, and the lengths of queries.
func (s *schedule) sinkNumbers(rank int) (out []int32) {
	var starts, lengths []int32
	rows := spansOf(s.queries.spans[rank])
	for i, chunk := range s.queries.spans[rank] {
		for b := range s.packed.queryLens {
			slot := meet(Span{s.packed.queries[b], s.packed.queries[b+1]}, chunk)
			starts = append(starts, int32(rows[i].Begin+min(max(slot.Begin, chunk.Begin), chunk.End)-chunk.Begin))
			lengths = append(lengths, int32(meet(s.packed.usedQueries(b), chunk).Len()))
		}
		if i == len(rows)-1 {
			end := min(max(s.packed.queries[len(s.packed.queries)-1], chunk.Begin), chunk.End)
			starts = append(starts, int32(rows[i].Begin+end-chunk.Begin))
		}
	}
	return append(append(starts, make([]int32, len(starts))...), lengths...)
}

// sinkTensors are views of these, as derive has put them on the device; nil without packed sequences.
func (w *pass) sinkTensors(alone *flash.Problem) (queryStarts, keyStarts, queryLengths *flash.Tensor, err error) {
	if w.sched.packed == nil {
		return nil, nil, nil, nil
	}
	at, n := w.seen.sinksAt, alone.Batch
	for _, x := range []struct {
		to **flash.Tensor
		n  int
	}{{&queryStarts, n + 1}, {&keyStarts, n + 1}, {&queryLengths, n}} {
		if *x.to, err = w.seen.tensor.View(uint64(4*at), flash.Int32, [4]int{1, 1, 1, x.n}, [4]int{}); err != nil {
			return nil, nil, nil, err
		}
		at += x.n
	}
	return queryStarts, keyStarts, queryLengths, nil
}

// zeroKey is a key and a value of zeros for each batch entry.
func (w *pass) zeroKey() (pair, error) {
	one, err := w.pair("zero key", w.problem.DType, 1)
	if err != nil {
		return one, err
	}
	for _, t := range []*flash.Tensor{one.k, one.v} {
		if err := w.fill(t, 0); err != nil {
			return one, err
		}
	}
	return one, nil
}

// beginWithSinks begins the sum of each segment with a part that is its head's sink, of weight exp(sink) and value 0, in rows that are
// used.
func (s *outputs) beginWithSinks(w *pass, f *flash.Forward) error {
	shape := f.Q.Shape()
	shape[3] = 1
	from, err := w.of.sinks.View(w.of.sinks.Offset(), flash.F32, shape, [4]int{0, 1, 0, 1})
	if err != nil {
		return err
	}
	if w.sched.packed != nil {
		if from, err = w.sinkStatistics(f); err != nil {
			return err
		}
	}
	for i, at := range s.segments {
		o, err := rows(s.o, at)
		if err != nil {
			return err
		}
		part, err := rows(from, at)
		if err != nil {
			return err
		}
		lse, err := s.statistics(0, at)
		if err != nil {
			return err
		}
		if err := w.fill(o, 0); err != nil {
			return err
		}
		if err := w.copies(part, lse); err != nil {
			return err
		}
		s.joins[i] = 1
	}
	return nil
}

// sinkStatistics submits lse of packed sequences over sinks alone: −∞ of rows that are not used.
func (w *pass) sinkStatistics(f *flash.Forward) (lse *flash.Tensor, err error) {
	l := launch{problem: w.sched.sinksAlone(w.ring.Rank())}
	key, err := w.zeroKey()
	if err != nil {
		return nil, err
	}
	in := flash.Forward{Q: f.Q, K: key.k, V: key.v, Sinks: w.of.sinks}
	if in.QueryStarts, in.KeyStarts, in.QueryLengths, err = w.sinkTensors(&l.problem); err != nil {
		return nil, err
	}
	if in.O, err = w.tensor("part.o", w.problem.DType, l.problem.OShape(), f.Q.Shape()[2]); err != nil {
		return nil, err
	}
	if in.LSE, err = w.tensor("part.lse", flash.F32, l.problem.LSEShape(), f.Q.Shape()[2]); err != nil {
		return nil, err
	}
	return in.LSE, w.attend(&l, in)
}

// sinkGradient submits what the rank's queries give of the gradient with respect to sinks, −Σ exp(sink − lse)·δ (flash.Backward), in fp32.
func (w *pass) sinkGradient(b *flash.Backward) (*flash.Tensor, error) {
	l := launch{problem: w.sched.sinksAlone(w.ring.Rank())}
	p := &w.problem
	key, err := w.zeroKey()
	if err != nil {
		return nil, err
	}
	in := flash.Backward{Forward: flash.Forward{Q: b.Q, K: key.k, V: key.v, O: b.O, LSE: b.LSE, Sinks: b.Sinks}, DO: b.DO, DLSE: b.DLSE}
	if in.QueryStarts, in.KeyStarts, in.QueryLengths, err = w.sinkTensors(&l.problem); err != nil {
		return nil, err
	}
	if in.DQ, err = w.tensor("part.dq", p.DType, b.Q.Shape(), b.Q.Shape()[2]); err != nil {
		return nil, err
	}
	d, err := w.pair("part.d", p.DType, 1)
	if err != nil {
		return nil, err
	}
	in.DK, in.DV = d.k, d.v
	if in.DSinks, err = w.tensor("sum.dsinks", flash.F32, [4]int{1, 1, 1, p.Heads}, 1); err != nil {
		return nil, err
	}
	return in.DSinks, w.gradients(&l, in)
}
