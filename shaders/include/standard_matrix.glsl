// What the matrix products of standard attention on cooperative matrices share: standard_scores_matrix.comp,
// standard_product_matrix.comp and standard_backward_product_matrix.comp. Each is a plain tiled product C = A B with fp32 accumulators. Of
// fragments only what the extension promises is used (load, store, multiply-add, conversion), so any shape works and nothing needs to be
// known of their layout.
//
// A workgroup has WR x WC subgroups, each of which owns FR x FC fragments of C, M x N elements each. What is staged in shared memory
// lies there in units of 16 bytes, rows at an odd pitch so that the rows of a fragment lie in different banks; what comes next is
// fetched into registers meanwhile. Where all of it lies within the tensors, it is read from places that are worked out once; only
// else are places clamped and what is beyond the edge replaced, which takes as many instructions as the products themselves. C leaves
// through shared memory, a strip of half a subgroup's rows at a time, so that memory is written in units of 16 bytes, rows in one
// piece; as 16-bit elements where the device has such accumulators, else (WIDE) as fp32, converted on the way out. bf16 is always
// WIDE: accumulators of that type need not exist.
//
// Needs DTYPE (1 fp16, 2 bf16), and WIDE defined or not. Specialization constants:
//
//   0 WG  workgroup size = WR WC subgroup size     1 M, 2 N, 3 K  fragment; multiples of 8
//   4 WR, 10 WC  subgroups down and across         6 FR, 7 FC  fragments of a subgroup down and across
//   5 and 58  include/mask.glsl     11 ALIGNED  inputs (and O) can be read and written in units of 16 bytes
//   12 SHARED  length of shared memory in units
//   13 ACCUMULATE  the result is added to what is there
//   14 DROPOUT  the matrix is P, of which weights with their sign bits set are dropped (standard_softmax.comp)
// The last two are not for scores, whose WC is 1.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

#include "count.glsl"

#if DTYPE == 2
#extension GL_EXT_bfloat16 : require
#define ELEM bfloat16_t
#define ELEMENT_OF(bits) uintBitsToBFloat16EXT(bits)
#ifndef WIDE
#define WIDE
#endif
// Rounded to nearest, ties to even, by hand: a driver's conversion may cut off (NVIDIA's does). A NaN stays one.
uint bf16_bits(float x) { const uint u = floatBitsToUint(x); return isnan(x) ? 0x7fc0u : u + 0x7fffu + (u >> 16 & 1u) >> 16; }
uint pack2(vec2 x) { return bf16_bits(x.x) | bf16_bits(x.y) << 16; }
vec2 unpack2(uint u) { return uintBitsToFloat(uvec2(u << 16, u & 0xffff0000u)); }
#else
#define ELEM float16_t
#define ELEMENT_OF(bits) uint16BitsToFloat16(bits)
uint pack2(vec2 x) { return packFloat2x16(f16vec2(x)); }
vec2 unpack2(uint u) { return unpackHalf2x16(u); }
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint M = 16;
layout(constant_id = 2) const uint N = 16;
layout(constant_id = 3) const uint K = 16;
layout(constant_id = 4) const uint WR = 1;
layout(constant_id = 10) const uint WC = 1;
layout(constant_id = 6) const uint FR = 1;
layout(constant_id = 7) const uint FC = 1;
layout(constant_id = 11) const bool ALIGNED = false;
layout(constant_id = 12) const uint SHARED = 1024;
layout(constant_id = 13) const bool ACCUMULATE = false;
layout(constant_id = 14) const bool DROPOUT = false;

shared uvec4 tile[SHARED];

const uint SG = WG / (WR * WC);  // invocations of a subgroup
const uint BR = WR * FR * M;     // rows of the workgroup's tile of C
const uint BC = WC * FC * N;     // columns

#define UNIT 8                   // elements of 16 bytes
#define ROW_MAJOR gl_CooperativeMatrixLayoutRowMajor
#define COLUMN_MAJOR gl_CooperativeMatrixLayoutColumnMajor
#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define LEFT coopmat<ELEM, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define RIGHT coopmat<ELEM, gl_ScopeSubgroup, K, N, gl_MatrixUseB>

// A strip of C in shared memory, in units of 16 bytes.
#ifdef WIDE
#define STRIP_UNIT 4             // elements in a unit
#define TO_STRIP(fragment) (fragment)
#else
#define STRIP_UNIT 8
#define TO_STRIP(fragment) coopmat<float16_t, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(fragment)
#endif
const uint STRIP_PITCH = FC * N / STRIP_UNIT | 1;
const uint STRIP_WIDTH = FC * N / UNIT;               // units of the result in a row
const uint UPPER = (FR + 1) / 2, LOWER = FR - UPPER;  // rows of fragments that leave together
const uint UPPER_AT = 0, LOWER_AT = UPPER;            // the first of them
const uint STRIP = UPPER * M * STRIP_PITCH;

uint tid;                  // invocation of the workgroup
uint my_row;               // row of the workgroup's tile at which the subgroup's piece of C begins
ACCUMULATOR acc[FR * FC];  // the piece

uint pair(uint16_t low, uint16_t high) { return uint(low) | uint(high) << 16; }
// Eight elements of tensor T at b, in 16 bits each, from its view of single elements; zero from column `width` on. real: see count.glsl.
// (Macros: a function cannot take a storage buffer.)
#define AT(T, b, c, width, real) ((c) < (width) ? LOADED_IF(T, 2, real, T##1[(b) + (c)]) : uint16_t(0))
#define PAIR(T, b, c, width, real) pair(AT(T, b, c, width, real), AT(T, b, (c) + 1, width, real))
#define GATHER(T, b, c, width, real) \
  uvec4(PAIR(T, b, c, width, real), PAIR(T, b, (c) + 2, width, real), PAIR(T, b, (c) + 4, width, real), PAIR(T, b, (c) + 6, width, real))

// Eight elements and eight more, element by element.
uvec4 add8(uvec4 a, uvec4 b) {
  return uvec4(pack2(unpack2(a.x) + unpack2(b.x)), pack2(unpack2(a.y) + unpack2(b.y)),
    pack2(unpack2(a.z) + unpack2(b.z)), pack2(unpack2(a.w) + unpack2(b.w)));
}
// Eight weights without those that are dropped. Done on their way from registers into shared memory: at the load it would wait for memory.
uvec4 kept8(uvec4 x) { return DROPOUT ? x & ~((x >> 15 & 0x10001u) * 0xffffu) : x; }

// Turn u of this invocation takes unit x of UNITS; what lies past their end is nobody's. (A macro: a function cannot be a loop's header.)
#define EACH(TURNS, UNITS, u, x) \
  [[unroll]] for (uint u = 0, x = tid; u < TURNS; ++u, x += WG) if ((UNITS) % WG == 0 || x < (UNITS))

#define MEET { subgroupMemoryBarrierShared(); subgroupBarrier(); }
