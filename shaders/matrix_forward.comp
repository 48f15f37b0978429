#version 460
// FlashAttention-2 forward on matrix hardware, from VK_KHR_cooperative_matrix alone.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1: a workgroup keeps BR
// queries and walks over the keys in tiles of BC. A subgroup owns RM fragments of FM rows (Q as operands and O as accumulators stay in
// registers) and takes the tile in chunks of CK keys: scores, weights, weighted sum. Chunks keep few registers alive, two row
// fragments (RM = 2) halve the shared-memory reads per product.
//
// The softmax stays in registers although GLSL does not say which invocation holds which element: the layout is probed
// (include/matrix_layout.glsl). FORM says how much of it holds on this device:
//   1  accumulator and operand A agree: the weights go from accumulator to operand component by component
//   2  rows sit in groups of lanes, A differs: the weights pass through shared memory
//   3  nothing is assumed: scores, weights and row statistics pass through shared memory
//
// Reference instead of maximum. P = exp2(S scale - m) with a reference m that need not be the row's maximum: exactness asks only that
// nothing overflows. m starts from "nothing seen", and is set to (maximum so far) - BIAS when a lane sees too much growth; only then do
// lanes reduce and O and l get rescaled, one vote a chunk. Two ways to notice (MAX_FIRST): compare the lane's maximum before the
// exponentials (fewer registers), or take the exponentials, which l needs summed anyway, and find the partial sum past SUM_LIMIT: no
// maximum is computed at all unless it grew, and then the chunk is done again. Either way P <= 2^15 fits fp16, sums are fp32.
//
// K and V are staged in shared memory 16 bytes at a time, rows padded to an odd pitch in 16-byte units (no bank conflicts). Keys before
// the diagonal run in a loop without mask code. With CAUSAL the longest query blocks go first, HEADS_TOGETHER heads at a time (long
// blocks of many heads would thrash the cache, those of one head would leave a tail). PACK puts the query heads of one key head into one
// tile, row r = query r / group of head r % group, so that few queries fill a fragment and K and V are read once for all of them.
// Q enters and O leaves through a patch of shared memory per subgroup, 16 bytes a lane: a fragment loaded from or stored to device memory
// directly takes 2 bytes a lane (NVIDIA), and short sequences then spend a third of their time there. Ragged and unaligned rows take the
// same way. A masked score is -inf while m starts at a finite NONE, so (-inf) - (-inf) never
// occurs; a row with nothing to attend to ends with l = 0 and gives O = 0, lse = -inf. A negative scale negates Q instead.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32.
// Push constants: include/args.glsl. Workgroups: ceil(rows/BR) B heads, with rows = nq and heads = Hq, or nq group and Hk with PACK.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.
//
// Specialization constants (odd(x) = x | 1):
//   0 WG = W SG   1 BR = W RM FM   2 BC   3 D   4 DV   5 CAUSAL
//   6 ALIGNED     every row of q, k, v, o begins at a multiple of 16 bytes and D, DV are multiples of 8
//   7 WRITE_LSE   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN     11 SG subgroup size    12 FORM
//  13 RM row fragments of a subgroup    14 CK keys of a chunk: a multiple of FN and FK that divides BC
//  15 PREFETCH    0 none; 1 the next K and V wait in registers; 2 only K; 3 as 1, with two tiles in shared memory
//  16 PIPE        1: the next chunk's scores are asked for before this chunk's weighted sum
//  17 MAX_FIRST   18 PACK   19 HEADS_TOGETHER
//  20 K_PITCH >= odd(ceil(D/FK) FK/8), 21 V_PITCH >= odd(ceil(DV/FN) FN/8)      (FK and FN are multiples of 8)
//  22 KV_LEN      >= (PREFETCH = 3 ? 2 : 1) BC (K_PITCH + V_PITCH) and >= W FM odd(PATCH), in 16 bytes
//  23 Q_REG       slices of Q, FK wide, that stay in registers (>= 1); the rest in shared memory
//  24 Q_PITCH     odd(FK/8 (ceil(D/FK) - Q_REG)), 25 Q_LEN = W RM FM Q_PITCH; 1 and 1 if all of Q is in registers
//  26 X_LEN       floats of exchange: form 1: 1; 2: W FM CK; 3: W (FM CK + FM FN + 3 RM FM)
//  40 H_LEN       16 bytes of exchange: form 1: 1; 2 and 3: W FM CK/8
//  41 PATCH       16-byte units a row of the patch through which Q enters and O leaves: a multiple of FK/8 and FN/4
//  42 MASKS       0: not causal and nk is a multiple of BC, so the loop with masks is left out (fewer registers)
//  43 DROPOUT     1: weights are dropped (include/dropout.glsl) after their sum is taken; each subgroup draws for its own rows, once a tile
//  44 DROP_LEN    words: 1 without DROPOUT, else 4 W RM FM KEY_GROUPS, the groups of 64 keys that BC keys may touch: BC/64 where 64 divides
//                 BC, 1 where BC divides 64, else floor(BC/64) + 2
//  27..39         include/matrix_layout.glsl

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint BR = 16;
layout(constant_id = 2) const uint BC = 16;
layout(constant_id = 3) const uint D = 16;
layout(constant_id = 4) const uint DV = 16;
layout(constant_id = 5) const bool CAUSAL = false;
layout(constant_id = 6) const bool ALIGNED = true;
layout(constant_id = 7) const bool WRITE_LSE = true;
layout(constant_id = 8) const uint FM = 16;
layout(constant_id = 9) const uint FN = 16;
layout(constant_id = 10) const uint FK = 16;
layout(constant_id = 11) const uint SG = 32;
layout(constant_id = 12) const uint FORM = 1;
layout(constant_id = 13) const uint RM = 1;
layout(constant_id = 14) const uint CK = 16;
layout(constant_id = 15) const uint PREFETCH = 0;
layout(constant_id = 16) const uint PIPE = 0;
layout(constant_id = 17) const bool MAX_FIRST = false;
layout(constant_id = 18) const bool PACK = false;
layout(constant_id = 19) const uint HEADS_TOGETHER = 1;
layout(constant_id = 20) const uint K_PITCH = 3;
layout(constant_id = 21) const uint V_PITCH = 3;
layout(constant_id = 22) const uint KV_LEN = 96;
layout(constant_id = 23) const uint Q_REG = 1;
layout(constant_id = 24) const uint Q_PITCH = 1;
layout(constant_id = 25) const uint Q_LEN = 1;
layout(constant_id = 26) const uint X_LEN = 1;
layout(constant_id = 40) const uint H_LEN = 1;
layout(constant_id = 41) const uint PATCH = 2;
layout(constant_id = 42) const bool MASKS = true;
layout(constant_id = 43) const bool DROPOUT = false;
layout(constant_id = 44) const uint DROP_LEN = 1;

