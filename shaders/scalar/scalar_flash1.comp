#version 460
// FlashAttention, the first one, forward in plain fp32 arithmetic, for any Vulkan 1.1 GPU: keys outside, queries inside.
//
//   for each block of keys j:        K_j, V_j into shared memory
//     for each block of queries i:   Q_i, O_i, m_i, l_i read
//       S = scale Q_i K_j^T,  m' = max(m_i, rowmax S),  P = exp(S - m'),  l' = exp(m_i - m') l_i + rowsum P
//       O_i = (exp(m_i - m') l_i O_i + P V_j) / l',  l_i = l',  m_i = m'   written back
//
// Dao, Fu, Ermon, Rudra, Re, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022, algorithm 1. Like
// standard attention with its scores tiled away: K and V are read once, and in exchange O, m and l of every query pass through device
// memory once for each block of keys, O in fp32 and divided by l every time. That is Theta(N^2 d^2 / M) bytes of traffic, with M the shared
// memory that K_j and V_j may fill, in place of Theta(N d + N^2).
//
// It is kept to show what FlashAttention-2 (scalar_forward.comp) gained by turning the two loops round: there O, m and l of a block of
// queries stay in registers, O is divided once, and blocks of queries are independent of each other, so that they are workgroups. Here
// they are not: each block of keys needs what the one before left behind. So a workgroup is a whole head, as in the paper, and runs both
// loops; long sequences with few heads leave most of a GPU idle, and that is part of the measurement. (One dispatch for each block of
// keys, over all blocks of queries, would occupy it, at the price of reading K and V again in every workgroup. That is no longer the
// loop order that the paper describes: K_j and V_j would stay nowhere.)
//
// What is like in scalar_forward.comp, with which it shares its parts: who owns which piece of S and O, pitches, slots, units of log 2,
// masks. An invocation owns the same piece of every O_i for all j, so it reads back what it wrote itself, and only m and l, which all TX
// invocations of a row read and one writes, need a memory barrier. The first block of keys knows that O = 0, l = 0 and m is the lowest
// number, and reads nothing; the last that a query may see writes O in its own type, and lse. With a causal mask the inner loop starts
// at the first block of queries that sees a key of the block. The first block of keys visits all queries: one with nothing to attend to
// ends with l = 0 and gives O = 0, lse = -inf.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32,
// 5 m and l [B,Hq,Nq,2] fp32, 6 O between blocks of keys [B,Hq,Nq,4 ceil(DV/4)] fp32; fp32 keeps it in O itself and has no binding 6.
// Push constants: include/args.glsl. Workgroups: B Hq for each of ceil(blocks of keys / KEY_BLOCKS) parts, the parts one after the
// other, in dispatches of their own (a device may not answer for too long a dispatch).
// Variants: DTYPE (include/dtype.glsl); SUBGROUP: rows are reduced by shuffles, with the conditions of scalar_forward.comp.
//
// Specialization constants. v4 stands for vec4s (16 bytes), odd(x) for x | 1, DK4 = DK/4 and so on, DC = ceil(D/DK).
//
//   0 WG          workgroup size = (BR/MR)(BC/MC)
//   1 BR          queries of a block, a multiple of MR
//   2 BC          keys of a block, a multiple of MC
//   3 D, 4 DV     columns of Q and K, of V and O: 1..256
//   5 and 58  include/mask.glsl     90..92 include/lengths.glsl: bindings 12 and 13
//   6 ALIGNED     1: every row of q, k, v begins 16-byte aligned (offsets and strides are multiples of 16 bytes), every row of o is aligned
//                 to four elements, and D and DV are multiples of 16 bytes
//   7 WRITE_LSE   1: binding 4 is written
//   8 MR, 9 MC    piece of S of an invocation; MC a multiple of 4; TX even where ALIGNED and the type has 16 bits
//  10 DK          columns of Q staged at a time, a multiple of 4 (of 8 for 16-bit types)
//  11 VC          keys of V staged at a time, a multiple of 4 that divides BC. BC: V_j is staged once, as in the paper; less, where
//                 shared memory is small: for every block of queries again
//  12 KEY_BLOCKS  blocks of keys of a part
//  13 K_AT, 14 V_AT, 15 P_AT   where K, V and P begin in shared memory, in v4; Q begins at 0
//  16 SHARED_V4   length of shared memory in v4
//  17 REDUCE_LEN  floats for the row reduction: BR TX without SUBGROUP, 1 with it
// 112 MAX_LOGIT   include/max_logit.glsl: binding 14
//  18 DROPOUT     1: weights are dropped after the sum l is taken (include/dropout.glsl); 0: drop_k and the rest are ignored
//
//   sizes in v4:  Q  BR odd(DK4)    K  BC odd(DC DK4)    V  VC TX ceil(DV4/TX)    P  BR odd(BC/4)       none may overlap

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

