// Quantised rows of K and V on their way to the fragments of matrix_decode.comp. Blocks of 34 or 18 bytes lie across every boundary that
// loads are made for, so a subgroup moves the rows of a batch as they are: neighbouring lanes neighbouring words, 8 bytes at a time where
// rows are multiples of 8, into registers while the batch before is computed with, then into a patch of shared memory of its own. From
// there a lane takes the words of its pieces. K and V have the patch in turns.
//
// A piece is eight numbers of a block of 32, and a scale:
//
//   q8_0  numbers 8 (p % 4) to + 7 of the block p/4     other blocks  4 (p % 4) to + 3, and those 16 behind     fp8  8 p to 8 p + 7
//
// of which number_column gives the column of number y. Four neighbouring lanes take a block, and the next of a lane is the next of the
// row: then it is known when the pipeline is made whether a block begins in the middle of a word, as every other one does. In fp16 whole
// numbers become elements two at a time: bits of a number as the lowest of the mantissa of 1024 make 1024 more, which a sum takes away,
// exactly; then they are multiplied by d, and m is added. Two numbers of a word that lie 16 bits apart are a pair, without moving any.
//
// Keys of blocks go without both where four or eight lanes share a row (K_AFTER): a fragment then has columns of one block alone, whose
// products are added up by themselves, with the numbers as they are, 1024 and more; they begin at what that makes too much, and the sum is
// multiplied by d in fp32. So scores are those of the numbers themselves, and three instructions make four numbers, not nine. What they
// begin at is 1024 times the sum of the block's columns of Q, less than 0, where there is an m; so that of m is had from there.
//
// Needs quantised.glsl, few_rows.glsl, k_key and v_key, page functions and T16.

layout(constant_id = 22) const uint PATCH = 1;     // words of a subgroup's patch: KEYS times the longer of the two rows
layout(constant_id = 23) const uint K_BYTES = 1;   // of a row
layout(constant_id = 24) const uint K_WIDE = 1;    // words that are loaded at a time; 0: rows begin anywhere, and words are put together
layout(constant_id = 25) const uint V_BYTES = 1;
layout(constant_id = 26) const uint V_WIDE = 1;
const uint K_UNIT_WORDS = K_WIDE == 0 ? 1 : K_WIDE, V_UNIT_WORDS = V_WIDE == 0 ? 1 : V_WIDE;
const uint K_UNITS = (K_BYTES + 4 * K_UNIT_WORDS - 1) / (4 * K_UNIT_WORDS);   // of a row
const uint V_UNITS = (V_BYTES + 4 * V_UNIT_WORDS - 1) / (4 * V_UNIT_WORDS);
const uint K_EACH = (KEYS * K_UNITS + SG - 1) / SG, V_EACH = (KEYS * V_UNITS + SG - 1) / SG;

layout(set = 0, binding = 1, std430) readonly buffer KeyPairs_ { uvec2 k_pairs[]; };
layout(set = 0, binding = 2, std430) readonly buffer ValuePairs_ { uvec2 v_pairs[]; };
shared uint patch_words[W * PATCH];
uint K_places[K_EACH], V_places[V_EACH];   // of a lane's units, from the first of a batch
uint K_units[K_EACH * K_UNIT_WORDS], V_units[V_EACH * V_UNIT_WORDS];

// Piece c of a lane that is number t of the `lanes` that share a row, each with `count` pieces; and whether its block is an odd one.
uint cached_piece(uint t, uint lanes, uint count, uint c) { return lanes % 4 == 0 ? (t / 4 * count + c) * 4 + t % 4 : t + lanes * c; }
bool is_odd(uint piece, uint lanes, uint count, uint c) {
  if (lanes == 4 || lanes % 4 == 0 && count % 2 == 0) return c % 2 != 0;
  return piece / 4 % 2 != 0;
}

