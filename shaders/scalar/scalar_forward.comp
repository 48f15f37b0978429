#version 460
// FlashAttention-2 forward in plain fp32 arithmetic, for any Vulkan 1.1 GPU.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1: a workgroup keeps BR
// queries and walks over the keys in tiles of BC; the maximum m and the sum l of a row follow along (online softmax), O is rescaled
// when m grows and divided by l once, at the end. Nothing of size Nq x Nk leaves the workgroup.
//
// Why it looks this way. Both products are bound by reading their operands from shared memory, so each invocation owns an
// MR x MC piece of S and an MR x (DV/TX) piece of O in registers, and one 16-byte read feeds 4 MR or 4 MC multiply-adds:
//
//   invocation (tx, ty), TX = BC/MC columns of invocations, TY = BR/MR rows, WG = TX TY
//   its rows of S and O:      ty + TY i,  i < MR
//   its columns of S (keys):  4 (tx + TX jj) + c,  jj < MC/4, c < 4     (four neighbours, so that P is written 16 bytes at a time)
//   its columns of O:         4 (tx + TX jd) + c,  jd < ceil(DV/4/TX)
//
// Q and K are read along d, P along the keys. Row pitches of Q, K and P are odd in units of 16 bytes, so that rows that are read
// together lie in different banks. K's rows are staged in the order in which they are read (k_slot): the keys that the TX
// invocations of a row read together are neighbours. P passes through shared memory, since a row of P is spread over TX invocations
// and each needs all of it. Row statistics sit in registers, the same in all TX invocations; l is summed across them only at the end.
// Scores are in units of log 2 (Q is staged times scale log2 e), so exp is exp2; m is the maximum of scaled scores, so scale may be
// negative. Only tiles on the diagonal and the last one take the branch (the same for a whole workgroup) that masks.
//
// A masked score is -inf, but m starts from the lowest finite number: m - m and -inf - m never meet the undefined (-inf) - (-inf), a
// masked P is 0 whatever else the row holds, and a row with nothing to attend to ends with l = 0 and gives O = 0, lse = -inf.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32.
// Push constants: include/args.glsl. Workgroups: ceil(nq/BR) B Hq; with a causal mask the longest query blocks first;
// of packed sequences (include/rows.glsl) those there may be at most.
// Variants: DTYPE (include/dtype.glsl); CACHE: keys and values in pages (include/pages.glsl) or quantised (include/quantised.glsl), with
// bindings 5, 6 and 12 to 14; KEY_PARTS: keys in parts, with
// PARTS times as many workgroups and other bindings 3 and 4, which combine_parts.comp reads: O over the part's own sum [PARTS,B,Hq,Nq,DV
// rounded up to 8] fp32, and the logarithm to base 2 of that sum [PARTS,B,Hq,Nq]; SUBGROUP: rows are reduced by shuffles (needs subgroup
// basic and shuffle in compute, a power-of-two TX that divides the subgroup size, WG a multiple of it, and full subgroups), else through
// shared memory.
//
// Specialization constants. v4 stands for vec4s (16 bytes), odd(x) for x | 1, DK4 = DK/4 and so on, DC = ceil(D/DK).
//
//   0 WG          workgroup size = (BR/MR)(BC/MC)
//   1 BR          queries of a workgroup, a multiple of MR
//   2 BC          keys of a tile, a multiple of MC
//   3 D, 4 DV     columns of Q and K, of V and O: 1..576
//   6 ALIGNED     1: every row of q, k, v begins 16-byte aligned (offsets and strides are multiples of 16 bytes), every row of o is aligned
//                 to four elements, and D and DV are multiples of 16 bytes
//   7 WRITE_LSE   1: binding 4 is written
//   8 MR, 9 MC    piece of S of an invocation; MC a multiple of 4; TX even where ALIGNED and the type has 16 bits
//  10 DK          columns of K staged at a time, a multiple of 4 (of 8 for 16-bit types); smaller than D: S is summed over DC chunks
//  11 VC          keys of V staged at a time, a multiple of 4 that divides PC
//  12 PC          keys of P in shared memory at a time, a multiple of 4 TX that divides BC
//  13 Q_RESIDENT  1: Q is staged once, whole; 0: DK columns at a time beside K, for every tile again
//  14 V_EARLY     1: V of the whole tile is staged with K (needs DK >= D; V, P and K apart); 0: after S, where K was if wished
//  15 K_AT, 16 V_AT, 17 P_AT   where K, V and P begin in shared memory, in v4; Q begins at 0
//  18 SHARED_V4   length of shared memory in v4
//  19 REDUCE_LEN  floats for the row reduction: BR TX without SUBGROUP, 1 with it
//  5, 58..62, 72, 81  include/mask.glsl: binding 5, with CACHE 16, is the block mask (not with KEY_PARTS)
//  63..67  include/score.glsl, sinks.glsl: bindings from 8 on
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7
//  110 WITHIN      include/dropout.glsl: at the binding of further arguments     112 MAX_LOGIT  include/max_logit.glsl: binding 12, or 15
//  20 DROPOUT     1: weights are dropped after the sum l is taken (include/dropout.glsl); 0: drop_k and the rest are ignored
//  21 PARTS       KEY_PARTS: the number of parts
// 104 PAGE, 105 COMPRESSED, 106 K_TYPE, 107 V_TYPE   with CACHE: include/pages.glsl, quantised.glsl
//
//   sizes in v4:  Q  BR odd(DC DK4) resident, else BR odd(DK4)     K  BC odd(DK4)
//                 P  BR odd(PC4)                                   V  VC TX ceil(DV4/TX), BC instead of VC with V_EARLY
//   V and P may lie where K and (not resident) Q are unless V_EARLY; V and P may not overlap.

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
#define PARTS_OF_WHOLES
#include "dropout.glsl"
#define LENGTHS 6
#define PAGES 5
#include "lengths.glsl"