const uint DF = (D + FK - 1) / FK, VF = (DV + FN - 1) / FN;   // slices of Q and K, of V and O
const uint KU = (D + 7) / 8, VU = (DV + 7) / 8;               // 16-byte units of a row
const uint NS = CK / FN, NP = CK / FK, CHUNKS = BC / CK;      // accumulators of S and operands P across a chunk; chunks of a tile
const uint V_AT = BC * K_PITCH, TILE = BC * (K_PITCH + V_PITCH);
const uint QR = Q_REG < DF ? Q_REG : DF;
const uint PATCH_PITCH = PATCH | 1u;
const uint Q_PASSES = (DF * FK / 8 + PATCH - 1) / PATCH, Q_EACH = (FM * PATCH + SG - 1) / SG;   // passes of Q through the patch; pieces a lane
const uint O_PASSES = (VF * FN / 4 + PATCH - 1) / PATCH;
const uint KEY_GROUPS = (BC % 64) * (64 % BC) == 0 ? (BC + 63) / 64 : BC / 64 + 2;
const uint DRAWS = RM * FM * KEY_GROUPS * 4, DRAW_EACH = (DRAWS + SG - 1) / SG;   // of a subgroup and tile; of a lane
const float NONE = -1.0e30;         // reference of a row that has seen nothing
const float BIAS = 4.0;             // reference = maximum - BIAS, in log 2: 4 more bits for small weights, P = 16 at the maximum
const float GROWTH = 15.0;          // MAX_FIRST: rescale when a score passes reference + GROWTH, P <= 2^15
const float SUM_LIMIT = 32768.0;    // else: when a lane's sum over a chunk passes this (it bounds every P in it)

