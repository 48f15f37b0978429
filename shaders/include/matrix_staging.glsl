// Rows of Q, K and V on their way into shared memory: 16 bytes (8 elements) at a time, zero beyond the last column.

#include "matrix_gather.glsl"

uint k_base, v_base, last_tile;
// A key beyond the last is read as the last: its weight will be 0, and 0 times what is finite anyway stays 0. Without MASKS, or where keys
// are not RAGGED, there is none in the tiles, and it is enough to fetch no tile beyond the last.
#define CLAMPED (MASKS && RAGGED)
#define IS_KEY (!CLAMPED || j * BC + x < nk)
uvec4 load_k(uint j, uint x, uint c) {
  uint row = k_base + (CLAMPED ? min(j * BC + x, nk - 1) : min(j, last_tile) * BC + x) * k_sn;
  if (ALIGNED) return LOADED_IF(k, 16, IS_KEY, k4[row / 8 + c]);
  return GATHER(k, row, c, D, IS_KEY);
}
uvec4 load_v(uint j, uint x, uint c) {
  uint row = v_base + (CLAMPED ? min(j * BC + x, nk - 1) : min(j, last_tile) * BC + x) * v_sn;
  if (ALIGNED) return LOADED_IF(v, 16, IS_KEY, v4[row / 8 + c]);
  return GATHER(v, row, c, DV, IS_KEY);
}

// A workgroup moves a tile of BC keys; invocation tid moves pieces tid, tid + WG, ... (In the macros t is k or v, and T is K or V.)
const uint K_PIECES = BC * ((D + 7) / 8), V_PIECES = BC * ((DV + 7) / 8);
const uint K_EACH = (K_PIECES + WG - 1) / WG, V_EACH = (V_PIECES + WG - 1) / WG;
#define EACH(T, u, x) [[unroll]] for (uint u = 0, x = tid; u < T##_EACH; ++u, x += WG) if (T##_PIECES % WG == 0 || x < T##_PIECES)

// STEPS: where a turn of the workgroup is whole rows, the pieces of an invocation lie so many rows apart. Its own part of their places is then
// the same for all of them, computed once, and what is added for a tile and a piece is the same for all invocations. A tile that ends
// beyond the last key is fetched by load_k and load_v.
// (Macros: glslang 16.4 loses an operand of such a global constant.)
#define WHOLE_TURNS(T) (STEPS && ALIGNED && WG % T##U == 0)
#define TILE_ROW(j) ((CLAMPED ? (j) : min(j, last_tile)) * BC)
uint k_from, v_from, k_to, v_to;   // an invocation's own part, in 16 bytes
#define OWN_PLACES {                                                                                                               \
  k_from = tid / KU * (k_sn / 8) + tid % KU; v_from = tid / VU * (v_sn / 8) + tid % VU;                                            \
  k_to = tid / KU * K_PITCH + tid % KU; v_to = tid / VU * V_PITCH + tid % VU; }
#define FETCH(t, T, j) {                                                                                                           \
  if (WHOLE_TURNS(T) && (!CLAMPED || (j) * BC + BC <= nk)) {                                                                       \
    const uint tile = t##_base / 8 + TILE_ROW(j) * (t##_sn / 8);                                                                   \
    EACH(T, u, x) t##r[u] = LOADED(t, 16, t##4[t##_from + (tile + u * (WG / T##U) * (t##_sn / 8))]);                               \
  } else EACH(T, u, x) t##r[u] = load_##t(j, x / T##U, x % T##U); }
#define STORE(t, T, first) {                                                                                                       \
  if (WHOLE_TURNS(T)) { EACH(T, u, x) KV[t##_to + ((first) + u * (WG / T##U) * T##_PITCH)] = t##r[u]; }                            \
  else EACH(T, u, x) KV[(first) + x / T##U * T##_PITCH + x % T##U] = t##r[u]; }
#define FETCH_K(j) FETCH(k, K, j)
#define FETCH_V(j) FETCH(v, V, j)
#define STORE_K STORE(k, K, at)
#define STORE_V STORE(v, V, at + V_AT)
