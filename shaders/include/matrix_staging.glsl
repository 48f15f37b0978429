// Rows of Q, K and V on their way into shared memory: 16 bytes (8 elements) at a time, zero beyond the last column.

#include "matrix_gather.glsl"

uint k_base, v_base, last_tile;
// A key beyond the last is read as the last: its weight will be 0, and 0 times what is finite anyway stays 0. Without MASKS there
// is none in the tiles, and it is enough to fetch no tile beyond the last.
#define IS_KEY (!MASKS || j * BC + x < nk)
uvec4 load_k(uint j, uint x, uint c) {
  uint row = k_base + (MASKS ? min(j * BC + x, nk - 1) : min(j, last_tile) * BC + x) * k_sn;
  if (ALIGNED) return LOADED_IF(k, 16, IS_KEY, k4[row / 8 + c]);
  return GATHER(k, row, c, D, IS_KEY);
}
uvec4 load_v(uint j, uint x, uint c) {
  uint row = v_base + (MASKS ? min(j * BC + x, nk - 1) : min(j, last_tile) * BC + x) * v_sn;
  if (ALIGNED) return LOADED_IF(v, 16, IS_KEY, v4[row / 8 + c]);
  return GATHER(v, row, c, DV, IS_KEY);
}

// A workgroup moves a tile of BC keys; invocation tid moves pieces tid, tid + WG, ...
const uint K_PIECES = BC * ((D + 7) / 8), V_PIECES = BC * ((DV + 7) / 8);
const uint K_EACH = (K_PIECES + WG - 1) / WG, V_EACH = (V_PIECES + WG - 1) / WG;
#define EACH(pieces, each, u, x) [[unroll]] for (uint u = 0, x = tid; u < each; ++u, x += WG) if (pieces % WG == 0 || x < pieces)
#define FETCH_K(j) EACH(K_PIECES, K_EACH, u, x) kr[u] = load_k(j, x / KU, x % KU);
#define FETCH_V(j) EACH(V_PIECES, V_EACH, u, x) vr[u] = load_v(j, x / VU, x % VU);
#define STORE_K EACH(K_PIECES, K_EACH, u, x) KV[at + x / KU * K_PITCH + x % KU] = kr[u];
#define STORE_V EACH(V_PIECES, V_EACH, u, x) KV[at + V_AT + x / VU * V_PITCH + x % VU] = vr[u];
