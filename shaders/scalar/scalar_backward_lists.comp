#version 460
// FlashAttention-2 backward where queries have lists of keys, in plain fp32 arithmetic: dQ and, built with KV, dK and dV.
//
//   P = exp(scale Q K^T - lse),  dP = dO V^T,  dS = P o (dP - delta),  dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO
//
// Dao, "FlashAttention-2", 2023, algorithm 2, cut in two as scalar_backward_q.comp and scalar_backward_kv.comp are, without atomic
// additions. Lists leave no tiles to stage, so rows are read as scalar_decode.comp reads them: LPR neighbouring lanes share a row that is
// walked to, and each has every LPR-th piece of 16 bytes of it, and the same slices of the workgroup's own rows and of their sums:
//
//   dQ: a workgroup owns ROWS query heads of one query, rows of Q and dO, and walks over places in the query's list, rows of K and V
//   KV: a workgroup owns one key, a row of K and of V, and walks over the queries that list it (common/lists_invert.comp), in their order,
//       with all query heads of its key head, rows of Q and dO
//
//   S = A C^T, X = B E^T        A, B own rows (Q, dO or K, V), C, E walked rows (K, V or Q, dO)
//   sums dS C and, with KV, P E
//
//   lane = LPR g + s of a subgroup, g < GROUPS = SG/LPR: items first + g + GROUPS u, u < U, of a batch of BATCH = GROUPS U items
//
// Subgroups take batches in turn. Each group of lanes has sums of its own; groups meet by shuffles at the end, and subgroups in shared
// memory, both in a fixed order. Items that are not there read nothing and weigh nothing, and a batch without any is not computed.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dQ or dK, 7 dV, 8.. scores, 12 and 13 lengths, 14 the lists, with
// KV 15 and 16 starts and entries of common/lists_invert.comp.
// Push constants: include/args_backward.glsl (x is dQ or dK, y dV).
// Workgroups: blocks of a query's heads, innermost, queries, key heads, batch; KV: keys, innermost, key heads, batch.
// Needs subgroup basic and shuffle in compute, and full subgroups of SG.
//
//   0 WG          workgroup size, a multiple of SG
//   1 ROWS        own rows of a workgroup, of KV 1
//   2 SG          subgroup size
//   3 D, 4 DV     columns of Q and K, of V and dO: 1..576
//   5 and 58 include/mask.glsl   63..66 include/score.glsl   90..92, 100, 101 include/lengths.glsl   116 include/lists.glsl
//   6 ALIGNED     1: every row of q, k, v, dO begins 16-byte aligned, every row of the gradients is aligned to four elements, and D and DV
//                 are multiples of 16 bytes
//   7 ACCUMULATE  1: gradients are added to what is there
//   8 LPR         lanes of a row, a power of two that divides SG
//   9 U           items of a lane in a batch

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"
#include "args_backward.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const uint SG = 32;
layout(constant_id = 3) const uint D = 128;
layout(constant_id = 4) const uint DV = 128;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool ACCUMULATE = false;
layout(constant_id = 8) const uint LPR = 8;
layout(constant_id = 9) const uint U = 2;

const uint W = WG / SG;
const uint GROUPS = SG / LPR;
const uint BATCH = GROUPS * U;
const uint D_PIECES = (D + UNIT - 1) / UNIT, DP = (D_PIECES + LPR - 1) / LPR;     // of a row, and of a lane
const uint V_PIECES = (DV + UNIT - 1) / UNIT, VP = (V_PIECES + LPR - 1) / LPR;
const uint D4 = DP * UNIT4, V4 = VP * UNIT4;                                       // vec4s of a lane
const uint MEET_PITCH = (D_PIECES > V_PIECES ? D_PIECES : V_PIECES) * UNIT4;      // and of a row in shared memory

