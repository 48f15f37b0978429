package conformance

import (
	"cmp"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// Layout says where a tensor's elements lie in its buffer.
type Layout int

const (
	Dense     Layout = iota // batch, heads, rows; starts on 256 bytes
	Odd                     // rows 3 elements further apart than they must be, heads too; starts on an odd element
	Wide                    // rows on multiples of 16 bytes with a gap between them: still readable 16 bytes at a time
	BNHD                    // batch, rows, heads; dense
	OddBNHD                 // batch, rows, heads; gaps and an odd first element
	layoutEnd               // how many there are
)

// String names the layout.
func (l Layout) String() string {
	if l < 0 || l >= layoutEnd {
		return fmt.Sprintf("Layout(%d)", int(l))
	}
	return [...]string{"dense", "odd", "wide", "bnhd", "odd-bnhd"}[l]
}

// Layouts are those of the four tensors; lse is always dense, on an odd element unless o is Dense.
type Layouts struct{ Q, K, V, O Layout }

// all gives every tensor the same layout.
func all(l Layout) Layouts { return Layouts{l, l, l, l} }

// String names the layouts, once if they are the same.
func (l Layouts) String() string {
	if l == all(l.Q) {
		return l.Q.String()
	}
	return fmt.Sprintf("%v-%v-%v-%v", l.Q, l.K, l.V, l.O)
}

// guardBytes stand before and after every tensor.
const guardBytes = 512

// placement is a tensor's place in its buffer, in elements.
type placement struct {
	dtype   flash.DType
	shape   [4]int
	strides [4]int
	offset  int // of the first element
	total   int // of the buffer
	// Of packed sequences: values are those of a batch, whose rows beyond a slot lie nowhere; read back they are `none`, an element's bits.
	packing *packing
	none    uint32
}

// place puts the operand of a pass where the case wants it: a gradient as what it is the gradient by. Statistics have no strides, but moved
// they start anywhere.
func (c *Case) place(o *attn.Operand, moved bool) placement {
	p, l := c.Problem, c.Layouts
	at := map[string]struct {
		layout Layout
		dtype  flash.DType
		shape  [4]int
	}{"Q": {l.Q, p.DType, p.QShape()}, "K": {l.K, storedType(p, p.KeyType), p.KShape()}, "V": {l.V, storedType(p, p.ValueType), p.VShape()},
		"O":   {l.O, p.DType, p.OShape()},
		"LSE": {Dense, flash.F32, p.LSEShape()}}[cmp.Or(o.Of, o.Name)]
	x := place(at.layout, at.dtype, at.shape)
	x.packing = c.packed.of(cmp.Or(o.Of, o.Name))
	if o.Statistics && o.Of == "" {
		x.none = math.Float32bits(float32(math.Inf(-1)))
	}
	if o.Statistics && moved {
		x.offset++
		x.total += 8
	}
	return x
}

func place(l Layout, dtype flash.DType, shape [4]int) placement {
	per := attn.DType(dtype).Pitch(1) // of a unit of bytes: of bits and blocks several
	p := placeUnits(l, dtype.Bytes(per), [4]int{shape[0], shape[1], shape[2], attn.CeilDiv(shape[3], per)})
	p.dtype, p.shape = dtype, shape
	for i := range 3 {
		p.strides[i] *= per
	}
	p.offset, p.total = per*p.offset, per*p.total
	return p
}

// placeUnits places a tensor of units of so many bytes.
func placeUnits(l Layout, size int, shape [4]int) placement {
	p := placement{shape: shape}
	h, n, d := shape[1], shape[2], shape[3]
	guard := guardBytes / size
	p.offset = guard
	switch l {
	case Odd:
		row := d + 3
		p.strides = [4]int{h*(n*row+1) + 5, n*row + 1, row, 1}
		p.offset += 3
	case Wide:
		per := max(1, 16/size) // elements in 16 bytes
		row := (d+per-1)/per*per + per
		p.strides = [4]int{h * (n + 1) * row, (n + 1) * row, row, 1}
	case BNHD:
		p.strides = [4]int{n * h * d, d, h * d, 1}
	case OddBNHD:
		row := h*(d+1) + 2
		p.strides = [4]int{n*row + 7, d + 1, row, 1}
		p.offset++
	default:
		p.strides = [4]int{h * n * d, n * d, d, 1}
	}
	last := p.offset
	for i, s := range p.strides {
		last += s * (shape[i] - 1)
	}
	p.total = (last + 1 + guard + 7) / 8 * 8
	return p
}

// rows calls f with the element index in the buffer of every row's start, in the order b, h, n; -1 is nowhere.
func (p placement) rows(f func(at int)) {
	if k := p.packing; k != nil {
		for b := range len(k.starts) - 1 {
			for h := range p.shape[1] {
				for i := range k.longest {
					at := -1
					if row, ok := k.row(b, i); ok {
						at = p.offset + h*p.strides[1] + row*p.strides[2]
					}
					f(at)
				}
			}
		}
		return
	}
	for b := range p.shape[0] {
		for h := range p.shape[1] {
			for n := range p.shape[2] {
				f(p.offset + b*p.strides[0] + h*p.strides[1] + n*p.strides[2])
			}
		}
	}
}

// elements is the number of elements of the tensor.
func (p placement) elements() int { return p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3] }
