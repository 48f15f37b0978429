package conformance

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// cache is what keys and values of a case are stored as: pools with a table of pages, quantised numbers, or both.
type cache struct {
	keys, values []float32    // as their tensors hold them, without scales; nil: as they are
	table        [][]int      // pages of each batch entry
	last         []int        // rows of the last of them, where the table is compressed
	scales       [2][]float32 // [Batch, KeyHeads] of K and V, where they are floats of a byte
}

// storedTypes are what keys and values of a random case may be stored as; 0: as q.
var storedTypes = []flash.DType{0, 0, flash.Q8_0, flash.Q4_0, flash.Q4_1, flash.Q5_0, flash.Q5_1, flash.IQ4_NL, flash.F8E4M3, flash.F8E5M2}

// drawStorage has keys and values of a random case in pages, quantised, or both: then there are no gradients, and flash alone runs it.
func (c *Case) drawStorage(r *rand.Rand) {
	p := &c.Problem
	paged := r.IntN(3) > 0
	if paged {
		PagesFor(p, 1<<r.IntN(8), p.Packed.Queries == 0 && r.IntN(3) == 0)
	}
	if !paged || r.IntN(2) == 0 {
		stored := func(dim *int) flash.DType {
			t := storedTypes[r.IntN(len(storedTypes))]
			if block := attn.DType(t).Block(); t != 0 {
				*dim = min(attn.CeilDiv(cmp.Or(*dim, p.HeadDim), block)*block, plainDim)
			}
			return t
		}
		p.KeyType = stored(&p.HeadDim)
		p.ValueType = stored(&p.ValueDim)
	}
	c.Gradients, c.Only = false, []flash.Implementation{flash.Flash}
	c.lost = paged && r.IntN(6) == 0
}

// keys and values are what is uploaded.
func (c *Case) keys() []float32   { return either(c.cache.keys, c.inputs.K.Data) }
func (c *Case) values() []float32 { return either(c.cache.values, c.inputs.V.Data) }

func either(stored, plain []float32) []float32 {
	if stored != nil {
		return stored
	}
	return plain
}

// storedType is the type of keys or values of which the problem says t.
func storedType(p flash.Problem, t flash.DType) flash.DType {
	if attn.DType(t).Quantised() {
		return t
	}
	return p.DType
}

// drawCache stores keys and values as the problem says, and makes the oracle's of what is stored.
func (c *Case) drawCache(p flash.Problem, r *rand.Rand) (err error) {
	quantised := attn.DType(p.KeyType).Quantised() || attn.DType(p.ValueType).Quantised()
	if p.Pages == (flash.Pages{}) && !quantised {
		return nil
	}
	if p.Pages != (flash.Pages{}) {
		c.drawTable(p, r)
	}
	for i, x := range []struct {
		in    *ref.Tensor
		out   *[]float32
		dtype flash.DType
	}{{&c.inputs.K, &c.cache.keys, p.KeyType}, {&c.inputs.V, &c.cache.values, p.ValueType}} {
		stored := *x.in
		if c.cache.table != nil {
			stored = c.intoPages(p, *x.in)
		}
		asStored(x.dtype, stored)
		*x.out = stored.Data
		if c.cache.table != nil {
			if *x.in, err = ref.Gather(stored, c.cache.table, p.KeyLen); err != nil {
				return err
			}
		} else if x.dtype != p.DType { // what is multiplied by scales below is no longer what is stored
			x.in.Data = append([]float32(nil), stored.Data...)
		}
		if attn.DType(x.dtype).Float8() {
			for range p.Batch * p.KeyHeads {
				c.cache.scales[i] = append(c.cache.scales[i], float32(math.Exp(0.5*r.NormFloat64())))
			}
			for row := range x.in.B * x.in.H {
				for at := row * x.in.N * x.in.D; at < (row+1)*x.in.N*x.in.D; at++ {
					x.in.Data[at] *= c.cache.scales[i][row]
				}
			}
		}
	}
	return nil
}

// asStored makes numbers what a type has of them; rows that are no numbers stay that.
func asStored(t flash.DType, x ref.Tensor) {
	if !attn.DType(t).Quantised() {
		return
	}
	raw := make([]byte, t.Bytes(x.D))
	for at := 0; at < len(x.Data); at += x.D {
		if row := x.Data[at : at+x.D]; row[0] == row[0] {
			attn.Encode(attn.DType(t), raw, row)
			attn.Decode(attn.DType(t), row, raw)
		} else {
			spoil(row)
		}
	}
}

