#version 460
// FlashAttention-2 forward on matrix hardware for wide heads, as MLA has them: D 576 and DV 512, where a row of O, a row of Q and a tile of
// K each pass what a subgroup's registers or a workgroup's shared memory hold.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1, as in matrix_forward.comp,
// with the work of a tile cut twice:
//
//   SPLIT subgroups, a team, share RM fragments of FM rows. Of a tile of BC = SPLIT CK keys each computes the scores of CK keys over all
//   of D, so that no product is done twice. Their weights meet in shared memory as operands, and each then takes the weights of all BC
//   keys times DV / SPLIT columns of V: O is split by columns, S by keys.
//
//   Nothing is staged whole. Q and K pass through shared memory SLICE columns at a time, V V_KEYS keys at a time, in one stream of steps:
//   while one is computed the next waits in registers (PREFETCH). Q is staged anew with every tile, for in 48 KiB there is no room for 64
//   rows of 576; with 64 rows and 128 keys that is a fifth of what is staged.
//
// What a team must agree on is the reference m of a row (see matrix_forward.comp: it need not be the maximum, and moves rarely). A subgroup
// whose scores outgrew it says so in `grown` before the barrier that the weights need anyway; only then are maxima exchanged. Each subgroup
// sums the weights of its own keys, and these sums meet once, at the end, in a fixed order.
//
// Forms 1 and 2 keep scores and row statistics in registers, form 3 assumes nothing of the layout (include/matrix_layout.glsl). Weights go
// to shared memory in any case: as words where the layout has pairs of columns (WORDS), else as floats first.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32.
// Push constants: include/args.glsl. Workgroups: ceil(rows/BR) B heads, with rows = nq and heads = Hq, or nq group and Hk with PACK.
// Variants: fp16; DTYPE_BF16; KEY_PARTS: keys in parts, PARTS times as many workgroups, bindings 3 and 4 as in include/matrix_parts.glsl.
// Full subgroups of SG required.
//
// Specialization constants (odd(x) = x | 1, W = WG/SG):
//   0 WG = W SG   1 BR = W/SPLIT RM FM   2 BC = SPLIT CK, a multiple of FK   3 D   4 DV   5 and 58 (include/mask.glsl)
//   6 ALIGNED     every row of q, k, v, o begins at a multiple of 16 bytes and D, DV are multiples of 8
//   7 WRITE_LSE   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN     11 SG subgroup size    12 FORM
//  13 RM row fragments of a subgroup      14 CK keys of which a subgroup computes the scores: a multiple of FN
//  15 PREFETCH    0 none; 1 the next step waits in registers; 3 as 1, with two steps in shared memory: a barrier a step
//  16 SPLIT subgroups of a team, divides W    17 SLICE columns of Q and K of a step, a multiple of FK    18 PACK    19 HEADS_TOGETHER
//  20 V_KEYS keys of V of a step: a multiple of FK that divides BC
//  21 S_PITCH = odd(SLICE/8), 22 V_PITCH = odd(SPLIT ceil(ceil(DV/FN)/SPLIT) FN/8), 23 P_PITCH = odd(BC/8): rows staged, in 16 bytes
//  24 STEP_LEN    16 bytes of a step: at least (BR + BC) S_PITCH and V_KEYS V_PITCH
//  25 STAGED_LEN  16 bytes: at least STEP_LEN, twice that with PREFETCH 3, and W FM odd(FN/4)
//  26 X_LEN       floats of exchange: WORDS: SPLIT BR; forms 1 and 2 without: BR BC + SPLIT BR; 3: BR BC + 4 SPLIT BR + W FM FN
//  40 P_LEN = BR P_PITCH
//  41 WORDS       components 2e and 2e + 1 of an accumulator are columns 2n and 2n + 1 of one row; form 1 or 2
//  42 MASKS       0: not causal and nk is a multiple of BC, so that no tile looks at single scores
//  27..39         include/matrix_layout.glsl
//  63..67         include/score.glsl, sinks.glsl: bindings from 8 on     112 MAX_LOGIT  include/max_logit.glsl: binding 12

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
layout(constant_id = 16) const uint SPLIT = 1;
layout(constant_id = 17) const uint SLICE = 16;
layout(constant_id = 18) const bool PACK = false;
layout(constant_id = 19) const uint HEADS_TOGETHER = 1;
layout(constant_id = 20) const uint V_KEYS = 16;
layout(constant_id = 21) const uint S_PITCH = 3;
layout(constant_id = 22) const uint V_PITCH = 3;
layout(constant_id = 23) const uint P_PITCH = 3;
layout(constant_id = 24) const uint STEP_LEN = 96;
layout(constant_id = 25) const uint STAGED_LEN = 96;
layout(constant_id = 26) const uint X_LEN = 64;
layout(constant_id = 40) const uint P_LEN = 48;
layout(constant_id = 41) const bool WORDS = false;
layout(constant_id = 42) const bool MASKS = true;