#include "dtype.glsl"
#include "count.glsl"
#include "args.glsl"
#include "common.glsl"
#define SCORE_AT 8
#define LENGTHS 12
#include "lengths.glsl"
#include "dropout.glsl"

layout(local_size_x = 64, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint BR = 32;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 64;
layout(constant_id = 4) const uint DV = 64;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool WRITE_LSE = true;
layout(constant_id = 8) const uint MR = 4;
layout(constant_id = 9) const uint MC = 4;
layout(constant_id = 10) const uint DK = 64;
layout(constant_id = 11) const uint VC = 32;
layout(constant_id = 12) const uint KEY_BLOCKS = 1;
layout(constant_id = 13) const uint K_AT = 544;
layout(constant_id = 14) const uint V_AT = 1088;
layout(constant_id = 15) const uint P_AT = 1600;
layout(constant_id = 16) const uint SHARED_V4 = 1888;
layout(constant_id = 17) const uint REDUCE_LEN = 256;
layout(constant_id = 18) const bool DROPOUT = false;

const uint TX = BC / MC;
const uint TY = BR / MR;
const uint MC4 = MC / 4;
const uint DK4 = DK / 4;
const uint D_CHUNKS = (D + DK - 1) / DK;
const uint Q_PITCH = DK4 | 1;
const uint K_WIDTH = D_CHUNKS * DK4;
const uint K_PITCH = K_WIDTH | 1;
const uint P_PITCH = (BC / 4) | 1;
const uint DV4 = (DV + 3) / 4;
const uint MD4 = (DV4 + TX - 1) / TX;  // vec4s of a row of O that an invocation owns
const uint V_WIDTH = MD4 * TX;
const bool V_STAYS = VC == BC;

INPUT(q, 0)
INPUT(k, 1)
INPUT(v, 2)
#if DTYPE == F32
GRADIENT(o, 3)  // read too
#else
OUTPUT(o, 3)
layout(set = 0, binding = 6, std430) buffer Sums { vec4 sums[]; };
#endif
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
layout(set = 0, binding = 5, std430) coherent buffer Statistics { vec2 statistics[]; };  // m, l

shared vec4 tile[SHARED_V4];
#ifndef SUBGROUP
shared float reduce[REDUCE_LEN];
#endif

uint lid, tx, ty;

uint same(uint r) { return r; }
// Key 4 (tx + TX jj) + c goes to slot tx + TX (4 jj + c).
uint k_slot(uint r) { return r / 4 % TX + TX * (4 * (r / (4 * TX)) + r % 4); }

#define STAGE stage_q
#define STAGE_T q
#define STAGE_ROWS BR
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH Q_PITCH
#define STAGE_SLOT same
#define STAGE_SCALE score_scale
#include "stage.glsl"

#define STAGE stage_k
#define STAGE_T k
#define STAGE_ROWS BC
#define STAGE_WIDTH K_WIDTH
#define STAGE_COLS D
#define STAGE_PITCH K_PITCH
#define STAGE_SLOT k_slot
#define STAGE_SCALE 1.0
#include "stage.glsl"

#define STAGE stage_v
#define STAGE_T v
#define STAGE_ROWS VC
#define STAGE_WIDTH V_WIDTH
#define STAGE_COLS DV
#define STAGE_PITCH V_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

uint q0, bh;                                  // first query of the block, head (batch and head flattened)
uint q_origin, k_origin, v_origin, o_origin;  // element at which row 0 of this head lies
vec4 S[MR * MC4];                             // scores of a block, then P
vec4 acc[MR * MD4];                           // O_i
int own_logit;                                // MAX_LOGIT: the largest score of the rows that this invocation saw the last of

#include "micro_scores.glsl"
#define PRODUCT add_product
#define PRODUCT_SUM acc
#define PRODUCT_M4 MD4
#define PRODUCT_PITCH V_WIDTH
#include "micro_product.glsl"
#include "walk.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"
#include "sinks.glsl"
#define MAX_LOGIT_AT 14
#include "max_logit.glsl"
#include "micro_softmax.glsl"

// Rows of P are read by the invocations that wrote them. With SUBGROUP those are of one subgroup.
void barrier_for_p() {
#ifdef SUBGROUP
  subgroupMemoryBarrierShared();
  subgroupBarrier();
#else
  barrier();
#endif
}

// This invocation's piece j of row `row` of O between blocks of keys. Rows and columns outside are read from a place inside; what
// is made of them is never written.
vec4 load_sum(uint row, uint j) {
  const uint c4 = min(tx + TX * j, DV4 - 1);
  COUNTING(const bool real = row < nq && tx + TX * j < DV4;)
  row = min(row, nq - 1);
#if DTYPE == F32
  const uint at = o_origin + row * o_sn;
  if (ALIGNED) return LOADED_IF(o, 16, real, o4[at / 4 + c4]);
  vec4 x;
  [[unroll]] for (uint e = 0; e < 4; ++e) x[e] = LOADED_IF(o, 4, real && 4 * c4 + e < DV, o1[at + min(4 * c4 + e, DV - 1)]);
  return x;
#else
  return LOADED_IF(sums, 16, real, sums[(bh * nq + row) * DV4 + c4]);
#endif
}

// The same, written; last: there is no further block of keys for this row.
void store_sum(uint row, uint j, vec4 x, bool last) {
  const uint c4 = tx + TX * j;
  if (row >= nq || c4 >= DV4) return;
#if DTYPE != F32
  if (!last) {
    STORED(sums, 16, sums[(bh * nq + row) * DV4 + c4] = x);
    return;
  }
#endif
  const uint at = o_origin + row * o_sn + 4 * c4;
  if (ALIGNED) {
    STORED(o, 4 * BYTES, o4[at / 4] = encode4(x));
  } else {
    [[unroll]] for (uint e = 0; e < 4; ++e)
      if (4 * c4 + e < DV) STORED(o, BYTES, o1[at + e] = encode(x[e]));
  }
}

// One block of queries against the block of keys that is in shared memory. edge: some scores may have to be masked, some keys may not
// exist; first, last: of the blocks of keys that these queries see.
void query_block(uint key0, bool edge, bool first, bool last) {
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] = vec4(0);
  for (uint chunk = 0; chunk < D_CHUNKS; ++chunk) {
    barrier();  // the last reads of what is overwritten now
    stage_q(0, q_origin, q_sn, q0, query_count(), chunk * DK, true);
    barrier();
    add_scores(ty * Q_PITCH, K_AT + tx * K_PITCH + chunk * DK4);
  }
  if (SCORED) score_pairs(key0);
  if (edge) mask_scores(key0);

  float m[MR], l[MR];
  [[unroll]] for (uint i = 0; i < MR; ++i) { m[i] = LOWEST; l[i] = 0; }
  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) acc[i] = vec4(0);
  if (!first) {
    [[unroll]] for (uint i = 0; i < MR; ++i) {
      const uint row = q0 + ty + TY * i;
      const vec2 s = LOADED_IF(statistics, 8, row < nq, statistics[bh * nq + min(row, nq - 1)]);
      m[i] = s.x;
      l[i] = s.y;
      [[unroll]] for (uint j = 0; j < MD4; ++j) acc[i * MD4 + j] = load_sum(row, j);
    }
  }

  float top[MR], sum[MR];
  row_maximum(m, top);
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    l[i] *= exp2(m[i] - top[i]);
    sum[i] = weigh(i, top[i]);
    [[unroll]] for (uint j = 0; j < MD4; ++j) acc[i * MD4 + j] *= l[i];
  }
  sum_over_row(sum);
  if (DROPOUT) {
    drop_weights(key0);
    const float keep = drop_scale();
    [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] *= keep;
  }

  [[unroll]] for (uint i = 0; i < MR; ++i)
    [[unroll]] for (uint j = 0; j < MC4; ++j) tile[P_AT + (ty + TY * i) * P_PITCH + tx + TX * j] = S[i * MC4 + j];
  if (V_STAYS) {
    barrier_for_p();
    add_product(P_AT + ty * P_PITCH, V_AT + tx, BC / 4);
  } else {
    for (uint c = 0; c < BC / VC; ++c) {
      if (c > 0) barrier();
      stage_v(V_AT, v_origin, v_sn, key0 + c * VC, key_count(), 0, true);
      barrier();
      add_product(P_AT + ty * P_PITCH + c * (VC / 4), V_AT + tx, VC / 4);
    }
  }

  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint row = q0 + ty + TY * i;
    l[i] += sum[i];
    if (MAX_LOGIT) {
      if (last && row < query_count()) own_logit = max(own_logit, logit_of(l[i] == 0 ? NEG_INFINITY : top[i], l[i]));
    }
    float sunk = 1;
    if (SINKS && last && query_exists(row)) sunk = join_sink(bh % heads(), top[i], l[i]);
    const float inv = l[i] == 0 ? 0 : sunk / l[i];
    [[unroll]] for (uint j = 0; j < MD4; ++j) store_sum(row, j, acc[i * MD4 + j] * inv, last);
    if (tx == 0 && row < nq) {
      if (!last) STORED(statistics, 8, statistics[bh * nq + row] = vec2(top[i], l[i]));
      else if (WRITE_LSE) STORED(lse, 4, lse[lse_off() + bh * nq + row] = l[i] == 0 ? NEG_INFINITY : score_of_bits(top[i] + log2(l[i])));
    }
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
#ifdef SUBGROUP
  lid = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
