package ref

import "fmt"

// Gather is the rows of keys or values that a table of pages names, [B, H, rows, D] with an entry for each list of the table: row j is row
// j mod N of page table[b][j/N] of a pool [pages, H, N, D]. A page that is none of the pool's is zeros, and so is what lies behind the last
// of a list.
func Gather(pool Tensor, table [][]int, rows int) (Tensor, error) {
	if err := pool.check("pool"); err != nil {
		return Tensor{}, err
	}
	if len(table) < 1 || rows < 1 {
		return Tensor{}, fmt.Errorf("ref: %d rows of %d lists of pages: want at least 1 of each", rows, len(table))
	}
	out := NewTensor(len(table), pool.H, rows, pool.D)
	for b, pages := range table {
		for j := range min(rows, len(pages)*pool.N) {
			page := pages[j/pool.N]
			if page < 0 || page >= pool.B {
				continue
			}
			for h := range pool.H {
				copy(out.Row(b, h, j), pool.Row(page, h, j%pool.N))
			}
		}
	}
	return out, nil
}