const uint W = WG / SG;
const uint VF = ((DV + FN - 1) / FN + SPLIT - 1) / SPLIT;   // fragments of a row of O that a subgroup owns
const uint KU = (D + 7) / 8, VU = (DV + 7) / 8;             // 16-byte units of a row
const uint SU = SLICE / 8, SLICES = (D + SLICE - 1) / SLICE;
const uint NS = CK / FN;
const uint TEAM_ROWS = RM * FM;
const bool TWO_STEPS = PREFETCH == 3;
const uint K_AT = BR * S_PITCH;           // of a step: Q, then K
const uint PATCH_PITCH = FN / 4 | 1u;     // of a subgroup's patch, through which O leaves
// Places in X: scores [subgroup][row][CK], then for each subgroup and row: maximum or sum, m, l, a factor; matrices of a factor.
const uint TOPS = WORDS ? 0 : BR * BC, MS = TOPS + SPLIT * BR, LS = MS + SPLIT * BR;
const uint FACTORS = LS + SPLIT * BR, SPREAD = FACTORS + SPLIT * BR;
#include "common.glsl"
const float NONE = LOWEST;      // reference of a row that has seen nothing
const float GROWTH = 15.0;      // rescale when a score reaches reference + GROWTH, P < 2^15
const float BIAS = 4.0;         // reference = maximum - BIAS, in log 2: 4 more bits for small weights

#include "matrix_types.glsl"
#include "count.glsl"

VIEWS(Q, q, 0, readonly)
VIEWS(K, k, 1, readonly)
VIEWS(V, v, 2, readonly)
#ifdef KEY_PARTS
layout(constant_id = 48) const uint PARTS = 1;
layout(binding = 3) writeonly buffer Sums_ { vec4 sums[]; };               // [PARTS,B,Hq,Nq,DV rounded up to 8]
layout(binding = 4) writeonly buffer Statistics_ { float statistics[]; };  // [PARTS,B,Hq,Nq]
#else
const uint PARTS = 1;
VIEWS(O, o, 3, writeonly)
layout(binding = 4) writeonly buffer LSE_ { float lse[]; };
#endif
#include "args.glsl"

shared uvec4 Staged[STAGED_LEN];   // steps; at the end a patch for each subgroup
shared uvec4 Weights[P_LEN];       // P of a tile, a row of BC for each of BR
shared float X[X_LEN];
shared uint grown[2];              // of tiles of even and odd number: whether a reference has to move

#include "matrix_layout.glsl"
#include "walk.glsl"
#define SCORE_AT 8
#define BIAS_TYPE uint16_t
#define BIAS_ELEMENT(i) UNPAIR(uint(bias16[i])).x
#include "score.glsl"
#include "sinks.glsl"
#define MAX_LOGIT_AT 12
#include "max_logit.glsl"
#include "matrix_gather.glsl"

uint tid, lane, row_lane, col_lane;
uint share, team_row;                        // which subgroup of its team, and the team's first row in the workgroup
uint own_x, own_row, spread_at, patch_at;    // the subgroup's places: scores in X, rows of statistics, matrix of a factor, patch
uint b, q_head, block_row, row0, rows;       // batch entry, head, first row of the workgroup and of the team, and how many there are
uint q_base, k_base, v_base, o_base;
uint j, end, at;                             // tile of keys, the tile after the last, the step that is computed
float scale, natural_scale;                  // as in include/matrix_attention.glsl
uint flip;
ACC O[RM * VF], S[RM * NS];
float m[RM * SLOTS], l[RM * SLOTS], top[RM * SLOTS];
// MAX_LOGIT: what a lane notes of its rows (matrix_max_logit.glsl), of form 3 those that it walks along.
float largest[MAX_LOGIT ? (FORM == 3 ? (TEAM_ROWS + SG - 1) / SG : RM * SLOTS) : 1];

