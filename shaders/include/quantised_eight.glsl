// Eight quantised numbers of a row as the words that have them, and later the numbers: a lane asks for words a tile before it stages them,
// and nothing waits for what is on its way. Included once per tensor, with QUANTISED, QUANTISED_TYPE and QUANTISED_COLS as in
// quantised_rows.glsl, and after it.
//
//   T_ask(at, c)            words of numbers 8 c to 8 c + 7 of the row at element `at`: three in which they lie, and that of d
//   T_ask_head(at, c)       the words behind d's, of types that have more before their numbers: m, fifth bits
//   T_is_odd(at, c)         whether their block begins in the middle of a word, which says what the words are
//   T_of_words(...)         four of the numbers, without d and m, and T_scale, T_least what these are
//
// q8_0 has eight bytes of its own; of other blocks eight columns are halves of eight bytes. Floats of a byte are two words, and become
// elements by float8_eight.

#ifndef QUANTISED_EIGHT_GLSL
#define QUANTISED_EIGHT_GLSL
// Eight floats of a byte as elements.
#ifdef DTYPE_BF16
uvec2 float8_pairs(uint type, uint w) { const vec4 x = FROM_FLOAT8(type, w); return uvec2(PAIR(x.x, x.y), PAIR(x.z, x.w)); }
#else
// Two at a time. An e5m2 is the upper byte of an fp16. e4m3 goes as in quantised.glsl: x = 2^(e-7) (1 + m/8), of e = 0 it should be
// 2 x - 2^-6; and 0x7f is no number.
uvec2 float8_pairs(uint type, uint w) {
  const uvec2 two = uvec2(w & 0xffu | (w & 0xff00u) << 8, w >> 16 & 0xffu | w >> 8 & 0xff0000u);
  if (type == E5M2) return two << 8;
  const uvec2 magnitude = two & 0x7f007fu, none = ((magnitude + 0x10001u) & 0x800080u) * 0xf8u;
  uvec2 bits;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const f16vec2 x = unpackFloat2x16((magnitude[i] << 7) + 0x20002000u);
    bits[i] = packFloat2x16(min(x, fma(x, f16vec2(2), f16vec2(-0.015625))));
  }
  return bits | none | (two & 0x800080u) << 8;
}
#endif
uvec4 float8_eight(uint type, uvec4 words) { return uvec4(float8_pairs(type, words.x), float8_pairs(type, words.y)); }
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
// Numbers 8 c + 4 h to 8 c + 4 h + 3.
vec4 PASTE(QUANTISED, _of_words)(uvec4 words, uvec2 head, uint c, bool odd, uint h) {
  const bool whole = HEAD_OF(QUANTISED_TYPE) % 2 == 0 ? !odd : odd;   // they begin with a word
  const uint lower = h == 0 ? words.x : words.y, upper = h == 0 ? words.y : words.z, w = whole ? lower : across(lower, upper);
  if (QUANTISED_TYPE == Q8_0) return signed_bytes(w);
  const uint four = lower_four(w >> (8 * c % 32 < 16 ? 0 : 4));
  if (QUANTISED_TYPE == Q4_0) return whole_bytes(four, 8);
  uint fifths = 0;
  if (QUANTISED_TYPE == Q5_0) fifths = odd ? head.x : across(words.w, head.x);
  if (QUANTISED_TYPE == Q5_1) fifths = odd ? across(head.x, head.y) : head.x;
  return block_numbers(QUANTISED_TYPE, four, fifths >> 8 * c % 32 + 4 * h);
}
float PASTE(QUANTISED, _scale)(uvec4 words, bool odd) { return block_scale(words.w, odd); }
float PASTE(QUANTISED, _least)(uvec4 words, uvec2 head, bool odd) {
  return odd ? block_scale(head.x, false) : block_scale(words.w, true);
}

#undef QUANTISED
#undef QUANTISED_TYPE
#undef QUANTISED_COLS
