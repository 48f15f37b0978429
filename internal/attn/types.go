package attn

import "fmt"

// DType is the storage type of a tensor's elements.
type DType uint8

const (
	F32   DType = iota // IEEE binary32
	F16                // IEEE binary16
	BF16               // bfloat16: the upper half of a binary32
	Bool               // a byte, 0 or not; of masks alone
	Int32              // of captured tensors and lengths alone
	Bit                // a bit: element j of a row is bit j%8 of its byte j/8; of masks alone
)

// bitsOfByte is the number of elements of type Bit in a byte.
const bitsOfByte = 8

// Bytes gives the bytes of n elements one after the other, 0 for an unknown type.
func (t DType) Bytes(n int) int {
	if t == Bit {
		return CeilDiv(n, bitsOfByte)
	}
	return n * t.Size()
}

// Pitch gives the elements from a row of n to the next where there is no more between them than there must be: rows begin at bytes.
func (t DType) Pitch(n int) int {
	if t == Bit {
		return CeilDiv(n, bitsOfByte) * bitsOfByte
	}
	return n
}

// Size gives the bytes of one element, 0 for an unknown type and for Bit, of which there are several in a byte.
func (t DType) Size() int {
	switch t {
	case F32, Int32:
		return 4
	case F16, BF16:
		return 2
	case Bool:
		return 1
	}
	return 0
}

// String gives float32, float16, bfloat16, bool, int32 or bit.
func (t DType) String() string {
	switch t {
	case F32:
		return "float32"
	case F16:
		return "float16"
	case BF16:
		return "bfloat16"
	case Bool:
		return "bool"
	case Int32:
		return "int32"
	case Bit:
		return "bit"
	}
	return "unknown dtype"
}

// Suffix is the name used in the names of shader modules.
func (t DType) Suffix() string {
	switch t {
	case F16:
		return "f16"
	case BF16:
		return "bf16"
	}
	return "f32"
}

// Causal says which keys a query may attend to.
type Causal uint8

const (
	CausalNone        Causal = iota // every key
	CausalBottomRight               // key j for query i iff j ≤ i + Nk − Nq
	CausalTopLeft                   // key j for query i iff j ≤ i
)

// String gives none, bottom-right or top-left.
func (c Causal) String() string {
	switch c {
	case CausalNone:
		return "none"
	case CausalBottomRight:
		return "bottom-right"
	case CausalTopLeft:
		return "top-left"
	}
	return "unknown causal mode"
}

// Blocks is the sizes of the blocks of a block mask: queries (rows of the scores) by keys (columns). The zero Blocks is no mask.
type Blocks struct {
	Queries, Keys int
	PerHead       bool // each query head has a mask of its own
	PerBatch      bool // each batch entry has
	Classed       bool // the mask is what mask functions make of the blocks, and says of which they allow all that the bounds do
}

// BlockSparse is what sweeps and the conformance suite call FlashAttention of a problem with a block mask, beside the implementations.
const BlockSparse = "blocksparse"

// None says that there is no block mask.
func (b Blocks) None() bool { return b == Blocks{} }

// OfTiles says whether every tile of queries × keys scores lies in one block.
func (b Blocks) OfTiles(queries, keys int) bool {
	return queries > 0 && keys > 0 && b.Queries%queries == 0 && b.Keys%keys == 0
}

// String gives the size of a block, queries by keys, for example "64x128 per head" or "64x128 per head and batch entry"; of classes too.
func (b Blocks) String() string {
	text := fmt.Sprintf("%dx%d", b.Queries, b.Keys)
	switch {
	case b.PerHead && b.PerBatch:
		text += " per head and batch entry"
	case b.PerHead:
		text += " per head"
	case b.PerBatch:
		text += " per batch entry"
	}
	return text
}
