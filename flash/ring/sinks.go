package ring

import (
	"math"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

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
	if s.padded {
		alone.QueryLen = s.entryQueries.rows(rank)
		alone.QueryLengths, alone.KeyLengths = true, true
	} else if s.packed != nil {
		alone.Batch *= len(s.queries.spans[rank])
		alone.QueryLen = min(p.QueryLen, rows)
		alone.Packed, alone.QueryLengths = flash.Packed{Queries: rows, Keys: 1}, true
	}
	return alone
}

// sinkNumbers are the starts of queries and of keys for it, and the lengths of queries; of a padded batch the lengths of queries and of
// keys.
func (s *schedule) sinkNumbers(rank int) (out []int32) {
	if s.padded {
		for b, spans := 0, s.entryQueries.spans[rank]; b < s.problem.Batch; b++ {
			n := 0
			for _, chunk := range spans { // those used of the first chunk and then of the second: the first rows of a rank's
				n += meet(Span{0, s.packed.queryLens[b]}, chunk).Len()
			}
			out = append(out, int32(n))
		}
		return append(out, make([]int32, s.problem.Batch)...)
	}
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

// sinkTensors puts views of these, as derive has put them on the device, where a pass has them; without packed sequences and lengths it has
// none.
func (w *pass) sinkTensors(alone *flash.Problem, f *flash.Forward) {
	if w.sched.packed == nil {
		return
	}
	type part struct {
		to **flash.Tensor
		n  int
	}
	at, n := w.seen.sinksAt, alone.Batch
	parts := []part{{&f.QueryStarts, n + 1}, {&f.KeyStarts, n + 1}, {&f.QueryLengths, n}}
	if w.sched.padded {
		parts = []part{{&f.QueryLengths, n}, {&f.KeyLengths, n}}
	}
	for _, x := range parts {
		*x.to = w.view(w.seen.tensor, uint64(4*at), flash.Int32, [4]int{1, 1, 1, x.n}, [4]int{})
		at += x.n
	}
}

// oneKey is a buffer for a key and a value of each batch entry, or gradients with respect to them.
func (w *pass) oneKey(name string) pair {
	if !w.sched.padded {
		return w.pair(name, w.problem.DType, 1)
	}
	one := w.pair(name, w.problem.DType, w.problem.Batch)
	for _, t := range []**flash.Tensor{&one.k, &one.v} {
		shape := (*t).Shape()
		shape[0], shape[2] = shape[2], 1
		*t = w.view(*t, 0, w.problem.DType, shape, [4]int{})
	}
	return one
}

// zeroKey is a key and a value of zeros for each batch entry.
func (w *pass) zeroKey() pair {
	one := w.oneKey("zero key")
	w.fillPair(one, 0)
	return one
}

// beginWithSinks begins the sum of each segment with a part that is its head's sink, of weight exp(sink) and value 0, in rows that are
// used.
func (s *outputs) beginWithSinks(w *pass, f *flash.Forward) {
	shape := f.Q.Shape()
	shape[3] = 1
	from := w.view(w.of.Sinks, w.of.Sinks.Offset(), flash.F32, shape, [4]int{0, 1, 0, 1})
	if w.sched.packed != nil {
		from = w.sinkStatistics(f)
	}
	for i, at := range s.segments {
		w.fill(w.rows(s.o, at), 0)
		w.copies(w.rows(from, at), s.statistics(w, 0, at))
		s.joins[i] = 1
	}
}

// sinkStatistics submits lse of packed sequences over sinks alone: −∞ of rows that are not used.
func (w *pass) sinkStatistics(f *flash.Forward) (lse *flash.Tensor) {
	l, key := launch{problem: w.sched.sinksAlone(w.ring.Rank())}, w.zeroKey()
	in := flash.Forward{Q: f.Q, K: key.k, V: key.v, Sinks: w.of.Sinks,
		O:   w.tensor(w.sinksPart("o"), w.problem.DType, l.problem.OShape(), f.Q.Shape()[2]),
		LSE: w.tensor(w.sinksPart("lse"), flash.F32, l.problem.LSEShape(), f.Q.Shape()[2])}
	w.sinkTensors(&l.problem, &in)
	w.attend(&l, in)
	return in.LSE
}

// sinksPart is the name of a buffer for all queries of a rank: that of launches, but where these have one entry each.
func (w *pass) sinksPart(of string) string {
	if w.sched.padded {
		return "sinks." + of
	}
	return "part." + of
}

// sinkLSE is lse as the sequences of sinks alone have it. They have all rows between the first and the last, among them those of no
// sequence at the end of a chunk, or at the beginning of one: rows that are not used, of which lse is −∞ and not what the caller has there.
func (w *pass) sinkLSE(lse *flash.Tensor) *flash.Tensor {
	if w.sched.packed == nil || w.sched.padded {
		return lse
	}
	rank := w.ring.Rank()
	slots := w.sched.slots(rank, false)
	var none []Span
	for _, s := range segmentsOf(spansOf(w.sched.queries.spans[rank]), slots) {
		if !slices.ContainsFunc(slots, func(x Span) bool { return meet(x, s).Len() > 0 }) {
			none = append(none, s)
		}
	}
	if none == nil {
		return lse
	}
	own := w.tensor("sinks.lse", flash.F32, lse.Shape(), lse.Shape()[2])
	w.copies(lse, own)
	for _, s := range none {
		w.fill(w.rows(own, s), float32(math.Inf(-1)))
	}
	return own
}

// sinkGradient submits what the rank's queries give of the gradient with respect to sinks, −Σ exp(sink − lse)·δ (flash.Backward), in fp32.
func (w *pass) sinkGradient(b *flash.Backward) *flash.Tensor {
	p, l := &w.problem, launch{problem: w.sched.sinksAlone(w.ring.Rank())}
	key, d := w.zeroKey(), w.oneKey("part.d")
	in := flash.Backward{Forward: flash.Forward{Q: b.Q, K: key.k, V: key.v, O: b.O, LSE: w.sinkLSE(b.LSE), Sinks: b.Sinks}, DO: b.DO,
		DLSE: b.DLSE, DQ: w.tensor(w.sinksPart("dq"), p.DType, b.Q.Shape(), b.Q.Shape()[2]), DK: d.k, DV: d.v,
		DSinks: w.tensor("sum.dsinks", flash.F32, [4]int{1, 1, 1, p.Heads}, 1)}
	w.sinkTensors(&l.problem, &in.Forward)
	w.gradients(&l, in)
	return in.DSinks
}
