// Rows of Q, K and V on their way into shared memory: 16 bytes (8 elements) at a time, zero beyond the last column.

#include "matrix_gather.glsl"

uint last_tile;
// A key beyond the last is read as the last: its weight will be 0, and 0 times what is finite anyway stays 0. Without MASKS, or where keys
// are not RAGGED, there is none in the tiles, and it is enough to fetch no tile beyond the last. With REPEAT its weight is that of the last
// key, which divide_by_sum() takes off again, and its value is 0.
#define CLAMPED ((MASKS || REPEAT) && RAGGED)
#define IS_KEY (!CLAMPED || j * BC + x < key_count())
#ifdef CACHE
// In builds for caches rows may lie in pages, and quantised numbers become elements when they are stored, rounded to nearest where they are
// not exact. bf16 has eight bits, fp16 eleven, and the numbers of blocks up to 18. So that scores are products with the numbers themselves,
// keys of blocks are staged without d, as whole numbers, which have eight bits at most; d lies beside them (KEY_TERMS 0). Where there is an
// m besides, or lanes do not know the columns of their scores, keys are two elements each, in planes one behind the other. A value that is
// rounded is off by no more than o is.
#include "matrix_terms.glsl"
#define QUANTISED k
#define QUANTISED_TYPE K_TYPE
#define QUANTISED_COLS D
#include "quantised_eight.glsl"
#define QUANTISED v
#define QUANTISED_TYPE V_TYPE
#define QUANTISED_COLS DV
#include "quantised_eight.glsl"
#define IN_PAGE(key) const uint page = page_of(key);
#define ROW_AT(T, key) row_in_page(T##_base, key, page, T##_sb, T##_sn)
#define FOUND(x) (is_lost(page) ? uvec4(0) : x)
// The pieces of a tile whose rows lie one behind the other go by steps.
bool together(uint type) { return (type | PAGE % BC) == 0; }
#define STEPPED(UNITS, TYPE) WHOLE_TURNS(UNITS) && together(TYPE)
#define TILE_AT(T, j) row_in_page(T##_base, tile_row(j), page, T##_sb, T##_sn) / 8
#else
#define IN_PAGE(key)
#define ROW_AT(T, key) T##_base + (key) * T##_sn
#define FOUND(x) x
#define STEPPED(UNITS, TYPE) WHOLE_TURNS(UNITS)
#define TILE_AT(T, j) T##_base / 8 + tile_row(j) * (T##_sn / 8)
#endif
// Key x of tile j. Unless clamp, keys are known not to end within the tile.
uint row_of_key(uint j, uint x, bool clamp) {
  if (!CLAMPED) return min(j, last_tile) * BC + x;
  return clamp ? min(j * BC + x, last_key()) : j * BC + x;
}
uvec4 load_k(uint j, uint x, uint c, bool clamp) {
  IN_PAGE(row_of_key(j, x, clamp))
  uint row = ROW_AT(k, row_of_key(j, x, clamp));
  if (ALIGNED) return FOUND(LOADED_IF(k, 16, IS_KEY, k4[row / 8 + c]));
  return FOUND(GATHER(k, row, c, D, IS_KEY));
}
uvec4 load_v(uint j, uint x, uint c, bool clamp) {
  IN_PAGE(row_of_key(j, x, clamp))
  uint row = ROW_AT(v, row_of_key(j, x, clamp));
  if (ALIGNED) return FOUND(LOADED_IF(v, 16, IS_KEY, v4[row / 8 + c]));
  return FOUND(GATHER(v, row, c, DV, IS_KEY));
}

