package traffic

import "github.com/vkattn/vkattn/internal/attn"

// KeysOutside is the first FlashAttention: a block of keys stays with a workgroup, which walks over the blocks of queries. O, m and l are
// read and written for each block of keys.
type KeysOutside struct {
	Label string `json:"label"` // of its dispatches
	Rows  int    `json:"rows"`  // queries of a block
	Keys  int    `json:"keys"`  // of a block

	VAgain     bool `json:"v_again,omitempty"`     // V is loaded anew for every block of queries, as it does not fit beside K
	RowReaders int  `json:"row_readers,omitempty"` // invocations that read m and l of one row; 0: 1
	// columns of a fragment; O, m and l pass from block to block for whole fragments and blocks of queries
	Fragment int `json:"fragment,omitempty"`
}

// Kind is "keys outside".
func (KeysOutside) Kind() string { return "keys outside" }

// Steps counts a forward pass: a block of keys loads K and V once and walks over the blocks of queries that see any of it, the first over
// all. Each visit loads Q; all but a block's first read O, m and l; all but its last write them, O in fp32 and in whole pieces of four
// where the output has fewer bits, or in whole fragments on matrices; the last writes the output and lse.
func (m KeysOutside) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "KeysOutside"
	if err := unmasked(name, p); err != nil {
		return nil, err
	}
	if err := block(name, m.Rows, m.Keys); err != nil {
		return nil, err
	}
	if err := numbers(name, m.RowReaders, m.Fragment); err != nil {
		return nil, err
	}
	if err := countable(name, p, blocksOf(p.QueryLen, m.Rows)); err != nil {
		return nil, err
	}
	between := float64(4 * fp32 * attn.CeilDiv(p.ValueDim, 4)) // bytes of a row of O from one block of keys to the next
	if p.DType == attn.F32 {
		between = float64(fp32 * p.ValueDim)
	}
	if m.Fragment > 0 {
		between = float64(fp32 * m.Fragment * attn.CeilDiv(p.ValueDim, m.Fragment))
	}
	mask := p.Mask()
	seen := max(1, mask.KeyTiles(p.QueryLen-1, 1, m.Keys).End) // blocks of keys up to the last that any query sees, the first in any case
	kv := float64(min(seen*m.Keys, p.KeyLen))
	if unseen := mask.KeyTiles(0, min(m.Rows, p.QueryLen), m.Keys).Begin; unseen > 1 { // blocks between the first and the windows
		kv -= float64(min(unseen, seen)-1) * float64(m.Keys)
	}
	v := kv                   // rows of V loaded
	var visits, again float64 // rows, of all visits and of those but the first
	if m.VAgain {
		v = 0
	}
	for first := 0; first < p.QueryLen; first += m.Rows {
		rows := min(m.Rows, p.QueryLen-first)
		walk := mask.KeyTiles(first, rows, m.Keys)
		n := 1 // blocks of keys visited, the first in any case
		if walk.End > 1 {
			n += walk.End - max(walk.Begin, 1)
		}
		visits += float64(rows * n)
		if m.Fragment > 0 {
			again += float64(m.Rows * (n - 1))
		} else {
			again += float64(rows * (n - 1))
		}
		if m.VAgain {
			v += float64(min(m.Keys, p.KeyLen))
			if walk.End > 1 {
				v += float64(min(walk.End*m.Keys, p.KeyLen) - max(walk.Begin, 1)*m.Keys)
			}
		}
	}
	n, rows := p.AllHeads(), float64(p.QueryLen)
	d, dv := rowBytes(p)
	const statistics = 2 * fp32 // m and l
	readers := float64(max(m.RowReaders, 1))
	return put(forward(p, 1), all(m.Label),
		Step{Name: StepScores, Read: n * (visits + kv) * d},
		Step{Name: StepSoftmax, Read: n * again * statistics * readers, Written: n * (again*statistics + rows*c.lse())},
		Step{Name: StepValues, Read: n * (v*dv + again*between), Written: n * (again*between + rows*dv)}), nil
}
