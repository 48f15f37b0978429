// Dropout in the backward kernels on matrices: which weights of a staged tile are kept, drawn once for the workgroup.
//
// drawn: [group of 64 keys][4 words; not with BITS][4 draws][query of the tile, and 8]: a subgroup BY_LANE meets every bank once.
//
// BITS: the 16 bits that are asked of a draw (include/dropout_bits.glsl) instead of its words. In kv, where a lane holds queries 2 n and
// 2 n + 1 side by side, word 2 n has what both keep of keys 0 to 7 of every 16, and word 2 n + 1 of the others. In q a lane draws for
// itself, since what it has of a query and 64 keys has one draw: the bits of its rows stay in registers, without a barrier.

#define BITS (DROPOUT && BY_LANE == 2)
#ifdef KV
const uint DRAW_KEYS = BR, DRAW_QUERIES = BC, TOGETHER = BY_LANE == 2 ? 2 : 1;   // TOGETHER: queries that an invocation draws for at once
#else
const uint DRAW_KEYS = BC, DRAW_QUERIES = BR, TOGETHER = 1;
const uint LANE_GROUPS = BC > 64 ? BC / 64 : 1;
uint kept_keys[LANE_GROUPS * RM * SLOTS];   // BITS: of 64 keys and a row of the lane each
// Whether lanes hold odd columns without the even ones before them.
bool odd_columns() {
  bool odd = false;
  [[unroll]] for (uint b = 0; b < 7; ++b) odd = odd || WEIGHT(COL_LANE, b) == 1u;
  return odd;
}
#endif
const uint KEY_GROUPS = (DRAW_KEYS % 64) * (64 % DRAW_KEYS) == 0 ? (DRAW_KEYS + 63) / 64 : DRAW_KEYS / 64 + 2;
const uint DRAWN_PITCH = DRAW_QUERIES + 8, DRAWS = DRAW_QUERIES / TOGETHER * KEY_GROUPS * 4, DRAW_EACH = (DRAWS + WG - 1) / WG;

// DRAWS_KEPT: a workgroup walks over keys for the queries of one head, so that tiles of one group of 64 keys, which a draw serves, have it
// drawn once.
#ifdef DRAWS_KEPT
uint drawn_group = ~0u;   // whose draws are there
bool is_drawn() {
  if (DRAW_KEYS >= 64 || 64 % DRAW_KEYS != 0) return false;
  const bool is = first_key / 64 == drawn_group;
  drawn_group = first_key / 64;
  return is;
}
#define DRAWS_NOW (DROPOUT && !is_drawn())
#else
#define DRAWS_NOW DROPOUT
#endif
// Draws are shared by the workgroup, which has to meet between them and their use.
#ifdef KV
#define DRAWS_SHARED DROPOUT
#else
#define DRAWS_SHARED (DROPOUT && !BITS)
#endif

// Draws for the tile: DRAW_QUERIES queries of a head from first_query, groups of keys from first_key on.
void draw_tile(uint head) {
#ifndef KV
  if (BITS) {
    if (DRAWS_NOW) [[unroll]] for (uint x = 0; x < kept_keys.length(); ++x) {
      const uint slot = x % (RM * SLOTS), query = row0 + slot / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, slot % SLOTS);
      const uint bits = kept_bits(draw(4 * (first_key / 64 + x / (RM * SLOTS)) + col_lane / 2 % 4, query, head));
      kept_keys[x] = odd_columns() ? bits >> 8 * (col_lane % 2) : bits;   // where an even column's are
    }
    return;
  }
#endif
  if (DRAWS_NOW) EACH(DRAWS, DRAW_EACH, u, x) {
    const uint pair = x % (DRAW_QUERIES / TOGETHER), g = x / (DRAW_QUERIES / TOGETHER) / 4, q = x / (DRAW_QUERIES / TOGETHER) % 4;
    const uint of_query = pair * TOGETHER, keys = 4 * (first_key / 64 + g) + q, at = (g * 4 + q) * DRAWN_PITCH + of_query;
    const uvec4 y = draw(keys, first_query + of_query, head);
#ifdef KV
    if (BITS) {
      const uint mine = kept_bits(y), next = kept_bits(draw(keys, first_query + of_query + 1, head));
      drawn[at] = mine & 0xffffu | next << 16; drawn[at + 1] = mine >> 16 | next & 0xffff0000u;
    } else
#endif
    [[unroll]] for (uint t = 0; t < 4; ++t) drawn[((g * 4 + t) * 4 + q) * DRAWN_PITCH + of_query] = y[t];
  }
}