#include "matrix_types.glsl"
#include "count.glsl"

layout(binding = 0) readonly buffer Q4_ { uvec4 q4[]; };
layout(binding = 0) readonly buffer Q16_ { uint16_t q16[]; };
layout(binding = 1) readonly buffer K4_ { uvec4 k4[]; };
layout(binding = 1) readonly buffer K16_ { uint16_t k16[]; };
layout(binding = 2) readonly buffer V4_ { uvec4 v4[]; };
layout(binding = 2) readonly buffer V16_ { uint16_t v16[]; };
layout(binding = 3) writeonly buffer O4_ { uvec4 o4[]; };
layout(binding = 3) writeonly buffer O16_ { uint16_t o16[]; };
layout(binding = 4) writeonly buffer LSE_ { float lse[]; };
#include "args.glsl"
#include "dropout.glsl"

shared uvec4 KV[KV_LEN];   // staged tiles: K, then V at V_AT; before and after the loop, one fragment's patch per subgroup
shared uvec4 Qs[Q_LEN];
shared float X[X_LEN];     // exchange of forms 2 and 3
shared uvec4 H[H_LEN];
shared uint drop_bits[DROP_LEN];   // what dropout keeps: [row of the subgroup][group of 64 keys][4 draws]

#include "matrix_layout.glsl"
#include "matrix_staging.glsl"

// Query and head (within the packed group) of a row.
uint query_of(uint row) { return PACK ? row / group : row; }
uint member_of(uint row) { return PACK ? row % group : 0u; }
int last_key(uint row) {
  int last = int(nk) - 1;
  return CAUSAL ? min(last, int(query_of(row)) + causal_shift) : last;
}

// S = Q K^T for chunk c of the staged tile
#define SCORES(c) {                                                                                                                \
  [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0);                                                                   \
  [[unroll]] for (uint d = 0; d < DF; ++d) {                                                                                       \
    FRAG_A qa[RM];                                                                                                                 \
    [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                     \
      if (d < Q_REG) qa[r] = Qm[r * QR + min(d, QR - 1)];                                                                          \
      else coopMatLoad(qa[r], Qs, q_at + r * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);                                \
    }                                                                                                                              \
    [[unroll]] for (uint n = 0; n < NS; ++n) {                                                                                     \
      FRAG_B kb; coopMatLoad(kb, KV, at + ((c) * CK + n * FN) * K_PITCH + d * FK / 8, K_PITCH, BY_COLUMN);                         \
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(qa[r], kb, S[r * NS + n]);                            \
    }                                                                                                                              \
  } }
// O += P V for chunk c
#define WEIGHTED_SUM(c) {                                                                                                          \
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint d = 0; d < VF; ++d) {                                              \
    FRAG_B vb; coopMatLoad(vb, KV, at + V_AT + ((c) * CK + n * FK) * V_PITCH + d * FN / 8, V_PITCH, BY_ROW);                       \
    [[unroll]] for (uint r = 0; r < RM; ++r) O[r * VF + d] = coopMatMulAdd(P[r * NP + n], vb, O[r * VF + d]);                      \
  } }
#define EACH_SCORE [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
// S = exp2(S scale - m) in place, sum = its row sums over this lane's columns (on top of l with MAX_FIRST). The weights stay fp32 until after the vote: converted
// before it, they meet in a phi as single halves and cost a conversion and a move each.
#define WEIGHTS {                                                                                                                  \
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) sum[x] = MAX_FIRST ? l[x] : 0.0;                                                \
  EACH_SCORE {                                                                                                                     \
    S[r * NS + n][e] = exp2(fma(S[r * NS + n][e], scale, -m[r * SLOTS + SLOT_OF(e)]));                                             \
    sum[r * SLOTS + SLOT_OF(e)] += S[r * NS + n][e];                                                                               \
  } }
#define LANE_MAX {                                                                                                                 \
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) mx[x] = -infinity();                                                            \
  EACH_SCORE mx[r * SLOTS + SLOT_OF(e)] = max(mx[r * SLOTS + SLOT_OF(e)], S[r * NS + n][e]); }