uint query_of(uint row) { return PACK ? row / group() : row; }
uint member_of(uint row) { return PACK ? row % group() : 0u; }
uint slot_row(uint x) { return x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS); }   // of the team's rows
uint key_base() { return j * BC + share * CK; }   // the first key of which this subgroup computes scores

#define IS_NOTED(x) (FORM != 3 || x * SG + lane < TEAM_ROWS)
#define NOTED_ROW(x) (row0 + (FORM == 3 ? x * SG + lane : slot_row(x)))
#define NOTED_SUM(x) (FORM == 3 ? X[LS + own_row + x * SG + lane] : l[x])
#include "matrix_max_logit.glsl"

// Steps: pieces of 16 bytes tid, tid + WG, ... of Q and K, or of V, are an invocation's.
const uint Q_PIECES = BR * SU, K_PIECES = BC * SU, V_PIECES = V_KEYS * VU;
const uint Q_EACH = (Q_PIECES + WG - 1) / WG, K_EACH = (K_PIECES + WG - 1) / WG, V_EACH = (V_PIECES + WG - 1) / WG;
#define EACH(T, u, x) [[unroll]] for (uint u = 0, x = tid; u < T##_EACH; ++u, x += WG) if (T##_PIECES % WG == 0 || x < T##_PIECES)
uvec4 qr[Q_EACH], kr[K_EACH], vr[V_EACH];   // pieces on their way

// Slice d of Q and of the keys of a tile. Rows and columns beyond the last are 0; a key beyond the last is read as the last, and masked.
void fetch_qk(uint tile, uint d) {
  EACH(Q, u, x) {
    const uint row = block_row + x / SU, c = d * SU + x % SU, inside = min(row, rows - 1);
    const bool real = row < rows && (D % SLICE == 0 || c < KU);
    const uint from = q_base + member_of(inside) * q_sh + query_of(inside) * q_sn;
    uvec4 y;
    if (ALIGNED) y = LOADED_IF(q, 16, real, q4[from / 8 + min(c, KU - 1)]); else y = GATHER(q, from, c, D, real);
    qr[u] = real ? y ^ flip : uvec4(0);
  }
  EACH(K, u, x) {
    const uint key = tile * BC + x / SU, c = d * SU + x % SU, from = k_base + min(key, nk - 1) * k_sn;
    const bool inside = D % SLICE == 0 || c < KU;
    uvec4 y;
    if (ALIGNED) y = LOADED_IF(k, 16, key < nk && inside, k4[from / 8 + min(c, KU - 1)]); else y = GATHER(k, from, c, D, key < nk);
    kr[u] = inside ? y : uvec4(0);
  }
}
void store_qk() {
  EACH(Q, u, x) Staged[at + x / SU * S_PITCH + x % SU] = qr[u];
  EACH(K, u, x) Staged[at + K_AT + x / SU * S_PITCH + x % SU] = kr[u];
}
// V_KEYS keys of a tile's V, from the v-th V_KEYS on. Columns between DV and the last fragment's end are whatever was there: no column of
// O below DV is made of them.
void fetch_v(uint tile, uint v) {
  EACH(V, u, x) {
    const uint key = tile * BC + v * V_KEYS + x / VU, c = x % VU, from = v_base + min(key, nk - 1) * v_sn;
    if (ALIGNED) vr[u] = LOADED_IF(v, 16, key < nk, v4[from / 8 + c]); else vr[u] = GATHER(v, from, c, DV, key < nk);
  }
}
void store_v() { EACH(V, u, x) Staged[at + x / VU * V_PITCH + x % VU] = vr[u]; }
// The place of the next step is free: with two of them since the barrier of the step before.
void next_step() { if (TWO_STEPS) at = STEP_LEN - at; else barrier(); }

