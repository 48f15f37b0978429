package flash

import (
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
)

// DType is the storage type of a tensor's elements. Arithmetic is fp32 whatever the storage type.
type DType uint8

const (
	F32   DType = iota // IEEE binary32
	F16                // IEEE binary16
	BF16               // bfloat16: the upper half of a binary32
	Bool               // a byte, 0 or not: for masks only
	Int32              // of tensors that score and mask functions capture, and of lengths and positions, alone
	// Bit is of masks alone: element j of a row is bit j%8 of its byte j/8, which is bit j%32 of little-endian word j/32 where the row
	// begins at a word, and what NumPy's packbits(…, axis=-1, bitorder="little") makes. Rows begin at bytes, so that strides between them
	// are multiples of 8; bits behind the last one of a row are never read.
	Bit
	// Q8_0, Q4_0 and F8E4M3 are of keys and values in caches alone (Problem.KeyType and ValueType). Q8_0 and Q4_0 are blocks of 32 elements
	// of a row in ggml's layout, to the bit: an fp16 scale d and 32 signed bytes q, for d·q, of 34 bytes together; d and 16 bytes, for
	// d·(q−8), element j in the low half of byte j and j+16 in the high one, of 18. Rows are whole blocks. Upload quantises as ggml does: d
	// = max|x|/127 and q = x/d to the nearest, halves away from zero; d = m/−8 where m is the element of largest magnitude, with its sign.
	// Attention is that over the numbers d·q: the scalar tier computes with them exactly, kernels on matrices round each to DType first, as
	// they would were K and V stored in that.
	Q8_0
	Q4_0
	// F8E4M3 is fp8 e4m3 without infinities (Micikevicius et al., FP8 Formats for Deep Learning, 2022, table 1), of which KeyScales and
	// ValueScales are the scales. Upload rounds to nearest even, and takes what is beyond ±448 to that.
	F8E4M3
)

// Size gives the bytes of one element, 0 for an unknown type and for Bit, Q8_0 and Q4_0.
func (t DType) Size() int { return attn.DType(t).Size() }

// Bytes gives the bytes of n elements one after the other, those of bits and blocks rounded up to whole ones; 0 for an unknown type.
func (t DType) Bytes(n int) int { return attn.DType(t).Bytes(n) }

// String gives the name used in result files: float32, float16, bfloat16, bool, int32, bit, q8_0, q4_0, fp8_e4m3.
func (t DType) String() string { return attn.DType(t).String() }

// ParseDType reads float32, f32, fp32, float16, f16, fp16, half, bfloat16, bf16.
func ParseDType(s string) (DType, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "float32", "f32", "fp32", "float":
		return F32, nil
	case "float16", "f16", "fp16", "half":
		return F16, nil
	case "bfloat16", "bf16":
		return BF16, nil
	}
	return 0, badArgument("dtype", s, "must be float32, float16 or bfloat16")
}

// Causal says which keys a query may attend to.
type Causal uint8

const (
	CausalNone        Causal = iota // every key
	CausalBottomRight               // key j for query i iff j ≤ i + Nk − Nq: the last query sees every key
	CausalTopLeft                   // key j for query i iff j ≤ i: the first query sees the first key
)

// String gives none, bottom-right or top-left.
func (c Causal) String() string { return attn.Causal(c).String() }
