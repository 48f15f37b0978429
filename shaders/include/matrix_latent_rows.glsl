// How tiles of matrix_latent.comp come in: rows of keys and values, from tensors, pages, lists and quantised rows, into shared memory, and
// rows of Q, a tile's at a time, by the functions that piece.glsl makes.
//
// ROW_LANES lanes share a row of a tile, and each has pieces of 16 bytes own_col, own_col + ROW_LANES, ... of it, so that a lane has one
// row, one address and one question whether there is such a key. Beyond the last key the last is read, and zeros take its place when it
// is stored: a weight of 0 would make a NaN of an infinity. (Not before, or the load would be waited for.)
//
// Needs few_rows.glsl, tile, the number of the tile that is computed, Tiles[], block_scales[] and tile_keys[], and their sizes.

#define PIECE q_piece
#define PIECE_T q
#define PIECE_COLS D
#define PIECE_LANE 0
#define PIECE_LANES 1
#include "piece.glsl"
#define PIECE k_piece
#define PIECE_T k
#define PIECE_COLS D
#define PIECE_LANE 0
#define PIECE_LANES 1
#include "piece.glsl"
#define PIECE v_piece
#define PIECE_T v
#define PIECE_COLS DV
#define PIECE_LANE 0
#define PIECE_LANES 1
#include "piece.glsl"

