// Rows that are quantised on their way into a cache: part of cache/append.comp. Arithmetic is fp32, each operation to the nearest, so that
// bytes are those of ggml (ggml-quants.c, quantize_row_q8_0_ref and quantize_row_q4_0_ref) and of fp8 after an IEEE division, on every
// device: what devices may round otherwise, quotients and what fp16 makes of denormals, is integer arithmetic here. A block of numbers
// below 2^-118 is one of zeros.
//
//   1  q8_0   blocks of 32: d = max|x| / 127 in fp16, then bytes x/d to the nearest, halves away from zero
//   2  q4_0   blocks of 32: d = m / -8 in fp16 where m is the x of largest magnitude, the first of several, then x/d + 8 to the nearest
//             from 0 to 15;
//             byte j has x_j below and x_{j+16} above
//   3  e4m3   x / scale to nearest even, at most 448
//
// Eight invocations have a block. Number l has columns 2l, 2l+1, 2l+16 and 2l+17: what it writes are halves of words of its own in both
// kinds of block, whose sizes, 34 and 18 bytes, do not let blocks begin at words. Largest numbers go through shared memory to one
// invocation a block, which makes the scale. Of e4m3 an invocation has four columns, and changes words that it shares with others by atomic
// operations.
//
//   20 KEY_TYPE, 21 VALUE_TYPE: as above, 0 plain

layout(constant_id = 20) const uint KEY_TYPE = 0;
layout(constant_id = 21) const uint VALUE_TYPE = 0;
const uint Q8 = 1, E4M3 = 3;

layout(set = 0, binding = 2, std430) writeonly buffer XHalves_ { uint16_t x_halves[]; };
layout(set = 0, binding = 3, std430) writeonly buffer YHalves_ { uint16_t y_halves[]; };
layout(set = 0, binding = 2, std430) buffer XWords_ { uint x_words[]; };
layout(set = 0, binding = 3, std430) buffer YWords_ { uint y_words[]; };
layout(set = 0, binding = 13, std430) readonly buffer KeyScales_ { float key_scales[]; };
layout(set = 0, binding = 14, std430) readonly buffer ValueScales_ { float value_scales[]; };

shared vec2 largest[gl_WorkGroupSize.x];      // of an invocation's first two columns, and of the others, with their signs
shared uvec2 block_scale[gl_WorkGroupSize.x]; // of a block: d in fp16, and 1/d, bits of both

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

// a / 127 to nearest even, of an `a` not below 0 whose quotient is normal: long division of the mantissa, in two digits.
float by127(float a) {
  const uint u = floatBitsToUint(a), mantissa = u & 0x7fffffu | 0x800000u, less = mantissa < 127u << 17 ? 1u : 0u, digit = 7u + less;
  if (u >= 0x7f800000u) return a;
  const uint upper = mantissa / 127u, rest = mantissa - 127u * upper, n = (upper << digit) + (rest << digit) / 127u; // of 25 bits
  return uintBitsToFloat(((u >> 23) - 6u - less << 23) + ((n + 1u >> 1) - 0x800000u));
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
uint q4(float x, float inverse) {
  precise const float y = x * inverse;
  precise const float up = y + 8.5;
  return uint(clamp(int(up), 0, 15));
}

// Of a block whose number of largest magnitude is m: d in fp16, and the bits of 1/d.
uvec2 scale_of(uint type, float m) {
  uint bits = type == Q8 ? 0 : ~floatBitsToUint(m) >> 16 & 0x8000u; // 0 / -8 is -0
  float inverse = 0;
  if (abs(m) >= 3.009265538105056e-36) {
    const float d = type == Q8 ? by127(abs(m)) : m * -0.125;
    bits = half_bits(d);
    inverse = quotient(1.0, d);
  }
  return uvec2(bits, floatBitsToUint(inverse));
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
  largest[lane] = vec2(larger(x.x, x.y), larger(x.z, x.w));
  barrier();
  if (lane < gl_WorkGroupSize.x / 8) {
    float low = 0, high = 0;
    for (uint i = 0; i < 8; i++) {
      const vec2 m = largest[8 * lane + i];
      low = larger(low, m.x);
      high = larger(high, m.y);
    }
    block_scale[lane] = scale_of(type, larger(low, high));
  }
  barrier();
  if (!mine) return;
  const uvec2 s = block_scale[lane / 8];
  const float inverse = uintBitsToFloat(s.y);
  const uint at = offset_to(value) + (row_to(value, h) / 32 + block) * (type == Q8 ? 17 : 9);
  if (l == 0) put_half(value, at, s.x);
  if (type == Q8) {
    put_half(value, at + 1 + l, q8(x.x, inverse) | q8(x.y, inverse) << 8);
    put_half(value, at + 9 + l, q8(x.z, inverse) | q8(x.w, inverse) << 8);
  } else put_half(value, at + 1 + l, q4(x.x, inverse) | q4(x.z, inverse) << 4 | q4(x.y, inverse) << 8 | q4(x.w, inverse) << 12);
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

void write_bytes(bool value, uint unit) {
  const uint columns = value ? DV : D, fours = (columns + 3) / 4, h = unit / fours, c = unit % fours * 4, n = min(4, columns - c);
  if (h >= KEY_HEADS) return;
  const uint from = row_from(value, h);
  const float scale = scale_by(value, h);
  uint word = 0;
  for (uint i = 0; i < n; i++) word |= e4m3_bits(quotient(column(value, from, c + i), scale)) << 8 * i;
  const uint mask = n < 4 ? (1u << 8 * n) - 1u : 0xffffffffu, at = offset_to(value) + row_to(value, h) + c, shift = 8 * (at & 3u);
  put_bits(value, at / 4, mask << shift, word << shift);
  if (shift > 0 && mask >> 32 - shift != 0) put_bits(value, at / 4 + 1, mask >> 32 - shift, word >> 32 - shift);
}

void write_keys(uint unit) {
  if (KEY_TYPE == 0) move_keys(unit);
  else if (KEY_TYPE == E4M3) write_bytes(false, unit);
  else write_blocks(false, KEY_TYPE, unit);
}

void write_values(uint unit) {
  if (VALUE_TYPE == 0) move_values(unit);
  else if (VALUE_TYPE == E4M3) write_bytes(true, unit);
  else write_blocks(true, VALUE_TYPE, unit);
}

// What steps are made of.
const uint KEY_UNITS = KEY_HEADS * (KEY_TYPE == 0 ? PAIRS : (D + 3) / 4);
const uint VALUE_UNITS = KEY_HEADS * (VALUE_TYPE == 0 ? (DV + 1) / 2 : (DV + 3) / 4);
