#version 460
// Maps of attention weights on matrix hardware, from VK_KHR_cooperative_matrix alone.
//
//   P = exp(s' - lse), pooled over the cells of a picture, or for each query entropy and mean distance
//
// Nothing of size Nq x Nk is stored: P is made again from lse, as in a backward pass (Dao, "FlashAttention-2", 2023, algorithm 2). A subgroup
// owns RM fragments of FM rows at a time, whose Q it holds as operands, and walks over the keys of its columns in tiles of BC, which its
// workgroup stages in shared memory, the next one on its way in registers. Of a tile it takes CK keys at a time: S = Q K^T goes from
// accumulators to shared memory, where each row belongs to one invocation, which makes weights and adds them up (include/map_cells.glsl,
// map_walk.glsl). So nothing is assumed of where accumulators have their elements; a score passes through shared memory once, which costs as
// much as its exponential does, and columns of cells may end anywhere.
//
// Bindings and push constants: scalar_map.comp. Variants: fp16; DTYPE_BF16. Full subgroups of SG required.
//
// Specialization constants (odd(x): x | 1):
//   0 WG = W SG   1 BR = W RM FM   2 BC, a multiple of CK   3 D 1..256   6 ALIGNED: every row of q and k begins at a multiple of 16 bytes,
//                 and D is a multiple of 8
//   8 FM  9 FN  10 FK  fragment     11 SG     4 RM, RM FM a multiple of SG     7 CK, a multiple of FN and of 8
//                 (the first eleven numbers have no gaps: the validation layer, 1.4.309, finds dimensions of matrices by position)
//  20 K_PITCH >= odd(ceil(D/FK) FK/8)   22 KV_LEN >= BC K_PITCH, in 16 bytes   26 X_LEN >= W RM FM odd(CK/4), in 16 bytes
//  14 LARGEST, 15 STATISTICS   include/map_cells.glsl
//  5, 58..62, 72, 81  include/mask.glsl: binding 5 is the block mask     63..66 include/score.glsl: bindings from 8 on
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint BR = 32;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 16;
layout(constant_id = 6) const bool ALIGNED = true;
layout(constant_id = 8) const uint FM = 16;
layout(constant_id = 9) const uint FN = 16;
layout(constant_id = 10) const uint FK = 16;
layout(constant_id = 11) const uint SG = 32;
layout(constant_id = 4) const uint RM = 2;
layout(constant_id = 7) const uint CK = 32;
layout(constant_id = 20) const uint K_PITCH = 3;
layout(constant_id = 22) const uint KV_LEN = 96;
layout(constant_id = 26) const uint X_LEN = 288;

const uint DF = (D + FK - 1) / FK, KU = (D + 7) / 8;      // slices of Q and K; 16-byte units of a row
const uint NS = CK / FN, CHUNKS = BC / CK, W = WG / SG;
const uint S_PITCH = CK / 4 | 1;                          // of a row of scores in shared memory, in 16 bytes
const uint PATCH = RM * S_PITCH;                          // of a row of Q on its way, where scores are later
const uint Q_WIDTH = (PATCH - 1) / (FK / 8) * (FK / 8), Q_PITCH = Q_WIDTH | 1;
const uint Q_PASSES = (DF * FK / 8 + Q_WIDTH - 1) / Q_WIDTH;

#include "matrix_types.glsl"
#include "count.glsl"
#include "args_map.glsl"
#include "common.glsl"

layout(binding = 0) readonly buffer Q4_ { uvec4 q4[]; };
layout(binding = 0) readonly buffer Q16_ { uint16_t q16[]; };
layout(binding = 1) readonly buffer K4_ { uvec4 k4[]; };
layout(binding = 1) readonly buffer K16_ { uint16_t k16[]; };
layout(binding = 2) readonly buffer Lse_ { float lse[]; };

shared uvec4 KV[KV_LEN];   // the staged tile
shared uvec4 X[X_LEN];     // of each subgroup: rows of Q, then scores

#define SCORE_AT 8
#define LENGTHS 6
#define BLOCKS 5
#include "walk.glsl"
#define BIAS_TYPE uint16_t
#define BIAS_ELEMENT(i) UNPAIR(uint(bias16[i])).x
#include "score.glsl"
#include "matrix_gather.glsl"

uint tid, lane, map_group;
#define LANES SG
#define ROWS (RM * FM)
#define TILE_KEYS CK
#define GROUPS W
#define GROUP_BARRIER MEET
#include "map_cells.glsl"
#include "map_walk.glsl"

uint q_base, k_base;   // element at which row 0 of this head lies
uint x_at;             // where the subgroup's part of X begins
uint chunk_key;        // first key of the chunk
bool chunk_edge;
float reference[ROWS_EACH];   // lse of rows in units of log 2; +inf where there are no weights
Span keys_of_rows[ROWS_EACH];
FRAG_A Qm[RM * DF];
ACC S[RM * NS];