// drawTable draws the pages of each batch entry: of all pages in any order, between others that nobody may read. Entries share the first
// ones, as far as both have them whole. With c.lost some are numbers of no page. A dense table goes on with numbers of pages that nobody
// may read and of none.
func (c *Case) drawTable(p flash.Problem, r *rand.Rand) {
	g, in := p.Pages, &c.inputs
	if g.Indices > 0 {
		in.KeyLens = nil
		draw := c.lengths
		if draw == nil {
			draw = drawLength
		}
		for range p.Batch {
			in.KeyLens = append(in.KeyLens, draw(r, p.KeyLen))
		}
		spoilBeyond(in.K, in.KeyLens)
		spoilBeyond(in.V, in.KeyLens)
	}
	length := func(b int) int {
		if in.KeyLens == nil {
			return p.KeyLen
		}
		return in.KeyLens[b]
	}
	free := r.Perm(g.Count)
	c.cache.table, c.cache.last = nil, nil
	for b := range p.Batch {
		n := length(b)
		pages := make([]int, 0, attn.CeilDiv(n, g.Size))
		if b > 0 && b%2 == 0 { // a prefix in common
			pages = append(pages, c.cache.table[0][:min(n, length(0))/g.Size]...)
		}
		for len(pages) < attn.CeilDiv(n, g.Size) {
			pages, free = append(pages, free[0]), free[1:]
		}
		if c.lost {
			for i := b % 3; i < len(pages); i += 3 {
				pages[i] = []int{-1, g.Count, 1 << 30}[i%3]
			}
		}
		c.cache.table = append(c.cache.table, pages)
		c.cache.last = append(c.cache.last, n-max(0, len(pages)-1)*g.Size)
	}
}

// intoPages puts rows into their pages; all others are no numbers.
func (c *Case) intoPages(p flash.Problem, x ref.Tensor) ref.Tensor {
	pool := ref.NewTensor(p.Pages.Count, x.H, p.Pages.Size, x.D)
	spoil(pool.Data)
	for b, pages := range c.cache.table {
		for j := range min(x.N, len(pages)*p.Pages.Size) {
			page := pages[j/p.Pages.Size]
			if page < 0 || page >= p.Pages.Count || c.inputs.KeyLens != nil && j >= c.inputs.KeyLens[b] {
				continue
			}
			for h := range x.H {
				copy(pool.Row(page, h, j%p.Pages.Size), x.Row(b, h, j))
			}
		}
	}
	return pool
}

// cacheTensors are the table of pages, its starts and last pages, and scales of keys and values; nil where the problem has none.
type cacheTensors [5]*flash.Tensor

func (c *Case) cacheTensors(ctx context.Context, dev *flash.Device) (t cacheTensors, err error) {
	defer func() {
		for i := range t {
			if err != nil {
				err = errors.Join(err, t[i].Close())
			}
		}
	}()
	if c.cache.table != nil {
		if err = c.tableTensors(ctx, dev, &t); err != nil {
			return t, err
		}
	}
	for i, scales := range c.cache.scales {
		if scales == nil {
			continue
		}
		all := append([]float32{float32(math.NaN())}, append(scales[:len(scales):len(scales)], float32(math.NaN()))...)
		if t[3+i], err = withinTensor(ctx, dev, flash.F32, [4]int{1, 1, c.Problem.Batch, len(scales) / c.Problem.Batch}, all,
			1); err != nil {
			return t, err
		}
	}
	return t, nil
}

// tableTensors: behind the numbers of a dense table's rows stand others, of pages that nobody may read and of none. A compressed table
// begins and ends with such numbers; an entry with all keys has a page more than it can use, and full last pages are said to have more rows
// than there are.
func (c *Case) tableTensors(ctx context.Context, dev *flash.Device, t *cacheTensors) (err error) {
	p, g := c.Problem, c.Problem.Pages
	other := func(i int) int { return []int{-1, g.Count, i % g.Count, 1 << 30}[i%4] }
	if g.Indices == 0 {
		var all []int
		for _, pages := range c.cache.table {
			row := append([]int(nil), pages...)
			for len(row) < g.PerSequence {
				row = append(row, other(len(row)))
			}
			all = append(all, row...)
		}
		t[0], err = integersTensor(ctx, dev, [4]int{1, 1, p.Batch, g.PerSequence}, all, 3)
		return err
	}
	indices, starts, last := []int{-1, 0}, []int{2}, append([]int(nil), c.cache.last...)
	for b, pages := range c.cache.table {
		indices = append(indices, pages...)
		switch {
		case c.inputs.KeyLens[b] == p.KeyLen:
			indices, last[b] = append(indices, -1), 1
		case last[b] == g.Size:
			last[b] = g.Size + 9
		}
		starts = append(starts, len(indices))
	}
	for i := len(indices); i < g.Indices; i++ {
		indices = append(indices, other(i))
	}
	if t[0], err = integersTensor(ctx, dev, [4]int{1, 1, 1, g.Indices}, indices, 1); err == nil {
		if t[1], err = integersTensor(ctx, dev, [4]int{1, 1, 1, p.Batch + 1}, starts, 5); err == nil {
			t[2], err = integersTensor(ctx, dev, [4]int{1, 1, 1, p.Batch}, last, 2)
		}
	}
	return err
}
