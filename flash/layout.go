package flash

import (
	"math"
	"math/bits"
	"sort"
)

// layout is where a tensor's elements stand: element [b, h, n, d] at byte offset + size·(b·s0 + h·s1 + n·s2 + d).
type layout struct {
	offset  uint64 // bytes
	size    uint64 // bytes of an element
	shape   [4]int
	strides [4]int // elements
	span    uint64 // bytes from the first element to the end of the last
}

// contiguous gives the strides of row-major order.
func contiguous(shape [4]int) [4]int {
	return [4]int{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}
}

// contiguousBNHD gives the strides of a tensor [B,H,N,D] whose memory is laid out [B,N,H,D].
func contiguousBNHD(shape [4]int) [4]int {
	return [4]int{shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1}
}

// newLayout checks shape, strides and offset against each other and against the buffer's size. All-zero strides mean
// row-major order.
func newLayout(offset uint64, dtype DType, shape, strides [4]int, bufferSize uint64) (layout, error) {
	l := layout{offset: offset, size: uint64(dtype.Size()), shape: shape, strides: strides}
	if l.size == 0 {
		return l, badArgument("dtype", uint8(dtype), "must be F32, F16 or BF16")
	}
	for i, d := range shape {
		if d < 1 || d > math.MaxInt32 {
			return l, badArgument("shape", shape, "dimension %d must be from 1 to 2³¹−1", i)
		}
	}
	if n, ok := elements(shape); !ok || n > math.MaxUint32 {
		return l, badArgument("shape", shape, "must have at most 2³²−1 elements")
	}
	if strides == ([4]int{}) {
		l.strides = contiguous(shape)
	}
	if l.strides[3] != 1 && shape[3] != 1 {
		return l, badArgument("strides", strides, "the last stride must be 1")
	}
	last := uint64(0)
	for i, s := range l.strides {
		if s < 0 || s > math.MaxUint32 {
			return l, badArgument("strides", strides, "each must be from 0 to 2³²−1 elements")
		}
		hi, lo := bits.Mul64(uint64(s), uint64(shape[i]-1))
		last += lo
		if hi != 0 || lo > math.MaxUint32 || last > math.MaxUint32-1 {
			return l, badArgument("strides", strides, "the last element would lie more than 2³²−1 elements from the first")
		}
	}
	l.span = (last + 1) * l.size
	if offset%l.size != 0 {
		return l, badArgument("offset", offset, "must be a multiple of the element size, %d bytes", l.size)
	}
	if offset > bufferSize || l.span > bufferSize-offset {
		return l, badArgument("offset", offset, "offset + %d bytes of elements must fit the buffer's %d bytes", l.span, bufferSize)
	}
	return l, nil
}

// dense says whether the elements fill the span in row-major order.
func (l *layout) dense() bool {
	want := contiguous(l.shape)
	for i := range want {
		if l.shape[i] > 1 && l.strides[i] != want[i] {
			return false
		}
	}
	return true
}

// gapless says whether the elements fill the span in some order.
func (l *layout) gapless() bool {
	n, _ := elements(l.shape)
	return l.span == n*l.size && !l.selfOverlaps()
}

// selfOverlaps says whether two elements may share memory. It may err towards true for layouts that nobody has: dimensions
// are taken from the smallest stride up, and each must step past all smaller ones.
func (l *layout) selfOverlaps() bool {
	var order []int
	for i, n := range l.shape {
		if n > 1 {
			order = append(order, i)
		}
	}
	sort.Slice(order, func(a, b int) bool { return l.strides[order[a]] < l.strides[order[b]] })
	extent := uint64(1) // elements covered by the dimensions so far
	for _, i := range order {
		s := uint64(l.strides[i])
		if s < extent {
			return true
		}
		extent += s * uint64(l.shape[i]-1)
	}
	return false
}

// overlaps says whether two tensors of one buffer may share a byte. Tensors interleaved in one packed buffer, as q, k and v
// in [B, N, 3, H, D], do not overlap although their spans do: modulo the period of their large strides they occupy disjoint
// residues. It may err towards true, never towards false.
func (l *layout) overlaps(o *layout) bool {
	if l.offset+l.span <= o.offset || o.offset+o.span <= l.offset {
		return false
	}
	for _, t := range [2]*layout{l, o} {
		for i, n := range t.shape {
			if n > 1 && apart(l, o, uint64(t.strides[i])*t.size) {
				return false
			}
		}
	}
	return true
}

// apart takes the strides of at least threshold bytes as whole periods and compares what the others cover within one.
func apart(a, b *layout, threshold uint64) bool {
	var period uint64
	var cover [2]uint64
	for i, t := range [2]*layout{a, b} {
		cover[i] = t.size
		for d, n := range t.shape {
			if n == 1 {
				continue
			}
			if s := uint64(t.strides[d]) * t.size; s >= threshold {
				period = gcd(period, s)
			} else {
				cover[i] += s * uint64(n-1)
			}
		}
	}
	if period == 0 {
		return false
	}
	ra, rb := a.offset%period, b.offset%period
	ahead := (rb + period - ra) % period // from the start of a to the start of b, around the period
	return ahead >= cover[0] && ahead+cover[1] <= period
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// aligned16 says whether every row starts on 16 bytes and is a multiple of 16 bytes long.
func (l *layout) aligned16() bool {
	ok := l.offset%16 == 0 && uint64(l.shape[3])*l.size%16 == 0
	for i := range 3 {
		ok = ok && (l.shape[i] == 1 || uint64(l.strides[i])*l.size%16 == 0)
	}
	return ok
}

// rows calls f with the number of each row, in the order b, h, n, and the element at which it starts.
func (l *layout) rows(f func(row, start int)) {
	row := 0
	for b := range l.shape[0] {
		for h := range l.shape[1] {
			for n := range l.shape[2] {
				f(row, b*l.strides[0]+h*l.strides[1]+n*l.strides[2])
				row++
			}
		}
	}
}
