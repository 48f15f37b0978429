// Rows that are quantised on their way into a cache: part of cache/append.comp. Arithmetic is fp32, each operation to the nearest, so that
// bytes are those of ggml (ggml-quants.c, quantize_row_q8_0_ref and those of the other types) and of fp8 after an IEEE division, on every
// device: what devices may round otherwise, quotients and what fp16 makes of denormals, is integer arithmetic here. A block of numbers
// below 2^-118 is one of zeros; where there is an m, one of numbers that are closer together is one of m. Types, and what lies where in a
// block, are in quantised_types.glsl. Of a block's numbers x:
//
//   q8_0          d = max|x| / 127, then x/d to the nearest, halves away from zero
//   q4_0, q5_0    d = largest / -8, or -16, where `largest` is the x of largest magnitude, the first of several, then x/d + 8, or 16, to
//                 the nearest from 0 to 15, or 31
//   q4_1, q5_1    m = min x, d = (max x - m) / 15, or 31, then (x - m)/d to the nearest: with m as it is, not as fp16 has it
//   iq4_nl        t the entry of the table that is nearest to -127 x / largest, of two the larger; then d = sum x^2 t x / sum x^2 t t,
//                 summed from the first number to the last
//   e4m3, e5m2    x / scale to nearest even, at most 448, or 57344
//
// Eight invocations have a block. Number l has columns 2l, 2l+1, 2l+16 and 2l+17: what it writes are halves of words of its own in all
// kinds of blocks, most of whose sizes do not let blocks begin at words. Largest numbers, or both ends, go through shared memory to one
// invocation a block, which makes the scale; fifth bits meet there too, and what iq4_nl adds up. Of floats an invocation has four columns,
// and changes words that it shares with others by atomic operations.
//
//   20 KEY_TYPE, 21 VALUE_TYPE: types, 0 plain

#include "quantised_types.glsl"
layout(constant_id = 20) const uint KEY_TYPE = 0;
layout(constant_id = 21) const uint VALUE_TYPE = 0;
// Not by ||, of which glslang 16.4 loses an operand in the size of an array.
const uint LEAST = KEY_TYPE == Q4_1 ? 1u : KEY_TYPE == Q5_1 ? 1u : VALUE_TYPE == Q4_1 ? 1u : VALUE_TYPE == Q5_1 ? 1u : 0u;
const uint SUMS = KEY_TYPE == IQ4_NL ? 1u : VALUE_TYPE == IQ4_NL ? 1u : 0u;

layout(set = 0, binding = 2, std430) writeonly buffer XHalves_ { uint16_t x_halves[]; };
layout(set = 0, binding = 3, std430) writeonly buffer YHalves_ { uint16_t y_halves[]; };
layout(set = 0, binding = 2, std430) buffer XWords_ { uint x_words[]; };
layout(set = 0, binding = 3, std430) buffer YWords_ { uint y_words[]; };
layout(set = 0, binding = 13, std430) readonly buffer KeyScales_ { float key_scales[]; };
layout(set = 0, binding = 14, std430) readonly buffer ValueScales_ { float value_scales[]; };

// Of an invocation's first two columns, and of the others, the largest numbers with their signs; or the least numbers, and the largest of
// all four. append_wide.glsl has the same memory for what it keeps of quads, of which there are twice or three times as many vectors.
const uint END_ROWS = 2u + LEAST, ENDS = WIDE ? END_ROWS * gl_WorkGroupSize.x : gl_WorkGroupSize.x;
shared vec4 ends[ENDS];
shared uvec2 block_scale[gl_WorkGroupSize.x]; // of a block: d in fp16, m in the upper half, and 1/d, bits of both
const uint EIGHTHS = gl_WorkGroupSize.x / 8u, SUMMED = SUMS * 4u * gl_WorkGroupSize.x + 1u;
shared float block_least[EIGHTHS];
shared uint block_fifths[EIGHTHS];
shared vec2 block_sums[SUMMED];   // of a block's 32 numbers: x^2 t x and x^2 t t

