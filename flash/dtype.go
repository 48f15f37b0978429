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
	// Q8_0, Q4_0 and what follows are of keys and values in caches alone (Problem.KeyType and ValueType). Q8_0 and Q4_0 are blocks of 32
	// elements of a row in ggml's layout, to the bit: an fp16 scale d and 32 signed bytes q, for d·q, of 34 bytes together; d and 16
	// bytes, for d·(q−8), element j in the low half of byte j and j+16 in the high one, of 18. Rows are whole blocks. Upload quantises as
	// ggml does: d = max|x|/127 and q = x/d to the nearest, halves away from zero; d = m/−8 where m is the element of largest magnitude,
	// with its sign. Attention is that over the numbers d·q: the scalar tier computes with them exactly, kernels on matrices round each to
	// DType first, as they would were K and V stored in that.
	Q8_0
	Q4_0
	// F8E4M3 is fp8 e4m3 without infinities (Micikevicius et al., FP8 Formats for Deep Learning, 2022, table 1), of which KeyScales and
	// ValueScales are the scales. Upload rounds to nearest even, and takes what is beyond ±448 to that.
	F8E4M3
	// Q4_1, Q5_0, Q5_1 and IQ4_NL are more of ggml's blocks of 32, to the bit, with halves of bytes as of Q4_0 and, of Q5, a word before
	// them whose bit j is the fifth of q_j. Attention is over the numbers that stand here, as of Q8_0:
	//
	//	Q4_1    fp16 d and m, 16 bytes: 20         d·q + m       m = min x, d = (max x − m)/15, q = (x−m)/d to the nearest, a half up
	//	Q5_0    fp16 d, the word, 16 bytes: 22     d·(q−16)      as Q4_0, d = m/−16
	//	Q5_1    fp16 d and m, the word, …: 24      d·q + m       as Q4_1, d = (max x − m)/31
	//	IQ4_NL  fp16 d, 16 bytes: 18               d·t[q]        t = −127 −104 −83 −65 −49 −35 −22 −10 1 13 25 38 53 69 89 113
	//
	// To IQ4_NL Upload quantises as ggml's reference does, which searches no further: the element of largest magnitude becomes −127, the
	// others the nearest in t, the larger of two; then d = Σ x²·t·x / Σ x²·t·t, sums in fp32 from the first element to the last. Blocks of
	// elements that are all below 10⁻¹⁵ are bytes of 0; ggml leaves what the block before had in them, beside a d of 0.
	Q4_1
	Q5_0
	Q5_1
	IQ4_NL
	// F8E5M2 is fp8 e5m2, the upper byte of an F16 (table 1 there), with scales as of F8E4M3. It has infinities, which are read as such;
	// Upload makes none: it rounds to nearest even, and takes what is beyond ±57344, infinities too, to that. NaNs stay NaNs.
	F8E5M2
)

// Size gives the bytes of one element, 0 for an unknown type, for Bit and for blocks.
func (t DType) Size() int { return attn.DType(t).Size() }

// Bytes gives the bytes of n elements one after the other, those of bits and blocks rounded up to whole ones; 0 for an unknown type.
func (t DType) Bytes(n int) int { return attn.DType(t).Bytes(n) }

// String gives the name used in result files: float32, float16, bfloat16, bool, int32, bit, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl,
// fp8_e4m3, fp8_e5m2.
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
