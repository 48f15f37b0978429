package attn

import (
	"math"
	"math/bits"
	"sort"
)

// Layout is where a tensor's elements stand: element [b, h, n, d] at byte offset + size·(b·s0 + h·s1 + n·s2 + d). Where several elements
// share their bytes, number x = b·s0 + h·s1 + n·s2 + d is element x%Per of the unit of Size bytes at offset + Size·(x/Per), and rows begin
// at units: bits of a byte, the lowest first, and blocks of quantised numbers.
type Layout struct {
	Offset  uint64 // bytes
	Size    uint64 // bytes of a unit: an element, or several
	Per     int    // elements of a unit
	Align   uint64 // bytes: what Offset is a multiple of
	Shape   [4]int
	Strides [4]int // elements
	Span    uint64 // bytes from the first element to the end of the last
}

// Contiguous gives the strides of row-major order.
func Contiguous(shape [4]int) [4]int {
	return [4]int{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}
}

// ContiguousBNHD gives the strides of a tensor [B,H,N,D] whose memory is laid out [B,N,H,D].
func ContiguousBNHD(shape [4]int) [4]int {
	return [4]int{shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1}
}

// NewLayout checks shape, strides and offset against each other and against the buffer's size. All-zero strides mean
// row-major order, with rows of bits up to the next byte.
func NewLayout(offset uint64, dtype DType, shape, strides [4]int, bufferSize uint64) (Layout, error) {
	u := dtype.unit()
	l := Layout{Offset: offset, Size: uint64(u.bytes), Per: u.elements, Align: uint64(u.align), Shape: shape, Strides: strides}
	if l.Size == 0 {
		return l, BadArgument("dtype", uint8(dtype), "must be F32, F16, BF16, Bool, Int32, Bit, "+quantisedNames)
	}
	if shape[3]%dtype.Block() != 0 {
		return l, BadArgument("shape", shape, "rows of %v must be whole blocks of %d", dtype, dtype.Block())
	}
	for i, d := range shape {
		if d < 1 || d > math.MaxInt32 {
			return l, BadArgument("shape", shape, "dimension %d must be from 1 to 2³¹−1", i)
		}
	}
	if n, ok := Elements(shape); !ok || n > math.MaxUint32 {
		return l, BadArgument("shape", shape, "must have at most 2³²−1 elements")
	}
	if strides == ([4]int{}) {
		l.Strides = Contiguous(l.padded())
	}
	if l.Strides[3] != 1 && shape[3] != 1 {
		return l, BadArgument("strides", strides, "the last stride must be 1")
	}
	last := uint64(0)
	for i, s := range l.Strides {
		if s < 0 || s > math.MaxUint32 {
			return l, BadArgument("strides", strides, "each must be from 0 to 2³²−1 elements")
		}
		if i < 3 && shape[i] > 1 && s%l.Per != 0 {
			return l, BadArgument("strides", strides, "those between rows of type %v must be multiples of %d", dtype, l.Per)
		}
		hi, lo := bits.Mul64(uint64(s), uint64(shape[i]-1))
		last += lo
		if hi != 0 || lo > math.MaxUint32 || last > math.MaxUint32-1 {
			return l, BadArgument("strides", strides, "the last element would lie more than 2³²−1 elements from the first")
		}
	}
	l.Span = (last/uint64(l.Per) + 1) * l.Size
	if offset%l.Align != 0 {
		return l, BadArgument("offset", offset, "must be a multiple of %d bytes, of type %v", l.Align, dtype)
	}
	if offset > bufferSize || l.Span > bufferSize-offset {
		return l, BadArgument("offset", offset, "offset + %d bytes of elements must fit the buffer's %d bytes", l.Span, bufferSize)
	}
	return l, nil
}

// padded is the shape with rows as long as their units.
func (l *Layout) padded() [4]int {
	shape := l.Shape
	shape[3] = CeilDiv(shape[3], l.Per) * l.Per
	return shape
}

// unitwise is the layout of the units that the elements lie in.
func (l *Layout) unitwise() Layout {
	if l.Per == 1 {
		return *l
	}
	out := *l
	out.Per, out.Shape[3] = 1, CeilDiv(l.Shape[3], l.Per)
	for i := range 3 {
		out.Strides[i] /= l.Per
	}
	out.Strides[3] = 1
	return out
}

// Steps gives the distance of the first element from a place n times Align bytes before it as kernels count it: in elements, or of blocks,
// which need not begin at a multiple of their size, in Align bytes.
func (l *Layout) Steps(n uint32) uint32 {
	if l.Align == l.Size {
		return n * uint32(l.Per)
	}
	return n
}

