package kernel

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// selfCheckPages makes the pool of a self-check's problem as large as its keys need: every page that is used lies between two that are not.
func selfCheckPages(p *attn.Problem) {
	if p.Pages.None() {
		return
	}
	each := attn.CeilDiv(p.KeyLen, p.Pages.Size)
	p.Pages.Count = 2*p.Batch*each + 1
	if p.Pages.Compressed() {
		p.Pages.Indices = p.Batch * each
	} else {
		p.Pages.PerSequence = each
	}
}

// selfCheckCache stores the keys and values of a self-check as its problem says, makes the oracle's of what is stored, and gives the
// operands' values by name.
func selfCheckCache(p *attn.Problem, in *ref.Problem) (values map[string][]float32, err error) {
	values = map[string][]float32{}
	var table [][]int
	if !p.Pages.None() {
		table = selfCheckTable(p, in.KeyLens, values)
	}
	for _, x := range []struct {
		in            *ref.Tensor
		dtype         attn.DType
		name, scaleOf string
	}{{&in.K, p.KeyType, "K", "KeyScales"}, {&in.V, p.ValueType, "V", "ValueScales"}} {
		stored := *x.in
		if table != nil {
			stored = selfCheckPool(p, stored, table)
		}
		if x.dtype.Quantised() {
			quantiseSelfCheck(x.dtype, stored)
		}
		values[x.name] = append([]float32(nil), stored.Data...)
		if table != nil {
			if *x.in, err = ref.Gather(stored, table, p.KeyLen); err != nil {
				return nil, err
			}
		}
		if x.dtype.Float8() {
			for row := range x.in.B * x.in.H {
				scale := 0.5 + float32(row%4)/2
				values[x.scaleOf] = append(values[x.scaleOf], scale)
				for at := row * x.in.N * x.in.D; at < (row+1)*x.in.N*x.in.D; at++ {
					x.in.Data[at] *= scale
				}
			}
		}
	}
	return values, nil
}

// selfCheckTable gives each batch entry its pages, in descending order, and the numbers that say so to values.
func selfCheckTable(p *attn.Problem, lens []int, values map[string][]float32) (table [][]int) {
	g := p.Pages
	each := attn.CeilDiv(p.KeyLen, g.Size)
	starts := []float32{0}
	for b := range p.Batch {
		n := p.KeyLen
		if lens != nil {
			n = lens[b]
		}
		var pages []int
		for i := range each {
			switch page := 2*((p.Batch-b)*each-i) - 1; {
			case i*g.Size < n:
				pages = append(pages, page)
				values["PageTable"] = append(values["PageTable"], float32(page))
			case !g.Compressed():
				values["PageTable"] = append(values["PageTable"], -1)
			}
		}
		table = append(table, pages)
		starts = append(starts, starts[b]+float32(len(pages)))
		values["LastPages"] = append(values["LastPages"], float32(n-max(0, len(pages)-1)*g.Size))
	}
	if g.Compressed() {
		for len(values["PageTable"]) < g.Indices {
			values["PageTable"] = append(values["PageTable"], -1)
		}
	}
	values["PageStarts"] = starts
	return table
}

// selfCheckPool puts rows into their pages; the others are no numbers.
func selfCheckPool(p *attn.Problem, x ref.Tensor, table [][]int) ref.Tensor {
	shape := p.KShape()
	pool := ref.NewTensor(shape[0], shape[1], shape[2], x.D)
	for i := range pool.Data {
		pool.Data[i] = float32(math.NaN())
	}
	for b, pages := range table {
		for j := range min(x.N, len(pages)*pool.N) {
			for h := range x.H {
				copy(pool.Row(pages[j/pool.N], h, j%pool.N), x.Row(b, h, j))
			}
		}
	}
	return pool
}

// quantiseSelfCheck makes numbers what a type has of them, row by row; rows that are none stay that.
func quantiseSelfCheck(t attn.DType, x ref.Tensor) {
	raw := make([]byte, t.Bytes(x.D))
	for at := 0; at < len(x.Data); at += x.D {
		if row := x.Data[at : at+x.D]; row[0] == row[0] {
			attn.Encode(t, raw, row)
			attn.Decode(t, row, raw)
		}
	}
}
