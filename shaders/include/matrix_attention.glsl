// What the two forward kernels on matrices share: matrix_forward.comp (queries outside, keys inside) and matrix_flash1.comp (keys
// outside, queries inside). Specialization constants, tensors, shared memory, and the steps of a tile as macros; the header of
// matrix_forward.comp tells how they work. A kernel defines before it includes this:
//   PATCH_ROWS            shared array with a patch for each subgroup, at patch_at
//   ROW_DONE(row, m, l)   what becomes of a row's statistics in DIVIDE_BY_SUM
// Macros, and not functions, for what touches arrays of matrices: those stay in registers only where every index is a constant when
// the driver first looks.

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
// DROP_LEN of 1 makes forms 2 and 3 go wrong on NVIDIA's driver (580), though nothing uses the array then: 64 or more.
layout(constant_id = 26) const uint X_LEN = 1;
layout(constant_id = 40) const uint H_LEN = 1;
layout(constant_id = 41) const uint PATCH = 2;
layout(constant_id = 42) const bool MASKS = true;
layout(constant_id = 43) const bool DROPOUT = false;
layout(constant_id = 44) const uint DROP_LEN = 64;
layout(constant_id = 45) const bool BY_LANE = false;
layout(constant_id = 46) const bool STEPS = false;
layout(constant_id = 47) const bool RAGGED = true;

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
const float GROWTH = 15.0;          // MAX_FIRST: rescale when a score passes reference + GROWTH, P <= 2^15
const float SUM_LIMIT = 32768.0;    // else: when a lane's sum over a chunk passes this (it bounds every P in it)

#include "matrix_types.glsl"
#define P_UNIT (FORM == 1 ? CUT : 1.0)            // how much smaller operands are than the weights that l sums, on average
// Reference = maximum - BIAS, in log 2: 4 more bits for small weights. P = 16 at the maximum, once it is an operand.
#define BIAS (FORM == 1 ? 4.0 + (CUT - 1.0) * 1.4427 : 4.0)
#include "count.glsl"

layout(binding = 0) readonly buffer Q4_ { uvec4 q4[]; };
layout(binding = 0) readonly buffer Q16_ { uint16_t q16[]; };
layout(binding = 1) readonly buffer K4_ { uvec4 k4[]; };
layout(binding = 1) readonly buffer K16_ { uint16_t k16[]; };
layout(binding = 2) readonly buffer V4_ { uvec4 v4[]; };
layout(binding = 2) readonly buffer V16_ { uint16_t v16[]; };
#ifndef KEY_PARTS
layout(binding = 3) writeonly buffer O4_ { uvec4 o4[]; };
layout(binding = 3) writeonly buffer O16_ { uint16_t o16[]; };
layout(binding = 4) writeonly buffer LSE_ { float lse[]; };
#endif
#include "args.glsl"
#include "dropout.glsl"

shared uvec4 KV[KV_LEN];   // staged tiles: K, then V at V_AT; before and after the loop, one fragment's patch per subgroup
shared uvec4 Qs[Q_LEN];
shared float X[X_LEN];     // exchange of forms 2 and 3
shared uvec4 H[H_LEN];
shared uint drawn[DROP_LEN];   // dropout's draws: [group of 64 keys][row of the lane][4 words][lane of the workgroup], or [row][group][4 draws][4 words]

#include "matrix_layout.glsl"
#include "matrix_staging.glsl"

