// Element types of the matrix kernels (fp16, or bf16 with DTYPE_BF16), conversions to them by pairs, and fragments.
//
// Needs FM, FN and FK. bf16 is the upper half of fp32, rounded to nearest by hand: drivers convert by cutting off (seen on NVIDIA), a bias
// of half a unit.

#ifdef DTYPE_BF16
#extension GL_EXT_bfloat16 : require
#define T16 bfloat16_t
#define BF16_PAIR(x, y) ((floatBitsToUint(x) + 0x8000u >> 16) | (floatBitsToUint(y) + 0x8000u & 0xffff0000u))
// Output: a NaN stays one, though the carry would make a zero of some. Forward's weights need not care: l is NaN as well then.
uint bf16_bits(float x) { return isnan(x) ? 0x7fc0u : floatBitsToUint(x) + 0x8000u >> 16; }
#define PAIR(x, y) (bf16_bits(x) | bf16_bits(y) << 16)
#define HALVES(a, b, lo, hi) { const u16vec2 h_ = unpack16(BF16_PAIR(a, b)); lo = uintBitsToBFloat16EXT(h_.x); hi = uintBitsToBFloat16EXT(h_.y); }
#define HALVES_OR_NAN(a, b, lo, hi) { const u16vec2 h_ = unpack16(PAIR(a, b)); lo = uintBitsToBFloat16EXT(h_.x); hi = uintBitsToBFloat16EXT(h_.y); }
#define ELEMENT_BITS(x) uint16_t(bf16_bits(x))
#define UNPAIR(u) uintBitsToFloat(uvec2((u) << 16, (u) & 0xffff0000u))
#else
#define T16 float16_t
#define PAIR(x, y) packFloat2x16(f16vec2(x, y))
#define HALVES(a, b, lo, hi) { lo = float16_t(a); hi = float16_t(b); }
#define HALVES_OR_NAN(a, b, lo, hi) HALVES(a, b, lo, hi)
#define ELEMENT_BITS(x) float16BitsToUint16(float16_t(x))
#define UNPAIR(u) unpackHalf2x16(u)
#endif

#define ACC coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
#define FRAG_A coopmat<T16, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define FRAG_B coopmat<T16, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>
#define BY_ROW gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMN gl_CooperativeMatrixLayoutColumnMajor
#define MEET { subgroupMemoryBarrierShared(); subgroupBarrier(); }

float infinity() { return uintBitsToFloat(0x7f800000u); }