// S += Q K^T over the staged columns.
void scores() {
  [[unroll]] for (uint d = 0; d < SLICE / FK; ++d) {
    FRAG_A qa[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) coopMatLoad(qa[r], Staged, at + (team_row + r * FM) * S_PITCH + d * FK / 8, S_PITCH, BY_ROW);
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      FRAG_B kb; coopMatLoad(kb, Staged, at + K_AT + (share * CK + n * FN) * S_PITCH + d * FK / 8, S_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(qa[r], kb, S[r * NS + n]);
    }
  }
}
// O += P V over the v-th V_KEYS keys of the tile, which are staged.
void weighted_sum(uint v) {
  [[unroll]] for (uint n = 0; n < V_KEYS / FK; ++n) {
    FRAG_A pa[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r)
      coopMatLoad(pa[r], Weights, (team_row + r * FM) * P_PITCH + (v * V_KEYS + n * FK) / 8, P_PITCH, BY_ROW);
    [[unroll]] for (uint d = 0; d < VF; ++d) {
      FRAG_B vb; coopMatLoad(vb, Staged, at + n * FK * V_PITCH + (share * VF + d) * FN / 8, V_PITCH, BY_ROW);
      [[unroll]] for (uint r = 0; r < RM; ++r) O[r * VF + d] = coopMatMulAdd(pa[r], vb, O[r * VF + d]);
    }
  }
}

// Forms 1 and 2: scores and statistics in registers.

void score_pairs() {
  const uint key0 = key_base() + col_lane;
  const float float_key0 = float(key0), ahead0 = float(int(row0 + row_lane + key_count()) - int(query_count() + key0));
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    const uint row = row0 + r * FM + row_lane + ROW_OF(e), query = query_of(row);
    const float ahead = PACK ? float(int(query + key_count()) - int(query_count() + key0)) : ahead0;
    if (PACK) scores_of(b, q_head + member_of(row));
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      const uint col = n * FN + COL_OF(e);
      S[r * NS + n][e] = score_bits(S[r * NS + n][e], natural_scale, query, key0 + col, float_key0 + float(col),
        ahead + float(int(PACK ? 0 : r * FM + ROW_OF(e)) - int(col)), SCORE_BIAS == 0 ? 0 : bias_of(query, key0 + col));
    }
  }
}
void mask() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    const uint query = query_of(row0 + r * FM + row_lane + ROW_OF(e));
    const Span keys = keys_of(query);
    [[unroll]] for (uint n = 0; n < NS; ++n)
      S[r * NS + n][e] = allowed(keys, query, key_base() + n * FN + col_lane + COL_OF(e)) ? S[r * NS + n][e] : -infinity();
  }
}
bool scores_grew() {
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) top[x] = -infinity();
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
    top[r * SLOTS + SLOT_OF(e)] = max(top[r * SLOTS + SLOT_OF(e)], S[r * NS + n][e]);
  bool grew = false;
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) grew = grew || top[x] * scale >= m[x] + GROWTH;
  return grew;
}
void weights() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    S[r * NS + n][e] = exp2(fma(S[r * NS + n][e], scale, -m[r * SLOTS + SLOT_OF(e)]));
    l[r * SLOTS + SLOT_OF(e)] += S[r * NS + n][e];
  }
}

// Form 3: a row belongs to one lane, which walks along it.