INPUT(q, 0)
INPUT(k, 1)
INPUT(v, 2)
INPUT(g, 3)
layout(set = 0, binding = 4, std430) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = 5, std430) readonly buffer Delta { float delta[]; };
GRADIENT(x, 6)
#ifdef KV
GRADIENT(y, 7)
layout(set = 0, binding = 15, std430) readonly buffer ListStarts_ { uint starts[]; };
layout(set = 0, binding = 16, std430) readonly buffer ListEntries_ { uint entries[]; };
#endif
#define SCORE_AT 8
#define LENGTHS 12
#include "mask.glsl"
#define LISTS_AT 14
#include "lists.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"
#if DTYPE == F16
layout(set = 0, binding = 0, std430) readonly buffer qBits_ { uint16_t qBits[]; };
layout(set = 0, binding = 1, std430) readonly buffer kBits_ { uint16_t kBits[]; };
layout(set = 0, binding = 2, std430) readonly buffer vBits_ { uint16_t vBits[]; };
layout(set = 0, binding = 3, std430) readonly buffer gBits_ { uint16_t gBits[]; };
#endif

shared vec4 met[W * MEET_PITCH];

uint lane, subgroup, s, group_of_lanes;
uint b, kh;                                // batch entry, key head
vec4 A[ROWS * D4], B[ROWS * V4];           // this lane's slices of own rows
vec4 sum_a[ROWS * D4];                     // and of their sums: dQ, or dK, without scale
uvec4 C[U * DP], E[U * VP];                // and of a batch of walked rows
float S[ROWS * U], X[ROWS * U];            // scores and dP of a batch, then P and dS
uint item_query[U], item_key[U];           // which pair an item is about
bool is_there[U];
uint walk_length;                          // items that there are
#ifdef KV
vec4 sum_b[V4];                            // dV
uint item_head[U];
float item_lse[U], item_delta[U];
uint own_key, first_entry;
#else
float own_lse[ROWS], own_delta[ROWS];
uint own_query, member0;
#endif

#define PIECE q_piece
#define PIECE_T q
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS D
#include "piece.glsl"
#define PIECE k_piece
#define PIECE_T k
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS D
#include "piece.glsl"
#define PIECE v_piece
#define PIECE_T v
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS DV
#include "piece.glsl"
#define PIECE g_piece
#define PIECE_T g
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS DV
#include "piece.glsl"

#ifdef KV
#define own_d_piece k_piece
#define own_v_piece v_piece
#define walked_d_piece q_piece
#define walked_v_piece g_piece
#else
#define own_d_piece q_piece
#define own_v_piece g_piece
#define walked_d_piece k_piece
#define walked_v_piece v_piece
#endif

// Where rows begin.
uint q_row(uint head, uint query) { return q_off() + query_origin(b, q_sb, q_sn) + head * q_sh + query * q_sn; }
uint g_row(uint head, uint query) { return g_off() + query_origin(b, g_sb, g_sn) + head * g_sh + query * g_sn; }
uint k_row(uint key) { return k_off() + key_origin(b, k_sb, k_sn) + kh * k_sh + key * k_sn; }
uint v_row(uint key) { return v_off() + key_origin(b, v_sb, v_sn) + kh * v_sh + key * v_sn; }
// A row that sees nothing counts as lse = +inf: its weights are 0.
float lse_of(uint head, uint query) {
  const float l = lse[lse_off() + statistics_row(b * heads() + head) + query];
  return l == NEG_INFINITY ? -NEG_INFINITY : l;
}
float delta_of(uint head, uint query) { return delta[delta_off() + statistics_row(b * heads() + head) + query]; }

void take_own(uint r, uint at_d, uint at_v) {
  [[unroll]] for (uint i = 0; i < DP; ++i) {
    vec4 x[UNIT4];
    decode16(own_d_piece(at_d, i, true), x);
    [[unroll]] for (uint c = 0; c < UNIT4; ++c) A[r * D4 + i * UNIT4 + c] = s + LPR * i < D_PIECES ? x[c] : vec4(0);
  }
  [[unroll]] for (uint i = 0; i < VP; ++i) {
    vec4 x[UNIT4];
    decode16(own_v_piece(at_v, i, true), x);
    [[unroll]] for (uint c = 0; c < UNIT4; ++c) B[r * V4 + i * UNIT4 + c] = s + LPR * i < V_PIECES ? x[c] : vec4(0);
  }
  [[unroll]] for (uint j = 0; j < D4; ++j) sum_a[r * D4 + j] = vec4(0);
}

