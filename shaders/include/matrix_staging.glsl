// Rows of Q, K and V on their way into shared memory: 16 bytes (8 elements) at a time, zero beyond the last column.

#include "matrix_gather.glsl"

uint last_tile;
// A key beyond the last is read as the last: its weight will be 0, and 0 times what is finite anyway stays 0. Without MASKS, or where keys
// are not RAGGED, there is none in the tiles, and it is enough to fetch no tile beyond the last.
#define CLAMPED (MASKS && RAGGED)
#define IS_KEY (!CLAMPED || j * BC + x < key_count())
uvec4 load_k(uint j, uint x, uint c) {
  uint row = k_base + (CLAMPED ? min(j * BC + x, last_key()) : min(j, last_tile) * BC + x) * k_sn;
  if (ALIGNED) return LOADED_IF(k, 16, IS_KEY, k4[row / 8 + c]);
  return GATHER(k, row, c, D, IS_KEY);
}
uvec4 load_v(uint j, uint x, uint c) {
  uint row = v_base + (CLAMPED ? min(j * BC + x, last_key()) : min(j, last_tile) * BC + x) * v_sn;
  if (ALIGNED) return LOADED_IF(v, 16, IS_KEY, v4[row / 8 + c]);
  return GATHER(v, row, c, DV, IS_KEY);
}

// A workgroup moves a tile of BC keys; invocation tid moves pieces tid, tid + WG, ... of K, and likewise of V.
const uint K_PIECES = BC * KU, V_PIECES = BC * VU;
const uint K_EACH = (K_PIECES + WG - 1) / WG, V_EACH = (V_PIECES + WG - 1) / WG;
#define EACH(T, u, x) [[unroll]] for (uint u = 0, x = tid; u < T##_EACH; ++u, x += WG) if (T##_PIECES % WG == 0 || x < T##_PIECES)
uvec4 kr[K_EACH], vr[V_EACH];   // pieces on their way

// STEPS: where a turn of the workgroup is whole rows, the pieces of an invocation lie so many rows apart. Its own part of their places is
// then the same for all of them, computed once, and what is added for a tile and a piece is the same for all invocations. A tile that ends
// beyond the last key is fetched by load_k and load_v.
// (A macro: glslang 16.4 loses an operand of such a global constant.)
#define WHOLE_TURNS(UNITS) (STEPS && ALIGNED && WG % UNITS == 0)
uint k_from, v_from, k_to, v_to;   // an invocation's own part, in 16 bytes
void own_places() {
  k_from = tid / KU * (k_sn / 8) + tid % KU; v_from = tid / VU * (v_sn / 8) + tid % VU;
  k_to = tid / KU * K_PITCH + tid % KU; v_to = tid / VU * V_PITCH + tid % VU;
}
uint tile_row(uint j) { return (CLAMPED ? j : min(j, last_tile)) * BC; }
bool whole_tile(uint j) { return !CLAMPED || j * BC + BC <= key_count(); }

void fetch_k(uint j) {
  if (WHOLE_TURNS(KU) && whole_tile(j)) {
    const uint tile = k_base / 8 + tile_row(j) * (k_sn / 8);
    EACH(K, u, x) kr[u] = LOADED(k, 16, k4[k_from + (tile + u * (WG / KU) * (k_sn / 8))]);
  } else EACH(K, u, x) kr[u] = load_k(j, x / KU, x % KU);
}
void fetch_v(uint j) {
  if (WHOLE_TURNS(VU) && whole_tile(j)) {
    const uint tile = v_base / 8 + tile_row(j) * (v_sn / 8);
    EACH(V, u, x) vr[u] = LOADED(v, 16, v4[v_from + (tile + u * (WG / VU) * (v_sn / 8))]);
  } else EACH(V, u, x) vr[u] = load_v(j, x / VU, x % VU);
}
void store_k() {
  if (WHOLE_TURNS(KU)) { EACH(K, u, x) KV[k_to + (at + u * (WG / KU) * K_PITCH)] = kr[u]; }
  else EACH(K, u, x) KV[at + x / KU * K_PITCH + x % KU] = kr[u];
}
void store_v() {
  if (WHOLE_TURNS(VU)) { EACH(V, u, x) KV[v_to + (at + V_AT + u * (WG / VU) * V_PITCH)] = vr[u]; }
  else EACH(V, u, x) KV[at + V_AT + x / VU * V_PITCH + x % VU] = vr[u];
}