#define RESCALE {                                                                                                                  \
  [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                       \
    float shrink[SLOTS];                                                                                                           \
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {                                                                                  \
      const uint x = r * SLOTS + s;                                                                                                \
      const float y = max(m[x], row_max(mx[x]) * scale - BIAS);                                                                    \
      shrink[s] = exp2(m[x] - y); m[x] = y; l[x] *= shrink[s];                                                                     \
    }                                                                                                                              \
    [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= shrink[SLOT_OF(e)]; \
  } }
// What dropout keeps of tile j, 16 keys a draw, and whether key x of the tile is kept in row i of the subgroup
#define DRAW_TILE {                                                                                                                \
  MEET                                                                                                                             \
  [[unroll]] for (uint u = 0; u < DRAW_EACH; ++u) {                                                                                \
    const uint x = min(u * SG + lane, DRAWS - 1), row = row0 + x / (4 * KEY_GROUPS);                                               \
    drop_bits[drop_at + x] = kept_bits(draw(4 * (j * BC / 64 + x / 4 % KEY_GROUPS) + x % 4, query_of(row), b * heads + q_head + member_of(row))); \
  }                                                                                                                                \
  MEET }
#define KEPT(i, x) ((drop_bits[drop_at + ((i) * KEY_GROUPS + (j * BC % 64 + (x)) / 64) * 4 + (j * BC % 64 + (x)) / 2 % 4]            \
  >> kept_bit(j * BC % 64 + (x)) & 1u) != 0u)
#define DROP(c) EACH_SCORE                                                                                                         \
  S[r * NS + n][e] = KEPT(r * FM + row_lane + ROW_OF(e), (c) * CK + n * FN + col_lane + COL_OF(e)) ? S[r * NS + n][e] : 0.0;
// Form 1: accumulator components to operand components
#define TO_OPERAND {                                                                                                               \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2) \
    HALVES(S[r * NS + n][e], S[r * NS + n][e + 1],                                                                                 \
      P[r * NP + n * FN / FK][A_OF(n % (FK / FN), e)], P[r * NP + n * FN / FK][A_OF(n % (FK / FN), e + 1)]) }
// Forms 2 and 3: this subgroup's FM x CK floats at x_at become halves at h_at, then operands of row fragment r
#define SHARED_TO_HALVES                                                                                                           \
  [[unroll]] for (uint u = 0; u < (FM * CK / 8 + SG - 1) / SG; ++u) {                                                              \
    const uint x = min(u * SG + lane, FM * CK / 8 - 1);                                                                            \
    H[h_at + x] = uvec4(PAIR(X[x_at + 8 * x], X[x_at + 8 * x + 1]), PAIR(X[x_at + 8 * x + 2], X[x_at + 8 * x + 3]),                \
      PAIR(X[x_at + 8 * x + 4], X[x_at + 8 * x + 5]), PAIR(X[x_at + 8 * x + 6], X[x_at + 8 * x + 7]));                             \
  }
#define HALVES_TO_OPERAND(r) [[unroll]] for (uint n = 0; n < NP; ++n) coopMatLoad(P[(r) * NP + n], H, h_at + n * FK / 8, CK / 8, BY_ROW);
#define SCORES_TO_SHARED(r) [[unroll]] for (uint n = 0; n < NS; ++n) coopMatStore(S[(r) * NS + n], X, x_at + n * FN, CK, BY_ROW);
#define OPERAND_THROUGH_SHARED {                                                                                                   \
  [[unroll]] for (uint r = 0; r < RM; ++r) { SCORES_TO_SHARED(r) MEET SHARED_TO_HALVES MEET HALVES_TO_OPERAND(r) MEET } }