void load_items(uint batch) {
  [[unroll]] for (uint u = 0; u < U; ++u) {
    const uint item = batch * BATCH + group_of_lanes + GROUPS * u;
    uint at_d = 0, at_v = 0;
#ifdef KV
    is_there[u] = item < walk_length;
    if (is_there[u]) {
      item_key[u] = own_key;
      item_query[u] = entries[first_entry + item / group()];
      item_head[u] = kh * group() + item % group();
      item_lse[u] = lse_of(item_head[u], item_query[u]);
      item_delta[u] = delta_of(item_head[u], item_query[u]);
      at_d = q_row(item_head[u], item_query[u]);
      at_v = g_row(item_head[u], item_query[u]);
    }
#else
    item_key[u] = listed_key(item);
    item_query[u] = own_query;
    is_there[u] = item_key[u] != NO_KEY;
    if (is_there[u]) { at_d = k_row(item_key[u]); at_v = v_row(item_key[u]); }
#endif
    if (is_there[u]) {
      [[unroll]] for (uint i = 0; i < DP; ++i) C[u * DP + i] = walked_d_piece(at_d, i, true);
      [[unroll]] for (uint i = 0; i < VP; ++i) E[u * VP + i] = walked_v_piece(at_v, i, true);
    } else {
      [[unroll]] for (uint i = 0; i < DP; ++i) C[u * DP + i] = uvec4(0);
      [[unroll]] for (uint i = 0; i < VP; ++i) E[u * VP + i] = uvec4(0);
    }
  }
}

// Whether the batch has any item, of any lane.
bool has_items() {
  uint any = 0;
  [[unroll]] for (uint u = 0; u < U; ++u) any |= is_there[u] ? 1 : 0;
  [[unroll]] for (uint step = LPR; step < SG; step <<= 1) any |= subgroupShuffleXor(any, step);
  return any != 0;
}

void products() {
  [[unroll]] for (uint x = 0; x < ROWS * U; ++x) S[x] = X[x] = 0;
  [[unroll]] for (uint u = 0; u < U; ++u) {
    [[unroll]] for (uint i = 0; i < DP; ++i) {
      vec4 x[UNIT4];
      decode16(C[u * DP + i], x);
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < UNIT4; ++c) S[r * U + u] += dot(A[r * D4 + i * UNIT4 + c], x[c]);
    }
    [[unroll]] for (uint i = 0; i < VP; ++i) {
      vec4 x[UNIT4];
      decode16(E[u * VP + i], x);
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < UNIT4; ++c) X[r * U + u] += dot(B[r * V4 + i * UNIT4 + c], x[c]);
    }
  }
  [[unroll]] for (uint step = 1; step < LPR; step <<= 1)
    [[unroll]] for (uint x = 0; x < ROWS * U; ++x) {
      S[x] += subgroupShuffleXor(S[x], step);
      X[x] += subgroupShuffleXor(X[x], step);
    }
}

// S and X become P and dS, without scale.
void weigh() {
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint u = 0; u < U; ++u) {
#ifdef KV
      const float l = item_lse[u], dl = item_delta[u];
      const uint head = item_head[u];
#else
      const float l = own_lse[r], dl = own_delta[r];
      const uint head = kh * group() + min(member0 + r, group() - 1);
#endif
      float above = fma(S[r * U + u], scale, -l), slope = 1;   // one rounding, of the difference
      if (SCORED) {
        scores_of(b, head);
        const vec2 scored = scored_with_slope(S[r * U + u] * scale, item_query[u], min(item_key[u], last_key()));
        above = scored.x - l; slope = scored.y;
      }
      const float p = weight_of(above * LOG2E);
      if (SCORED) { if (p == 0) slope = 1; }   // of a key that is hidden it may be infinite
      const float ds = p * (X[r * U + u] - dl) * slope;
      S[r * U + u] = is_there[u] ? p : 0;
      X[r * U + u] = is_there[u] ? ds : 0;
    }
}

void add_items() {
  [[unroll]] for (uint u = 0; u < U; ++u) {
    [[unroll]] for (uint i = 0; i < DP; ++i) {
      vec4 x[UNIT4];
      decode16(C[u * DP + i], x);
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < UNIT4; ++c) sum_a[r * D4 + i * UNIT4 + c] += X[r * U + u] * x[c];
    }
#ifdef KV
    [[unroll]] for (uint i = 0; i < VP; ++i) {
      vec4 x[UNIT4];
      decode16(E[u * VP + i], x);
      [[unroll]] for (uint c = 0; c < UNIT4; ++c) sum_b[i * UNIT4 + c] += S[u] * x[c];
    }
#endif
  }
}

