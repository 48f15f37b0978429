// Keys and values of a byte or less a number, in builds for caches (CACHE), of the types that quantised_types.glsl lists (K_TYPE, V_TYPE).
// key_scale() and value_scale() are what K and V of a batch entry and head are multiplied by, where they are floats of a byte: kernels
// multiply scores and sums by them, which costs nothing a number.
//
// Blocks are read in words of 4 bytes: what is on the other side of a word's middle is shifted in. Offsets of such tensors count steps of
// 2 bytes (floats: bytes) and are no part of the element at which a row lies: block x begins offset + 17 x, or 9 x, steps from the
// binding's start.
//
// Whole numbers become floats by a mask and one sum, without a conversion, on which GPUs spend several times as long: a byte or half of one
// in the lower bits of a float of 2^23 is an integer there, and the fma that takes 2^23 away takes it down from its place in the byte too.
// Both are exact. Upper bytes of a word's halves go the same way, times 256; one shift a word brings its upper half down: 2 1/4
// instructions a number of q8_0, 2 1/8 of q4_0. Where a number has a fifth bit, four bits of the word of them go into four bytes by one
// product, and bytes into floats.
//
// k_four(at, col) and v_four give 4 numbers of the row at element `at`, from column col on, a multiple of 4, zero beyond the last
// (quantised_rows.glsl). Needs SCORE_AT, D, DV, ALIGNED and the arguments.

#ifndef QUANTISED_GLSL
#define QUANTISED_GLSL
#include "common.glsl"
#include "more.glsl"
#include "quantised_types.glsl"

layout(constant_id = 106) const uint K_TYPE = 0;
layout(constant_id = 107) const uint V_TYPE = 0;
layout(set = 0, binding = SCORE_AT + 5, std430) readonly buffer KeyScales_ { float key_scales[]; };
layout(set = 0, binding = SCORE_AT + 6, std430) readonly buffer ValueScales_ { float value_scales[]; };

float key_scale(uint b, uint kh) { return IS_FLOAT8(K_TYPE) ? key_scales[key_scales_off + b * key_heads() + kh] : 1.0; }
float value_scale(uint b, uint kh) { return IS_FLOAT8(V_TYPE) ? value_scales[value_scales_off + b * key_heads() + kh] : 1.0; }

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
// Four numbers of e5m2, likewise: x = 2^(e-15) (1 + m/4); of e = 0 it should be 2 x - 2^-14, and of e = 31 infinite or none.
vec4 e5m2(uint w) {
  const uvec4 bits = uvec4(w, w >> 8, w >> 16, w >> 24) & 0x7fu, none = 0x7f800000u | (bits & 3u) << 21;
  const vec4 x = uintBitsToFloat((bits << 21) + (112u << 23)), y = min(x, fma(x, vec4(2), vec4(-6.103515625e-5)));
  const uvec4 magnitude = mix(floatBitsToUint(y), none, greaterThan(bits, uvec4(0x7bu)));
  return uintBitsToFloat(magnitude | uvec4(w << 24, w << 16, w << 8, w) & 0x80000000u);
}
#define FROM_FLOAT8(type, w) ((type) == E5M2 ? e5m2(w) : e4m3(w))
// The four bytes of a word as whole numbers, less what is given, which is a constant.
vec4 whole_bytes(uint w, float less) {
  const uint upper = w >> 16;
  const vec4 x = uintBitsToFloat(uvec4(w & 0xffu, w & 0xff00u, upper & 0xffu, upper & 0xff00u) | 0x4b000000u);
  return fma(x, vec4(1, 1.0 / 256, 1, 1.0 / 256), -vec4(8388608 + less, 32768 + less, 8388608 + less, 32768 + less));
}
// The lower or the upper halves of a word's four bytes, as bytes.
uint lower_four(uint w) { return w & 0x0f0f0f0fu; }
uint upper_four(uint w) { return w >> 4 & 0x0f0f0f0fu; }
// The lowest four bits of a word as the fifth bits of four bytes: the product has bit i at 7 i + 4 + i and in places that nothing else is
// added to.
uint fifths_of(uint bits) { return (bits & 15u) * 0x02040810u & 0x10101010u; }
// iq4_nl: the signed byte that each of four bytes from 0 to 15 stands for.
uvec4 table_bytes(uint four) {
  const uvec4 q = uvec4(four, four >> 8, four >> 16, four >> 24) & 15u;
  const bvec4 second = notEqual(q & 4u, uvec4(0));
  const uvec4 word = mix(mix(uvec4(IQ4_A), uvec4(IQ4_B), second), mix(uvec4(IQ4_C), uvec4(IQ4_D), second), notEqual(q & 8u, uvec4(0)));
  return word >> (q & 3u) * 8u & 0xffu;
}
vec4 table_numbers(uint four) { return uintBitsToFloat(table_bytes(four) ^ 0x4b000080u) - (8388608 + 128); }
// Four numbers of a block without d and m: bytes from 0 to 15, and fifth bits, the lowest of which is the first number's.
vec4 block_numbers(uint type, uint four, uint fifths) {
  if (type == IQ4_NL) return table_numbers(four);
  if (type == Q5_0) return whole_bytes(four | fifths_of(fifths), 16);
  if (type == Q5_1) return whole_bytes(four | fifths_of(fifths), 0);
  return whole_bytes(four, 0);
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
