// Keys and values of a byte or less a number, in builds for caches (CACHE). K_TYPE and V_TYPE: 0 the storage type, or
//
//   1  q8_0  blocks of 34 bytes: fp16 d, 32 signed bytes q, for d q
//   2  q4_0  blocks of 18 bytes: fp16 d, 16 bytes, for d (q - 8): number j is the lower half of byte j, number j + 16 the upper one
//   3  fp8   e4m3, bytes; key_scale() and value_scale() are what K and V of a batch entry and head are multiplied by: kernels multiply
//            scores and sums by them, which costs nothing a number
//
// in ggml's layout (ggml-quants.c) and that of Micikevicius et al., "FP8 Formats for Deep Learning", 2022, table 1. Blocks lie at any
// multiple of 2 bytes, and are read in words of 4: what is on the other side of a word's middle is shifted in. Offsets of such tensors
// count steps of 2 bytes (fp8: bytes) and are no part of the element at which a row lies: block x begins offset + 17 x, or 9 x, steps from
// the binding's start.
//
// Whole numbers become floats by a mask and one sum, without a conversion, on which GPUs spend several times as long: a byte or half of one
// in the lower bits of a float of 2^23 is an integer there, and the fma that takes 2^23 away takes it down from its place in the byte too.
// Both are exact. Upper bytes of a word's halves go the same way, times 256; one shift a word brings its upper half down: 2 1/4
// instructions a number of q8_0, 2 1/8 of q4_0.
//
// k_four(at, col) and v_four give 4 numbers of the row at element `at`, from column col on, a multiple of 4, zero beyond the last
// (quantised_rows.glsl). Needs SCORE_AT, D, DV, ALIGNED and the arguments.

#ifndef QUANTISED_GLSL
#define QUANTISED_GLSL
#include "common.glsl"
#include "more.glsl"

layout(constant_id = 106) const uint K_TYPE = 0;
layout(constant_id = 107) const uint V_TYPE = 0;
#define NATIVE 0u
#define Q8_0 1u
#define Q4_0 2u
#define E4M3 3u
layout(set = 0, binding = SCORE_AT + 5, std430) readonly buffer KeyScales_ { float key_scales[]; };
layout(set = 0, binding = SCORE_AT + 6, std430) readonly buffer ValueScales_ { float value_scales[]; };

float key_scale(uint b, uint kh) { return K_TYPE == E4M3 ? key_scales[key_scales_off + b * key_heads() + kh] : 1.0; }
float value_scale(uint b, uint kh) { return V_TYPE == E4M3 ? value_scales[value_scales_off + b * key_heads() + kh] : 1.0; }

// The four bytes of a word as signed numbers: with the sign bit turned they are 128 more.
vec4 signed_bytes(uint w) {
  const uint upper = w >> 16;
  const uvec4 bytes = uvec4(w & 0xffu, w & 0xff00u, upper & 0xffu, upper & 0xff00u);
  const vec4 x = uintBitsToFloat(bytes ^ uvec4(0x4b000080u, 0x4b008000u, 0x4b000080u, 0x4b008000u));
  return fma(x, vec4(1, 1.0 / 256, 1, 1.0 / 256), -vec4(8388608 + 128, 32768 + 128, 8388608 + 128, 32768 + 128));
}
// The lower and the upper halves of a word's four bytes, less 8.
vec4 lower_halves(uint w) {
  const uint upper = w >> 16;
  const vec4 x = uintBitsToFloat(uvec4(w & 0xfu, w & 0xf00u, upper & 0xfu, upper & 0xf00u) | 0x4b000000u);
  return fma(x, vec4(1, 1.0 / 256, 1, 1.0 / 256), -vec4(8388608 + 8, 32768 + 8, 8388608 + 8, 32768 + 8));
}
vec4 upper_halves(uint w) {
  const uint upper = w >> 16;
  const vec4 x = uintBitsToFloat(uvec4(w & 0xf0u, w & 0xf000u, upper & 0xf0u, upper & 0xf000u) | 0x4b000000u);
  return fma(x, vec4(1.0 / 16, 1.0 / 4096, 1.0 / 16, 1.0 / 4096), -vec4(524288 + 8, 2048 + 8, 524288 + 8, 2048 + 8));
}
// Four numbers of e4m3. As exponent and mantissa of a float, x = 2^(e-7) (1 + m/8); of e = 0 it should be 2^-6 m/8 = 2 x - 2^-6, which is
// less than x there and nowhere else.
vec4 e4m3(uint w) {
  const uvec4 bits = uvec4(w, w >> 8, w >> 16, w >> 24) & 0x7fu;
  const vec4 x = uintBitsToFloat((bits << 20) + (120u << 23)), y = min(x, fma(x, vec4(2), vec4(-0.015625)));
  const vec4 magnitude = mix(y, vec4(uintBitsToFloat(0x7fc00000u)), equal(bits, uvec4(0x7fu)));
  return uintBitsToFloat(floatBitsToUint(magnitude) | uvec4(w << 24, w << 16, w << 8, w) & 0x80000000u);
}
// d of a block: half of a word.
float block_scale(uint word, bool upper) { return upper ? unpackHalf2x16(word).y : unpackHalf2x16(word).x; }
// Four bytes from the middle of one word to the middle of the next.
uint across(uint lower, uint upper) { return lower >> 16 | upper << 16; }

#define QUANTISED k
#define QUANTISED_TYPE K_TYPE
#define QUANTISED_COLS D
#define QUANTISED_AT 1
#include "quantised_rows.glsl"
#define QUANTISED v
#define QUANTISED_TYPE V_TYPE
#define QUANTISED_COLS DV
#define QUANTISED_AT 2
#include "quantised_rows.glsl"
#endif