uint pair_place(uint y) { return (y & 1u) << 1 | (y >> 1 & 1u); }   // bytes 0, 2, 1, 3 of a word
uint number_column(uint type, uint piece, uint y) {
  if (type == Q8_0) return 8 * piece + (y & 4u) + pair_place(y & 3u);
  if (IS_BLOCKS(type)) return piece / 4 * 32 + piece % 4 * 4 + pair_place(y & 3u) + 16 * (y / 4);
  return 8 * piece + y;
}

// Masks of the lower numbers of a word, which `nq == 0` hides from the compiler: with two constants a mask and what is set beside it are
// two instructions, with one they are one.
uint hidden(uint mask) { return nq == 0 ? 0 : mask; }
uint k_lower, v_lower, v_upper;
uint lower_of(uint type) { return hidden(type == Q4_0 || type == Q4_1 ? 0x000f000fu : 0x00ff00ffu); }
void hide_masks() { k_lower = lower_of(K_TYPE); v_lower = lower_of(V_TYPE); v_upper = hidden(0x00f000f0u); }

// What is set beside whole numbers, to make floats of them: bytes with a sign have that turned.
uint set_of(uint type) { return type == Q8_0 ? 0x64806480u : 0x64006400u; }
// A word of four numbers, from bytes whose lower halves are theirs and from their fifth bits.
uint number_word(uint halves, uint fifths) { return lower_four(halves) | fifths_of(fifths); }

#ifndef DTYPE_BF16
// Numbers of iq4_nl two at a time, by the halves of a byte: made of words they are eight instructions each, and take three times the time
// of the loads.
const uint PAIRS_LEN = K_TYPE == IQ4_NL ? 256 : V_TYPE == IQ4_NL ? 256 : 1;
shared uint table_pairs[PAIRS_LEN];
void fill_table() {
  if (PAIRS_LEN > 1) {
    for (uint x = gl_LocalInvocationIndex; x < PAIRS_LEN; x += WG) {
      const vec4 t = table_numbers(x & 15u | (x & 0xf0u) << 4);
      table_pairs[x] = packFloat2x16(f16vec2(t.x, t.y));
    }
    barrier();
  }
}
// Those of the lower halves of a word's bytes: 0 and 2, then 1 and 3.
void table_fours(uint halves, out f16vec2 even, out f16vec2 uneven) {
  const uint x = lower_four(halves), at = x | x >> 12;
  even = unpackFloat2x16(table_pairs[at & min(0xffu, PAIRS_LEN - 1)]);
  uneven = unpackFloat2x16(table_pairs[at >> 8 & min(0xffu, PAIRS_LEN - 1)]);
}
#else
void fill_table() {}
#endif

#ifdef DTYPE_BF16
#define NUMBER(x) uintBitsToBFloat16EXT(uint16_t(bf16_bits(x)))
#else
#define NUMBER(x) float16_t(x)
#endif
// The eight numbers of a piece of the row that begins at word `row` of the patch.
void piece_numbers(uint type, uint row, uint columns, uint lanes, uint count, uint piece, bool odd, uint low, uint high,
    out T16 x[8]) {
  [[unroll]] for (uint y = 0; y < 8; ++y) x[y] = T16(0.0);
  if (lanes * count * 8 != columns && piece >= columns / 8) return;
  if (IS_FLOAT8(type)) {
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      const uint word = patch_words[row + 2 * piece + h];
#ifndef DTYPE_BF16
      if (type == E5M2) {
        const f16vec2 two = unpackFloat2x16((word & 0xffu) << 8 | (word & 0xff00u) << 16), four =
          unpackFloat2x16(word >> 8 & 0xff00u | word & 0xff000000u);
        x[4 * h] = two.x; x[4 * h + 1] = two.y; x[4 * h + 2] = four.x; x[4 * h + 3] = four.y;
        continue;
      }
#endif
      const vec4 four = FROM_FLOAT8(type, word);
      [[unroll]] for (uint y = 0; y < 4; ++y) x[4 * h + y] = NUMBER(four[y]);
    }
    return;
  }
