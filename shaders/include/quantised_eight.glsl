// Eight quantised numbers of a row as the words that have them, and later the numbers: a lane asks for words a tile before it stages them,
// and nothing waits for what is on its way. Included once per tensor, with QUANTISED, QUANTISED_TYPE and QUANTISED_COLS as in
// quantised_rows.glsl, and after it.
//
//   T_ask(at, c)            words of numbers 8 c to 8 c + 7 of the row at element `at`: three in which they lie, and that of d
//   T_ask_head(at, c)       the words behind d's, of types that have more before their numbers: m, fifth bits
//   T_is_odd(at, c)         whether their block begins in the middle of a word, which says what the words are
//   T_eight(...)            the numbers as elements; without d, which T_scale gives, if `whole`
//
// q8_0 has eight bytes of its own; of other blocks eight columns are halves of eight bytes. Floats of a byte are two words.
//
// In shared memory of every four columns the second and the third are in each other's place: bytes 0 and 2 of a word are a pair of halves
// by one mask. in_k_order puts columns of Q where those of K are, and from_v_order those of O where they belong.

#ifndef QUANTISED_EIGHT_GLSL
#define QUANTISED_EIGHT_GLSL
// 2. A bound that the compiler knew would put the loop into the module twice, at each of a dozen places.
const uint FOURS_OF_EIGHT = PAGE_ROWS == 0 ? 1 : 2;
uvec4 in_k_order(uvec4 x) {
  if (K_TYPE == NATIVE) return x;
  return uvec4(x.x & 0xffffu | x.y << 16, x.x >> 16 | x.y & 0xffff0000u, x.z & 0xffffu | x.w << 16, x.z >> 16 | x.w & 0xffff0000u);
}
vec4 from_v_order(vec4 x) { return V_TYPE == NATIVE ? x : x.xzyw; }

// Four floats of a byte as elements.
#ifdef DTYPE_BF16
uvec2 float8_pairs(uint type, uint w) { const vec4 x = FROM_FLOAT8(type, w); return uvec2(PAIR(x.x, x.z), PAIR(x.y, x.w)); }
#else
// Two at a time. An e5m2 is the upper byte of an fp16. e4m3 goes as in quantised.glsl: x = 2^(e-7) (1 + m/8), of e = 0 it should be
// 2 x - 2^-6; and 0x7f is no number.
uvec2 float8_pairs(uint type, uint w) {
  if (type == E5M2) return uvec2((w & 0xff00ffu) << 8, w & 0xff00ff00u);
  const uvec2 two = uvec2(w, w >> 8), magnitude = two & 0x7f007fu, none = ((magnitude + 0x10001u) & 0x800080u) * 0xf8u;
  uvec2 bits;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const f16vec2 x = unpackFloat2x16((magnitude[i] << 7) + 0x20002000u);
    bits[i] = packFloat2x16(min(x, fma(x, f16vec2(2), f16vec2(-0.015625))));
  }
  return bits | none | (two & 0x800080u) << 8;
}
#endif
#endif

