#version 460
// Maps of attention weights on matrix hardware, from VK_KHR_cooperative_matrix alone.
//
//   P = exp(s' - lse), pooled over the cells of a picture, or for each query entropy and mean distance
//
// Nothing of size Nq x Nk is stored: P is made again from lse, as in a backward pass (Dao, "FlashAttention-2", 2023, algorithm 2). A
// subgroup owns RM fragments of FM rows at a time, whose Q it holds as operands, and walks over the keys of its columns in tiles of BC,
// which its workgroup stages in shared memory, the next one on its way in registers. Of a tile it takes CK keys at a time: S = Q K^T
// becomes P where it is, in accumulators, and invocations add up what they hold of each row, by the probed layout
// (include/matrix_layout.glsl); those that share a row meet where a column of cells ends (include/map_cells.glsl, map_walk.glsl). Layouts
// of which the probe makes nothing are left to scalar_map.comp. (Passing scores through shared memory, so that no layout matters, took four
// times as long.)
//
// Bindings and push constants: scalar_map.comp. Variants: fp16; DTYPE_BF16; CACHE: keys in pages (include/pages.glsl), not quantised, with
// bindings 5, 6 and 12. Full subgroups of SG required.
//
// Specialization constants (odd(x): x | 1):
//   0 WG = W SG   1 BR = W RM FM   2 BC, a multiple of CK   3 D 1..576   6 ALIGNED: every row of q and k begins at a multiple of 16 bytes,
//                 and D is a multiple of 8
//   8 FM  9 FN  10 FK  fragment     11 SG     4 RM     7 CK, a multiple of FN, 32 at most
//                 (the first eleven numbers have no gaps: the validation layer, 1.4.309, finds dimensions of matrices by position)
//  20 K_PITCH >= odd(ceil(D/FK) FK/8)   22 KV_LEN >= BC K_PITCH and >= W FM K_PITCH, in 16 bytes   27..39 include/matrix_layout.glsl
//  14 LARGEST, 15 STATISTICS   include/map_cells.glsl
//  5, 58..62, 72, 81  include/mask.glsl: binding 5, with CACHE 16, is the block mask     63..66 include/score.glsl: bindings from 8 on
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7     104 PAGE, 105 COMPRESSED  with CACHE: include/pages.glsl

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

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

const uint DF = (D + FK - 1) / FK, KU = (D + 7) / 8;      // slices of Q and K; 16-byte units of a row
const uint NS = CK / FN, CHUNKS = BC / CK, W = WG / SG;
const uint Q_EACH = (FM * KU + SG - 1) / SG;              // pieces of a fragment's rows that a lane moves

#include "matrix_types.glsl"
#include "count.glsl"
#include "args_map.glsl"
#include "common.glsl"

VIEWS(Q, q, 0, readonly)
VIEWS(K, k, 1, readonly)
layout(binding = 2) readonly buffer Lse_ { float lse[]; };

shared uvec4 KV[KV_LEN];   // the staged tile, or of each subgroup rows of Q on their way

#define SCORE_AT 8
#define LENGTHS 6
#ifdef CACHE
#define PAGES 5
#define BLOCKS 16
#define K_TYPE 0
#else
#define BLOCKS 5
#endif
#include "walk.glsl"
#define BIAS_TYPE uint16_t
#define BIAS_ELEMENT(i) UNPAIR(uint(bias16[i])).x
#include "score.glsl"
#include "matrix_gather.glsl"

FRAG_A Qm[RM * DF];
ACC S[RM * NS];            // scores of a chunk, then weights
#include "matrix_layout.glsl"

uint tid, lane, map_group, row_lane, col_lane;
#define LANES SG
#define ROWS (RM * FM)
#define ROWS_EACH (RM * SLOTS)
#define HAS_SUMS (col_lane == 0)
#define TILE_KEYS CK
#define GROUPS W
#define GROUP_BARRIER MEET
#include "map_cells.glsl"
#define THREE_LOOPS
#include "map_walk.glsl"

uint q_base, k_base;   // element at which row 0 of this head lies
uint chunk_key;        // first key of the chunk
uint fetched;          // first key of the tile that is on its way
float reference[ROWS_EACH];   // lse of rows in units of log 2; +inf where there are no weights

const uint K_PIECES = BC * KU, K_EACH = (K_PIECES + WG - 1) / WG;
uvec4 kr[K_EACH];      // its pieces
#define EACH_PIECE(u, x) [[unroll]] for (uint u = 0, x = tid; u < K_EACH; ++u, x += WG) if (K_PIECES % WG == 0 || x < K_PIECES)

// A key beyond the last is read as the last: its score is replaced.
void fetch_k(uint key0) {
  EACH_PIECE(u, x) {
    const uint key = min(key0 + x / KU, last_key()), c = x % KU;
#ifdef CACHE
    const uint page = page_of(key), from = row_in_page(k_base, key, page, k_sb, k_sn);
#else
    const uint from = k_base + key * k_sn;
#endif
    if (ALIGNED) kr[u] = k4[from / 8 + c]; else kr[u] = GATHER(k, from, c, D, true);
#ifdef CACHE
    if (is_lost(page)) kr[u] = uvec4(0);
#endif
  }
}
void store_k() { EACH_PIECE(u, x) KV[x / KU * K_PITCH + x % KU] = kr[u]; }

uint row_of_sum(uint x) { return x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS); }
float whole_sum(float s) {
  if (!LARGEST || STATISTICS) return row_sum(s);
  [[unroll]] for (uint b = 0; b < 7; ++b) if (WEIGHT(COL_LANE, b) != 0u) s = joined(s, subgroupShuffleXor(s, 1u << b));
  return s;
}