// Query and head (within the packed group) of a row.
uint query_of(uint row) { return PACK ? row / group : row; }
uint member_of(uint row) { return PACK ? row % group : 0u; }
// Whether a row attends to a key, given the row's last key; and whether it does not.
#ifdef BLOCK_MASK
#define SEEN(row, key, last) all(bvec2(int(key) <= last, BLOCKS_OF_TILES || block_allows(query_of(row), key)))
#define HIDDEN(row, key, last) (!SEEN(row, key, last))
#else
#define SEEN(row, key, last) (int(key) <= last)
#define HIDDEN(row, key, last) (int(key) > last)
#endif
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
// Dropout's draws of 16 keys each for tile j. BY_LANE: what a draw serves lies in one lane (which holds columns 2 q, 2 q + 1, 2 q + 8 and
// 2 q + 9 of every 16), so that a lane draws for itself, and the draws of its rows wait in shared memory that is its own: no barrier, no draw
// twice, also over the tiles of one group of 64 keys. Else each subgroup draws for its rows, and looks up its scores one by one.
const uint LANE_GROUPS = BC > 64 ? BC / 64 : 1;
#define DRAW_TILE {                                                                                                                \
  if (BY_LANE) {                                                                                                                   \
    if (BC % 64 == 0 || drawn_for != uvec2(row0, j * BC / 64)) {                                                                   \
      drawn_for = uvec2(row0, j * BC / 64);                                                                                        \
      [[unroll]] for (uint g = 0; g < LANE_GROUPS; ++g) [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {                         \
        const uint row = row0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS);                                         \
        const uvec4 y = draw(4 * (j * BC / 64 + g) + col_lane / 2 % 4, query_of(row), b * heads + q_head + member_of(row));        \
        [[unroll]] for (uint t = 0; t < 4; ++t) drawn[((g * RM * SLOTS + x) * 4 + t) * WG + gl_LocalInvocationID.x] = y[t];        \
      }                                                                                                                            \
    }                                                                                                                              \
  } else {                                                                                                                         \
    MEET                                                                                                                           \
    [[unroll]] for (uint u = 0; u < DRAW_EACH; ++u) {                                                                              \
      const uint x = min(u * SG + lane, DRAWS - 1), row = row0 + x / (4 * KEY_GROUPS);                                             \
      const uvec4 y = draw(4 * (j * BC / 64 + x / 4 % KEY_GROUPS) + x % 4, query_of(row), b * heads + q_head + member_of(row));    \
      [[unroll]] for (uint t = 0; t < 4; ++t) drawn[4 * (drop_at + x) + t] = y[t];                                                 \
    }                                                                                                                              \
    MEET                                                                                                                           \
  } }
// Whether key x of the tile is kept in row i of the subgroup
#define KEPT(i, x) kept(drawn[4 * (drop_at + ((i) * KEY_GROUPS + (j * BC % 64 + (x)) / 64) * 4 + (j * BC % 64 + (x)) / 2 % 4) + (j * BC % 64 + (x)) / 16 % 4], byte_of(j * BC % 64 + (x)))
// The same of element e of fragment n of chunk c, BY_LANE: all elements of a row and 16 keys are in one word
#define KEPT_BY_LANE(c, r, n, e)                                                                                                   \
  kept(drawn[(((j * BC % 64 + (c) * CK + n * FN) / 64 * RM * SLOTS + r * SLOTS + SLOT_OF(e)) * 4 + (j * BC % 64 + (c) * CK + n * FN) / 16 % 4) * WG + gl_LocalInvocationID.x], \
    byte_of(n * FN + COL_OF(e)))