layout(local_size_x = 64, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint BR = 64;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 64;
layout(constant_id = 4) const uint DV = 64;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool WRITE_LSE = true;
layout(constant_id = 8) const uint MR = 8;
layout(constant_id = 9) const uint MC = 4;
layout(constant_id = 10) const uint DK = 64;
layout(constant_id = 11) const uint VC = 32;
layout(constant_id = 12) const uint PC = 32;
layout(constant_id = 13) const bool Q_RESIDENT = true;
layout(constant_id = 14) const bool V_EARLY = false;
layout(constant_id = 15) const uint K_AT = 1088;
layout(constant_id = 16) const uint V_AT = 1088;
layout(constant_id = 17) const uint P_AT = 1632;
layout(constant_id = 18) const uint SHARED_V4 = 2208;
layout(constant_id = 19) const uint REDUCE_LEN = 512;
layout(constant_id = 20) const bool DROPOUT = false;

const uint TX = BC / MC;
const uint TY = BR / MR;
const uint MC4 = MC / 4;
const uint DK4 = DK / 4;
const uint D_CHUNKS = (D + DK - 1) / DK;
const uint Q_WIDTH = Q_RESIDENT ? D_CHUNKS * DK4 : DK4;
const uint Q_PITCH = Q_WIDTH | 1;
const uint K_PITCH = DK4 | 1;
const uint P_PITCH = (PC / 4) | 1;
const uint MD4 = ((DV + 3) / 4 + TX - 1) / TX;  // vec4s of a row of O that an invocation owns
const uint V_WIDTH = MD4 * TX;
const uint V_ROWS = V_EARLY ? BC : VC;

INPUT(q, 0)
INPUT(k, 1)
INPUT(v, 2)
#ifdef CACHE
#include "quantised.glsl"
float score_factor, value_factor;   // with the scales of keys and values
#else
#define score_factor score_scale
#endif
#ifdef KEY_PARTS
layout(constant_id = 21) const uint PARTS = 2;
layout(set = 0, binding = 3, std430) writeonly buffer Sums { vec4 sums[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Statistics { float statistics[]; };
// Of a part: of packed sequences those that there are, for no more may have been started.
#define GROUPS (PACKED ? max(items() * heads(), 1) : total / PARTS)
#else
OUTPUT(o, 3)
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
#define GROUPS total
#endif

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
#define STAGE_WIDTH Q_WIDTH
#define STAGE_COLS D
#define STAGE_PITCH Q_PITCH
#define STAGE_SLOT same
#define STAGE_SCALE score_factor
#include "stage.glsl"

#define STAGE stage_k
#define STAGE_T k
#define STAGE_ROWS BC
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH K_PITCH
#define STAGE_SLOT k_slot
#define STAGE_SCALE 1.0
#ifdef CACHE
#define STAGE_TYPE K_TYPE
#endif
#include "stage.glsl"

#define STAGE stage_v
#define STAGE_T v
#define STAGE_ROWS V_ROWS
#define STAGE_WIDTH V_WIDTH
#define STAGE_COLS DV
#define STAGE_PITCH V_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#ifdef CACHE
#define STAGE_TYPE V_TYPE
#endif
#include "stage.glsl"

uint q0, bh;                        // first query and head (batch and head flattened) of the workgroup
uint q_origin, k_origin, v_origin;  // element at which row 0 of this head lies
vec4 S[MR * MC4];                   // scores of a tile, then P
vec4 acc[MR * MD4];                 // O, unscaled
float m[MR], l[MR];                 // running maximum and (this invocation's part of the) running sum

#include "micro_scores.glsl"
#define PRODUCT add_product
#define PRODUCT_SUM acc
#define PRODUCT_M4 MD4
#define PRODUCT_PITCH V_WIDTH
#include "micro_product.glsl"

#ifndef KEY_PARTS
#ifdef CACHE
#define BLOCKS 16
#else
#define BLOCKS 5
#endif
#define ASKS_APART
#endif
#include "walk.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"
#include "sinks.glsl"
#ifdef CACHE
#define MAX_LOGIT_AT 15
#else
#define MAX_LOGIT_AT 12
#endif
#include "max_logit.glsl"
#include "micro_softmax.glsl"

// P is read by the invocations that wrote it and its row's others. With SUBGROUP those are of one subgroup, and when V is there
// already no other invocation needs to be waited for.
void barrier_for_p() {
#ifdef SUBGROUP
  if (V_EARLY) { subgroupMemoryBarrierShared(); subgroupBarrier(); return; }
#endif
  barrier();
}

// One tile of keys. edge: some of its scores may have to be masked, some of its keys may not exist.
void key_tile(uint key0, bool edge) {
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] = vec4(0);

  for (uint chunk = 0; chunk < D_CHUNKS; ++chunk) {
    barrier();  // the last reads of what is overwritten now
    if (!Q_RESIDENT) stage_q(0, q_origin, q_sn, q0, query_count(), chunk * DK, true);
    stage_k(K_AT, k_origin, k_sn, key0, key_count(), chunk * DK, edge);
    if (V_EARLY) stage_v(V_AT, v_origin, v_sn, key0, key_count(), 0, edge);
    barrier();
    add_scores(ty * Q_PITCH + (Q_RESIDENT ? chunk * DK4 : 0), K_AT + tx * K_PITCH);
  }

  if (SCORED) score_pairs(key0);
  if (edge) mask_scores(key0);
  if (ASKED) {
    if (asked) {
      [[unroll]] for (uint i = 0; i < MR; ++i)
        [[unroll]] for (uint j = 0; j < MC; ++j)
          if (!sees(q0 + ty + TY * i, key0 + 4 * (tx + TX * (j / 4)) + j % 4)) S[i * MC4 + j / 4][j % 4] = NEG_INFINITY;
    }
  }
  if (BLOCKS_BY_SCORE) {
    [[unroll]] for (uint i = 0; i < MR; ++i)
      [[unroll]] for (uint j = 0; j < MC; ++j)
        if (!block_allows(q0 + ty + TY * i, key0 + 4 * (tx + TX * (j / 4)) + j % 4)) S[i * MC4 + j / 4][j % 4] = NEG_INFINITY;
  }

  float top[MR];
  row_maximum(m, top);
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const float alpha = exp2(m[i] - top[i]);
    m[i] = top[i];
    l[i] = l[i] * alpha + weigh(i, top[i]);
    [[unroll]] for (uint j = 0; j < MD4; ++j) acc[i * MD4 + j] *= alpha;
  }
  if (DROPOUT) drop_weights(key0);

  const uint PJ = PC / (4 * TX);  // vec4s of P that an invocation writes for a row and chunk
  [[unroll]] for (uint pc = 0; pc < BC / PC; ++pc) {
    barrier_for_p();
    [[unroll]] for (uint i = 0; i < MR; ++i)
      [[unroll]] for (uint j = 0; j < PJ; ++j) tile[P_AT + (ty + TY * i) * P_PITCH + tx + TX * j] = S[i * MC4 + pc * PJ + j];
    for (uint vc = 0; vc < PC / VC; ++vc) {
      const uint key = pc * PC + vc * VC;
      if (!V_EARLY) {
        if (vc > 0) barrier();
        stage_v(V_AT, v_origin, v_sn, key0 + key, key_count(), 0, edge);
      }
      barrier_for_p();
      add_product(P_AT + ty * P_PITCH + vc * (VC / 4), V_AT + (V_EARLY ? key * V_WIDTH : 0) + tx, VC / 4);
    }
  }
}

// The largest score of the workgroup's rows, of those that exist, which are of one head. Rows meet where Q was.
void take_max_logit() {
  int own = NO_LOGIT;
  [[unroll]] for (uint i = 0; i < MR; ++i)
    if (q0 + ty + TY * i < query_count()) own = max(own, logit_of(l[i] == 0 ? NEG_INFINITY : m[i], l[i]));
  barrier();  // the last reads of what is overwritten now
  if (tx == 0) tile[ty].x = logit_of_key(own);
  barrier();
  if (lid == 0) {
    for (uint i = 1; i < TY; ++i) own = max(own, logit_key(tile[i].x));
    add_logit(bh, own);
  }
}

void main() {
#ifdef KEY_PARTS
  if (workgroup_index() >= total) return;
  const uint part = workgroup_index() / GROUPS, id = workgroup_index() % GROUPS;
  if (PACKED && part >= PARTS || !is_work(id, heads())) return;
#else
  const uint id = workgroup_index();
  if (id >= total || !is_work(id, heads())) return;
#endif
#ifdef SUBGROUP
  lid = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
#else
  lid = gl_LocalInvocationIndex;
#endif
  tx = lid % TX;
  ty = lid / TX;

  const uint blocks = (nq + BR - 1) / BR;
  const uint matrices = GROUPS / blocks;  // B Hq
  const Place place = place_of_queries(id, blocks, matrices);
  bh = place.matrix;
  q0 = place.block * BR;
  const uint b = bh / heads(), h = bh % heads();
  take_lengths(b);
  if (SCORED || ASKED) scores_of(b, h);
  q_origin = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh;
  k_origin = K_OFF + key_origin(b, k_sb, k_sn) + (h / group()) * k_sh;
  v_origin = V_OFF + key_origin(b, v_sb, v_sn) + (h / group()) * v_sh;
#ifdef CACHE
  score_factor = score_scale * key_scale(b, h / group());
  value_factor = value_scale(b, h / group());
#endif

  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) acc[i] = vec4(0);
  [[unroll]] for (uint i = 0; i < MR; ++i) { m[i] = LOWEST; l[i] = 0; }
  if (Q_RESIDENT) stage_q(0, q_origin, q_sn, q0, query_count(), 0, true);

  // One tile at least, if only to mask it: a loop that may be empty costs every driver a branch and some a good deal more.
  const Walk keys = key_tiles(q0, min(q0 + BR, query_slots()) - 1, BC);
#ifdef KEY_PARTS
  // For a part without any it lies beyond the last key, where all is zero and masked.
  const Walk mine = part_of(keys, part, PARTS);
  uint t = mine.begin;
  if (t >= mine.end) t = (nk + BC - 1) / BC;
  do key_tile(t * BC, !is_whole(mine, t)); while (++t < mine.end);
#else
  uint t = keys.begin;
  if (BLOCK_MASK) {
    // For queries without any it lies beyond the last key, where all is zero and masked.
    take_blocks(b, h, q0);
    t = next_tile(t, keys.end);
    if (t >= keys.end) t = (nk + BC - 1) / BC;
  }
  do {
    if (ASKED) asked = !is_whole_block(t);
    key_tile(t * BC, !is_whole(keys, t));
    ++t;
    if (BLOCK_MASK) t = next_tile(t, keys.end);
  } while (t < keys.end);
#endif

  sum_over_row(l);
  if (MAX_LOGIT) take_max_logit();
#ifdef KEY_PARTS
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint row = q0 + ty + TY * i;
    if (row >= query_slots()) continue;
    const float inv = (l[i] == 0 ? 0 : 1 / l[i]) * (DROPOUT ? drop_scale() : 1);
    const uint at = part * statistics_rows(matrices) + statistics_row(bh) + row;
    [[unroll]] for (uint j = 0; j < MD4; ++j) {
      const uint four = tx + TX * j;
      if (four < (DV + 7) / 8 * 2) STORED(sums, 16, sums[at * ((DV + 7) / 8 * 2) + four] = acc[i * MD4 + j] * inv);
    }
    if (tx == 0) STORED(statistics, 4, statistics[at] = l[i] == 0 ? NEG_INFINITY : m[i] + log2(l[i]));
  }
