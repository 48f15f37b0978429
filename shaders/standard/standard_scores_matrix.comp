#version 460
// Standard attention on cooperative matrices, first of three kernels: S = scale Q K^T for a slab of rows, written in the inputs' type.
//
// Dao et al., "FlashAttention", 2022, algorithm 0, line 1. What standard_scores.comp does, with the same bindings, push constants and
// slabs; include/standard_matrix.glsl has how matrices are staged and written. What bounds the kernel is writing S, and next the reading
// of fragments from shared memory. So a subgroup keeps its rows of Q in registers, whole, and a workgroup walks over a run of RUN tiles
// of BC keys, whose K passes through shared memory: a tile's S is on its way to memory and the next tile's K on its way here while other
// workgroups multiply. With a causal mask, tiles of S that no query may see are not computed. Rows beyond the slab repeat its last row,
// and keys beyond nk the last key: what comes of them is not written, or is written behind column nk, where nobody looks.
//
// Bindings: 0 Q, 1 K, 2 S [bh - bh0][row - row0][pitch], pitch a multiple of 8.
// Workgroups: ceil(nk/(RUN BC)) ceil(rows/BR) matrices, runs fastest; BR = WR FR M, BC = FC N.
//
// Specialization constants: those of include/standard_matrix.glsl, with WC = 1; odd(x) is x | 1.
//
//   8 D  1..256     9 RUN  tiles of keys in a run
//   11 ALIGNED  every row of q and k begins 16-byte aligned and D is a multiple of 8
//   90..92, 100, 101  include/lengths.glsl: bindings 3 and 4, further arguments at 5
//   12 SHARED  BC odd(D/8, D rounded up to whole fragments) + WR max(STRIP, M Q_PITCH)

#extension GL_GOOGLE_include_directive : require
#include "standard_matrix.glsl"

layout(constant_id = 8) const uint D = 64;
layout(constant_id = 9) const uint RUN = 8;

#define SLABS
#include "args.glsl"

#define LENGTHS 3
#define SCORE_AT 5
#include "walk.glsl"

layout(set = 0, binding = 0, std430) readonly buffer QUnits { uvec4 q8[]; };
layout(set = 0, binding = 0, std430) readonly buffer QElements { uint16_t q1[]; };
layout(set = 0, binding = 1, std430) readonly buffer KUnits { uvec4 k8[]; };
layout(set = 0, binding = 1, std430) readonly buffer KElements { uint16_t k1[]; };
layout(set = 0, binding = 2, std430) writeonly buffer SUnits { uvec4 s8[]; };

const uint DK = (D + K - 1) / K;  // fragments along a row of Q or K
const uint DU = DK * K / UNIT;    // units of it
const uint K_PITCH = DU | 1;
const uint K_TURNS = (BC * DU + WG - 1) / WG;

// A subgroup's rows of Q pass through its strip: M rows, and as many fragments side by side as fit below a strip of S.
const uint QK = FC * N > K ? FC * N / K : 1;
const uint QU = QK * K / UNIT;
const uint Q_PITCH = QU | 1;
const uint Q_ROUNDS = (DK + QK - 1) / QK;
const uint Q_TURNS = (M * QU + SG - 1) / SG;
const uint PASSAGE = STRIP > M * Q_PITCH ? STRIP : M * Q_PITCH;  // of a subgroup

// A unit of row r at column c of q or k; zeros from column D on.
uvec4 load_q(uint origin, uint r, uint c) {
  const uint at = origin + min(r, rows - 1) * q_sn;
  if (!ALIGNED) return GATHER(q, at, c, D, r < rows);
  const uvec4 x = LOADED_IF(q, 16, r < rows && c < D, q8[(at + min(c, D - UNIT)) / UNIT]);
  return c < D ? x : uvec4(0);
}
uvec4 load_k(uint origin, uint r, uint c) {
  const uint at = origin + min(r, nk - 1) * k_sn;
  if (!ALIGNED) return GATHER(k, at, c, D, r < nk);
  const uvec4 x = LOADED_IF(k, 16, r < nk && c < D, k8[(at + min(c, D - UNIT)) / UNIT]);
  return c < D ? x : uvec4(0);
}