// Form 3: a row belongs to one lane, which walks along it; shrink reaches O as a matrix whose rows hold it, so that equal components
// of equal types meet whatever the layout is. Row statistics: m, l and shrink of row r FM + i at stats_at + 3 (r FM + i).
#define WEIGHTS_IN_SHARED(c, masked) {                                                                                             \
  [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                       \
    SCORES_TO_SHARED(r) MEET                                                                                                       \
    [[unroll]] for (uint u = 0; u < (FM + SG - 1) / SG; ++u) {                                                                     \
      const uint i = min(u * SG + lane, FM - 1), s = stats_at + 3 * (r * FM + i), x0 = x_at + i * CK;                              \
      const bool mine = u * SG + lane < FM;                                                                                        \
      const int last = masked ? last_key(row0 + r * FM + i) : int(nk) - 1;                                                         \
      float top = -infinity(), total_ = 0.0;                                                                                       \
      for (uint k = 0; k < CK; ++k) if (int(j * BC + (c) * CK + k) <= last) top = max(top, X[x0 + k]);                             \
      const float before = X[s], now = max(before, top * scale - BIAS);                                                            \
      subgroupBarrier();                                                                                                           \
      if (mine) {                                                                                                                  \
        for (uint k = 0; k < CK; ++k) {                                                                                            \
          const float w = int(j * BC + (c) * CK + k) <= last ? exp2(fma(X[x0 + k], scale, -now)) : 0.0;                            \
          X[x0 + k] = w; total_ += w;                                                                                              \
          if (DROPOUT) { if (!KEPT(r * FM + i, (c) * CK + k)) X[x0 + k] = 0.0; }                                                   \
        }                                                                                                                          \
        X[s] = now; X[s + 2] = exp2(before - now); X[s + 1] = X[s + 1] * X[s + 2] + total_;                                        \
      }                                                                                                                            \
    }                                                                                                                              \
    MEET SHARED_TO_HALVES SPREAD(r, 2) MEET HALVES_TO_OPERAND(r) SCALE_O(r) MEET                                                   \
  } }
// statistic `which` of the rows of fragment r, spread over the columns of a matrix
#define SPREAD(r, which)                                                                                                           \
  [[unroll]] for (uint u = 0; u < (FM * FN + SG - 1) / SG; ++u) {                                                                  \
    const uint x = min(u * SG + lane, FM * FN - 1);                                                                                \
    X[spread_at + x] = X[stats_at + 3 * ((r) * FM + x / FN) + which];                                                              \
  }
#define SCALE_O(r) { ACC by; coopMatLoad(by, X, spread_at, FN, BY_ROW);                                                            \
  [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[(r) * VF + d][e] *= by[e]; }
#define KEEP_Q(t, r, d)                                                                                                            \
  if (d < Q_REG) Qm[r * QR + min(d, QR - 1)] = t;                                                                                  \
  else coopMatStore(t, Qs, q_at + r * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);