#define EACH_PAIR(r, n, e) \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
#define SUM_OF(r, e) ((r) * SLOTS + SLOT_OF(e))

void add_keys(uint own) {
  if (own == ~0u) {
    EACH_PAIR(r, n, e) tile_keys[SUM_OF(r, e)] = joined(tile_keys[SUM_OF(r, e)], S[r * NS + n][e]);
  } else {
    const uint mine = own >> col_lane;
    EACH_PAIR(r, n, e)
      tile_keys[SUM_OF(r, e)] = joined(tile_keys[SUM_OF(r, e)], (mine >> n * FN + COL_OF(e) & 1u) != 0u ? S[r * NS + n][e] : 0.0);
  }
}
// There S is -log2 of weights.
void add_statistics() {
  EACH_PAIR(r, n, e) take_pair(SUM_OF(r, e), exp2(-S[r * NS + n][e]), S[r * NS + n][e], chunk_key + n * FN + col_lane + COL_OF(e));
}

// S = exp2(S scale - reference) of a chunk.
void weigh(bool edge) {
  if (SCORED) EACH_PAIR(r, n, e)
    S[r * NS + n][e] = bits_of_score(scored(S[r * NS + n][e] * (score_scale * LN2), map_row0 + r * FM + row_lane + ROW_OF(e),
      chunk_key + n * FN + col_lane + COL_OF(e)));
  if (edge) [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    const uint row = map_row0 + r * FM + row_lane + ROW_OF(e);
    const Span keys = keys_of(row);
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      const uint key = chunk_key + n * FN + col_lane + COL_OF(e);
      bool seen = key < band_end && has(keys, key);
      if (BLOCK_MASK) { if (seen) seen = block_allows(row, key); }
      if (!seen) S[r * NS + n][e] = score_scale < 0.0 && !SCORED ? infinity() : -infinity();
    }
  }
  EACH_PAIR(r, n, e) {
    float bits = at_most_zero(fma(S[r * NS + n][e], SCORED ? 1.0 : score_scale, -reference[SUM_OF(r, e)]));   // as weight_of
    if (SCORED) { if (reference[SUM_OF(r, e)] == infinity()) bits = -infinity(); }   // of a query that does not exist
    S[r * NS + n][e] = STATISTICS ? -bits : exp2(bits);
  }
}

// Zeros in the columns of staged rows between D and the next fragment.
void zero_beyond_columns(uint at, uint rows, uint first, uint step) {
  if (DF * FK > 8 * KU) for (uint x = first; x < rows * (K_PITCH - KU); x += step)
    KV[at + x / (K_PITCH - KU) * K_PITCH + KU + x % (K_PITCH - KU)] = uvec4(0);
}

void take_head() {
  q_base = q_off() + query_origin(map_b, q_sb, q_sn) + map_h * q_sh;
  k_base = K_OFF + key_origin(map_b, k_sb, k_sn) + (map_h / group()) * k_sh;
}

// Rows of Q become operands by way of shared memory; those that there are not become zeros.
void take_rows() {
  [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) {
    const uint own = query_of_sum(x);
    reference[x] = infinity();
    if (own < map_rows_end && query_exists(own)) {
      const float y = lse[lse_off() + statistics_row(map_b * heads() + map_h) + min(own, last_query())];
      if (y != -infinity()) reference[x] = bits_of_score(y);
    }
  }
  take_blocks(map_b, map_h, map_row0);
  fetched = ~0u;
  barrier();   // nobody reads the last tile any more
  const uint at = map_group * FM * K_PITCH;
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint i = 0; i < Q_EACH; ++i) {
      const uint y = min(i * SG + lane, FM * KU - 1), c = y % KU, row = map_row0 + r * FM + y / KU;
      const uint from = q_base + min(row, last_query()) * q_sn;
      uvec4 piece;
      if (ALIGNED) piece = q4[from / 8 + c]; else piece = GATHER(q, from, c, D, true);
      KV[at + y / KU * K_PITCH + c] = row < query_count() ? piece : uvec4(0);
    }
    zero_beyond_columns(at, FM, lane, SG);
    MEET
    [[unroll]] for (uint d = 0; d < DF; ++d) coopMatLoad(Qm[r * DF + d], KV, at + d * (FK / 8), K_PITCH, BY_ROW);
    MEET
  }
  barrier();
  zero_beyond_columns(0, BC, tid, WG);
}

void key_tile(uint key0, bool edge) {
  if (fetched != key0) fetch_k(key0);
  barrier();
  store_k();
  barrier();
  fetched = key0 + BC;
  fetch_k(fetched);
  [[unroll]] for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
    [[unroll]] for (uint i = 0; i < RM * NS; ++i) S[i] = ACC(0.0);
    [[unroll]] for (uint d = 0; d < DF; ++d) [[unroll]] for (uint n = 0; n < NS; ++n) {
      FRAG_B kb; coopMatLoad(kb, KV, (chunk * CK + n * FN) * K_PITCH + d * FK / 8, K_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(Qm[r * DF + d], kb, S[r * NS + n]);
    }
    chunk_key = key0 + chunk * CK;
    weigh(edge);
    add_tile(chunk_key, band_end);
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lane = gl_SubgroupInvocationID;
  map_group = gl_SubgroupID;
  tid = gl_SubgroupID * SG + lane;
  row_lane = lane_part(ROW_LANE, lane); col_lane = lane_part(COL_LANE, lane);
  make_map(id);
}