// The word that draw q of a query has for the 16 keys of `key`.
uint drawn_word(uint query, uint key, uint q) {
  const uint from = first_key % 64 + (key - first_key);  // in the groups of 64 keys of the tile
  return drawn[((from / 64 * 4 + from / 16 % 4) * 4 + q) * DRAWN_PITCH + (query - first_query)];
}

// BY_LANE: what a draw serves of a query and 16 keys lies in one lane, so that one look at a word does for all of them: the word, the byte
// in it, and with BITS how an element x of dP becomes dP o Z - delta.
#ifdef KV
uint word_by_lane(uint query, uint c, uint r, uint n) { return drawn_word(query, first_key + sub0 + r * FM, row_lane / 2 % 4); }
uint byte_by_lane(uint n, uint e) { return row_lane % 2 + 2 * (ROW_OF(e) / 8); }

// The bits that elements e and e + 1 (e even) have of a word are shifted, both at once, to where they are the lowest bit of an fp16
// number's exponent, hence 2 for a weight that is kept and 0 for another: a factor, without comparison or selection. To make up for it
// weights are half of what they are (lse + 1 in units of log 2) and delta is twice: P = 2 (P/2), dS = (P/2) (2 dP - 2 delta).
// In a word, key j's bit is 8 (j mod 2) + 7 - floor(j/16) mod 4. That of row fragment r is one place further right than of r - 1.
uint first_bits(uint c, uint n, uint e) {
  const uint column = c * CK + n * FN + col_lane + COL_OF(e) + ROW_OF(e) / 8;
  const uint word = drawn[((first_key % 64 + sub0) / 64 * 4 + row_lane / 2 % 4) * DRAWN_PITCH + column];
  return word << 8 - 8 * (row_lane % 2) + (first_key % 64 + sub0) / 16 % 4;
}
uint factors_of(uint c, uint r, uint n, uint e) {
  const uint bits = first_bits(c, n, e);
  return (r == 0 ? bits >> 1 : bits << max(r, 1) - 1) & 0x40004000u;
}
float by_bits(float x, float dl, uint c, uint r, uint n, uint e) {
  return fma(unpackHalf2x16(factors_of(c, r, n, e / 2 * 2))[e % 2], x, -dl);
}
// Two weights, times factors of two bits side by side, as halves.
#ifdef DTYPE_BF16
#define KEPT_HALVES(x0, x1, factors, lo, hi) { const vec2 w = vec2(x0, x1) * unpackHalf2x16(factors); HALVES(w.x, w.y, lo, hi) }
#else // in pairs: twice a rounded half is as exact as the whole, but for the smallest
#define KEPT_HALVES(x0, x1, factors, lo, hi) { const f16vec2 w = f16vec2(x0, x1) * unpackFloat2x16(factors); lo = w.x; hi = w.y; }
#endif
#else
uint word_by_lane(uint query, uint c, uint r, uint n) { return drawn_word(query, first_key + c * CK + n * FN, col_lane / 2 % 4); }
uint byte_by_lane(uint n, uint e) { return byte_of(n * FN + COL_OF(e)); }

// A look at a row's bits for 64 keys; x has delta already.
float by_bits(float x, float dl, uint c, uint r, uint n, uint e) {
  const uint column = c * CK + n * FN, key = DRAW_KEYS % 64 == 0 ? column : first_key % 64 + column;
  const uint slot = r * SLOTS + SLOT_OF(e), byte = byte_of((CK % 16 == 0 ? n * FN : column) + COL_OF(e));
  uint bits = kept_keys[slot];   // indices are constants, and a chunk's place is not one
  [[unroll]] for (uint g = 1; g < LANE_GROUPS; ++g) bits = column / 64 == g ? kept_keys[g * RM * SLOTS + slot] : bits;
  const bool is = (bits & 0x80u << 8 * byte >> key / 16 % 4) != 0u;
#ifdef TO_MEMORY
  S[r * NS + n][e] = is ? S[r * NS + n][e] : -S[r * NS + n][e];   // P is done with dS, and leaves
#endif
  return is ? x : -dl;
}
#endif

// Whether the weight is kept that is element e of fragment n of row fragment r in chunk c.
bool is_kept(uint c, uint r, uint n, uint e) {
  const uint row = row_of(r, e), col = column_of(c, n, e), query = query_of(row, col), key = key_of(row, col);
  uint word, byte;
  if (BY_LANE == 1) { word = word_by_lane(query, c, r, n); byte = byte_by_lane(n, e); }
  else { word = drawn_word(query, key, key / 2 % 4); byte = byte_of(key); }
  return kept(word, byte);
}