void main() {
  const uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
  const uint id = workgroup_index();
  if (id >= total) return;

  // which query block of which head
  const uint rows = PACK ? nq * group : nq, blocks = (rows + BR - 1) / BR;
  uint bh, i;
  if (HEADS_TOGETHER > 1) {
    const uint span = HEADS_TOGETHER * blocks, first = id / span * HEADS_TOGETHER, rest = id % span;
    const uint members = min(HEADS_TOGETHER, total / blocks - first);
    i = rest / members; bh = first + rest % members;
  } else { bh = id / blocks; i = id % blocks; }
  if (CAUSAL) i = blocks - 1 - i;
  const uint heads_ = PACK ? heads / group : heads, b = bh / heads_, h = bh % heads_;
  const uint kv_head = PACK ? h : h / group, q_head = PACK ? h * group : h;
  k_base = k_off + b * k_sb + kv_head * k_sh;
  v_base = v_off + b * v_sb + kv_head * v_sh;
  const uint q_base = q_off + b * q_sb + q_head * q_sh, o_base = o_off + b * o_sb + q_head * o_sh;
  const uint row0 = i * BR + gl_SubgroupID * RM * FM;
  const uint row_lane = lane_part(ROW_LANE, lane), col_lane = lane_part(COL_LANE, lane);
  const uint patch_at = gl_SubgroupID * FM * PATCH_PITCH, q_at = gl_SubgroupID * RM * FM * Q_PITCH;
  const uint x_at = gl_SubgroupID * (FORM == 3 ? FM * CK + FM * FN + 3 * RM * FM : FM * CK), h_at = gl_SubgroupID * FM * CK / 8;
  const uint drop_at = gl_SubgroupID * DRAWS;
  const uint spread_at = x_at + FM * CK, stats_at = spread_at + FM * FN;

  // keys [0, BC full) are allowed for every row of the workgroup, those from BC end on for none
  int allowed = int(nk), shared_by_all = int(nk);
  if (CAUSAL) {
    allowed = clamp(int(query_of(min((i + 1) * BR, rows) - 1)) + causal_shift + 1, 0, int(nk));
    shared_by_all = clamp(int(query_of(i * BR)) + causal_shift + 1, 0, int(nk));
  }
  const uint end = (uint(allowed) + BC - 1) / BC, full = MASKS ? uint(shared_by_all) / BC : end;
  uvec4 kr[K_EACH], vr[V_EACH];
  last_tile = end - 1;
  uint at = 0, j = 0;
  if (end > 0) {
    if (PREFETCH != 0) { FETCH_K(0) }
    if (PREFETCH == 1 || PREFETCH == 3) { FETCH_V(0) }
  }

  // Q: all of it is on its way before the first piece is waited for
  FRAG_A Qm[RM * QR];
  const float scale = abs(scale_log2);
  const uint flip = scale_log2 < 0.0 ? 0x80008000u : 0u;
  uvec4 qr[RM * Q_PASSES * Q_EACH];
  [[unroll]] for (uint p = 0; p < RM * Q_PASSES; ++p) [[unroll]] for (uint u = 0; u < Q_EACH; ++u) {
    const uint x = min(u * SG + lane, FM * PATCH - 1), row = row0 + p / Q_PASSES * FM + x / PATCH, c = p % Q_PASSES * PATCH + x % PATCH;
    const uint from = q_base + member_of(min(row, rows - 1)) * q_sh + query_of(min(row, rows - 1)) * q_sn;
    uvec4 y;
    COUNTING(const bool real = row < rows && c < KU && u * SG + lane < FM * PATCH;)
    if (ALIGNED) y = LOADED_IF(q, 16, real, q4[from / 8 + min(c, KU - 1)]); else y = GATHER(q, from, c, D, real);
    qr[p * Q_EACH + u] = row < rows && c < KU ? y ^ flip : uvec4(0);
  }
  [[unroll]] for (uint p = 0; p < RM * Q_PASSES; ++p) {
    [[unroll]] for (uint u = 0; u < Q_EACH; ++u) {
      const uint x = min(u * SG + lane, FM * PATCH - 1);
      KV[patch_at + x / PATCH * PATCH_PITCH + x % PATCH] = qr[p * Q_EACH + u];
    }
    MEET
    [[unroll]] for (uint f = 0; f < PATCH / (FK / 8); ++f) {
      const uint r = p / Q_PASSES, d = p % Q_PASSES * (PATCH / (FK / 8)) + f;
      if (d < DF) { FRAG_A t; coopMatLoad(t, KV, patch_at + f * (FK / 8), PATCH_PITCH, BY_ROW); KEEP_Q(t, r, d) }
    }
    MEET
  }

  // O, m, l; the columns of a tile between D and the next fragment are zero once and for all
  ACC O[RM * VF]; float m[RM * SLOTS], l[RM * SLOTS];
  [[unroll]] for (uint x = 0; x < RM * VF; ++x) O[x] = ACC(0.0);
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) { m[x] = NONE; l[x] = 0.0; }
  if (FORM == 3) {
    for (uint x = lane; x < RM * FM; x += SG) { X[stats_at + 3 * x] = NONE; X[stats_at + 3 * x + 1] = 0.0; X[stats_at + 3 * x + 2] = 0.0; }
    MEET
  }
  if (DF * FK > 8 * KU || VF * FN > 8 * VU) {
    barrier();
    [[unroll]] for (uint t = 0; t < (PREFETCH == 3 ? 2 : 1) * TILE; t += TILE) {
      if (DF * FK > 8 * KU) for (uint x = tid; x < BC * (K_PITCH - KU); x += WG) KV[t + x / (K_PITCH - KU) * K_PITCH + KU + x % (K_PITCH - KU)] = uvec4(0);
      if (VF * FN > 8 * VU) for (uint x = tid; x < BC * (V_PITCH - VU); x += WG) KV[t + V_AT + x / (V_PITCH - VU) * V_PITCH + VU + x % (V_PITCH - VU)] = uvec4(0);
    }
  }

  if (PREFETCH == 3) {
    barrier();
    STORE_K STORE_V
    if (end > 0) { FETCH_K(1) FETCH_V(1) }
    barrier();
  }
  [[dont_unroll]] for (; j < full; ++j) {
#define MASKED 0
#include "matrix_tile.glsl"
#undef MASKED
  }
  if (MASKS) [[dont_unroll]] for (; j < end; ++j) {
#define MASKED 1
#include "matrix_tile.glsl"
#undef MASKED
  }

  // O / l and lse
  if (FORM == 3) {
    for (uint x = lane; x < RM * FM; x += SG) {
      const uint s = stats_at + 3 * x, row = row0 + x;
      const float sum = X[s + 1];
      X[s + 2] = sum == 0.0 ? 0.0 : 1.0 / sum;
      if (DROPOUT) X[s + 2] *= drop_scale();
      if (WRITE_LSE && row < rows)
        STORED(lse, 4, lse[lse_off + (b * heads + q_head + member_of(row)) * nq + query_of(row)] = sum == 0.0 ? -infinity() : (X[s] + log2(sum)) * 0.69314718055994531);
    }
    MEET
    [[unroll]] for (uint r = 0; r < RM; ++r) { SPREAD(r, 2) MEET SCALE_O(r) MEET }
  } else {
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      float inverse[SLOTS];
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) { const uint x = r * SLOTS + s; l[x] = row_sum(l[x]); inverse[s] = l[x] == 0.0 ? 0.0 : 1.0 / l[x]; if (DROPOUT) inverse[s] *= drop_scale(); }
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= inverse[SLOT_OF(e)];
    }
    if (WRITE_LSE && col_lane == 0) {
      [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
        const uint row = row0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS);
        if (row < rows)
          STORED(lse, 4, lse[lse_off + (b * heads + q_head + member_of(row)) * nq + query_of(row)] = l[x] == 0.0 ? -infinity() : (m[x] + log2(l[x])) * 0.69314718055994531);
      }
    }
  }
  // through the patch, a fragment at a time. (One loop over pieces of several fragments put O into local memory.)
  barrier();
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < VF; ++d) {
    coopMatStore(O[r * VF + d], KV, patch_at, PATCH_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0; u < (FM * FN / 8 + SG - 1) / SG; ++u) {
      const uint x = u * SG + lane, y = min(x, FM * FN / 8 - 1), row = row0 + r * FM + y / (FN / 8), c = d * FN + y % (FN / 8) * 8;
      const uint to = o_base + c + member_of(row) * o_sh + query_of(row) * o_sn, from = patch_at + y / (FN / 8) * PATCH_PITCH + y % (FN / 8) * 2;
      const vec4 lo = uintBitsToFloat(KV[from]), hi = uintBitsToFloat(KV[from + 1]);
      if (((FM * FN / 8) % SG == 0 || x < FM * FN / 8) && row < rows) {
        if (ALIGNED) { if (DV % FN == 0 || c < DV) STORED(o, 16, o4[to / 8] = uvec4(PAIR(lo.x, lo.y), PAIR(lo.z, lo.w), PAIR(hi.x, hi.y), PAIR(hi.z, hi.w))); }
        else {
          if (c < DV) STORED(o, 2, o16[to] = ELEMENT_BITS(lo.x));
          if (c + 1 < DV) STORED(o, 2, o16[to + 1] = ELEMENT_BITS(lo.y));
          if (c + 2 < DV) STORED(o, 2, o16[to + 2] = ELEMENT_BITS(lo.z));
          if (c + 3 < DV) STORED(o, 2, o16[to + 3] = ELEMENT_BITS(lo.w));
          if (c + 4 < DV) STORED(o, 2, o16[to + 4] = ELEMENT_BITS(hi.x));
          if (c + 5 < DV) STORED(o, 2, o16[to + 5] = ELEMENT_BITS(hi.y));
          if (c + 6 < DV) STORED(o, 2, o16[to + 6] = ELEMENT_BITS(hi.z));
          if (c + 7 < DV) STORED(o, 2, o16[to + 7] = ELEMENT_BITS(hi.w));
        }
      }
    }
    MEET
  }
}