// A workgroup moves a tile of BC keys; invocation tid moves pieces tid, tid + WG, ... of K, and likewise of V.
const uint K_PIECES = BC * KU, V_PIECES = BC * VU;
const uint K_EACH = (K_PIECES + WG - 1) / WG, V_EACH = (V_PIECES + WG - 1) / WG;
#define EACH(T, u, x) [[unroll]] for (uint u = 0, x = tid; u < T##_EACH; ++u, x += WG) if (T##_PIECES % WG == 0 || x < T##_PIECES)
uvec4 kr[K_EACH], vr[V_EACH];   // pieces on their way
#ifdef CACHE
// Of quantised rows they are words, of some types more than four, and by a bit of each what was known when they were asked for.
uvec2 k_head[HEAD_OF(K_TYPE) > 1 ? K_EACH : 1], v_head[HEAD_OF(V_TYPE) > 1 ? V_EACH : 1];
const uint NOTES = ((K_EACH > V_EACH ? K_EACH : V_EACH) + 31) / 32;
struct Noted { uint odd[NOTES], lost[NOTES]; };
Noted k_noted, v_noted;
uvec4 second_terms;   // KEY_TERMS == 2: of eight numbers that became elements
float whole_scale;    // KEY_TERMS == 0: what eight numbers are to be multiplied by
const uint BLOCKS_OF_KEY = (D + 31) / 32;
const uint SCALES = KEY_TERMS == 0 ? BC * BLOCKS_OF_KEY : 64;   // leastDrop of internal/kernel/matrix says why
shared float key_scales_of_tile[SCALES * (PREFETCH == 3 || PREFETCH == 4 ? 2 : 1)];   // of each block, one for every key
uint scales_at() { return at == 0 ? 0 : SCALES; }
#define ASK_EIGHT(T, TYPE, j, u, x, c)                                                                    \
  {                                                                                                       \
    const uint key = row_of_key(j, x, clamp);                                                             \
    IN_PAGE(key)                                                                                          \
    const uint row = ROW_AT(T, key), bit = 1u << u % 32;                                                  \
    T##r[u] = T##_ask(row, c);                                                                            \
    if (HEAD_OF(TYPE) > 1) T##_head[u % T##_head.length()] = T##_ask_head(row, c);                        \
    if (u % 32 == 0) T##_noted.odd[u / 32] = T##_noted.lost[u / 32] = 0;                                  \
    if (IS_BLOCKS(TYPE)) T##_noted.odd[u / 32] |= T##_is_odd(row, c) ? bit : 0;                           \
    T##_noted.lost[u / 32] |= is_lost(page) ? bit : 0;                                                    \
  }