#define OWN_ROWS(i) for (uint i = lane; i < TEAM_ROWS; i += SG)
bool scores_grew_in_shared(bool masked) {
  bool grew = false;
  OWN_ROWS(i) {
    const uint row = row0 + i, query = query_of(row), x0 = own_x + i * CK;
    const Span keys = keys_of(query);
    if (SCORED && PACK) scores_of(b, q_head + member_of(row));
    float most = -infinity();
    for (uint k = 0; k < CK; ++k) {
      float s = X[x0 + k];
      if (SCORED) s = score_bits(s, natural_scale, query, key_base() + k, 0, 0, SCORE_BIAS == 0 ? 0 : bias_of(query, key_base() + k));
      if (masked) { if (!allowed(keys, query, key_base() + k)) s = -infinity(); }
      X[x0 + k] = s;
      most = max(most, s);
    }
    X[TOPS + own_row + i] = most;
    if (MAX_LOGIT) largest[i / SG] = max(largest[i / SG], most);
    grew = grew || most * scale >= X[MS + own_row + i] + GROWTH;
  }
  return grew;
}
void weights_in_shared() {
  OWN_ROWS(i) {
    const float reference = X[MS + own_row + i];
    float all_weights = 0.0;
    for (uint k = 0; k < CK; ++k) {
      const float w = exp2(fma(X[own_x + i * CK + k], scale, -reference));
      X[own_x + i * CK + k] = w; all_weights += w;
    }
    X[LS + own_row + i] += all_weights;
  }
}
// Rows of fragment r of O times their factors. Equal components of equal types meet, whatever the layout is.
void scale_o(uint r) {
  MEET
  [[unroll]] for (uint u = 0; u < (FM * FN + SG - 1) / SG; ++u) {
    const uint x = min(u * SG + lane, FM * FN - 1);
    X[spread_at + x] = X[FACTORS + own_row + r * FM + x / FN];
  }
  MEET
  ACC by; coopMatLoad(by, X, spread_at, FN, BY_ROW);
  [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= by[e];
}

// Scores of the subgroup to its rows of X, and weights from there to Weights.
void scores_to_shared() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n)
    coopMatStore(S[r * NS + n], X, own_x + r * FM * CK + n * FN, CK, BY_ROW);
  MEET
}
void weights_from_shared() {
  MEET
  for (uint x = lane; x < TEAM_ROWS * CK / 8; x += SG) {
    const uint from = own_x + 8 * x;
    Weights[(team_row + x / (CK / 8)) * P_PITCH + share * CK / 8 + x % (CK / 8)] =
      uvec4(PAIR(X[from], X[from + 1]), PAIR(X[from + 2], X[from + 3]), PAIR(X[from + 4], X[from + 5]), PAIR(X[from + 6], X[from + 7]));
  }
}
// WORDS: two neighbours of a row at a time.
void weights_by_words() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2) {
    const uint column = share * CK + n * FN + col_lane + COL_OF(e);
    const uint to = (team_row + r * FM + row_lane + ROW_OF(e)) * P_PITCH + column / 8;
    Weights[to][column / 2 % 4] = PAIR(S[r * NS + n][e], S[r * NS + n][e + 1]);
  }
}

// The largest score of a row of the team, of this tile.
float team_top(uint row) {
  float most = -infinity();
  [[unroll]] for (uint s = 0; s < SPLIT; ++s) most = max(most, X[TOPS + (own_row - share * TEAM_ROWS) + s * TEAM_ROWS + row]);
  return most;
}
float team_sum(uint row) {
  float sum = 0.0;
  [[unroll]] for (uint s = 0; s < SPLIT; ++s) sum += X[TOPS + (own_row - share * TEAM_ROWS) + s * TEAM_ROWS + row];
  return sum;
}
// References move up to the team's maximum so far, and O and l follow.
void rescale() {
  if (FORM != 3) {
    [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
      const float most = row_max(top[x]);
      if (col_lane == 0) X[TOPS + own_row + slot_row(x)] = most;
    }
  }
  barrier();
  if (FORM == 3) {
    OWN_ROWS(i) {
      const uint x = own_row + i;
      const float before = X[MS + x], now = max(before, team_top(i) * scale - BIAS), shrink = exp2(before - now);
      X[MS + x] = now; X[LS + x] *= shrink; X[FACTORS + x] = shrink;
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) scale_o(r);
    MEET
  } else {
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      float shrink[SLOTS];
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
        const uint x = r * SLOTS + s;
        const float now = max(m[x], team_top(slot_row(x)) * scale - BIAS);
        shrink[s] = exp2(m[x] - now); m[x] = now; l[x] *= shrink[s];
      }
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= shrink[SLOT_OF(e)];
    }
  }
}

// P of the tile from the scores. The barrier between is also the one after the last slice of K.
void softmax(bool masked) {
  bool grew;
  if (FORM == 3) {
    scores_to_shared();
    grew = scores_grew_in_shared(masked);
  } else {
    if (SCORED) score_pairs();
    if (MASKS) { if (masked) mask(); }
    grew = scores_grew();
    if (MAX_LOGIT) note_scores();
  }
  if (subgroupAny(grew)) { if (lane == 0) atomicOr(grown[j % 2], 1u); }
  barrier();
  const bool moved = grown[j % 2] != 0;
  if (tid == 0) grown[(j + 1) % 2] = 0;   // read last a tile ago; written next after the barriers of V
  if (moved) rescale();
  if (FORM == 3) { weights_in_shared(); weights_from_shared(); }
  else {
    weights();
    if (WORDS) weights_by_words(); else { scores_to_shared(); weights_from_shared(); }
  }
}

