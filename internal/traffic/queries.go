package traffic

import "github.com/vkattn/vkattn/internal/attn"

// QueriesOutside is FlashAttention-2: a block of queries stays with a workgroup, which walks over tiles of keys and writes O once:
// Θ(N²·d²/M) bytes a head, M the memory that holds a tile. Kernels with keys in parts, and those with a block mask, are among them: of a
// problem with a block mask, only tiles with a nonzero block are walked to.
type QueriesOutside struct {
	Label string `json:"label"` // of its dispatches
	Rows  int    `json:"rows"`  // queries of a workgroup
	Keys  int    `json:"keys"`  // of a tile

	QAgain   bool   `json:"q_again,omitempty"`   // Q is loaded anew for every tile of keys, as it does not fit beside K
	QReaders int    `json:"q_readers,omitempty"` // times that a workgroup loads its queries; 0: 1
	Packed   bool   `json:"packed,omitempty"`    // the query heads of a key head share a workgroup's rows
	Parts    int    `json:"parts,omitempty"`     // of the keys, computed apart and combined; 0: 1
	Combine  string `json:"combine,omitempty"`   // label of the dispatches that combine them

	// What kernels load besides, and only they know.
	KeysAhead   int  `json:"keys_ahead,omitempty"` // tiles of K and of V fetched beyond the last that is used
	ValuesAhead int  `json:"values_ahead,omitempty"`
	AheadAgain  bool `json:"ahead_again,omitempty"` // beyond the last tile of all, those are that tile again, not nothing
	Batch       int  `json:"batch,omitempty"`       // keys are loaded from the multiple of this at or before the first that is seen; 0: 1
	NoneUnseen  bool `json:"none_unseen,omitempty"` // a block of queries that sees no key loads none, not one tile
	InKeys      bool `json:"in_keys,omitempty"`     // values that lie in keys are not loaded again
}

// Kind is "queries outside".
func (QueriesOutside) Kind() string { return "queries outside" }

// rows are what all workgroups load and store, in rows of the tensors.
type rows struct{ q, k, v, o float64 }

// Steps counts a forward pass.
func (m QueriesOutside) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "QueriesOutside"
	if err := block(name, m.Rows, m.Keys); err != nil {
		return nil, err
	}
	if err := numbers(name, m.Parts, m.QReaders, m.KeysAhead, m.ValuesAhead, m.Batch); err != nil {
		return nil, err
	}
	share := 1.0
	var sum rows
	if p.Blocks.None() {
		if err := countable(name, p, blocksOf(p.QueryLen, m.Rows)*float64(p.Group()*max(m.Parts, 1))); err != nil {
			return nil, err
		}
		sum = m.walk(p)
	} else {
		if m.Packed || m.Parts > 1 {
			return nil, bad(name, m.Label, "has rows of several heads or keys in parts, and so no block mask")
		}
		blocks, err := newBlocks(p, c)
		if err == nil {
			err = blocks.countable(name, blocksOf(p.QueryLen, m.Rows), blocksOf(p.KeyLen, m.Keys))
		}
		if err != nil {
			return nil, err
		}
		sum, share = m.walkBlocks(p, blocks), blocks.share()
	}
	d, dv := rowBytes(p)
	keyRow, valueRow := cacheRowBytes(p)
	if m.InKeys && c.ValuesInKeys {
		valueRow = 0
	}
	row, lse := dv, c.lse()
	if m.Parts > 1 { // the sums of a part: fp32, in whole eights, and their logarithm
		row, lse = float64(fp32*8*attn.CeilDiv(p.ValueDim, 8)), fp32
	}
	steps := put(forward(p, share), all(m.Label),
		Step{Name: StepScores, Read: sum.q*d + sum.k*(keyRow+pageNumber(p)+listNumber(p))},
		Step{Name: StepSoftmax, Written: sum.o * lse},
		Step{Name: StepValues, Read: sum.v * valueRow, Written: sum.o * row})
	if m.Parts > 1 {
		steps = append(steps, m.combine(p, c))
	}
	return steps, nil
}