#define DROP(c) EACH_SCORE {                                                                                                       \
  if (BY_LANE) S[r * NS + n][e] = KEPT_BY_LANE(c, r, n, e) ? S[r * NS + n][e] : 0.0;                                               \
  else S[r * NS + n][e] = KEPT(r * FM + row_lane + ROW_OF(e), (c) * CK + n * FN + col_lane + COL_OF(e)) ? S[r * NS + n][e] : 0.0; }
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
      for (uint k = 0; k < CK; ++k) if (SEEN(row0 + r * FM + i, j * BC + (c) * CK + k, last)) top = max(top, X[x0 + k]);         \
      const float before = X[s], now = max(before, top * scale - BIAS);                                                            \
      subgroupBarrier();                                                                                                           \
      if (mine) {                                                                                                                  \
        for (uint k = 0; k < CK; ++k) {                                                                                            \
          const float w = SEEN(row0 + r * FM + i, j * BC + (c) * CK + k, last) ? exp2(fma(X[x0 + k], scale, -now)) : 0.0;          \
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

// lse of a row with these statistics
#define LSE_OF(m, l) ((l) == 0.0 ? -infinity() : ((m) + log2(l)) * 0.69314718055994531)
// What a lane finds where: its part of rows and columns, and this subgroup's places in shared memory
#define PLACES                                                                                                                     \
  const uint row_lane = lane_part(ROW_LANE, lane), col_lane = lane_part(COL_LANE, lane);                                           \
  const uint patch_at = gl_SubgroupID * FM * PATCH_PITCH, q_at = gl_SubgroupID * RM * FM * Q_PITCH;                                \
  const uint x_at = gl_SubgroupID * (FORM == 3 ? FM * CK + FM * FN + 3 * RM * FM : FM * CK), h_at = gl_SubgroupID * FM * CK / 8;   \
  const uint drop_at = gl_SubgroupID * DRAWS;                                                                                      \
  uvec2 drawn_for = uvec2(~0u);                                                                                                    \
  const uint spread_at = x_at + FM * CK, stats_at = spread_at + FM * FN;
// Q, rows from first_row on, of rows in all: asked for, all of it before the first piece is waited for; and, from there, operands
#define ASK_Q(first_row, rows) {                                                                                                   \
  [[unroll]] for (uint p = 0; p < RM * Q_PASSES; ++p) [[unroll]] for (uint u = 0; u < Q_EACH; ++u) {                               \
    const uint x = min(u * SG + lane, FM * PATCH - 1), row = (first_row) + p / Q_PASSES * FM + x / PATCH, c = p % Q_PASSES * PATCH + x % PATCH;\
    const uint from = q_base + member_of(min(row, (rows) - 1)) * q_sh + query_of(min(row, (rows) - 1)) * q_sn;                     \
    uvec4 y;                                                                                                                       \
    COUNTING(const bool real = row < (rows) && c < KU && u * SG + lane < FM * PATCH;)                                              \
    if (ALIGNED) y = LOADED_IF(q, 16, real, q4[from / 8 + min(c, KU - 1)]); else y = GATHER(q, from, c, D, real);                  \
    qr[p * Q_EACH + u] = row < (rows) && c < KU ? y ^ flip : uvec4(0);                                                             \
  }                                                                                                                                \
  }
#define Q_THROUGH_PATCH {                                                                                                          \
  [[unroll]] for (uint p = 0; p < RM * Q_PASSES; ++p) {                                                                            \
    [[unroll]] for (uint u = 0; u < Q_EACH; ++u) {                                                                                 \
      const uint x = min(u * SG + lane, FM * PATCH - 1);                                                                           \
      PATCH_ROWS[patch_at + x / PATCH * PATCH_PITCH + x % PATCH] = qr[p * Q_EACH + u];                                             \
    }                                                                                                                              \
    MEET                                                                                                                           \
    [[unroll]] for (uint f = 0; f < PATCH / (FK / 8); ++f) {                                                                       \
      const uint r = p / Q_PASSES, d = p % Q_PASSES * (PATCH / (FK / 8)) + f;                                                      \
      if (d < DF) { FRAG_A t; coopMatLoad(t, PATCH_ROWS, patch_at + f * (FK / 8), PATCH_PITCH, BY_ROW); KEEP_Q(t, r, d) }          \
    }                                                                                                                              \
    MEET                                                                                                                           \
  }                                                                                                                                \
  }
// O, m and l of rows that have seen nothing; zeros in the columns of staged tiles between D, or DV, and the next fragment
#define NOTHING_SEEN {                                                                                                             \
  [[unroll]] for (uint x = 0; x < RM * VF; ++x) O[x] = ACC(0.0);                                                                   \
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) { m[x] = NONE; l[x] = 0.0; }                                                    \
  if (FORM == 3) {                                                                                                                 \
    for (uint x = lane; x < RM * FM; x += SG) { X[stats_at + 3 * x] = NONE; X[stats_at + 3 * x + 1] = 0.0; X[stats_at + 3 * x + 2] = 0.0; }\
    MEET                                                                                                                           \
  }                                                                                                                                \
  }
#define ZERO_BEYOND_COLUMNS(tiles) {                                                                                               \
  if (DF * FK > 8 * KU || VF * FN > 8 * VU) {                                                                                      \
    barrier();                                                                                                                     \
    [[unroll]] for (uint t = 0; t < (tiles) * TILE; t += TILE) {                                                                   \
      if (DF * FK > 8 * KU) for (uint x = tid; x < BC * (K_PITCH - KU); x += WG) KV[t + x / (K_PITCH - KU) * K_PITCH + KU + x % (K_PITCH - KU)] = uvec4(0);\
      if (VF * FN > 8 * VU) for (uint x = tid; x < BC * (V_PITCH - VU); x += WG) KV[t + V_AT + x / (V_PITCH - VU) * V_PITCH + VU + x % (V_PITCH - VU)] = uvec4(0);\
    }                                                                                                                              \
  }                                                                                                                                \
  }