// A tile of keys, in steps.
void tile(bool masked) {
  [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0);
  [[dont_unroll]] for (uint d = 0; d < SLICES; ++d) {
    next_step();
    if (PREFETCH == 0) fetch_qk(j, d);
    store_qk();
    barrier();
    if (PREFETCH != 0) { if (d + 1 < SLICES) fetch_qk(j, d + 1); else fetch_v(j, 0); }
    scores();
  }
  softmax(masked);
  [[dont_unroll]] for (uint v = 0; v < BC / V_KEYS; ++v) {
    next_step();
    if (PREFETCH == 0) fetch_v(j, v);
    store_v();
    barrier();
    if (PREFETCH != 0) { if (v + 1 < BC / V_KEYS) fetch_v(j, v + 1); else if (j + 1 < end) fetch_qk(j + 1, 0); }
    weighted_sum(v);
  }
}

#ifdef KEY_PARTS
uint part_rows;   // where the part's rows begin, in rows
uint part_row(uint row) { return part_rows + (b * heads() + q_head + member_of(row)) * nq + query_of(row); }
void row_done(uint row, float reference, float row_sum) {
  STORED(statistics, 4, statistics[part_row(row)] = row_sum == 0.0 ? -infinity() : reference + log2(row_sum));
}
const bool SUNK = false;       // combine_parts.comp knows of sinks
#else
void row_done(uint row, float reference, float row_sum) {
  STORED(lse, 4, lse[lse_off() + (b * heads() + q_head + member_of(row)) * nq + query_of(row)] =
    row_sum == 0.0 ? -infinity() : score_of_bits(reference + log2(row_sum)));
}
const bool SUNK = SINKS;
#endif

// O / l of the team, with the sink; one subgroup of it hands every row to row_done.
void divide_by_sum() {
  const bool wanted = share == 0 && (PARTS > 1 || WRITE_LSE);
  if (FORM == 3) { OWN_ROWS(i) X[TOPS + own_row + i] = X[LS + own_row + i]; }
  else {
    [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
      const float sum = row_sum(l[x]);
      if (col_lane == 0) X[TOPS + own_row + slot_row(x)] = sum;
    }
  }
  barrier();
  if (FORM == 3) {
    OWN_ROWS(i) {
      float reference = X[MS + own_row + i], sum = team_sum(i), factor = 1.0;
      if (SUNK) factor = join_sink(q_head + member_of(row0 + i), reference, sum);
      X[FACTORS + own_row + i] = sum == 0.0 ? 0.0 : factor / sum;
      if (wanted && row0 + i < rows) row_done(row0 + i, reference, sum);
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) scale_o(r);
  } else {
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      float inverse[SLOTS];
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
        const uint x = r * SLOTS + s, row = row0 + slot_row(x);
        float sum = team_sum(slot_row(x)), factor = 1.0;
        if (SUNK) factor = join_sink(q_head + member_of(row), m[x], sum);
        inverse[s] = sum == 0.0 ? 0.0 : factor / sum;
        if (wanted && col_lane == 0) { if (row < rows) row_done(row, m[x], sum); }
      }
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= inverse[SLOT_OF(e)];
    }
  }
}

