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
	// blocks of 32 in ggml's layout: fp16 d, 32 signed bytes q; element d·q. Of keys and values in caches alone, as all that follow
	Q8_0
	// blocks of 32 in ggml's layout: fp16 d, 16 bytes; element d·(q−8), of j in the low half of byte j, of j+16 in the high one
	Q4_0
	F8E4M3 // a byte: sign, 4 bits of exponent, 3 of mantissa; no infinities, 448 at most
	// blocks of 32 in ggml's layout, halves of bytes as of Q4_0, and of Q5 a word whose bit j is the highest bit of q of element j
	Q4_1   // fp16 d and m, 16 bytes; element d·q+m
	Q5_0   // fp16 d, the word, 16 bytes; element d·(q−16)
	Q5_1   // fp16 d and m, the word, 16 bytes; element d·q+m
	IQ4_NL // fp16 d, 16 bytes; element d·t[q] of a table t
	F8E5M2 // a byte: sign, 5 bits of exponent, 2 of mantissa, as the upper byte of an F16
)

// unit is how elements of a type lie: some of them in some bytes, where a row begins at a multiple of bytes.
type unit struct{ elements, bytes, align int }

var units = [...]unit{F32: {1, 4, 4}, F16: {1, 2, 2}, BF16: {1, 2, 2}, Bool: {1, 1, 1}, Int32: {1, 4, 4}, Bit: {8, 1, 1},
	Q8_0: {blockOf, 34, 2}, Q4_0: {blockOf, 18, 2}, Q4_1: {blockOf, 20, 2}, Q5_0: {blockOf, 22, 2}, Q5_1: {blockOf, 24, 2},
	IQ4_NL: {blockOf, 18, 2}, F8E4M3: {1, 1, 1}, F8E5M2: {1, 1, 1}}

func (t DType) unit() unit {
	if int(t) < len(units) {
		return units[t]
	}
	return unit{elements: 1}
}

// Bytes gives the bytes of n elements one after the other, 0 for an unknown type.
func (t DType) Bytes(n int) int {
	u := t.unit()
	return CeilDiv(n, u.elements) * u.bytes
}

// Pitch gives the elements from a row of n to the next where there is no more between them than there must be: rows begin at whole units.
func (t DType) Pitch(n int) int {
	u := t.unit()
	return CeilDiv(n, u.elements) * u.elements
}

// Size gives the bytes of one element, 0 for an unknown type and for those of which several share their bytes.
func (t DType) Size() int {
	if u := t.unit(); u.elements == 1 {
		return u.bytes
	}
	return 0
}

// Block is the number of elements that share a scale: 32 of blocks, 1 of others.
func (t DType) Block() int {
	if n := t.unit().elements; n == blockOf {
		return n
	}
	return 1
}

// HasLeast says whether blocks of the type have a least number beside their scale.
func HasLeast(t DType) bool { return t == Q4_1 || t == Q5_1 }

// Float8 says whether elements of the type are floats of a byte, which have scales in tensors of their own.
func (t DType) Float8() bool { return t == F8E4M3 || t == F8E5M2 }

// Quantised says whether elements of the type are numbers in a byte or less.
func (t DType) Quantised() bool { return t.Block() > 1 || t.Float8() }

// QuantisedTypes are all of them, as the messages about them name them.
func QuantisedTypes() []DType { return []DType{Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, F8E4M3, F8E5M2} }

const quantisedNames = "Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, F8E4M3 or F8E5M2"

// CheckStored checks the type of keys or values of so many columns in a cache, beside the type of q; the names are those of the arguments.
func CheckStored(name string, t, dtype DType, dimName string, dim int) error {
	if t != 0 && t != dtype && !t.Quantised() {
		return BadArgument(name, uint8(t), "must be 0 or DType, or "+quantisedNames)
	}
	if dim%t.Block() != 0 {
		return BadArgument(dimName, dim, "must be a multiple of %d, the elements of a block of %v", t.Block(), t)
	}
	return nil
}

// InCache is the name of a type that keys and values have in caches alone; "" of others, where they have that of q.
func (t DType) InCache() string {
	if !t.Quantised() {
		return ""
	}
	return t.String()
}

// String gives float32, float16, bfloat16, bool, int32, bit, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, fp8_e4m3 or fp8_e5m2.
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
	case Q8_0:
		return "q8_0"
	case Q4_0:
		return "q4_0"
	case F8E4M3:
		return "fp8_e4m3"
	case Q4_1:
		return "q4_1"
	case Q5_0:
		return "q5_0"
	case Q5_1:
		return "q5_1"
	case IQ4_NL:
		return "iq4_nl"
	case F8E5M2:
		return "fp8_e5m2"
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

// HeadsOf is the number of query heads where it says which of the masks is whose: where each batch entry has a mask for each head. Else it
// is 0.
func (b Blocks) HeadsOf(heads int) int {
	if b.PerHead && b.PerBatch {
		return heads
	}
	return 0
}

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