uvec4 PASTE(QUANTISED, _ask)(uint at, uint c) {
  if (IS_FLOAT8(QUANTISED_TYPE)) return uvec4(PASTE(QUANTISED, _bytes)(at, 8 * c), PASTE(QUANTISED, _bytes)(at, 8 * c + 4), 0, 0);
  const uint block = PASTE(QUANTISED, _block)(at + 8 * c), wide = QUANTISED_TYPE == Q8_0 ? 32 : 16;
  const uint first = block + HEAD_OF(QUANTISED_TYPE) + 8 * c % wide / 2;
  return uvec4(PASTE(QUANTISED, _words)[first / 2], PASTE(QUANTISED, _words)[first / 2 + 1],
    PASTE(QUANTISED, _words)[(first + 3) / 2], PASTE(QUANTISED, _words)[block / 2]);   // the last once more where they begin with a word
}
uvec2 PASTE(QUANTISED, _ask_head)(uint at, uint c) {
  const uint block = PASTE(QUANTISED, _block)(at + 8 * c), end = (block + HEAD_OF(QUANTISED_TYPE) - 1) / 2;
  return uvec2(PASTE(QUANTISED, _words)[min(block / 2 + 1, end)], PASTE(QUANTISED, _words)[end]);
}
bool PASTE(QUANTISED, _is_odd)(uint at, uint c) {
  return (PASTE(QUANTISED, _block)(at + 8 * c) & 1u) != 0;
}
float PASTE(QUANTISED, _scale)(uvec4 words, bool odd) { return block_scale(words.w, odd); }
float PASTE(QUANTISED, _least)(uvec4 words, uvec2 head, bool odd) {
  if (!HAS_LEAST(QUANTISED_TYPE)) return 0;
  return odd ? block_scale(head.x, false) : block_scale(words.w, true);
}
uint PASTE(QUANTISED, _fifths)(uvec4 words, uvec2 head, bool odd) {
  if (QUANTISED_TYPE == Q5_0) return odd ? head.x : across(words.w, head.x);
  return QUANTISED_TYPE == Q5_1 ? odd ? across(head.x, head.y) : head.x : 0;
}
// The word of bytes 4 h to 4 h + 3 of eight numbers, less their fifth bits.
uint PASTE(QUANTISED, _four_bytes)(uvec4 words, uint c, bool odd, uint h) {
  const bool whole = HEAD_OF(QUANTISED_TYPE) % 2 == 0 ? !odd : odd;   // they begin with a word
  const uint lower = h == 0 ? words.x : words.y, upper = h == 0 ? words.y : words.z, w = whole ? lower : across(lower, upper);
  return QUANTISED_TYPE == Q8_0 ? w : lower_four(w >> (8 * c % 32 < 16 ? 0 : 4));
}
// Numbers 8 c + 4 h to 8 c + 4 h + 3, without d and m.
vec4 PASTE(QUANTISED, _of_words)(uvec4 words, uvec2 head, uint c, bool odd, uint h) {
  const uint four = PASTE(QUANTISED, _four_bytes)(words, c, odd, h);
  if (QUANTISED_TYPE == Q8_0) return signed_bytes(four);
  if (QUANTISED_TYPE == Q4_0) return whole_bytes(four, 8);
  return block_numbers(QUANTISED_TYPE, four, PASTE(QUANTISED, _fifths)(words, head, odd) >> 8 * c % 32 + 4 * h);
}
// As elements, rounded to nearest.
uvec2 PASTE(QUANTISED, _pairs)(uvec4 words, uvec2 head, uint c, bool odd, uint h, bool whole) {
  if (IS_FLOAT8(QUANTISED_TYPE)) return float8_pairs(QUANTISED_TYPE, h == 0 ? words.x : words.y);
#ifdef DTYPE_BF16
  vec4 x = PASTE(QUANTISED, _of_words)(words, head, c, odd, h);
  if (!whole) x = fma(vec4(PASTE(QUANTISED, _scale)(words, odd)), x, vec4(PASTE(QUANTISED, _least)(words, head, odd)));
  return uvec2(PAIR(x.x, x.z), PAIR(x.y, x.w));
#else
  f16vec2 even, uneven;
  if (QUANTISED_TYPE == IQ4_NL) {
    const vec4 x = PASTE(QUANTISED, _of_words)(words, head, c, odd, h);
    even = f16vec2(x.x, x.z); uneven = f16vec2(x.y, x.w);
  } else {
    uint four = PASTE(QUANTISED, _four_bytes)(words, c, odd, h);
    if (QUANTISED_TYPE == Q8_0) four ^= 0x80808080u;
    if (HAS_FIFTHS(QUANTISED_TYPE)) four |= fifths_of(PASTE(QUANTISED, _fifths)(words, head, odd) >> 8 * c % 32 + 4 * h);
    even = unpackFloat2x16(four & 0xff00ffu | 0x64006400u) - float16_t(MORE_OF(QUANTISED_TYPE));
    uneven = unpackFloat2x16(four >> 8 & 0xff00ffu | 0x64006400u) - float16_t(MORE_OF(QUANTISED_TYPE));
  }
  if (!whole) {
    const f16vec2 d = f16vec2(PASTE(QUANTISED, _scale)(words, odd)), m = f16vec2(PASTE(QUANTISED, _least)(words, head, odd));
    if (HAS_LEAST(QUANTISED_TYPE)) { even = fma(even, d, m); uneven = fma(uneven, d, m); }
    else { even *= d; uneven *= d; }
  }
  return uvec2(packFloat2x16(even), packFloat2x16(uneven));
#endif
}
uvec4 PASTE(QUANTISED, _eight)(uvec4 words, uvec2 head, uint c, bool odd, bool whole) {
  uvec4 eight = uvec4(0);
  [[unroll]] for (uint h = 0; h < FOURS_OF_EIGHT; ++h) {
    const uvec2 two = PASTE(QUANTISED, _pairs)(words, head, c, odd, h, whole);
    eight[2 * h] = two.x; eight[2 * h + 1] = two.y;
  }
  return eight;
}

#undef QUANTISED
#undef QUANTISED_TYPE
#undef QUANTISED_COLS