const uint ROW_LANES = WG / KEYS, K_EACH = (KW + ROW_LANES - 1) / ROW_LANES, V_EACH = (VU + ROW_LANES - 1) / ROW_LANES;
const uint K_AHEAD = PREFETCH < K_EACH ? PREFETCH : K_EACH, V_AHEAD = PREFETCH < V_EACH ? PREFETCH : V_EACH;
uint own_key, own_col;                        // of the lane: key of a tile, and first piece of its row
uvec4 kr[K_EACH], vr[IN_KEYS ? 1 : V_EACH];   // on their way; of quantised rows the words that have them
#ifdef LISTS
// What the lane's keys of this tile, the next and the one after it are, of the list's places that they stand at.
uint own_listed, next_listed, later_listed;
#define OWN_KEY own_listed
#define NEXT_KEY next_listed
#define LATER_KEY later_listed
#define INSIDE(key) min(key, last_key())
bool exists(uint key) { return key != NO_KEY; }
#else
#define OWN_KEY (tile * KEYS + own_key)
#define NEXT_KEY (OWN_KEY + KEYS)
#define LATER_KEY (OWN_KEY + 2 * KEYS)
#define INSIDE(key) min(key, max(seen, 1) - 1)
bool exists(uint key) { return key < seen; }
#endif
#ifdef CACHE
uint own_page, next_page, later_page;   // those that they lie in
#define ROW_OF_KEY(t, key, page) row_in_page(t##_origin, INSIDE(key), page, t##_sb, t##_sn)
bool is_there(uint key, uint page) { return exists(key) && !is_lost(page); }
#else
const uint own_page = 0, next_page = 0, later_page = 0;
#define ROW_OF_KEY(t, key, page) (t##_origin + INSIDE(key) * t##_sn)
bool is_there(uint key, uint page) { return exists(key); }
#endif
// Asks where the lane's key of a tile is.
#ifdef LISTS
#define ASK(x, of) { x##_listed = listed_key((of) * KEYS + own_key); x##_page = page_of(INSIDE(x##_listed)); }
#define IS_READ(key) exists(key)   // rows that nobody listed are nobody's business
#elif defined(CACHE)
#define ASK(x, of) x##_page = page_of(INSIDE((of) * KEYS + own_key));
#define IS_READ(key) true
#else
#define ASK(x, of)
#define IS_READ(key) true
#endif
#ifdef CACHE
#define QUANTISED k
#define QUANTISED_TYPE K_TYPE
#define QUANTISED_COLS D
#include "quantised_eight.glsl"
#define QUANTISED v
#define QUANTISED_TYPE V_TYPE
#define QUANTISED_COLS DV
#include "quantised_eight.glsl"
uvec2 k_head[HEAD_OF(K_TYPE) > 1 ? K_EACH : 1], v_head[HEAD_OF(V_TYPE) > 1 ? V_EACH : 1];
#define FETCH(t, T, u, at, c, real)                                                             \
  if (T##_TYPE == NATIVE) t##r[u] = t##_piece(at, c, real);                                     \
  else {                                                                                        \
    t##r[u] = t##_ask(at, c);                                                                   \
    if (HEAD_OF(T##_TYPE) > 1) t##_head[u % t##_head.length()] = t##_ask_head(at, c);           \
  }
// Eight numbers as elements: floats of a byte are what they were, before the scale of their head. Keys of blocks stay the whole numbers
// that they are, for their products with d have more bits than elements; scores() multiplies by d.
#define EIGHT(t, T, u, at, c, whole) \
  (T##_TYPE == NATIVE ? t##r[u] \
    : t##_eight(t##r[u], t##_head[u % t##_head.length()], c, IS_BLOCKS(T##_TYPE) && t##_is_odd(at, c), whole))
#else
#define FETCH(t, T, u, at, c, real) t##r[u] = t##_piece(at, c, real);
#define in_k_order(x) x
#define from_v_order(x) x
#define EIGHT(t, T, u, at, c, whole) t##r[u]
#endif
void fetch_keys(uint key, uint page, uint first, uint end) {
  const uint at = ROW_OF_KEY(k, key, page);
  [[unroll]] for (uint u = first; u < end; ++u) {
    const uint c = own_col + u * ROW_LANES;
    if (IS_READ(key)) { FETCH(k, K, u, at, min(c, KU - 1), is_there(key, page) && (K_EACH * ROW_LANES == KU || c < KU)) }
  }
}
void fetch_values(uint key, uint page, uint first, uint end) {
  const uint at = ROW_OF_KEY(v, key, page);
  [[unroll]] for (uint u = first; u < end; ++u) {
    const uint c = own_col + u * ROW_LANES;
    if (IS_READ(key)) { FETCH(v, V, u, at, min(c, VU - 1), is_there(key, page) && (V_EACH * ROW_LANES == VU || c < VU)) }
  }
}
// Where a tile's keys and values are.
uint keys_at(uint of) { return IN_KEYS ? of % STAGES * TILE : 0; }
uint values_at(uint of) { return IN_KEYS ? of % STAGES * TILE : (STAGES - 1) * TILE; }
void store_keys(uint of, uint key, uint page) {
  const bool there = is_there(key, page);
  const uint to = keys_at(of);
#ifdef CACHE
  const uint at = ROW_OF_KEY(k, key, page);
#endif
#ifdef LISTS
  if (own_col == 0) tile_keys[of % 2 * KEYS + own_key] = key;
#endif
  [[unroll]] for (uint u = 0; u < K_EACH; ++u) {
    const uint c = own_col + u * ROW_LANES;
#ifdef CACHE
    if (BLOCKED) {
      if (c % 4 == 0 && c < KU) block_scales[own_key * BLOCKS + c / 4] = there ? k_scale(kr[u], k_is_odd(at, c)) : 0;
    }
#endif
    if (K_EACH * ROW_LANES == KW || c < KW)
      Tiles[to + own_key * PITCH + c] = there && (KW == KU || c < KU) ? EIGHT(k, K, u, at, c, true) : uvec4(0);
  }
}
void store_values(uint key, uint page) {
  const bool there = is_there(key, page);
  const uint to = values_at(tile);
#ifdef CACHE
  const uint at = ROW_OF_KEY(v, key, page);
#endif
  [[unroll]] for (uint u = 0; u < V_EACH; ++u) {
    const uint c = own_col + u * ROW_LANES;
    if (V_EACH * ROW_LANES == VU || c < VU) Tiles[to + own_key * PITCH + c] = there ? EIGHT(v, V, u, at, c, false) : uvec4(0);
  }
}
