package attn

import "fmt"

// Pages says that keys and values lie in pages of pools, and where: flash.Pages. The zero value is no pages.
type Pages struct {
	Size        int // rows of a page, a power of two
	Count       int // pages of a pool
	PerSequence int // columns of a dense table of pages, 0 of a compressed one
	Indices     int // page numbers of a compressed table
}

// None says that keys and values lie as tensors.
func (g Pages) None() bool { return g == Pages{} }

// Compressed says that the table has as many pages of each batch entry as it has, one entry after the other.
func (g Pages) Compressed() bool { return g.Indices > 0 }

// String gives the size of a page and the form of the table.
func (g Pages) String() string {
	if g.Compressed() {
		return fmt.Sprintf("%d of %d rows, compressed table of %d", g.Count, g.Size, g.Indices)
	}
	return fmt.Sprintf("%d of %d rows, %d for each entry", g.Count, g.Size, g.PerSequence)
}

// Cached says that keys and values are read from a cache: in pages, or quantised.
func (p *Problem) Cached() bool {
	return !p.Pages.None() || p.Quantised()
}

// Quantised says that keys or values are quantised.
func (p *Problem) Quantised() bool { return p.KeyType.Quantised() || p.ValueType.Quantised() }

// PageTableShape is the shape of the table of pages, [1, 1, Batch, PerSequence] or of a compressed one [1, 1, 1, Indices]; PageStartsShape
// that of where a compressed one begins for each batch entry, [1, 1, 1, Batch+1].
func (p *Problem) PageTableShape() [4]int {
	if p.Pages.Compressed() {
		return [4]int{1, 1, 1, p.Pages.Indices}
	}
	return [4]int{1, 1, p.Batch, p.Pages.PerSequence}
}
func (p *Problem) PageStartsShape() [4]int { return [4]int{1, 1, 1, p.Batch + 1} }

// ScalesShape is the shape of the scales of keys or values that are floats of a byte, [1, 1, Batch, KeyHeads].
func (p *Problem) ScalesShape() [4]int { return [4]int{1, 1, p.Batch, p.KeyHeads} }

func (p *Problem) hasPages() bool           { return !p.Pages.None() }
func (p *Problem) hasCompressedPages() bool { return p.Pages.Compressed() }
func (p *Problem) hasKeyScales() bool       { return p.KeyType.Float8() }
func (p *Problem) hasValueScales() bool     { return p.ValueType.Float8() }
func (p *Problem) keyType() DType           { return p.stored(p.KeyType) }
func (p *Problem) valueType() DType         { return p.stored(p.ValueType) }

// stored is the type of keys or values that the problem says they have: its own unless they are quantised.
func (p *Problem) stored(t DType) DType {
	if t.Quantised() {
		return t
	}
	return p.DType
}

// ofCache describes where keys and values lie, for people.
func (p *Problem) ofCache() (text string) {
	if !p.Pages.None() {
		text += fmt.Sprintf(" pages %v", p.Pages)
	}
	if p.KeyType.Quantised() {
		text += fmt.Sprintf(" keys %v", p.KeyType)
	}
	if p.ValueType.Quantised() {
		text += fmt.Sprintf(" values %v", p.ValueType)
	}
	return text
}
