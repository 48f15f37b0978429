package traffic

import "github.com/vkattn/vkattn/internal/attn"

// byColumns is the mask with queries and keys exchanged, for walks of keys over queries. Its blocks are to be asked for, not its share.
func (b *blocks) byColumns() blocks {
	t := *b
	t.shape[1], t.shape[2] = b.shape[2], b.shape[1]
	t.problem.Blocks.Queries, t.problem.Blocks.Keys = b.problem.Blocks.Keys, b.problem.Blocks.Queries
	if b.bits != nil {
		t.bits = make([]bool, len(b.bits))
		for i, bit := range b.bits {
			mask, row, column := i/b.shape[2]/b.shape[1], i/b.shape[2]%b.shape[1], i%b.shape[2]
			t.bits[(mask*b.shape[2]+column)*b.shape[1]+row] = bit
		}
	}
	return t
}

// groups are the masks of the query heads that share a key head, for all key heads that differ, and how many key heads of the problem each
// of these stands for. Where heads share a mask a group is one head alone.
func (b *blocks) groups() (masks [][]int, each float64) {
	p := &b.problem
	all := float64(p.Batch) * float64(p.KeyHeads)
	if b.bits == nil && p.Blocks.PerHead {
		return [][]int{make([]int, p.Group())}, all // alike, and independent of each other
	}
	if !p.Blocks.PerHead {
		for mask := range int(b.masks()) {
			masks = append(masks, []int{mask})
		}
		return masks, all / b.masks()
	}
	group := p.Group()
	for first := 0; first < b.shape[0]; first += group {
		heads := make([]int, group)
		for i := range heads {
			heads[i] = first + i
		}
		masks = append(masks, heads)
	}
	return masks, all / float64(len(masks))
}

// maskedWalk is what a walk over tiles of `columns` rows, of count, visits of those from begin up to end: tiles, the rows of these, whether
// it visits any, and whether the last of them all, which alone may be shorter.
type maskedWalk struct{ tiles, rows, some, last float64 }

func (t *BackwardTile) visited(seen *blockRows, count, begin, end int) (w maskedWalk) {
	to := func(tile int) int { return min(tile*t.Columns, count) }
	for i := begin; i < end; i++ {
		visit := seen.any(to(i), to(i+1))
		w.tiles += visit
		w.rows += visit * float64(to(i+1)-to(i))
		w.last = visit
	}
	if begin < end {
		w.some = seen.any(to(begin), to(end))
	}
	return w
}

// again is the rows of the last tile that a walk visits, which is fetched once more, of tiles up to end.
func (t *BackwardTile) again(w maskedWalk, count, end int) float64 {
	return w.last*float64(min(end*t.Columns, count)-(end-1)*t.Columns) + (w.some-w.last)*float64(t.Columns)
}

// loops are the ends of a matrix kernel's loops over the tiles of a walk, one behind the other, with a block mask: where a tile may touch
// several blocks, one loop, which looks at single scores.
func (t *BackwardTile) loops(ofTiles bool, begin, first, second, end int) []int {
	if !ofTiles {
		return []int{begin, end}
	}
	return []int{begin, first, second, end}
}

// maskedOverQueries is overQueries with a block mask, of all heads.
func (t *BackwardTile) maskedOverQueries(p attn.Problem, by *blocks) (sum backwardRows) {
	readers, mask := float64(max(t.RowReaders, 1)), p.Mask()
	groups, each := by.groups()
	dispatches := 1.0
	if t.Apart {
		dispatches = 2
	}
	for _, group := range groups {
		alike := float64(p.Group()) / float64(len(group)) // query heads that each of the group stands for
		for first := 0; first < p.KeyLen; first += t.Rows {
			keys := min(t.Rows, p.KeyLen-first)
			n, own, walk := float64(keys), t.loads(keys), mask.QueryTiles(first, t.Rows, t.Columns)
			var queries float64
			if t.Restaged {
				var rows float64
				for _, head := range group {
					seen := by.of(head, first, keys)
					w := t.visited(&seen, p.QueryLen, max(min(walk.Begin, walk.End-1), 0), walk.End)
					queries += alike * w.rows
					rows += alike * ((w.tiles+1-w.some)*n + w.rows) // one tile at least, if beyond the last query
				}
				sum.scores += each * rows
				sum.weights += each * rows
				sum.sums += each * queries
				sum.statistics += each * queries * readers
				continue
			}
			whole, end := walk.Begin, walk.End
			if t.Masked {
				whole = walk.WholeBegin
			}
			if mask.Low > -attn.Unbounded {
				end = walk.WholeEnd
			}
			ends := t.loops(p.Blocks.OfTiles(t.Columns, t.Rows), walk.Begin, whole, end, walk.End)
			for i, to := range ends[1:] {
				none := 1.0 // whether no later head of the group visits any
				for h := len(group) - 1; h >= 0; h-- {
					seen := by.of(group[h], first, keys)
					w := t.visited(&seen, p.QueryLen, ends[i], to)
					queries += alike * w.rows
					if t.Ahead {
						queries += none * t.again(w, p.QueryLen, to)
						none *= 1 - w.some
					}
				}
			}
			sum.scores += each * dispatches * (own + queries)
			sum.weights += each * (own + dispatches*queries)
			sum.statistics += each * dispatches * queries * readers
		}
	}
	return sum
}

// maskedOverKeys is overKeys with a block mask, of all heads.
func (t *BackwardTile) maskedOverKeys(p attn.Problem, by *blocks) (sum backwardRows) {
	mask, each := p.Mask(), p.AllHeads()/by.masks()
	for head := range int(by.masks()) {
		for first := 0; first < p.QueryLen; first += t.Rows {
			n := min(t.Rows, p.QueryLen-first)
			sum.statistics += each * float64(n*max(t.RowReaders, 1))
			walk, seen := mask.KeyTiles(first, n, t.Columns), by.of(head, first, n)
			if t.Restaged {
				w := t.visited(&seen, p.KeyLen, walk.Begin, walk.End)
				rows := (w.tiles+1-w.some)*float64(n) + w.rows
				sum.scores += each * rows
				sum.weights += each * rows
				sum.sums += each * w.rows
				continue
			}
			whole := walk.End
			if t.Masked {
				whole = walk.WholeEnd
			}
			rows := t.loads(n)
			ends := t.loops(p.Blocks.OfTiles(t.Rows, t.Columns), walk.Begin, walk.WholeBegin, whole, walk.End)
			for i, to := range ends[1:] {
				w := t.visited(&seen, p.KeyLen, ends[i], to)
				rows += w.rows
				if t.Ahead {
					rows += t.again(w, p.KeyLen, to)
				}
			}
			sum.scores += each * rows
			sum.weights += each * rows
		}
	}
	return sum
}
