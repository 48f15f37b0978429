// What the two forward kernels on matrices share: matrix_forward.comp (queries outside, keys inside) and matrix_flash1.comp (keys
// outside, queries inside). Specialization constants, tensors, shared memory, what a subgroup holds, and the steps of a tile; the header
// of matrix_forward.comp tells how they work. A kernel
//   defines SPLIT before it includes this, if tensors are fp32 and operands sums of terms (matrix_split.glsl)
//   defines REPEATS before it includes this, if the last key may stand in for those that a tile lacks (REPEAT)
//   defines OWN_PATCH before it includes this, if K and V stay in shared memory while Q and O pass through it
//   defines row_done() after it: what becomes of a row's statistics in divide_by_sum()
//
// The steps are functions on globals. Arrays of matrices stay in registers because the compiler inlines every function and makes the
// globals locals of main, so that every index is a constant once the driver has unrolled the loops.

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
// 1 makes forms 2 and 3 go wrong on NVIDIA's driver (580), though nothing uses the array then: 64 or more.
layout(constant_id = 44) const uint DROP_LEN = 64;
layout(constant_id = 45) const bool BY_LANE = false;
layout(constant_id = 46) const bool STEPS = false;
layout(constant_id = 47) const bool RAGGED = true;
layout(constant_id = 117) const uint LATE = 0;
layout(constant_id = 118) const bool SUMS = false;
layout(constant_id = 119) const uint SUM_N = 16;
layout(constant_id = 120) const uint SLOT_OF_SUM = 0;
layout(constant_id = 121) const bool LOOK_APART = false;
#ifdef REPEATS
layout(constant_id = 122) const bool REPEAT = false;
#else
const bool REPEAT = false;
#endif
#ifdef BIAS_AHEAD
layout(constant_id = 55) const bool BIAS_EIGHTS = false;   // include/matrix_bias_ahead.glsl
#endif

const uint DF = (D + FK - 1) / FK, VF = (DV + FN - 1) / FN;   // slices of Q and K, of V and O
const uint KU = (D + 7) / 8, VU = (DV + 7) / 8;               // 16-byte units of a row
const uint NS = CK / FN, NP = CK / FK, CHUNKS = BC / CK;      // accumulators of S and operands P across a chunk; chunks of a tile
#ifdef SPLIT
layout(constant_id = 51) const uint TERMS = 3;
#define STAGED (BC * TERMS)   // rows of a staged tile
#else
#define STAGED BC
#endif
#ifdef CACHE
// Keys of blocks have more bits than an element. 0: they are staged as the whole numbers that they are, and sums of a block's columns
// are multiplied by its d (include/matrix_staging.glsl, matrix_softmax.glsl). 2: as sums of two numbers.
layout(constant_id = 50) const uint KEY_TERMS = 1;
#define K_ROWS (BC * (KEY_TERMS == 2 ? 2 : 1))
const uint V_AT = K_ROWS * K_PITCH, TILE = V_AT + BC * V_PITCH;
#else
#define in_k_order(x) x     // columns are where they belong: include/quantised_eight.glsl
#define from_v_order(x) x
#define K_ROWS BC
const uint V_AT = STAGED * K_PITCH, TILE = STAGED * (K_PITCH + V_PITCH);
#endif
const uint QR = Q_REG < DF ? Q_REG : DF;
const uint PATCH_PITCH = PATCH | 1u;
const uint Q_PASSES = (DF * FK / 8 + PATCH - 1) / PATCH;      // of Q through the patch
const uint Q_EACH = (FM * PATCH + SG - 1) / SG;               // pieces of a pass that a lane moves
const uint KEY_GROUPS = (BC % 64) * (64 % BC) == 0 ? (BC + 63) / 64 : BC / 64 + 2;
const uint DRAWS = RM * FM * KEY_GROUPS * 4, DRAW_EACH = (DRAWS + SG - 1) / SG;   // of a subgroup and tile; of a lane
#include "common.glsl"
const float NONE = LOWEST;          // reference of a row that has seen nothing
const float GROWTH = 15.0;          // MAX_FIRST: rescale when a score reaches reference + GROWTH, P < 2^15
const float SUM_LIMIT = 32768.0;    // else: when a lane's sum over a chunk passes this (it bounds every P in it)