const uint K_PIECES = BC * KU, K_EACH = (K_PIECES + WG - 1) / WG;
uvec4 kr[K_EACH];      // pieces of the next tile on their way
#define EACH_PIECE(u, x) [[unroll]] for (uint u = 0, x = tid; u < K_EACH; ++u, x += WG) if (K_PIECES % WG == 0 || x < K_PIECES)

// A key beyond the last is read as the last: its score is replaced.
void fetch_k(uint key0) {
  EACH_PIECE(u, x) {
    const uint from = k_base + min(key0 + x / KU, last_key()) * k_sn, c = x % KU;
    if (ALIGNED) kr[u] = k4[from / 8 + c]; else kr[u] = GATHER(k, from, c, D, true);
  }
}
void store_k() { EACH_PIECE(u, x) KV[x / KU * K_PITCH + x % KU] = kr[u]; }

vec4 pair_weights(uint x, uint c) {
  vec4 s = uintBitsToFloat(X[x_at + (lane + x * SG) * S_PITCH + c]);
  const uint row = query_of_row(x), key = chunk_key + 4 * c;
  if (SCORED) [[unroll]] for (uint e = 0; e < 4; ++e) s[e] = scored(s[e] * (score_scale * LN2), row, key + e) * LOG2E;
  else s *= score_scale;
  if (chunk_edge) [[unroll]] for (uint e = 0; e < 4; ++e) {
    bool seen = key + e < band_end && has(keys_of_rows[x], key + e);
    if (BLOCK_MASK) { if (seen) seen = block_allows(row, key + e); }
    if (!seen) s[e] = NEG_INFINITY;
  }
  pair_bits = reference[x] - s;
  return exp2(s - reference[x]);
}

void take_head() {
  q_base = q_off() + query_origin(map_b, q_sb, q_sn) + map_h * q_sh;
  k_base = k_off() + key_origin(map_b, k_sb, k_sn) + (map_h / group()) * k_sh;
}

// Rows of Q become operands by way of the patch; those that there are not become zeros.
void take_rows() {
  [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) {
    const uint own = query_of_row(x);
    keys_of_rows[x] = keys_of(own);
    reference[x] = -NEG_INFINITY;
    if (own < map_rows_end) {
      const float y = lse[lse_off() + statistics_row(map_b * heads() + map_h) + min(own, last_query())];
      if (y != NEG_INFINITY) reference[x] = y * LOG2E;
    }
  }
  take_blocks(map_b, map_h, map_row0);
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint p = 0; p < Q_PASSES; ++p) {
    MEET
    [[unroll]] for (uint i = 0; i < (FM * Q_WIDTH + SG - 1) / SG; ++i) {
      const uint y = min(i * SG + lane, FM * Q_WIDTH - 1), c = p * Q_WIDTH + y % Q_WIDTH, row = map_row0 + r * FM + y / Q_WIDTH;
      const uint from = q_base + min(row, last_query()) * q_sn;
      uvec4 piece;
      if (ALIGNED) piece = q4[from / 8 + min(c, KU - 1)]; else piece = GATHER(q, from, c, D, true);
      X[x_at + y / Q_WIDTH * Q_PITCH + y % Q_WIDTH] = row < query_count() && c < KU ? piece : uvec4(0);
    }
    MEET
    [[unroll]] for (uint f = 0; f < Q_WIDTH / (FK / 8); ++f)
      if (p * (Q_WIDTH / (FK / 8)) + f < DF)
        coopMatLoad(Qm[r * DF + min(p * (Q_WIDTH / (FK / 8)) + f, DF - 1)], X, x_at + f * (FK / 8), Q_PITCH, BY_ROW);
  }
  MEET
}

void key_tile(uint key0, bool edge) {
  barrier();
  fetch_k(key0);
  store_k();
  barrier();
  [[dont_unroll]] for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
    [[unroll]] for (uint i = 0; i < RM * NS; ++i) S[i] = ACC(0.0);
    [[unroll]] for (uint d = 0; d < DF; ++d) [[unroll]] for (uint n = 0; n < NS; ++n) {
      FRAG_B kb; coopMatLoad(kb, KV, (chunk * CK + n * FN) * K_PITCH + d * FK / 8, K_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(Qm[r * DF + d], kb, S[r * NS + n]);
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n)
      coopMatStore(S[r * NS + n], X, x_at + r * FM * S_PITCH + n * (FN / 4), S_PITCH, BY_ROW);
    MEET
    chunk_key = key0 + chunk * CK;
    chunk_edge = edge;
    add_tile(chunk_key, band_end);
    MEET
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lane = gl_SubgroupInvocationID;
  map_group = gl_SubgroupID;
  tid = gl_SubgroupID * SG + lane;
  x_at = map_group * ROWS * S_PITCH;
  // Zeros in the columns of tiles between D and the next fragment.
  if (DF * FK > 8 * KU) for (uint x = tid; x < BC * (K_PITCH - KU); x += WG) KV[x / (K_PITCH - KU) * K_PITCH + KU + x % (K_PITCH - KU)] = uvec4(0);
  make_map(id);
}