// The tile of keys from col on. (A macro: an argument would be one more variable, and spirv-opt takes none out of a module that has
// bfloat16; without an argument the two uses would need a store to tell them apart.)
#define FETCH(col) { \
  if (ALIGNED && D % K == 0 && (col) + BC <= nk) { \
    EACH(K_TURNS, BC * DU, u, x) k_next[u] = LOADED(k, 16, k8[k_at[u] + (col) * k_sn / UNIT]); \
  } else { \
    EACH(K_TURNS, BC * DU, u, x) k_next[u] = load_k(k_origin, (col) + x / DU, x % DU * UNIT); \
  } }

uint s_origin, rows_left, cols_left;  // of the tile: its first element in S, what there is of S from there on

void put(uint row, uint col, uvec4 x) {
  if (row < rows_left && col < cols_left) STORED(scores, 16, s8[(s_origin + row * pitch + col) / UNIT] = x);
}

const uint my_col = 0;
#include "standard_strips.glsl"

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  const uint lane = gl_SubgroupInvocationID;
  tid = gl_SubgroupID * SG + lane;
  const uint across = (nk + RUN * BC - 1) / (RUN * BC), down = (rows + BR - 1) / BR;
  const uint r0 = id / across % down * BR;  // in the slab
  const uint slab = id / (across * down);   // matrix of the slab
  const uint bh = bh0 + slab, b = bh / heads(), h = bh % heads();
  take_lengths(b);
  const Walk keys = key_tiles(row0 + r0, row0 + min(r0 + BR, rows) - 1, BC);
  const uint first = max(id % across * RUN, keys.begin) * BC, end = min(id % across * RUN + RUN, keys.end) * BC;
  if (first >= end) return;

  const uint q_origin = q_off() + b * q_sb + h * q_sh + row0 * q_sn;
  const uint k_origin = k_off() + b * k_sb + (h / group()) * k_sh;
  my_row = gl_SubgroupID * FR * M;
  strip = BC * K_PITCH + gl_SubgroupID * PASSAGE;

  uvec4 k_next[K_TURNS];
  uint k_at[K_TURNS];  // places of key 0's tile, in units
  EACH(K_TURNS, BC * DU, u, x) k_at[u] = (k_origin + x / DU * k_sn) / UNIT + x % DU;
  LEFT q[FR * DK];
  {
    uvec4 q_next[FR * Q_ROUNDS * Q_TURNS];  // asked for all at once: one wait
    [[unroll]] for (uint i = 0; i < FR * Q_ROUNDS; ++i)
      [[unroll]] for (uint u = 0, x = lane; u < Q_TURNS; ++u, x += SG)
        if ((M * QU) % SG == 0 || x < M * QU)
          q_next[i * Q_TURNS + u] = load_q(q_origin, r0 + my_row + i / Q_ROUNDS * M + x / QU, (i % Q_ROUNDS * QU + x % QU) * UNIT);
    FETCH(first)
    [[unroll]] for (uint i = 0; i < FR * Q_ROUNDS; ++i) {
      [[unroll]] for (uint u = 0, x = lane; u < Q_TURNS; ++u, x += SG)
        if ((M * QU) % SG == 0 || x < M * QU) tile[strip + x / QU * Q_PITCH + x % QU] = q_next[i * Q_TURNS + u];
      MEET
      [[unroll]] for (uint f = 0; f < QK; ++f)
        if (i % Q_ROUNDS * QK + f < DK)
          coopMatLoad(q[min(i / Q_ROUNDS * DK + i % Q_ROUNDS * QK + f, FR * DK - 1)], tile, strip + f * (K / UNIT), Q_PITCH, ROW_MAJOR);
      MEET
    }
  }

  rows_left = rows - r0;
  uint col = first;
  [[dont_unroll]] do {
    barrier();
    EACH(K_TURNS, BC * DU, u, x) tile[x / DU * K_PITCH + x % DU] = k_next[u];
    barrier();
    s_origin = (slab * rows + r0) * pitch + col;
    cols_left = pitch - col;
    col += BC;
    if (col < end) FETCH(col)
    [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] = ACCUMULATOR(0.0);
    [[unroll]] for (uint d = 0; d < DK; ++d)
      [[unroll]] for (uint c = 0; c < FC; ++c) {
        RIGHT k;
        coopMatLoad(k, tile, c * N * K_PITCH + d * (K / UNIT), K_PITCH, COLUMN_MAJOR);
        [[unroll]] for (uint r = 0; r < FR; ++r) acc[r * FC + c] = coopMatMulAdd(q[r * DK + d], k, acc[r * FC + c]);
      }
    [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] *= score_scale;
    out_by_strips();
  } while (col < end);
}