// Dense says whether the elements fill the span in row-major order.
func (l *Layout) Dense() bool {
	want := Contiguous(l.Shape)
	for i := range want {
		if l.Shape[i] > 1 && l.Strides[i] != want[i] {
			return false
		}
	}
	return true
}

// Gapless says whether the elements fill the span in some order.
func (l *Layout) Gapless() bool {
	whole := l.unitwise()
	n, _ := Elements(whole.Shape)
	return l.Span == n*l.Size && !l.SelfOverlaps()
}

// SelfOverlaps says whether two elements may share memory. It may err towards true for layouts that nobody has: dimensions
// are taken from the smallest stride up, and each must step past all smaller ones.
func (l *Layout) SelfOverlaps() bool {
	var order []int
	for i, n := range l.Shape {
		if n > 1 {
			order = append(order, i)
		}
	}
	sort.Slice(order, func(a, b int) bool { return l.Strides[order[a]] < l.Strides[order[b]] })
	extent := uint64(1) // elements covered by the dimensions so far
	for _, i := range order {
		s := uint64(l.Strides[i])
		if s < extent {
			return true
		}
		extent += s * uint64(l.Shape[i]-1)
	}
	return false
}

// Overlaps says whether two tensors of one buffer may share a byte. Tensors interleaved in one packed buffer, as q, k and v
// in [B, N, 3, H, D], do not overlap although their spans do: modulo the period of their large strides they occupy disjoint
// residues. It may err towards true, never towards false.
func (l *Layout) Overlaps(o *Layout) bool {
	if l.Offset+l.Span <= o.Offset || o.Offset+o.Span <= l.Offset {
		return false
	}
	a, b := l.unitwise(), o.unitwise()
	for _, t := range [2]*Layout{&a, &b} {
		for i, n := range t.Shape {
			if n > 1 && apart(&a, &b, uint64(t.Strides[i])*t.Size) {
				return false
			}
		}
	}
	return true
}

// apart takes the strides of at least threshold bytes as whole periods and compares what the others cover within one.
func apart(a, b *Layout, threshold uint64) bool {
	var period uint64
	var cover [2]uint64
	for i, t := range [2]*Layout{a, b} {
		cover[i] = t.Size
		for d, n := range t.Shape {
			if n == 1 {
				continue
			}
			if s := uint64(t.Strides[d]) * t.Size; s >= threshold {
				period = gcd(period, s)
			} else {
				cover[i] += s * uint64(n-1)
			}
		}
	}
	if period == 0 {
		return false
	}
	ra, rb := a.Offset%period, b.Offset%period
	ahead := (rb + period - ra) % period // from the start of a to the start of b, around the period
	return ahead >= cover[0] && ahead+cover[1] <= period
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Aligned says whether kernels can read rows in the pieces that suit them best: of 16 bytes; of quantised numbers in words of 4, and rows
// of blocks that are multiples of 8 bytes, or of 4, from such multiples on.
func (l *Layout) Aligned() bool {
	switch {
	case l.Per == blockOf:
		unit := uint64(8) // or 4, or the 2 of every block
		for row := uint64(l.Shape[3]/l.Per) * l.Size; row%unit != 0; {
			unit /= 2
		}
		ok := l.Offset%unit == 0
		for i := range 3 {
			ok = ok && (l.Shape[i] == 1 || uint64(l.Strides[i]/l.Per)*l.Size%unit == 0)
		}
		return ok
	case l.Per == 1 && l.Size == 1:
		ok := l.Offset%4 == 0 && l.Shape[3]%8 == 0
		for i := range 3 {
			ok = ok && (l.Shape[i] == 1 || l.Strides[i]%4 == 0)
		}
		return ok
	}
	return l.Aligned16()
}

// Aligned16 says whether every row starts on 16 bytes and is a multiple of 16 bytes long, with an element in each of its units.
func (l *Layout) Aligned16() bool {
	if l.Per > 1 {
		return false
	}
	ok := l.Offset%16 == 0 && uint64(l.Shape[3])*l.Size%16 == 0
	for i := range 3 {
		ok = ok && (l.Shape[i] == 1 || uint64(l.Strides[i])*l.Size%16 == 0)
	}
	return ok
}

// Rows calls f with the number of each row, in the order b, h, n, and the element at which it starts.
func (l *Layout) Rows(f func(row, start int)) {
	row := 0
	for b := range l.Shape[0] {
		for h := range l.Shape[1] {
			for n := range l.Shape[2] {
				f(row, b*l.Strides[0]+h*l.Strides[1]+n*l.Strides[2])
				row++
			}
		}
	}
}