#ifndef DTYPE_BF16   // problems in bf16 leave blocks to other kernels: eight bits are too few for d q
  const bool upper = STEPS_OF(type) % 2 != 0 && odd;   // d lies in the upper half of its word
  const uint words = type == Q8_0 ? 2 : 1, head = HEAD_OF(type) + (upper ? 1 : 0);
  const uint block = row + piece / 4 * STEPS_OF(type) / 2, first = block + head / 2 + piece % 4 * words;
  const f16vec2 scales = unpackFloat2x16(patch_words[block]);
  const float16_t d = upper ? scales.y : scales.x;
  float16_t m;
  uint fifths = 0;
  if (HAS_LEAST(type)) m = scales.y;   // whose blocks are whole words
  if (HAS_FIFTHS(type)) {
    const uint at = block + head / 2 - 1;
    fifths = (head % 2 == 0 ? patch_words[at] : across(patch_words[at], patch_words[at + 1])) >> 4 * (piece % 4);
  }
  uint w[2];
  if (head % 2 == 0) [[unroll]] for (uint h = 0; h < words; ++h) w[h] = patch_words[first + h];
  else {
    uint lower = patch_words[first];
    [[unroll]] for (uint h = 0; h < words; ++h) {
      const uint upper_word = patch_words[first + h + 1];
      w[h] = across(lower, upper_word);
      lower = upper_word;
    }
  }
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    f16vec2 even, uneven;
    if (type == Q8_0) {
      even = unpackFloat2x16((w[h] & low) ^ 0x64806480u) - float16_t(1152);
      uneven = unpackFloat2x16((w[h] >> 8 & low) ^ 0x64806480u) - float16_t(1152);
    } else if (type == IQ4_NL) {
      table_fours(h == 0 ? w[0] : w[0] >> 4, even, uneven);
    } else if (type != Q4_0 && type != Q4_1) {
      const uint word = number_word(h == 0 ? w[0] : w[0] >> 4, fifths >> 16 * h);
      even = unpackFloat2x16((word & low) ^ set_of(type)) - float16_t(MORE_OF(type));
      uneven = unpackFloat2x16((word >> 8 & low) ^ set_of(type)) - float16_t(MORE_OF(type));
    } else if (h == 0) {
      even = unpackFloat2x16(w[0] & low | 0x64006400u) - float16_t(MORE_OF(type));
      uneven = unpackFloat2x16(w[0] >> 8 & low | 0x64006400u) - float16_t(MORE_OF(type));
    } else {
      const float16_t less = type == Q4_0 ? float16_t(-72) : float16_t(-64);
      even = fma(unpackFloat2x16(w[0] & high | 0x64006400u), f16vec2(0.0625), f16vec2(less));
      uneven = fma(unpackFloat2x16(w[0] >> 8 & high | 0x64006400u), f16vec2(0.0625), f16vec2(less));
    }
    if (HAS_LEAST(type)) { even = fma(even, f16vec2(d), f16vec2(m)); uneven = fma(uneven, f16vec2(d), f16vec2(m)); }
    else { even *= d; uneven *= d; }
    x[4 * h] = even.x; x[4 * h + 1] = even.y; x[4 * h + 2] = uneven.x; x[4 * h + 3] = uneven.y;
  }
#endif
}

