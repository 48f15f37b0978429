package ref

import "fmt"

// Scatter is a cache [B, H, N, D] after the rows of an update [B, H, M, D] were written into it: row i of batch entry b to row at[b] + i,
// or, of a circular cache, to that modulo N. Both keep their other rows.
func Scatter(cache, update Tensor, at []int, circular bool) (Array, error) {
	if err := cache.check("cache"); err != nil {
		return Array{}, err
	}
	if err := update.check("update"); err != nil {
		return Array{}, err
	}
	switch {
	case update.B != cache.B || update.H != cache.H || update.D != cache.D:
		return Array{}, fmt.Errorf("ref: update [%d %d %d %d] does not fit cache [%d %d %d %d]: they may differ in rows alone",
			update.B, update.H, update.N, update.D, cache.B, cache.H, cache.N, cache.D)
	case update.N > cache.N:
		return Array{}, fmt.Errorf("ref: an update of %d rows for a cache of %d", update.N, cache.N)
	case len(at) != cache.B:
		return Array{}, fmt.Errorf("ref: %d positions for a batch of %d", len(at), cache.B)
	}
	for b, n := range at {
		if n < 0 || !circular && n > cache.N-update.N || circular && n >= cache.N {
			return Array{}, fmt.Errorf("ref: position %d of batch entry %d: %d rows from there do not fit a cache of %d", n, b,
				update.N, cache.N)
		}
	}
	out := NewArray(cache.B, cache.H, cache.N, cache.D)
	for i, x := range cache.Data {
		out.Data[i] = float64(x)
	}
	for _, r := range AllRows(update) {
		to := out.Row(r.B, r.H, (at[r.B]+r.I)%cache.N)
		for d, x := range update.Row(r.B, r.H, r.I) {
			to[d] = float64(x)
		}
	}
	return out, nil
}

// InPages is where row p of a sequence lies whose pages are listed, in a pool of so many pages of size rows each: a page and a row of it,
// or nowhere, before the first row, behind the last page, and in what is no page of the pool.
func InPages(list []int, pages, size, p int) (page, row int, ok bool) {
	if p < 0 || p/size >= len(list) {
		return 0, 0, false
	}
	page = list[p/size]
	return page, p % size, page >= 0 && page < pages
}
