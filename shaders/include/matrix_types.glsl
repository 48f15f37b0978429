// Element types of the matrix kernels (fp16, or bf16 with DTYPE_BF16), conversions to them by pairs, views of tensors, and fragments.
//
// Needs FM, FN and FK. bf16 is the upper half of fp32. Outputs are rounded to nearest by hand: drivers convert by cutting off (seen on
// NVIDIA), a bias of half a unit. Operands of a product are cut off on purpose (HALVES), two instructions for a pair instead of six:
// cutting makes a number smaller by a factor whose mean, over mantissas that are distributed as logarithms are, is 1 / CUT. Who sums such
// operands multiplies the sum by CUT, and is left with errors that are hardly larger than those of rounding.

#ifdef DTYPE_BF16
#extension GL_EXT_bfloat16 : require
#define T16 bfloat16_t
const float CUT = 1.0 + 0.7213475 / 256.0;   // half a unit of the last place, 2^-8, times the mean of 1/mantissa, 1 / (2 log 2)
// A NaN stays one, though the carry would make a zero of some.
uint bf16_bits(float x) { return isnan(x) ? 0x7fc0u : floatBitsToUint(x) + 0x8000u >> 16; }
#define PAIR(x, y) (bf16_bits(x) | bf16_bits(y) << 16)
#define CUT_OFF(x) uintBitsToBFloat16EXT(unpack16(floatBitsToUint(x)).y)
#define HALVES(a, b, lo, hi) { lo = CUT_OFF(a); hi = CUT_OFF(b); }
#define ELEMENT_BITS(x) uint16_t(bf16_bits(x))
#define UNPAIR(u) uintBitsToFloat(uvec2((u) << 16, (u) & 0xffff0000u))
#else
#define T16 float16_t
const float CUT = 1.0;
#define PAIR(x, y) packFloat2x16(f16vec2(x, y))
#define HALVES(a, b, lo, hi) { lo = float16_t(a); hi = float16_t(b); }
#define ELEMENT_BITS(x) float16BitsToUint16(float16_t(x))
#define UNPAIR(u) unpackHalf2x16(u)
#endif

// Two views of a tensor: 16 bytes (t##4), or one element as its bits (t##16); of fp32 tensors (SPLIT) as numbers (t##4, t##1).
#ifdef SPLIT
#define VIEWS(T, t, at, access)                                 \
  layout(binding = at) access buffer T##4##_ { vec4 t##4[]; };  \
  layout(binding = at) access buffer T##1##_ { float t##1[]; };
#else
#define VIEWS(T, t, at, access)                                        \
  layout(binding = at) access buffer T##4##_ { uvec4 t##4[]; };        \
  layout(binding = at) access buffer T##16##_ { uint16_t t##16[]; };
#endif

#define ACC coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
#define FRAG_A coopmat<T16, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define FRAG_B coopmat<T16, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>
#define BY_ROW gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMN gl_CooperativeMatrixLayoutColumnMajor
#define MEET { subgroupMemoryBarrierShared(); subgroupBarrier(); }

float infinity() { return uintBitsToFloat(0x7f800000u); }