// O / l, with the factor of dropout if `dropped`; every row below rows is handed to ROW_DONE, if `wanted`
#define DIVIDE_BY_SUM(dropped, wanted, rows) {                                                                                     \
  if (FORM == 3) {                                                                                                                 \
    for (uint x = lane; x < RM * FM; x += SG) {                                                                                    \
      const uint s = stats_at + 3 * x, row = row0 + x;                                                                             \
      const float sum = X[s + 1];                                                                                                  \
      X[s + 2] = sum == 0.0 ? 0.0 : 1.0 / sum;                                                                                     \
      if (dropped) X[s + 2] *= drop_scale();                                                                                       \
      if (wanted && row < (rows)) ROW_DONE(row, X[s], sum);                                                                        \
    }                                                                                                                              \
    MEET                                                                                                                           \
    [[unroll]] for (uint r = 0; r < RM; ++r) { SPREAD(r, 2) MEET SCALE_O(r) MEET }                                                 \
  } else {                                                                                                                         \
    [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                     \
      float inverse[SLOTS];                                                                                                        \
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) { const uint x = r * SLOTS + s; l[x] = row_sum(l[x]); inverse[s] = l[x] == 0.0 ? 0.0 : P_UNIT / l[x]; if (dropped) inverse[s] *= drop_scale(); }\
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= inverse[SLOT_OF(e)];\
    }                                                                                                                              \
    if (wanted && col_lane == 0) {                                                                                                 \
      [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {                                                                           \
        const uint row = row0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS);                                         \
        if (row < (rows)) ROW_DONE(row, m[x], l[x]);                                                                               \
      }                                                                                                                            \
    }                                                                                                                              \
  }                                                                                                                                \
  }
// The rows of O below rows, through the patch, a fragment at a time. (One loop over pieces of several fragments put O into local memory.)
#define STORE_O(rows) {                                                                                                            \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < VF; ++d) {                                              \
    coopMatStore(O[r * VF + d], PATCH_ROWS, patch_at, PATCH_PITCH, BY_ROW);                                                        \
    MEET                                                                                                                           \
    [[unroll]] for (uint u = 0; u < (FM * FN / 8 + SG - 1) / SG; ++u) {                                                            \
      const uint x = u * SG + lane, y = min(x, FM * FN / 8 - 1), row = row0 + r * FM + y / (FN / 8), c = d * FN + y % (FN / 8) * 8;\
      const uint to = o_base + c + member_of(row) * o_sh + query_of(row) * o_sn, from = patch_at + y / (FN / 8) * PATCH_PITCH + y % (FN / 8) * 2;\
      const vec4 lo = uintBitsToFloat(PATCH_ROWS[from]), hi = uintBitsToFloat(PATCH_ROWS[from + 1]);                               \
      if (((FM * FN / 8) % SG == 0 || x < FM * FN / 8) && row < (rows)) {                                                          \
        if (ALIGNED) { if (DV % FN == 0 || c < DV) STORED(o, 16, o4[to / 8] = uvec4(PAIR(lo.x, lo.y), PAIR(lo.z, lo.w), PAIR(hi.x, hi.y), PAIR(hi.z, hi.w))); }\
        else {                                                                                                                     \
          if (c < DV) STORED(o, 2, o16[to] = ELEMENT_BITS(lo.x));                                                                  \
          if (c + 1 < DV) STORED(o, 2, o16[to + 1] = ELEMENT_BITS(lo.y));                                                          \
          if (c + 2 < DV) STORED(o, 2, o16[to + 2] = ELEMENT_BITS(lo.z));                                                          \
          if (c + 3 < DV) STORED(o, 2, o16[to + 3] = ELEMENT_BITS(lo.w));                                                          \
          if (c + 4 < DV) STORED(o, 2, o16[to + 4] = ELEMENT_BITS(hi.x));                                                          \
          if (c + 5 < DV) STORED(o, 2, o16[to + 5] = ELEMENT_BITS(hi.y));                                                          \
          if (c + 6 < DV) STORED(o, 2, o16[to + 6] = ELEMENT_BITS(hi.z));                                                          \
          if (c + 7 < DV) STORED(o, 2, o16[to + 7] = ELEMENT_BITS(hi.w));                                                          \
        }                                                                                                                          \
      }                                                                                                                            \
    }                                                                                                                              \
    MEET                                                                                                                           \
  }                                                                                                                                \
  }