// a / b to nearest even where all three are normal: devices may be 2.5 units in the last place off. What the quotient of the mantissas is
// off is found exactly, modulo 2^32; no quotient of two lies in the middle between two.
float quotient(float a, float b) {
  const uint ua = floatBitsToUint(a), ub = floatBitsToUint(b), ea = ua >> 23 & 255u, eb = ub >> 23 & 255u;
  const uint ma = ua & 0x7fffffu | 0x800000u, mb = ub & 0x7fffffu | 0x800000u, less = ma < mb ? 1u : 0u;
  const int exponent = int(ea) - int(eb) + 127 - int(less);
  if (ea == 0u || ea == 255u || eb == 0u || eb == 255u || exponent < 1 || exponent > 254) return a / b;
  uint n = uint(float(ma) * (less != 0u ? 33554432.0 : 16777216.0) / float(mb)); // of 25 bits, some off
  int rest = int((ma << 24 + less) - n * mb);
  const int k = int(floor(float(rest) / float(mb)));
  n += uint(k);
  rest -= k * int(mb);
  if (rest < 0) n--;
  else if (rest >= int(mb)) n++;
  return uintBitsToFloat((ua ^ ub) & 0x80000000u | (uint(exponent) << 23) + ((n + 1u >> 1) - 0x800000u));
}

// a / n to nearest even, of an `a` not below 0 whose quotient is normal, by an odd n from 2^log to 2^(log+1), at most 127: long division of
// the mantissa, in two digits.
float by_odd(float a, uint n, uint log) {
  const uint u = floatBitsToUint(a), mantissa = u & 0x7fffffu | 0x800000u, less = mantissa < n << 23 - log ? 1u : 0u;
  const uint digit = log + 1u + less;
  if (u >= 0x7f800000u) return a;
  const uint upper = mantissa / n, rest = mantissa - n * upper, q = (upper << digit) + (rest << digit) / n; // of 25 bits
  return uintBitsToFloat(((u >> 23) - log - less << 23) + ((q + 1u >> 1) - 0x800000u));
}

// Bits of fp16, to nearest even.
uint half_bits(float x) {
  const uint u = floatBitsToUint(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a < 0x38800000u) return sign | uint(roundEven(abs(x) * 16777216.0)); // a multiple of 2^-24
  return sign | min((a + 0xfffu + (a >> 13 & 1u) >> 13) - (112u << 10), 0x7c00u);
}