#include "matrix_types.glsl"
#ifdef SPLIT
#define P_UNIT 1.0   // terms add up to what l sums
#define BIAS 4.0
#else
#define P_UNIT (FORM == 1 ? CUT : 1.0)   // how much smaller operands are than the weights that l sums, on average
// Reference = maximum - BIAS, in log 2: 4 more bits for small weights. P = 16 at the maximum, once it is an operand.
#define BIAS (FORM == 1 ? 4.0 + (CUT - 1.0) * 1.4427 : 4.0)
#endif
#include "count.glsl"

VIEWS(Q, q, 0, readonly)
VIEWS(K, k, 1, readonly)
VIEWS(V, v, 2, readonly)
#ifndef KEY_PARTS
VIEWS(O, o, 3, writeonly)
layout(binding = 4) writeonly buffer LSE_ { float lse[]; };
#endif
#include "args.glsl"
#define SCORE_AT 8
#include "dropout.glsl"

shared uvec4 KV[KV_LEN];   // staged tiles: K, then V at V_AT; without OWN_PATCH, before and after the loop, a patch for each subgroup
#ifdef OWN_PATCH
layout(constant_id = 49) const uint ROWS_LEN = 80;
shared uvec4 Rows[ROWS_LEN];
#define PATCH_ROWS Rows    // has a patch for each subgroup, at patch_at
#else
#define PATCH_ROWS KV
#endif
shared uvec4 Qs[Q_LEN];
shared float X[X_LEN];     // exchange of forms 2 and 3
shared uvec4 H[H_LEN];
// Dropout's draws: [group of 64 keys][row of the lane][4 words][lane of the workgroup], or [row][group][4 draws][4 words].
shared uint drawn[DROP_LEN];

#include "matrix_layout.glsl"
#define PAGES 5
#include "walk.glsl"
#ifdef CACHE
#include "quantised.glsl"
float value_factor;   // the scale of values
#endif
#ifndef SPLIT
#define BIAS_TYPE uint16_t
#define BIAS_ELEMENT(i) UNPAIR(uint(bias16[i])).x
#endif
#include "score.glsl"
#include "sinks.glsl"
#include "max_logit.glsl"

// Who this is: invocation of the workgroup and of the subgroup, its part of rows and columns of a fragment, and the subgroup's places in
// shared memory.
uint tid, lane, row_lane, col_lane;
uint patch_at, q_at, x_at, h_at, drop_at, spread_at, stats_at;
// What is worked on: batch entry, head, first row of the subgroup, where the tensors' parts for them begin, and the staged tile of keys.
uint b, q_head, row0, q_base, o_base, k_base, v_base;
uint j, at;                        // tile of keys; where it lies in KV
float scale;                       // of scores, to units of log 2, in which those that are SCORED come
float natural_scale;               // SCORED: of products, to scores in natural units
uint flip;                         // a negative scale negates Q instead: both sign bits of a pair
// What the subgroup holds: Q as operands, O, and of each row the reference m and the sum l; S and P of a chunk.
#ifdef SPLIT
FRAG_A Qm[TERMS * RM * QR], P[TERMS * RM * NP];   // term after term
#else
FRAG_A Qm[RM * QR], P[RM * NP];
#endif
ACC O[RM * VF], S[RM * NS];
#define SUM coopmat<float, gl_ScopeSubgroup, FM, SUM_N, gl_MatrixUseAccumulator>
SUM row_sums[RM];                  // SUMS: P times ones, in the loop of LATE; all columns are alike
float m[RM * SLOTS], l[RM * SLOTS], top[RM * SLOTS], sum[RM * SLOTS];   // top, sum: of a chunk's scores and weights, this lane's columns
uint late_first;                   // LATE: the tile whose first chunk gives the references
uint repeats;                      // REPEAT: keys of the last tile that are the last key again
bool summed_operands = false;      // SUMS: l is the sum of weights rounded to operands
// MAX_LOGIT: what a lane notes of its rows (matrix_max_logit.glsl), of form 3 those that it walks along.
const uint NOTED_ROWS = (FM + SG - 1) / SG;
float largest[MAX_LOGIT ? (FORM == 3 ? RM * NOTED_ROWS : RM * SLOTS) : 1];
#ifndef SPLIT
uvec4 qr[RM * Q_PASSES * Q_EACH];  // pieces of Q on their way
#endif
uvec2 drawn_for;                   // row and group of 64 keys that dropout's draws were made for

