package ring

import "github.com/vkattn/vkattn/flash"

// Tensors by score, biases and masks. A rank has the rows of its own queries and all keys, and a launch takes its part. Those of packed
// sequences are by places in a sequence, whatever rows these are: every rank has all of them. Over heads a rank has its heads', of all
// queries and keys.

// BiasShape is the shape of the rank's Forward.Bias and Backward.DBias: of its own queries, where the bias has numbers for each, in the
// order of its tensors, and of all keys of the whole, in the order of the whole. Of packed sequences it is that of the problem's. With
// [Heads] it is that of the problem's, of as many heads as the rank has, where the bias has numbers for each: those from head
// Rank·Heads/Size on; with [Both] likewise among the ranks of a host, and of the host's queries. It is zero where the problem has none.
func (p *Plan) BiasShape() [4]int { return p.perScore(p.problem.Bias) }

// MaskShape is that of Forward.Mask likewise.
func (p *Plan) MaskShape() [4]int { return p.perScore(p.problem.Mask) }

func (p *Plan) perScore(of flash.PerScore) [4]int {
	if p.hosts != nil {
		return p.hosts.perScore(ofHeads(of, p.ring.Size()))
	}
	if p.overHeads() {
		of = ofHeads(of, p.ring.Size())
	} else if of.Queries > 1 && (p.sched.packed == nil || p.sched.padded) {
		of.Queries = p.sched.entryQueries.rows(p.ring.Rank())
	}
	return [4]int{of.Batch, of.Heads, of.Queries, of.Keys}
}

// ofHeads is a rank's part of a tensor by score where heads are over so many ranks.
func ofHeads(of flash.PerScore, ranks int) flash.PerScore {
	if of.Heads > 1 {
		of.Heads /= ranks
	}
	return of
}

// partOf is the part of a tensor by score that some queries and keys have.
func partOf(of flash.PerScore, queries, keys int) flash.PerScore {
	if of.Queries > 1 {
		of.Queries = queries
	}
	if of.Keys > 1 {
		of.Keys = keys
	}
	return of
}

// corner is where a launch's part of a rank's tensors by score begins.
type corner struct{ batch, query, key int }

// slice is a launch's part, described by its problem, of a rank's bias or mask; nil of nil.
func (w *pass) slice(t *flash.Tensor, part flash.PerScore, l *launch) *flash.Tensor {
	if t == nil {
		return nil
	}
	shape, strides := t.Shape(), t.Strides()
	at := 0
	for i, begin := range [4]int{l.scores.batch, 0, l.scores.query, l.scores.key} {
		if shape[i] > 1 {
			at += begin * strides[i]
		}
	}
	bytes := at * t.DType().Size()
	if t.DType() == flash.Bit { // eight of a byte
		bytes = at / 8
	}
	return w.view(t, t.Offset()+uint64(bytes), t.DType(), [4]int{part.Batch, part.Heads, part.Queries, part.Keys}, strides)
}