// The rows of O below rows, through the subgroup's patch, a fragment at a time.
const uint STORE_UNIT = PARTS > 1 ? 4 : 8, STORES = FM * FN / STORE_UNIT;   // columns that are stored together
void store_o() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < VF; ++d) {
    coopMatStore(O[r * VF + d], Staged, patch_at, PATCH_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0; u < (STORES + SG - 1) / SG; ++u) {
      const uint y = u * SG + lane, x = min(y, STORES - 1);
      const uint at_row = x / (FN / STORE_UNIT), column = x % (FN / STORE_UNIT) * STORE_UNIT;
      const uint row = row0 + r * FM + at_row, c = (share * VF + d) * FN + column, from = patch_at + at_row * PATCH_PITCH + column / 4;
      if ((STORES % SG == 0 || y < STORES) && row < rows && c < 8 * VU) {
#ifdef KEY_PARTS
        STORED(sums, 16, sums[part_row(row) * (2 * VU) + c / 4] = uintBitsToFloat(Staged[from]));
#else
        const uint to = o_base + c + member_of(row) * o_sh + query_of(row) * o_sn;
        const vec4 lo = uintBitsToFloat(Staged[from]), hi = uintBitsToFloat(Staged[from + 1]);
        if (ALIGNED) STORED(o, 16, o4[to / 8] = uvec4(PAIR(lo.x, lo.y), PAIR(lo.z, lo.w), PAIR(hi.x, hi.y), PAIR(hi.z, hi.w)));
        else [[unroll]] for (uint i = 0; i < 8; ++i)
          if (c + i < DV) STORED(o, 2, o16[to + i] = ELEMENT_BITS(i < 4 ? lo[i % 4] : hi[i % 4]));
#endif
      }
    }
    MEET
  }
}

void main() {
  if (workgroup_index() >= total) return;
  tid = gl_LocalInvocationID.x; lane = gl_SubgroupInvocationID;
  row_lane = lane_part(ROW_LANE, lane); col_lane = lane_part(COL_LANE, lane);
  share = gl_SubgroupID % SPLIT; team_row = gl_SubgroupID / SPLIT * TEAM_ROWS;
  own_x = gl_SubgroupID * TEAM_ROWS * CK; own_row = gl_SubgroupID * TEAM_ROWS;
  spread_at = SPREAD + gl_SubgroupID * FM * FN; patch_at = gl_SubgroupID * FM * PATCH_PITCH;
  scale = SCORED ? 1.0 : abs(score_scale); natural_scale = abs(score_scale) * LN2; flip = score_scale < 0.0 ? 0x80008000u : 0u;

  // which query block of which head
  const uint groups = total / PARTS;   // of a part of the keys
  const uint part = PARTS == 1 ? 0 : workgroup_index() / groups, id = workgroup_index() - part * groups;
  rows = PACK ? nq * group() : nq;
  const uint blocks = (rows + BR - 1) / BR;
  uint bh, i;
  if (HEADS_TOGETHER > 1) {
    const uint span = HEADS_TOGETHER * blocks, first_head = id / span * HEADS_TOGETHER, rest = id % span;
    const uint members = min(HEADS_TOGETHER, groups / blocks - first_head);
    i = rest / members; bh = first_head + rest % members;
  } else { bh = id / blocks; i = id % blocks; }
  i = longest_first(i, blocks);
  const uint heads_ = PACK ? key_heads() : heads(), h = bh % heads_;
  const uint kv_head = PACK ? h : h / group();
  b = bh / heads_; q_head = PACK ? h * group() : h;
  if (SCORED) scores_of(b, q_head);
  q_base = q_off() + b * q_sb + q_head * q_sh; o_base = o_off() + b * o_sb + q_head * o_sh;
  k_base = k_off() + b * k_sb + kv_head * k_sh; v_base = v_off() + b * v_sb + kv_head * v_sh;
  block_row = i * BR; row0 = block_row + team_row;

  const Walk keys = part_of(key_tiles(query_of(block_row), query_of(min(block_row + BR, rows) - 1), BC), part, PARTS);
#ifdef KEY_PARTS
  part_rows = part * (groups / blocks * (PACK ? group() : 1) * nq);
#endif
  j = keys.begin; end = keys.end; at = 0;
  if (PREFETCH != 0) { if (j < end) fetch_qk(j, 0); }

  [[unroll]] for (uint x = 0; x < RM * VF; ++x) O[x] = ACC(0.0);
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) { m[x] = NONE; l[x] = 0.0; }
  if (FORM == 3) { OWN_ROWS(x) { X[MS + own_row + x] = NONE; X[LS + own_row + x] = 0.0; } }
  if (tid < 2) grown[tid] = 0;
  if (MAX_LOGIT) forget_scores();

  [[dont_unroll]] for (; j < end; ++j) tile(!is_whole(keys, j));

  if (MAX_LOGIT) add_logits(rows);
  barrier();
  divide_by_sum();
  store_o();
}
