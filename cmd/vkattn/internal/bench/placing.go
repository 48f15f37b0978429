package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/attn"
)

// Where rows lie. Row i of head h of batch entry b of a tensor has the values of row (b·heads + h)·n + i of a stream, wherever the tensor
// keeps it and whatever type it has: cases that differ in nothing but that compute with the same numbers.

// placing says which row of a stream stands in each row of a tensor's memory.
type placing struct {
	rows int              // of memory
	row  func(at int) int // of the stream; below 0: none
	bnhd bool             // memory has a token's heads side by side
}

// asBatch is [B, heads, n, ·] in row-major order.
func asBatch(batch, heads, n int) placing {
	return placing{rows: batch * heads * n, row: func(at int) int { return at }}
}

// queryRows places q and o, and their gradients.
func queryRows(c result.Case) placing {
	if c.Packed != "" {
		return packedRows(c, c.H)
	}
	return asBatch(c.B, c.H, c.Nq)
}

// keyRows places k and v. table is that of pages.
func keyRows(c result.Case, table []int32) placing {
	switch {
	case c.Packed != "":
		return packedRows(c, c.Hkv)
	case c.Page == 0 && c.Used == "":
		return asBatch(c.B, c.Hkv, c.N)
	case c.Page == 0:
		used := c.Lengths()
		return placing{rows: c.B * c.Hkv * c.N, row: func(at int) int {
			if at%c.N < used[at/(c.Hkv*c.N)] {
				return at
			}
			return -1
		}}
	}
	slots := make([]int, len(table)) // of each page, where it stands in the table
	for slot, page := range table {
		slots[page] = slot
	}
	each, used := c.Pages(), c.Lengths()
	if used == nil {
		used = slices.Repeat([]int{c.N}, c.B)
	}
	return placing{rows: len(table) * c.Page * c.Hkv, bnhd: true, row: func(at int) int { // [pages, Page, Hkv, ·]
		token, head := at/c.Hkv, at%c.Hkv
		slot := slots[token/c.Page]
		if i := slot%each*c.Page + token%c.Page; i < used[slot/each] {
			return (slot/each*c.Hkv+head)*c.N + i
		}
		return -1
	}}
}

// pageTable shuffles the pages of the pools over the batch entries.
func pageTable(c result.Case, seed uint64) []int32 {
	table := make([]int32, c.B*c.Pages())
	for slot, page := range rand.New(rand.NewPCG(seed, result.InputSeed)).Perm(len(table)) {
		table[slot] = int32(page)
	}
	return table
}

// rowStream is a stream as the rows of a tensor [B, heads, n, width].
type rowStream struct {
	result.Stream
	stored          attn.DType
	heads, n, width int
	place           placing
	phase           int // of scale
}

// scale is what elements of fp8 of a head, counted over the batch, are multiplied by; 1 of other types. With one of 1/64 to 15/512 the
// stream's values, which end at 4.2, fill the range of the type, and differ from head to head in every bit.
func (r *rowStream) scale(bh int) float32 {
	if !r.stored.Float8() {
		return 1
	}
	return float32(8+(bh+r.phase)%8) / 512
}

// bytes is what the tensor's memory holds. Rows that are none of the stream's are NaN in every type that has one.
func (r *rowStream) bytes() []byte {
	size := r.stored.Bytes(r.width)
	out := make([]byte, r.place.rows*size)
	result.InChunks(r.place.rows, max(1, result.Chunk/r.width), func(lo, hi int) {
		values := make([]float32, r.width)
		for at := lo; at < hi; at++ {
			to, row := out[at*size:(at+1)*size], r.place.row(at)
			if row < 0 {
				fillOnes(to)
				continue
			}
			r.Fill(values, uint64(row)*uint64(r.width))
			if by := r.scale(row / r.n); by != 1 {
				for i := range values {
					values[i] /= by
				}
			}
			attn.Encode(r.stored, to, values)
		}
	})
	return out
}

// head gives the first n rows of a head, counted over the batch, as kernels read them.
func (r *rowStream) head(bh, n int) []float32 {
	out := r.Floats(uint64(bh)*uint64(r.n)*uint64(r.width), n*r.width)
	if !r.stored.Quantised() {
		return out
	}
	size, by := r.stored.Bytes(r.width), r.scale(bh)
	result.InChunks(n, max(1, result.Chunk/r.width), func(lo, hi int) {
		bytes := make([]byte, size)
		for row := lo; row < hi; row++ {
			values := out[row*r.width : (row+1)*r.width]
			for i := range values {
				values[i] /= by
			}
			attn.Encode(r.stored, bytes, values)
			attn.Decode(r.stored, values, bytes)
			for i := range values {
				values[i] *= by
			}
		}
	})
	return out
}

// scales are those of all heads.
func (r *rowStream) scales(batch int) []byte {
	values := make([]float32, batch*r.heads)
	for bh := range values {
		values[bh] = r.scale(bh)
	}
	out := make([]byte, 4*len(values))
	attn.Encode(attn.F32, out, values)
	return out
}

// words are numbers as they lie in memory.
func words(numbers []int32) []byte {
	var out []byte
	for _, n := range numbers {
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	return out
}

// fillOnes is the all-ones pattern, a NaN in every type that has one.
func fillOnes(data []byte) {
	for i := range data {
		data[i] = math.MaxUint8
	}
}

// packedRows is [total, heads, ·], of rows [B, heads, N, ·] of a stream.
func packedRows(c result.Case, heads int) placing {
	starts := c.Starts()
	return placing{rows: int(starts[c.B]) * heads, bnhd: true, row: func(at int) int {
		token, head := int32(at/heads), at%heads
		b, found := slices.BinarySearch(starts, token)
		if !found {
			b--
		}
		return (b*heads+head)*c.N + int(token-starts[b])
	}}
}