// What becomes of the statistics of a row, below the number of rows.
void row_done(uint row, float reference, float row_sum);

void take_place() {
#ifdef SPLIT
  lane = gl_SubgroupInvocationID; tid = gl_SubgroupID * SG + lane;   // neighbours are neighbours of a subgroup
#else
  tid = gl_LocalInvocationID.x; lane = gl_SubgroupInvocationID;
#endif
  row_lane = lane_part(ROW_LANE, lane); col_lane = lane_part(COL_LANE, lane);
  patch_at = gl_SubgroupID * FM * PATCH_PITCH; q_at = gl_SubgroupID * RM * FM * Q_PITCH;
  x_at = gl_SubgroupID * (FORM == 3 ? FM * CK + FM * FN + 3 * RM * FM : FM * CK); h_at = gl_SubgroupID * FM * CK / 8;
  drop_at = gl_SubgroupID * DRAWS;
  spread_at = x_at + FM * CK; stats_at = spread_at + FM * FN;
  drawn_for = uvec2(~0u);
  scale = SCORED ? 1.0 : abs(score_scale); natural_scale = abs(score_scale) * LN2; flip = score_scale < 0.0 ? 0x80008000u : 0u;
}

#ifdef CACHE
// Scales of keys and values of type fp8. Those of keys that are all 0 may be 0, by which a masked score of -infinity would be NaN.
void take_scales(uint kv_head) {
  const float by = score_scale * key_scale(b, kv_head);
  if (!SCORED) scale = max(abs(by), uintBitsToFloat(0x00800000u));
  natural_scale = abs(by) * LN2; flip = by < 0.0 ? 0x80008000u : 0u;
  value_factor = value_scale(b, kv_head);
}
#endif

// Query and head (within the packed group) of a row.
uint query_of(uint row) { return PACK ? row / group() : row; }
uint member_of(uint row) { return PACK ? row % group() : 0u; }
// Row of the subgroup's slot x.
uint row_of_slot(uint x) { return row0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS); }
// lse of a row with these statistics.
float lse_of(float reference, float row_sum) { return row_sum == 0.0 ? -infinity() : score_of_bits(reference + log2(row_sum)); }

#ifdef SPLIT
#include "matrix_split.glsl"
#else
#include "matrix_staging.glsl"
#endif
#include "matrix_dropout.glsl"
#define NOTED_PLACE(x) (x % NOTED_ROWS * SG + lane)
#define IS_NOTED(x) (FORM != 3 || NOTED_PLACE(x) < FM)
#define NOTED_ROW(x) (FORM == 3 ? row0 + x / NOTED_ROWS * FM + NOTED_PLACE(x) : row_of_slot(x))
#define NOTED_SUM(x) (FORM == 3 ? X[stats_at + 3 * (x / NOTED_ROWS * FM + NOTED_PLACE(x)) + 1] : l[x])
#include "matrix_max_logit.glsl"
#include "matrix_shared_softmax.glsl"
#include "matrix_softmax.glsl"
#include "matrix_rows.glsl"