#else
  const uint o_origin = o_off() + query_origin(b, o_sb, o_sn) + h * o_sh;
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint row = q0 + ty + TY * i;
    if (row >= query_slots()) continue;
    float sunk = 1;
    if (SINKS) { if (query_exists(row)) sunk = join_sink(h, m[i], l[i]); }
#ifdef CACHE
    sunk *= value_factor;
#endif
    const float inv = (l[i] == 0 ? 0 : sunk / l[i]) * (DROPOUT ? drop_scale() : 1);
    const uint at = o_origin + row * o_sn;
    [[unroll]] for (uint j = 0; j < MD4; ++j) {
      const uint col = 4 * (tx + TX * j);
      const vec4 x = acc[i * MD4 + j] * inv;
      if (ALIGNED) {
        if (col < DV) STORED(o, 4 * BYTES, o4[(at + col) / 4] = encode4(x));
      } else {
        [[unroll]] for (uint e = 0; e < 4; ++e)
          if (col + e < DV) STORED(o, BYTES, o1[at + col + e] = encode(x[e]));
      }
    }
    if (WRITE_LSE && tx == 0)
      STORED(lse, 4, lse[lse_off() + statistics_row(bh) + row] = l[i] == 0 ? NEG_INFINITY : score_of_bits(m[i] + log2(l[i])));
  }
#endif
}
