#version 460
// Standard attention on cooperative matrices, first of three kernels: S = scale Q K^T for a slab of rows, written in the inputs' type.
//
// What standard_scores.comp does, with the same bindings, push constants and slabs; include/standard_matrix.glsl has how the product
// is tiled. At D = 64 the matrix S is what costs: a tile of 128 x 128 writes 32 KiB for 32 KiB read, most of that from the cache. So
// the output leaves in whole rows, and D is staged whole where shared memory allows. With CAUSAL, tiles of S that no query may see are
// not computed. Rows beyond the slab repeat its last row, and keys beyond nk the last key: what comes of them is not written, or is
// written behind column nk, where nobody looks.
//
// Bindings: 0 Q, 1 K, 2 S [bh - bh0][row - row0][pitch], pitch a multiple of 8.
// Workgroups: ceil(nk/BC) ceil(rows/BR) matrices, columns fastest; BR = WR FR M, BC = WC FC N.
//
// Specialization constants: those of include/standard_matrix.glsl; odd(x) is x | 1.
//
//   8 D  1..256     9 DK  columns of Q and K staged at a time, a multiple of K
//   11 ALIGNED  every row of q and k begins 16-byte aligned and D is a multiple of 8
//   13 SHARED  the larger of (BR + BC) odd(DK/8) and WR WC M STRIP_PITCH

#extension GL_GOOGLE_include_directive : require
#include "standard_matrix.glsl"

layout(constant_id = 8) const uint D = 64;
layout(constant_id = 9) const uint DK = 64;

layout(push_constant) uniform Args {
  uint nq, nk, heads, group;
  uint q_off, k_off, q_sb, q_sh, q_sn, k_sb, k_sh, k_sn;
  uint bh0, row0, rows, pitch;
  float scale;
  int causal_shift;
  uint base, total;
};

layout(set = 0, binding = 0, std430) readonly buffer QUnits { uvec4 q8[]; };
layout(set = 0, binding = 0, std430) readonly buffer QElements { uint16_t q1[]; };
layout(set = 0, binding = 1, std430) readonly buffer KUnits { uvec4 k8[]; };
layout(set = 0, binding = 1, std430) readonly buffer KElements { uint16_t k1[]; };
layout(set = 0, binding = 2, std430) writeonly buffer SUnits { uvec4 s8[]; };
#ifndef WIDE
layout(set = 0, binding = 2, std430) writeonly buffer SElements { float16_t s1[]; };
#endif

const uint DU = DK / UNIT;
const uint PITCH = DU | 1;
const uint K_AT = BR * PITCH;
const uint Q_TURNS = (BR * DU + WG - 1) / WG;
const uint K_TURNS = (BC * DU + WG - 1) / WG;

// A unit of row r at column c of q or k; zeros from column D on.
uvec4 load_q(uint origin, uint r, uint c) {
  const uint at = origin + min(r, rows - 1) * q_sn;
  if (!ALIGNED) return GATHER(q, at, c, D, r < rows);
  if (D % DK == 0) return LOADED_IF(q, 16, r < rows, q8[(at + c) / UNIT]);
  const uvec4 x = LOADED_IF(q, 16, r < rows && c < D, q8[(at + min(c, D - UNIT)) / UNIT]);
  return c < D ? x : uvec4(0);
}
uvec4 load_k(uint origin, uint r, uint c) {
  const uint at = origin + min(r, nk - 1) * k_sn;
  if (!ALIGNED) return GATHER(k, at, c, D, r < nk);
  if (D % DK == 0) return LOADED_IF(k, 16, r < nk, k8[(at + c) / UNIT]);
  const uvec4 x = LOADED_IF(k, 16, r < nk && c < D, k8[(at + min(c, D - UNIT)) / UNIT]);
  return c < D ? x : uvec4(0);
}