// Four columns of a sum over all subgroups.
vec4 sum_of_four(uint four) {
  vec4 x = vec4(0);
  [[unroll]] for (uint w = 0; w < W; ++w) x += met[w * MEET_PITCH + four];
  return x;
}

// The subgroups' sums of a row meet in shared memory, and the row is written. (A macro, for GLSL passes no storage buffers.)
#define WRITE_ROW(T, sum, own4, own_pieces, pieces, cols, real, at, factor)                                        \
  [[unroll]] for (uint i = 0; i < own_pieces; ++i)                                                                 \
    [[unroll]] for (uint c = 0; c < UNIT4; ++c) {                                                                  \
      vec4 x = sum[own4 + i * UNIT4 + c];                                                                          \
      [[unroll]] for (uint step = LPR; step < SG; step <<= 1) x += subgroupShuffleXor(x, step);                    \
      if (group_of_lanes == 0 && s + LPR * i < pieces) met[subgroup * MEET_PITCH + (s + LPR * i) * UNIT4 + c] = x; \
    }                                                                                                              \
  barrier();                                                                                                       \
  if (real)                                                                                                        \
    for (uint four = subgroup * SG + lane; four < (cols + 3) / 4; four += WG) {                                    \
      const vec4 x = sum_of_four(four) * (factor);                                                                 \
      const uint to = (at) + 4 * four;                                                                             \
      if (ALIGNED) PASTE(T, 4)[to / 4] = encode4(ACCUMULATE ? x + decode4(PASTE(T, 4)[to / 4]) : x);               \
      else [[unroll]] for (uint e = 0; e < 4; ++e)                                                                 \
        if (4 * four + e < cols)                                                                                   \
          PASTE(T, 1)[to + e] = encode(ACCUMULATE ? x[e] + decode(PASTE(T, 1)[to + e]) : x[e]);                    \
    }                                                                                                              \
  barrier();

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lane = gl_SubgroupInvocationID;
  subgroup = gl_SubgroupID;
  s = lane % LPR;
  group_of_lanes = lane / LPR;
#ifdef KV
  own_key = id % nk;
  b = id / nk / key_heads(); kh = id / nk % key_heads();
  take_lengths(b);
  const uint matrix = LISTS_PER_HEAD ? b * key_heads() + kh : b, at = matrix * (nk + 1) + own_key;
  first_entry = matrix * nq * list_keys + starts[at];
  walk_length = (starts[at + 1] - starts[at]) * group();
  take_own(0, k_row(own_key), v_row(own_key));
  [[unroll]] for (uint j = 0; j < V4; ++j) sum_b[j] = vec4(0);
#else
  const uint blocks = (group() + ROWS - 1) / ROWS;
  own_query = id / blocks % nq;
  member0 = id % blocks * ROWS;
  b = id / blocks / nq / key_heads(); kh = id / blocks / nq % key_heads();
  take_lengths(b);
  take_list(b, kh, own_query);
  walk_length = list_span.last < list_span.first ? 0 : list_keys;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const uint head = kh * group() + min(member0 + r, group() - 1);
    take_own(r, q_row(head, own_query), g_row(head, own_query));
    own_lse[r] = lse_of(head, own_query);
    own_delta[r] = delta_of(head, own_query);
  }
#endif

  // One batch at least, if only of items that are not there: see docs/notes.md on loops that no invocation enters.
  uint batch = subgroup;
  do {
    load_items(batch);
    if (has_items()) {
      products();
      weigh();
      add_items();
    }
    batch += W;
  } while (batch * BATCH < walk_length);

#ifdef KV
  WRITE_ROW(x, sum_a, 0, DP, D_PIECES, D, true, x_off() + key_origin(b, x_sb, x_sn) + kh * x_sh + own_key * x_sn, scale)
  WRITE_ROW(y, sum_b, 0, VP, V_PIECES, DV, true, y_off() + key_origin(b, y_sb, y_sn) + kh * y_sh + own_key * y_sn, 1.0)
#else
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const uint head = kh * group() + member0 + r;
    WRITE_ROW(x, sum_a, r * D4, DP, D_PIECES, D, member0 + r < group(),
      x_off() + query_origin(b, x_sb, x_sn) + head * x_sh + own_query * x_sn, scale)
  }
#endif
}
