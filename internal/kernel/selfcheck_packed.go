package kernel

import (
	"cmp"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Self-checks of packed problems. Inputs and answers are those of a padded batch, which the oracle knows; only where rows lie on the device
// differs.

// selfCheckEntries are the most sequences of a self-check: all rows and keys there can be, none, one, ragged and almost none.
const selfCheckEntries = 5

// sequences are where the rows of a self-check's sequences begin, and how many rows their slots have and use.
type sequences struct{ starts, slots, used []int }

// selfCheckSequences gives those of queries, or of keys, of at most n. Slots are longer than what is used where the problem has lengths;
// rows of no slot lie before them all and behind.
func selfCheckSequences(p *attn.Problem, keys bool) (s sequences) {
	n, lengths, packed := p.QueryLen, p.QueryLengths, p.Packed.Queries > 0
	lens := [selfCheckEntries]int{n, 0, 1, max(n-n/3-1, 0), min(n, 3)}
	if keys {
		n, lengths, packed = p.KeyLen, p.KeyLengths, p.Packed.Keys > 0
		lens = [selfCheckEntries]int{n - n/3 - 1, min(n, 2), n, n, 0}
	}
	at := 1
	for _, used := range lens[:p.Batch] {
		slot := used
		switch {
		case !packed && lengths:
			slot = n
		case !packed:
			used, slot = n, n
		case lengths:
			slot += 2
		}
		s.starts, s.slots, s.used = append(s.starts, at), append(s.slots, slot), append(s.used, used)
		at += slot
	}
	s.starts = append(s.starts, at)
	return s
}

// rows is the number of rows of a tensor that has them, and one more of no slot.
func (s *sequences) rows() int { return s.starts[len(s.starts)-1] + 1 }

// PackSelfCheck gives a packed self-check, whose sizes are set, as many rows as its sequences have.
func PackSelfCheck(p *attn.Problem) {
	selfCheckPages(p) // here too: programs copy the problem before it is tried
	if p.Packed.Queries > 0 {
		s := selfCheckSequences(p, false)
		p.Packed.Queries = s.rows()
	}
	if p.Packed.Keys > 0 {
		s := selfCheckSequences(p, true)
		p.Packed.Keys = s.rows()
	}
}

// batchOf is the problem of a self-check's inputs and answers.
func batchOf(p *attn.Problem) *attn.Problem {
	batch := *p
	if !p.Packed.None() {
		batch = p.InBatch()
	}
	return &batch
}

// selfCheckLengthsOf are the lengths of the entries of that batch.
func selfCheckLengthsOf(p *attn.Problem, in *ref.Problem) {
	queries, keys := selfCheckSequences(p, false), selfCheckSequences(p, true)
	in.QueryLens, in.KeyLens = queries.used, keys.used
	spoilBeyond(in.Q, in.QueryLens)
	spoilBeyond(in.K, in.KeyLens)
	spoilBeyond(in.V, in.KeyLens)
}

// packing is where the rows of an operand lie, if they are packed.
func packing(p *attn.Problem, o *attn.Operand) *sequences {
	var s sequences
	switch cmp.Or(o.Of, o.Name) {
	case "Q", "O", "LSE":
		if p.Packed.Queries == 0 {
			return nil
		}
		s = selfCheckSequences(p, false)
	case "K", "V":
		if p.Packed.Keys == 0 {
			return nil
		}
		s = selfCheckSequences(p, true)
	default:
		return nil
	}
	return &s
}

// each calls f with the first element of every row that has a slot, in the batch and in the packed tensor; shapes are those of the two.
func (s *sequences) each(batch, packed [4]int, f func(from, to int)) {
	for b := range batch[0] {
		for h := range batch[1] {
			for i := range min(s.slots[b], batch[2]) {
				f(((b*batch[1]+h)*batch[2]+i)*batch[3], (h*packed[2]+s.starts[b]+i)*packed[3])
			}
		}
	}
}

// packed is an operand's values as they lie, given those of the batch: no numbers where there is no sequence.
func packed(p *attn.Problem, o *attn.Operand, values []float32) []float32 {
	s := packing(p, o)
	if s == nil || values == nil {
		return values
	}
	batch, shape := o.Shape(batchOf(p)), o.Shape(p)
	out := make([]float32, Product(shape))
	for i := range out {
		out[i] = float32(math.NaN())
	}
	s.each(batch, shape, func(from, to int) { copy(out[to:to+shape[3]], values[from:]) })
	return out
}

// unpacked is the batch's values of an operand, given those that lie packed: what should be there where there is no slot.
func unpacked(p *attn.Problem, o *attn.Operand, values []float32, should []float64) []float32 {
	s := packing(p, o)
	if s == nil {
		return values
	}
	batch, shape := o.Shape(batchOf(p)), o.Shape(p)
	out := Float32s(should)
	s.each(batch, shape, func(to, from int) { copy(out[to:to+shape[3]], values[from:from+shape[3]]) })
	return out
}

// startsOf are the values of QueryStarts and KeyStarts.
func startsOf(p *attn.Problem, values map[string][]float32) {
	for i, name := range []string{"QueryStarts", "KeyStarts"} {
		if p.Packed.None() {
			return
		}
		for _, x := range selfCheckSequences(p, i == 1).starts {
			values[name] = append(values[name], float32(x))
		}
	}
}