// walk is without a block mask: a block of queries loads Q once, walks over the tiles of keys that any of its queries may see, and writes O
// and lse once; each part of the keys does so with its share of the tiles.
func (m QueriesOutside) walk(p attn.Problem) (sum rows) {
	if !p.Lists.None() {
		return m.walkLists(p)
	}
	group, matrices := 1, p.AllHeads()
	if m.Packed {
		group, matrices = p.Group(), p.AllHeads()/float64(p.Group())
	}
	mask, all, parts := p.Mask(), p.QueryLen*group, max(m.Parts, 1)
	for first := 0; first < all; first += m.Rows {
		n := min(m.Rows, all-first)
		w := mask.KeyTiles(first/group, (first+n-1)/group-first/group+1, m.Keys)
		if !m.NoneUnseen && parts == 1 {
			w.End = max(w.End, w.Begin+1)
		}
		if m.Batch > 0 {
			w.Begin -= w.Begin % m.Batch
		}
		tiles := w.End - w.Begin
		for part := range parts {
			begin := w.Begin + part*(tiles/parts) + min(part, tiles%parts) // the first parts have a tile more
			end := w.Begin + (part+1)*(tiles/parts) + min(part+1, tiles%parts)
			loads := float64(max(m.QReaders, 1))
			if m.QAgain {
				loads = max(float64(end-begin), one(!m.NoneUnseen))
			}
			sum.q += matrices * float64(n) * loads
			sum.k += matrices * float64(m.tileRows(p, begin, end, m.KeysAhead))
			sum.v += matrices * float64(m.tileRows(p, begin, end, m.ValuesAhead))
			sum.o += matrices * float64(n)
		}
	}
	return sum
}

// walkLists is with lists of keys, by kernels whose rows are query heads of one query: each block of them loads all keys of the list, as if
// none were hidden.
func (m QueriesOutside) walkLists(p attn.Problem) (sum rows) {
	heads, parts := p.AllHeads()*float64(p.QueryLen), float64(max(m.Parts, 1))
	sum.q = heads * float64(max(m.QReaders, 1)) * parts
	sum.k = p.AllKeyHeads() * float64(p.QueryLen) * float64(attn.CeilDiv(p.Group(), m.Rows)) * float64(p.Lists.Keys)
	sum.v, sum.o = sum.k, heads*parts
	return sum
}

// tileRows is the number of keys in tiles [begin, end), and in as many tiles after them as are fetched ahead.
func (m QueriesOutside) tileRows(p attn.Problem, begin, end, ahead int) int {
	if begin == end {
		return 0
	}
	n := min((end+ahead)*m.Keys, p.KeyLen) - begin*m.Keys
	if m.AheadAgain {
		n += m.Keys * max(0, end+ahead-attn.CeilDiv(p.KeyLen, m.Keys))
	}
	return n
}

// walkBlocks is with a block mask: from one tile with a nonzero block to the next. A block of queries without any takes a tile beyond the
// last key, of which there is nothing to load but Q, or no tile at all. What is fetched ahead of the end is the tile there, however often.
func (m QueriesOutside) walkBlocks(p attn.Problem, blocks blocks) (sum rows) {
	mask := p.Mask()
	matrices := p.AllHeads() / blocks.masks()
	keysTo := func(tile int) int { return min(tile*m.Keys, p.KeyLen) }
	for head := range int(blocks.masks()) {
		for first := 0; first < p.QueryLen; first += m.Rows {
			n := min(m.Rows, p.QueryLen-first)
			walk := mask.KeyTiles(first, n, m.Keys)
			begin, end := walk.Begin, walk.End
			seen := blocks.of(head, first, n)
			var tiles, keys float64
			for t := begin; t < end; t++ {
				visit := seen.any(keysTo(t), keysTo(t+1))
				tiles += visit
				keys += visit * float64(keysTo(t+1)-keysTo(t))
			}
			some := seen.any(keysTo(begin), keysTo(end))
			loads := float64(max(m.QReaders, 1))
			if m.QAgain {
				loads = tiles + one(!m.NoneUnseen)*(1-some)
			}
			beyond := float64(keysTo(end+1) - keysTo(end))
			if m.AheadAgain {
				beyond = float64(m.Keys)
			}
			sum.q += matrices * float64(n) * loads
			sum.k += matrices * (keys + some*beyond*float64(m.KeysAhead))
			sum.v += matrices * (keys + some*beyond*float64(m.ValuesAhead))
			sum.o += matrices * float64(n)
		}
	}
	return sum
}

// combine: four columns of a row in all parts, with their statistics, become four columns of O; a product and a sum a number.
func (m QueriesOutside) combine(p attn.Problem, c Call) Step {
	rows, fours := p.AllHeads()*float64(p.QueryLen), float64(attn.CeilDiv(p.ValueDim, 4))
	parts := rows * fours * float64(m.Parts)
	_, dv := rowBytes(p)
	return Step{Name: StepCombine, Kernel: m.Combine, FLOPs: 8 * parts, Read: parts * (4*fp32 + fp32), Written: rows * (dv + c.lse())}
}