#ifndef DTYPE_BF16
const uint K_PER = COL_LANES == 8 ? 2 : 1;               // blocks that a lane's piece has numbers of
const uint K_STEP = STEPS_OF(K_TYPE);                    // 2 bytes each, from block to block
const float K_MORE = MORE_OF(K_TYPE);                    // of a number as it is, than it should be
uint whole_column(uint c, uint y) {
  const uint block = K_PER == 1 ? c : 2 * c + y / 4, place = 32 * block + pair_place(y & 3u);
  if (K_TYPE == Q8_0) return place + (K_PER == 1 ? 8 * tc + (y & 4u) : 4 * tc);
  return place + (K_PER == 1 ? 4 * tc + 16 * (y / 4) : tc / 2 * 4 + 16 * (tc % 2));
}
uint whole_row(uint key) { return subgroup * PATCH + key * K_UNITS * K_UNIT_WORDS; }
// d of a block of the key's row, and m; blocks that there are not have none.
float whole_scale(uint key, uint block) {
  return block * 32 < D ? block_scale(patch_words[whole_row(key) + block * K_STEP / 2], block * K_STEP % 2 != 0) : 0;
}
float whole_least(uint key, uint block) {
  return block * 32 < D ? block_scale(patch_words[whole_row(key) + block * K_STEP / 2], true) : 0;   // of blocks of whole words
}
// Word `of` of those that begin at step `from` of a block, which may be the middle of a word of the patch.
uint whole_word(uint key, uint block, uint from, uint of) {
  if (block * 32 >= D) return 0;
  const uint step = block * K_STEP + from, at = whole_row(key) + step / 2 + of;
  return step % 2 == 0 ? patch_words[at] : across(patch_words[at], patch_words[at + 1]);
}
void put_four(inout T16 x[8], uint y, uint word, uint set) {
  const f16vec2 even = unpackFloat2x16((word & k_lower) ^ set), uneven = unpackFloat2x16((word >> 8 & k_lower) ^ set);
  x[y] = even.x; x[y + 1] = even.y; x[y + 2] = uneven.x; x[y + 3] = uneven.y;
}
// The eight numbers of the lane's piece c of a key, as they are.
void whole_numbers(uint key, uint c, out T16 x[8]) {
  const uint head = HEAD_OF(K_TYPE);
  if (K_TYPE == Q8_0) {
    [[unroll]] for (uint h = 0; h < 2; ++h)
      put_four(x, 4 * h, K_PER == 1 ? whole_word(key, c, head, 2 * tc + h) : whole_word(key, 2 * c + h, head, tc),
        0x64806480u);
  } else {
    uint word = K_PER == 1 ? whole_word(key, c, head, tc) : 0, fifths = 0;
    if (HAS_FIFTHS(K_TYPE) && K_PER == 1) fifths = whole_word(key, c, head - 2, 0) >> 4 * tc;
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      if (K_PER == 2) word = whole_word(key, 2 * c + h, head, tc / 2) >> tc % 2 * 4;
      if (HAS_FIFTHS(K_TYPE) && K_PER == 2) fifths = whole_word(key, 2 * c + h, head - 2, 0) >> tc / 2 * 4 + tc % 2 * 16;
      uint four = K_PER == 1 ? word >> 4 * h : word;
      if (K_TYPE == IQ4_NL) {
        f16vec2 even, uneven;
        table_fours(four, even, uneven);
        x[4 * h] = even.x; x[4 * h + 1] = even.y; x[4 * h + 2] = uneven.x; x[4 * h + 3] = uneven.y;
        continue;
      }
      if (K_TYPE != Q4_0 && K_TYPE != Q4_1) four = number_word(four, K_PER == 1 ? fifths >> 16 * h : fifths);
      put_four(x, 4 * h, four, set_of(K_TYPE));
    }
  }
}
#endif

#define STAGED k
#define STAGED_TYPE K_TYPE
#define STAGED_COLS D
#define STAGED_SIZE K
#define STAGED_ORIGIN k_origin
#define STAGED_LANES COL_LANES
#define STAGED_COUNT KC
#define STAGED_LANE tc
#define STAGED_MASKS k_lower, 0x00f000f0u
#include "matrix_cache_tensor.glsl"
#define STAGED v
#define STAGED_TYPE V_TYPE
#define STAGED_COLS DV
#define STAGED_SIZE V
#define STAGED_ORIGIN v_origin
#define STAGED_LANES ROW_LANES
#define STAGED_COUNT VC
#define STAGED_LANE tr
#define STAGED_MASKS v_lower, v_upper
#include "matrix_cache_tensor.glsl"
