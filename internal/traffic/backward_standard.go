package traffic

import "github.com/vkattn/vkattn/internal/attn"

// BackwardStandard is standard attention's backward pass in five kernels: P stands in memory from the forward pass, dP and dS are matrices
// like it, and dV, dQ and dK are products.
type BackwardStandard struct {
	Again   Product `json:"again,omitzero"` // the products q·k once more, for the derivative of score functions; zero: not made
	Weights Product `json:"weights"`        // dP: rows are queries, columns keys
	Scores  Rows    `json:"scores"`         // dS
	Values  Product `json:"values"`         // dV: rows are keys, columns queries of a step of its loop
	Queries Product `json:"queries"`        // dQ: rows are queries, columns keys of a step
	Keys    Product `json:"keys"`           // dK: as dV

	SlabHeads int `json:"slab_heads,omitempty"` // heads of a buffer of P, where it holds all of their rows; 0: all
	SlabRows  int `json:"slab_rows,omitempty"`  // else rows of one head; 0: all
}

// Kind is "backward standard".
func (BackwardStandard) Kind() string { return "backward standard" }

// Steps counts a backward pass.
func (m BackwardStandard) Steps(p attn.Problem, c Call) ([]Step, error) {
	if err := m.check(p); err != nil {
		return nil, err
	}
	size := float64(p.DType.Size())
	d, dv := rowBytes(p)
	heads, queries := p.AllHeads(), p.AllHeads()*float64(p.QueryLen)
	add := one(c.Accumulate)

	loaded, grads := m.Weights.scores(p, m.SlabRows)
	var seen, written float64 // by the kernel of dS
	mask := p.Mask()
	for i := range p.QueryLen {
		keys := mask.KeysOf(i).End
		seen += float64(quad(keys))
		written += float64(min(quad(keys+mask.ReadBehind(m.Queries.Rows, m.Queries.Columns)), pitch(p)))
	}
	scores, keys := m.Queries.product(p, m.SlabRows)
	values, keySums := m.sum(p, m.Values, c.Accumulate), m.sum(p, m.Keys, c.Accumulate)

	passes := 1 + one(m.Scores.ReadTwice)
	readers := one(c.DLSE) * float64(max(m.Scores.Readers, 1))
	var steps []Step
	raw := 0.0 // elements of S that the kernel of dS reads, of a head
	if m.Again != (Product{}) {
		raw = seen
		loaded, stored := m.Again.scores(p, m.SlabRows)
		bytes := Step{Read: heads * loaded * d, Written: heads * stored * size}
		steps = gradientsOf(p, m.Again.Label, 1, map[string]Step{StepScoresAgain: bytes}, StepScoresAgain)
	}
	for _, k := range []struct {
		label, step string
		bytes       Step
	}{
		{m.Weights.Label, StepWeightGrads, Step{Read: heads * loaded * dv, Written: heads * grads * size}},
		{m.Scores.Label, StepScoreGrads, Step{Read: (2*passes*seen+raw)*heads*size + queries*fp32*readers,
			Written: heads * written * size}},
		{m.Values.Label, StepValueGrads, Step{Read: values.matrix*size + (values.rows+values.added)*dv, Written: values.written * dv}},
		{m.Queries.Label, StepQueryGrads, Step{Read: heads*(scores*size+keys*d) + add*queries*d, Written: queries * d}},
		{m.Keys.Label, StepKeyGrads, Step{Read: keySums.matrix*size + (keySums.rows+keySums.added)*d, Written: keySums.written * d}},
	} {
		steps = append(steps, gradientsOf(p, k.label, 1, map[string]Step{k.step: k.bytes}, k.step)...)
	}
	return steps, nil
}

func (m *BackwardStandard) check(p attn.Problem) error {
	const name = "BackwardStandard"
	if err := m.checkProducts(name, p); err != nil {
		return err
	}
	if err := numbers(name, m.Scores.Readers); err != nil {
		return err
	}
	if m.SlabHeads < 0 {
		return bad("SlabHeads", m.SlabHeads, "must not be negative")
	}
	if err := m.Weights.scoresCountable(name+".Weights", p, m.SlabRows); err != nil {
		return err
	}
	if m.Again != (Product{}) {
		return m.Again.scoresCountable(name+".Again", p, m.SlabRows)
	}
	return nil
}

// checkProducts checks what is made of P and dS alone; name is the model's.
func (m *BackwardStandard) checkProducts(name string, p attn.Problem) error {
	if err := unmasked(name, p); err != nil {
		return err
	}
	for _, b := range []struct {
		name string
		Product
	}{{".Values", m.Values}, {".Queries", m.Queries}, {".Keys", m.Keys}} {
		if err := block(name+b.name, b.Rows, b.Columns); err != nil {
			return err
		}
	}
	slabs, sums := 1.0, 2.0 // of dK and dV
	if m.SlabRows > 0 {
		slabs = blocksOf(p.QueryLen, m.SlabRows)
	}
	return countable(name, p, sums*slabs*p.AllHeads()*blocksOf(p.KeyLen, min(m.Values.Rows, m.Keys.Rows)))
}

// sums is what a sum over queries, dV or dK, moves in all: elements of the matrix, rows of what it multiplies, and rows of
// the result that are written, and read to be added to.
type sums struct{ matrix, rows, written, added float64 }

// sum: a block of keys walks over the rows of a slab, from the first that sees any of it, of each query head of its key
// head that the slab has. What an earlier slab made of a key head is added to.
//
// Of packed sequences a slab has heads of all of them, and each counts as one of the longest.
func (m *BackwardStandard) sum(p attn.Problem, b Product, accumulate bool) (sum sums) {
	if !p.Packed.None() {
		one, entries := p, p.AllKeyHeads()/float64(p.KeyHeads)
		one.Batch, one.Packed = 1, attn.Packed{}
		sum = m.sum(one, b, accumulate)
		return sums{sum.matrix * entries, sum.rows * entries, sum.written * entries, sum.added * entries}
	}
	mask, group, all := p.Mask(), p.Group(), p.Batch*p.Heads
	each := m.SlabHeads
	if each < 1 {
		each = all
	}
	if m.SlabRows > 0 && m.SlabRows < p.QueryLen {
		each = 1
	}
	slabs(p, m.SlabRows, func(row0, end int) {
		for head0 := 0; head0 < all; head0 += each {
			head1 := min(head0+each, all)
			for keyHead := head0 / group; keyHead <= (head1-1)/group; keyHead++ {
				first := max(keyHead*group, head0)
				members := float64(min((keyHead+1)*group, head1) - first)
				for key0 := 0; key0 < p.KeyLen; key0 += b.Rows {
					n := min(b.Rows, p.KeyLen-key0)
					walk := mask.Part(row0, end-row0, 0, p.KeyLen).QueryTiles(key0, b.Rows, b.Columns)
					begin := max(min(walk.Begin, walk.End-1), 0) // one tile at least
					rows := members * float64(min(max(walk.End, begin+1)*b.Columns, end-row0)-begin*b.Columns)
					sum.matrix += rows * float64(min(b.Rows, pitch(p)-key0))
					sum.rows += rows
					sum.written += float64(n)
					if accumulate || row0 > 0 || first > keyHead*group {
						sum.added += float64(n)
					}
				}
			}
		}
	})
	sum.matrix *= float64(max(b.Across, 1))
	return sum
}