// Turn u of this invocation takes unit x of the slice; what lies past its end is not stored.
#define EACH(TURNS, ROWS, u, x) \
  [[unroll]] for (uint u = 0, x = tid; u < TURNS; ++u, x += WG) if ((ROWS * DU) % WG == 0 || x < ROWS * DU)
#define FETCH(d0) { \
  EACH(Q_TURNS, BR, u, x) q_next[u] = load_q(q_origin, r0 + x / DU, (d0) + x % DU * UNIT); \
  EACH(K_TURNS, BC, u, x) k_next[u] = load_k(k_origin, col0 + x / DU, (d0) + x % DU * UNIT); }

uint s_origin, rows_left, cols_left;  // of the tile: its first element in S, what there is of S from there on

void put(uint row, uint col, uvec4 x) {
  if (row < rows_left && col < cols_left) STORED(scores, 16, s8[(s_origin + row * pitch + col) / UNIT] = x);
}

void main() {
  const uint id = base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  if (id >= total) return;
  const uint tid = gl_SubgroupID * SG + gl_SubgroupInvocationID;
  const uint across = (nk + BC - 1) / BC, down = (rows + BR - 1) / BR;
  const uint col0 = id % across * BC;
  const uint r0 = id / across % down * BR;  // in the slab
  const uint slab = id / (across * down);   // matrix of the slab
  if (CAUSAL && int(col0) > int(row0 + min(r0 + BR, rows) - 1) + causal_shift) return;

  const uint bh = bh0 + slab, b = bh / heads, h = bh % heads;
  const uint q_origin = q_off + b * q_sb + h * q_sh + row0 * q_sn;
  const uint k_origin = k_off + b * k_sb + (h / group) * k_sh;
  const uint my_row = gl_SubgroupID / WC * FR * M, my_col = gl_SubgroupID % WC * FC * N;  // in the tile

  uvec4 q_next[Q_TURNS], k_next[K_TURNS];
  ACCUMULATOR acc[FR * FC];
  [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] = ACCUMULATOR(0.0);
  FETCH(0)
  uint d0 = 0;
  do {
    if (d0 > 0) barrier();
    EACH(Q_TURNS, BR, u, x) tile[x / DU * PITCH + x % DU] = q_next[u];
    EACH(K_TURNS, BC, u, x) tile[K_AT + x / DU * PITCH + x % DU] = k_next[u];
    barrier();
    if (d0 + DK < D) FETCH(d0 + DK)
    [[unroll]] for (uint d = 0; d < DK / K; ++d) {
      LEFT q[FR];
      [[unroll]] for (uint r = 0; r < FR; ++r) coopMatLoad(q[r], tile, (my_row + r * M) * PITCH + d * (K / UNIT), PITCH, ROW_MAJOR);
      [[unroll]] for (uint c = 0; c < FC; ++c) {
        RIGHT k;
        coopMatLoad(k, tile, K_AT + (my_col + c * N) * PITCH + d * (K / UNIT), PITCH, COLUMN_MAJOR);
        [[unroll]] for (uint r = 0; r < FR; ++r) acc[r * FC + c] = coopMatMulAdd(q[r], k, acc[r * FC + c]);
      }
    }
    d0 += DK;
  } while (d0 < D);
  [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] *= scale;

  s_origin = slab * rows * pitch + r0 * pitch + col0;
  rows_left = rows - r0;
  cols_left = pitch - col0;
#ifndef WIDE
  if (DIRECT && BR <= rows_left && BC <= cols_left) {
    [[unroll]] for (uint f = 0; f < FR * FC; ++f)
      STORED(scores, gl_SubgroupInvocationID == 0 ? 2 * M * N : 0,
        coopMatStore(TO_STRIP(acc[f]), s1, s_origin + (my_row + f / FC * M) * pitch + my_col + f % FC * N, pitch, ROW_MAJOR));
    return;
  }
#endif
  barrier();  // the strips lie where the slices lay
  const uint strip = gl_SubgroupID * M * STRIP_PITCH;
  OUT_BY_STRIPS
}