#define EIGHT(T, TYPE, TERMS, u, c, eight)                                                                                \
  uvec4 eight = T##r[u];                                                                                                  \
  if (TYPE != NATIVE) {                                                                                                   \
    const uvec2 head = T##_head[u % T##_head.length()];                                                                   \
    const bool odd = (T##_noted.odd[u / 32] >> u % 32 & 1u) != 0, lost = (T##_noted.lost[u / 32] >> u % 32 & 1u) != 0;    \
    if (TERMS == 2) {                                                                                                     \
      const vec4 d = vec4(T##_scale(T##r[u], odd)), least = vec4(T##_least(T##r[u], head, odd));                          \
      [[unroll]] for (uint h = 0; h < FOURS_OF_EIGHT; ++h) {                                                                      \
        const vec4 x = fma(d, T##_of_words(T##r[u], head, c, odd, h), least);                                             \
        vec2 even = x.xz, uneven = x.yw;                                                                                  \
        eight[2 * h] = take_pair(even); eight[2 * h + 1] = take_pair(uneven);                                             \
        second_terms[2 * h] = take_pair(even); second_terms[2 * h + 1] = take_pair(uneven);                               \
      }                                                                                                                   \
      if (lost) second_terms = uvec4(0);                                                                                  \
    } else eight = T##_eight(T##r[u], head, c, odd, TERMS == 0);                                                          \
    if (lost) eight = uvec4(0);                                                                                           \
    if (TERMS == 0) whole_scale = lost ? 0 : T##_scale(T##r[u], odd);                                                     \
  }
#endif

// STEPS: where a turn of the workgroup is whole rows, the pieces of an invocation lie so many rows apart. Its own part of their places is
// then the same for all of them, computed once, and what is added for a tile and a piece is the same for all invocations. A tile that ends
// beyond the last key is fetched by load_k and load_v.
// (A macro: glslang 16.4 loses an operand of such a global constant.)
#define WHOLE_TURNS(UNITS) (STEPS && ALIGNED && WG % UNITS == 0)
uint k_from, v_from, k_to, v_to;   // an invocation's own part, in 16 bytes
// The row of a tile in shared memory that has key x of it. (With steps, the bits of a turn's first key and of an invocation's in it are not
// the same ones, and so both have places of their own.)
#ifdef BIAS_AHEAD
uint place_of(uint x) { return BIAS_EIGHTS ? x & ~31u | (x >> 1 & 3u) << 3 | (x >> 3 & 3u) << 1 | x & 1u : x; }
#else
#define place_of(x) x   // not in parentheses: products from left to right, as they are without
#endif
void own_places() {
  k_from = tid / KU * (k_sn / 8) + tid % KU; v_from = tid / VU * (v_sn / 8) + tid % VU;
  k_to = place_of(tid / KU) * K_PITCH + tid % KU; v_to = place_of(tid / VU) * V_PITCH + tid % VU;
}
uint tile_row(uint j) { return (CLAMPED ? j : min(j, last_tile)) * BC; }
bool whole_tile(uint j, bool clamp) { return !CLAMPED || !clamp || j * BC + BC <= key_count(); }

void fetch_k(uint j, bool clamp) {
  if (STEPPED(KU, K_TYPE) && whole_tile(j, clamp)) {
    IN_PAGE(tile_row(j))
    const uint tile = TILE_AT(k, j);
    EACH(K, u, x) kr[u] = FOUND(LOADED(k, 16, k4[k_from + (tile + u * (WG / KU) * (k_sn / 8))]));
  }
#ifdef CACHE
  else if (K_TYPE != NATIVE) { EACH(K, u, x) ASK_EIGHT(k, K_TYPE, j, u, x / KU, x % KU) }
#endif
  else EACH(K, u, x) kr[u] = load_k(j, x / KU, x % KU, clamp);
}
void fetch_v(uint j, bool clamp) {
  if (STEPPED(VU, V_TYPE) && whole_tile(j, clamp)) {
    IN_PAGE(tile_row(j))
    const uint tile = TILE_AT(v, j);
    EACH(V, u, x) vr[u] = FOUND(LOADED(v, 16, v4[v_from + (tile + u * (WG / VU) * (v_sn / 8))]));
  }
#ifdef CACHE
  else if (V_TYPE != NATIVE) { EACH(V, u, x) ASK_EIGHT(v, V_TYPE, j, u, x / VU, x % VU) }
#endif
  else EACH(V, u, x) vr[u] = load_v(j, x / VU, x % VU, clamp);
}
#ifdef CACHE
void store_k() {
  EACH(K, u, x) {
    EIGHT(k, K_TYPE, KEY_TERMS, u, x % KU, eight)
    if (WHOLE_TURNS(KU)) KV[k_to + (at + place_of(u * (WG / KU)) * K_PITCH)] = eight;
    else KV[at + place_of(x / KU) * K_PITCH + x % KU] = eight;
    if (KEY_TERMS == 2) KV[at + (BC + x / KU) * K_PITCH + x % KU] = second_terms;
    if (KEY_TERMS == 0) { if (x % KU % 4 == 0) key_scales_of_tile[scales_at() + x % KU / 4 * BC + x / KU] = whole_scale; }
  }
}
void store_v(uint j, bool clamp) {
  EACH(V, u, x) {
    EIGHT(v, V_TYPE, 1, u, x % VU, eight)
    if (WHOLE_TURNS(VU)) KV[v_to + (at + V_AT + place_of(u * (WG / VU)) * V_PITCH)] = eight;
    else KV[at + V_AT + place_of(x / VU) * V_PITCH + x % VU] = eight;
  }
}
#else
void store_k() {
  if (WHOLE_TURNS(KU)) { EACH(K, u, x) KV[k_to + (at + place_of(u * (WG / KU)) * K_PITCH)] = kr[u]; }
  else EACH(K, u, x) KV[at + place_of(x / KU) * K_PITCH + x % KU] = kr[u];
}
// j is the tile that was fetched.
void store_v(uint j, bool clamp) {
  if (REPEAT) { if (!whole_tile(j, clamp)) EACH(V, u, x) if (j * BC + x / VU >= key_count()) vr[u] = uvec4(0); }
  if (WHOLE_TURNS(VU)) { EACH(V, u, x) KV[v_to + (at + V_AT + place_of(u * (WG / VU)) * V_PITCH)] = vr[u]; }
  else EACH(V, u, x) KV[at + V_AT + place_of(x / VU) * V_PITCH + x % VU] = vr[u];
}
#endif
