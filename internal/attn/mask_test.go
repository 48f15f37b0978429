package attn_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// draw makes a mask, and the oracle's words for it.
func draw(t *rapid.T) (attn.Mask, *ref.Problem) {
	n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	of := attn.Problem{QueryLen: n("queries", 1, 70), KeyLen: n("keys", 1, 70)}
	p := &ref.Problem{Q: ref.NewTensor(1, 1, of.QueryLen, 1), K: ref.NewTensor(1, 1, of.KeyLen, 1)}
	switch n("causal", 0, 2) {
	case 1:
		of.Causal, p.Causal = attn.CausalTopLeft, ref.TopLeft
	case 2:
		of.Causal, p.Causal = attn.CausalBottomRight, ref.BottomRight
	}
	if n("window", 0, 1) == 1 {
		p.Window = &ref.Window{Left: n("left", -1, 80), Right: n("right", -1, 80)}
		of.Window = attn.NewWindow(p.Window.Left, p.Window.Right)
	}
	return of.Mask(), p
}

// TestMaskIsTheOracles: spans, pairs and the tiles of walks are what the oracle's rule for a pair gives, counted one by one.
func TestMaskIsTheOracles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, p := draw(t)
		sees := func(i, j int) bool { return p.Allows(0, 0, i, j) }
		pairs := 0
		for i := range m.Queries {
			for j := range m.Keys {
				if sees(i, j) {
					pairs++
				}
				if m.Allows(i, j) != sees(i, j) || m.KeysOf(i).Has(j) != sees(i, j) || m.QueriesOf(j).Has(i) != sees(i, j) {
					t.Fatalf("%+v: query %d, key %d: spans are %v and %v", m, i, j, m.KeysOf(i), m.QueriesOf(j))
				}
			}
		}
		if m.Pairs() != float64(pairs) {
			t.Fatalf("%+v: %v pairs, counted %d", m, m.Pairs(), pairs)
		}
		if all := pairs == m.Queries*m.Keys; m.All() != all {
			t.Fatalf("%+v: all: %v, counted %v", m, m.All(), all)
		}
		row, column := rapid.IntRange(0, m.Queries-1).Draw(t, "row"), rapid.IntRange(0, m.Keys-1).Draw(t, "column")
		part := m.Part(row, m.Queries-row, column, m.Keys-column)
		for i := range part.Queries {
			for j := range part.Keys {
				if part.KeysOf(i).Has(j) != sees(row+i, column+j) {
					t.Fatalf("%+v: query %d, key %d of the part from %d, %d: keys are %v", m, i, j, row, column, part.KeysOf(i))
				}
			}
		}
		size, rows := rapid.IntRange(1, 20).Draw(t, "tile"), rapid.IntRange(1, 20).Draw(t, "rows")
		for first := 0; first < m.Queries; first += rows {
			n := min(rows, m.Queries-first)
			check(t, m.KeyTiles(first, n, size), first, n, m.Keys, size, sees)
		}
		for first := 0; first < m.Keys; first += rows {
			n := min(rows, m.Keys-first)
			check(t, m.QueryTiles(first, n, size), first, n, m.Queries, size, func(key, query int) bool { return sees(query, key) })
		}
	})
}

// check compares a walk with what rows [first, first+n) see of each tile of count positions, the last of which may be a part.
func check(t *rapid.T, w attn.Walk, first, n, count, size int, sees func(row, position int) bool) {
	if !(0 <= w.Begin && w.Begin <= w.WholeBegin && w.WholeBegin <= w.WholeEnd && w.WholeEnd <= max(w.End, w.WholeBegin)) {
		t.Fatalf("%+v is in no order", w)
	}
	lowest, highest := -1, -1 // tiles of which some row sees anything
	for tile := range (count + size - 1) / size {
		some, all := false, (tile+1)*size <= count
		for p := tile * size; p < min((tile+1)*size, count); p++ {
			for row := first; row < first+n; row++ {
				some, all = some || sees(row, p), all && sees(row, p)
			}
		}
		if some {
			highest = tile
			if lowest < 0 {
				lowest = tile
			}
		}
		if whole := w.WholeBegin <= tile && tile < w.WholeEnd; whole != all {
			t.Fatalf("%+v: tile %d whole: %v, counted %v", w, tile, whole, all)
		}
	}
	if lowest < 0 && w.Begin != w.End || lowest >= 0 && (w.Begin != lowest || w.End != highest+1) {
		t.Fatalf("%+v: rows %d to %d see tiles %d to %d", w, first, first+n-1, lowest, highest)
	}
}