// Bits of e4m3, to nearest even.
uint e4m3_bits(float x) {
  const uint u = floatBitsToUint(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7fu;
  if (a >= 0x43e00000u) return sign | 0x7eu;                            // 448
  if (a < 0x3c800000u) return sign | uint(roundEven(abs(x) * 512.0));   // a multiple of 2^-9
  return sign | (a + 0x7ffffu + (a >> 20 & 1u) >> 20) - (120u << 3);
}

// Bits of e5m2, to nearest even.
uint e5m2_bits(float x) {
  const uint u = floatBitsToUint(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7fu;
  if (a >= 0x47600000u) return sign | 0x7bu;                            // 57344
  if (a < 0x38800000u) return sign | uint(roundEven(abs(x) * 65536.0)); // a multiple of 2^-16
  return sign | (a + 0xfffffu + (a >> 21 & 1u) >> 21) - (112u << 2);
}
uint float8_bits(uint type, float x) { return type == E5M2 ? e5m2_bits(x) : e4m3_bits(x); }

float smaller(float a, float b) { return b < a ? b : a; }
float larger(float a, float b) { return abs(b) > abs(a) ? b : a; }

// Column c of keys or values as it goes into the cache.
float column(bool value, uint from, uint c) {
  if (value) return decode(v1[from + c]);
  const float x = decode(k1[from + c]);
  if (TURN == 0 || c >= R) return x;
  const bool first = INTERLEAVED ? (c & 1u) == 0u : c < R / 2;
  const uint other = INTERLEAVED ? c ^ 1u : first ? c + R / 2 : c - R / 2, a = min(c, other);
  const vec2 turn = turn_of(INTERLEAVED ? a / 2 : a);
  const float y = decode(k1[from + other]);
  return first ? first_of(turn, x, y) : second_of(turn, y, x);
}

uint row_from(bool value, uint h) {
  if (value) return (offsets >> 8 & 255u) + from_entry * v_sb + h * v_sh + from_row * v_sn;
  return (offsets & 255u) + from_entry * k_sb + h * k_sh + from_row * k_sn;
}
uint row_to(bool value, uint h) { // without the offset
  return value ? to_page * y_sb + h * y_sh + to_row * y_sn : to_page * x_sb + h * x_sh + to_row * x_sn;
}
uint offset_to(bool value) { return value ? offsets >> 24 : offsets >> 16 & 255u; }

void put_half(bool value, uint at, uint bits) {
  if (value) y_halves[at] = uint16_t(bits);
  else x_halves[at] = uint16_t(bits);
}

// x/d to the nearest integer, halves away from zero, as the bits of a byte. The largest number below a half, with the sign of x, is added:
// that takes what ends in a half or above to the next integer at least, and what ends below it not so far.
uint q8(float x, float inverse) {
  precise const float y = x * inverse;
  precise const float away = y + uintBitsToFloat(floatBitsToUint(y) & 0x80000000u | 0x3effffffu);
  return uint(int(away)) & 255u;
}
// x times a factor, and a half of steps more, as a whole number from 0 to `most`.
uint step_of(float x, float inverse, float middle, int most) {
  precise const float y = x * inverse;
  precise const float up = y + middle;
  return uint(clamp(int(up), 0, most));
}

// An entry of iq4_nl's table.
float table_entry(uint i) {
  const uint word = i < 8u ? i < 4u ? IQ4_A : IQ4_B : i < 12u ? IQ4_C : IQ4_D;
  return float(int(word << 24u - (i & 3u) * 8u) >> 24);
}
// The number of the nearest entry, of two the larger one; 0 in a block of nothing.
uint nearest_entry(float x, float inverse) {
  if (inverse == 0) return 0;
  precise const float y = x * inverse;
  uint i = 0;
  for (uint step = 8; step > 0; step >>= 1) if (y >= table_entry(i + step)) i += step;
  precise const float below = y - table_entry(i), above = table_entry(min(i + 1u, 15u)) - y;
  return i == 15u || below < above ? i : i + 1u;
}

// A number of a block whose least one, in blocks that have an m, and 1/d are given.
uint number_of(uint type, float x, float least, float inverse) {
  if (type == Q8_0) return q8(x, inverse);
  if (type == Q4_0) return step_of(x, inverse, 8.5, 15);
  if (type == Q5_0) return step_of(x, inverse, 16.5, 31);
  if (type == IQ4_NL) return nearest_entry(x, inverse);
  precise const float up = x - least;
  return step_of(up, inverse, 0.5, type == Q4_1 ? 15 : 31);
}

// Of a block whose number of largest magnitude is m, or whose numbers are from m to `most` where the type has a least one: d in fp16 and m
// above it, and the bits of 1/d. Of iq4_nl it is that of x/t, and d is its sign alone, which is what it comes to where x is small.
uvec2 scale_of(uint type, float m, float most) {
  if (HAS_LEAST(type)) {
    precise const float apart = most - m;
    uint bits = half_bits(m) << 16;
    float inverse = 0;
    if (apart >= 3.009265538105056e-36) {
      const float d = type == Q4_1 ? by_odd(apart, 15u, 3u) : by_odd(apart, 31u, 4u);
      bits |= half_bits(d);
      inverse = quotient(1.0, d);
    }
    return uvec2(bits, floatBitsToUint(inverse));
  }
  uint bits = type == Q8_0 ? 0 : ~floatBitsToUint(m) >> 16 & 0x8000u; // 0 / -8 is -0
  float inverse = 0;
  if (type == IQ4_NL) {
    if (abs(m) < 1e-15) bits = 0;
    else inverse = -quotient(1.0, by_odd(abs(m), 127u, 6u));
    if (m < 0) inverse = -inverse;
  } else if (abs(m) >= 3.009265538105056e-36) {
    const float d = type == Q8_0 ? by_odd(abs(m), 127u, 6u) : m * (type == Q4_0 ? -0.125 : -0.0625);
    bits = half_bits(d);
    inverse = quotient(1.0, d);
  }
  return uvec2(bits, floatBitsToUint(inverse));
}

// iq4_nl: x^2 t x and x^2 t t.
vec2 weighed(float x, uint number) {
  const float t = table_entry(number);
  precise const float weight = x * x;
  precise const float once = weight * t;
  precise const float above = once * x, below = once * t;
  return vec2(above, below);
}
// d in fp16, of a block of iq4_nl whose sums begin at `from`. Those of numbers below 2^-30 may be denormal, and d is 0 then, with the sign
// that scale_of gave it. No number, as x86 has it, where both sums are infinite.
uint summed_scale(uint from, float inverse, uint sign) {
  float above = 0, below = 0;
  for (uint i = 0; i < 32; i++) {
    precise const float a = above + block_sums[from + i].x, b = below + block_sums[from + i].y;
    above = a;
    below = b;
  }
  if (abs(inverse) > 1.36e11 || inverse == 0) return sign;   // 127 times 2^30
  const uint a = floatBitsToUint(above) & 0x7fffffffu, b = floatBitsToUint(below);
  if (a > 0x7f800000u || b >= 0x7f800000u) return 0xfe00u;
  if (a == 0x7f800000u) return sign | 0x7c00u;
  return half_bits(quotient(above, below));
}

// All invocations of the workgroup come here together.
void write_blocks(bool value, uint type, uint unit) {
  const uint quarter = (value ? DV : D) / 4, h = unit / quarter, block = unit % quarter / 8, l = unit % 8, lane = gl_LocalInvocationIndex;
  const bool mine = h < KEY_HEADS;
  vec4 x = vec4(0);
  if (mine) {
    const uint from = row_from(value, h), c = 32 * block + 2 * l;
    x = vec4(column(value, from, c), column(value, from, c + 1), column(value, from, c + 16), column(value, from, c + 17));
  }
  if (HAS_LEAST(type)) ends[lane] = vec4(smaller(x.x, x.y), smaller(x.z, x.w), max(max(x.x, x.y), max(x.z, x.w)), 0);
  else ends[lane] = vec4(larger(x.x, x.y), larger(x.z, x.w), 0, 0);
  barrier();
  if (lane < gl_WorkGroupSize.x / 8) {
    const vec4 first = ends[8 * lane];
    if (HAS_LEAST(type)) {
      vec3 m = first.xyz;
      for (uint i = 1; i < 8; i++) {
        const vec4 n = ends[8 * lane + i];
        m = vec3(smaller(m.x, n.x), smaller(m.y, n.y), max(m.z, n.z));
      }
      const float least = smaller(m.x, m.y);
      block_scale[lane] = scale_of(type, least, m.z);
      block_least[lane] = least;
    } else {
      float low = 0, high = 0;
      for (uint i = 0; i < 8; i++) {
        const vec4 m = ends[8 * lane + i];
        low = larger(low, m.x);
        high = larger(high, m.y);
      }
      block_scale[lane] = scale_of(type, larger(low, high), 0);
    }
    if (HAS_FIFTHS(type)) block_fifths[lane] = 0;
  }
  barrier();
  const uvec2 s = block_scale[lane / 8];
  const float inverse = uintBitsToFloat(s.y), least = HAS_LEAST(type) ? block_least[lane / 8] : 0;
  const uvec4 q = uvec4(number_of(type, x.x, least, inverse), number_of(type, x.y, least, inverse), number_of(type, x.z, least, inverse),
    number_of(type, x.w, least, inverse));
  uint d = s.x;
  if (HAS_FIFTHS(type)) {
    atomicOr(block_fifths[lane / 8], (q.x >> 4 | q.y >> 4 << 1 | q.z >> 4 << 16 | q.w >> 4 << 17) << 2 * l);
    barrier();
  }
  if (type == IQ4_NL) {
    const uint from = lane / 8 * 32;
    block_sums[from + 2 * l] = weighed(x.x, q.x);
    block_sums[from + 2 * l + 1] = weighed(x.y, q.y);
    block_sums[from + 2 * l + 16] = weighed(x.z, q.z);
    block_sums[from + 2 * l + 17] = weighed(x.w, q.w);
    barrier();
    if (l == 0) d = summed_scale(from, inverse, s.x);
  }
  if (!mine) return;
  const uint at = offset_to(value) + (row_to(value, h) / 32 + block) * STEPS_OF(type), numbers = at + HEAD_OF(type);
  if (l == 0) {
    put_half(value, at, d & 0xffffu);
    if (HAS_LEAST(type)) put_half(value, at + 1, d >> 16);
    if (HAS_FIFTHS(type)) {
      put_half(value, numbers - 2, block_fifths[lane / 8] & 0xffffu);
      put_half(value, numbers - 1, block_fifths[lane / 8] >> 16);
    }
  }
  if (type == Q8_0) {
    put_half(value, numbers + l, q.x | q.y << 8);
    put_half(value, numbers + 8 + l, q.z | q.w << 8);
    return;
  }
  const uvec4 lower = q & 15u;
  put_half(value, numbers + l, lower.x | lower.z << 4 | lower.y << 8 | lower.w << 12);
}

// Put those bits of a word where the mask has ones, and leave the others to other invocations.
void put_bits(bool value, uint at, uint mask, uint bits) {
  if (mask == 0xffffffffu) {
    if (value) y_words[at] = bits;
    else x_words[at] = bits;
  } else if (value) {
    atomicAnd(y_words[at], ~mask);
    atomicOr(y_words[at], bits);
  } else {
    atomicAnd(x_words[at], ~mask);
    atomicOr(x_words[at], bits);
  }
}

float scale_by(bool value, uint h) {
  const uint at = ((value ? scale_offsets >> 16 : scale_offsets >> 8) & 255u) + entry * KEY_HEADS + h;
  return value ? value_scales[at] : key_scales[at];
}

void write_bytes(bool value, uint type, uint unit) {
  const uint columns = value ? DV : D, fours = (columns + 3) / 4, h = unit / fours, c = unit % fours * 4, n = min(4, columns - c);
  if (h >= KEY_HEADS) return;
  const uint from = row_from(value, h);
  const float scale = scale_by(value, h);
  uint word = 0;
  for (uint i = 0; i < n; i++) word |= float8_bits(type, quotient(column(value, from, c + i), scale)) << 8 * i;
  const uint mask = n < 4 ? (1u << 8 * n) - 1u : 0xffffffffu, at = offset_to(value) + row_to(value, h) + c, shift = 8 * (at & 3u);
  put_bits(value, at / 4, mask << shift, word << shift);
  if (shift > 0 && mask >> 32 - shift != 0) put_bits(value, at / 4 + 1, mask >> 32 - shift, word >> 32 - shift);
}

void write_keys(uint unit) {
  if (KEY_TYPE == 0) move_keys(unit);
  else if (IS_FLOAT8(KEY_TYPE)) write_bytes(false, KEY_TYPE, unit);
  else write_blocks(false, KEY_TYPE, unit);
}

void write_values(uint unit) {
  if (VALUE_TYPE == 0) move_values(unit);
  else if (IS_FLOAT8(VALUE_TYPE)) write_bytes(true, VALUE_TYPE, unit);
  else write_blocks(true, VALUE_TYPE, unit);
}

// What steps are made of.
const uint KEY_UNITS = KEY_HEADS * (KEY_TYPE == 0 ? PAIRS : (D + 3) / 4);
const uint VALUE_UNITS = KEY_HEADS * (VALUE_TYPE == 0 ? (DV + 1) / 2 : (DV + 3) / 4);