#else
  lid = gl_LocalInvocationIndex;
#endif
  tx = lid % TX;
  ty = lid / TX;

  const uint query_blocks = (nq + BR - 1) / BR, key_blocks = (nk + BC - 1) / BC;
  const uint matrices = total / ((key_blocks + KEY_BLOCKS - 1) / KEY_BLOCKS);  // B Hq
  const uint part = id / matrices;
  bh = id % matrices;
  const uint b = bh / heads(), h = bh % heads();
  take_lengths(b);
  if (SCORED) scores_of(b, h);
  q_origin = q_off() + b * q_sb + h * q_sh;
  k_origin = k_off() + b * k_sb + (h / group()) * k_sh;
  v_origin = v_off() + b * v_sb + (h / group()) * v_sh;
  o_origin = o_off() + b * o_sb + h * o_sh;

  // Blocks of keys that any query sees, and the first one, which all visit; a part beyond them has nothing to do. From here on every
  // loop runs at least once.
  const uint end_j = min((part + 1) * KEY_BLOCKS, max(key_tiles(last_query(), last_query(), BC).end, 1));
  uint j = part * KEY_BLOCKS;
  if (j >= end_j) return;

  own_logit = NO_LOGIT;
  do {
    const uint key0 = j * BC;
    const Walk queries = query_tiles(key0, key0 + BC - 1, BR, 0, query_count());
    uint i = j > 0 ? queries.begin : 0;
    const uint end_i = j > 0 ? queries.end : query_blocks;
    if (LOWER_BOUND) { if (i >= end_i) continue; }   // before every window
    barrier();
    stage_k(K_AT, k_origin, k_sn, key0, key_count(), 0, true);
    if (V_STAYS) stage_v(V_AT, v_origin, v_sn, key0, key_count(), 0, true);
    do {
      q0 = i * BR;
      const Walk keys = key_tiles(q0, min(q0 + BR, nq) - 1, BC);
      query_block(key0, !is_whole(keys, j), j == 0, j + 1 == max(keys.end, 1));
    } while (++i < end_i);
    memoryBarrierBuffer();  // m and l, for the other invocations of a row
    barrier();
  } while (++j < end_j);
  if (MAX_LOGIT) {   // rows meet where Q was
    if (tx == 0) tile[ty].x = logit_of_key(own_logit);
    barrier();
    if (lid == 0) {
      for (uint i = 1; i < TY; ++i) own_logit = max(own_logit, logit_key(tile[i].x));
      add_logit(bh, own_logit);
    }
  }
}
