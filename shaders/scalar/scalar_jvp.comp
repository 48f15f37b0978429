#version 460
// Forward mode (the product of attention's Jacobian and tangents) in plain fp32 arithmetic: how O and lse move with Q, K, V and a bias.
//
//   P = exp(S - lse),  S' = s'(scale Q K^T) scale (Q' K^T + Q K'^T) + bias',  lse' = rowsum(P o S'),  O' = (P o S') V + P V' - lse' O
//
// where a prime is a tangent, and s' the derivative of score functions. It is the chain rule through softmax, whose Jacobian is
// diag(P) - P P^T, walked as in FlashAttention-2 (Dao, 2023, algorithm 2): a workgroup owns BR queries and walks over the keys in tiles of
// BC. O and lse are those of a forward pass, so that P is computed at once, nothing is rescaled, and there are five products where the
// forward pass has two. With dropout Z (0 or 256/(256 - k) by place) O' is made of P o Z; lse' is not. A sink is a key without a value: its
// tangent times exp(sink - lse) is a part of lse'.
//
// Tiling, layout of registers and specialization constants: include/scalar_backward.glsl, built with TANGENTS. P o S' passes through
// shared memory beside rows of V, then P beside rows of V'. Of its own:
//  111 Q_MOVES, 112 K_MOVES, 113 V_MOVES, 114 BIAS_MOVES   0: there is no such tangent, and no work for it
//  116 SINKS_MOVE  the same of sinks     115 WRITE_LSE   1: lse' is written
//
// Bindings: 0 Q, 1 K, 2 V, 3 O, 4 lse, 5 lse', 6 O', 7 Q', 8.. scores, 11 block mask, 12 and 13 lengths, 14 K', 15 V', 16 bias', 17 sinks,
// 18 sinks'.
// Push constants: include/args_backward.glsl (g is O, x is O', delta lse'); where tangents lie: include/tangents.glsl.
// Workgroups: ceil(nq/BR) B Hq; with a causal mask the longest query blocks first.

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define TANGENTS
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"
#include "args_backward.glsl"
#define SCORE_AT 8
#define PARTS_OF_WHOLES
#include "dropout.glsl"

#define ROW_A q
#define ROW_B qt
#define COL_A k
#define COL_B kt
#define ASKS_APART
INPUT(qt, 7)
INPUT(kt, 14)
INPUT(vt, 15)
#include "scalar_backward.glsl"

layout(constant_id = 113) const bool V_MOVES = true;
layout(constant_id = 115) const bool WRITE_LSE = true;
layout(set = 0, binding = 5, std430) writeonly buffer LseTangent { float lse_tangent[]; };
OUTPUT(x, 6)
#define TANGENTS_AT 16
#define BIAS_TANGENT_ELEMENT(i) decode(bias_tangent16[i])
#include "tangents.glsl"

vec4 acc[MR * MV4];   // of O', but for lse' O

#define PRODUCT add_product
#define PRODUCT_SUM acc
#define PRODUCT_M4 MV4
#define PRODUCT_PITCH V_WIDTH
#include "micro_product.glsl"

#define STAGE stage_v
#define STAGE_T v
#define STAGE_ROWS VC
#define STAGE_WIDTH V_WIDTH
#define STAGE_COLS DV
#define STAGE_PITCH V_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

#define STAGE stage_vt
#define STAGE_T vt
#define STAGE_ROWS VC
#define STAGE_WIDTH V_WIDTH
#define STAGE_COLS DV
#define STAGE_PITCH V_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

uint v_origin, vt_origin;   // element at which row 0 of this head lies
void stage_sum(bool second, uint col, bool edge) {
  if (second) stage_vt(V_AT, vt_origin, vt_sn, col, cols, 0, edge); else stage_v(V_AT, v_origin, v_sn, col, cols, 0, edge);
}
void add_sum(bool second, uint p_at, uint v_at, uint count) { add_product(p_at, v_at, count); }

// Draws for four neighbouring keys serve those 4 TX further on as well, unless these lie in another group of 64 or elsewhere in their 8.
const uint DRAW_STEP = TX % 2 + 64 % (4 * TX) + (BC % 64) * (64 % BC) == 0 ? 64 : 1;

float l[MR], moved[MR];  // lse, and this invocation's part of lse', of its rows

// One tile of keys. edge: some of its scores may have to be masked, some of its keys may not exist.
void key_tile(uint key0, uint bh, bool edge) {
  scores(key0, edge);
  const float keep = DROPOUT ? drop_scale() : 1.0;
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint query = row0 + ty + TY * i;
    const Span keys = keys_of(query);
    uvec4 drawn[2];
    [[unroll]] for (uint j = 0; j < MC; ++j) {
      const uint key = key0 + 4 * (tx + TX * (j / 4)) + j % 4;
      float s = fma(S[i * MC4 + j / 4][j % 4], scale, -l[i]), slope = 1;  // one rounding: see scalar_backward_kv.comp
      if (SCORED) {
        const vec2 scored = scored_with_slope(S[i * MC4 + j / 4][j % 4] * scale, query, key);
        s = scored.x - l[i]; slope = scored.y;
      }
      if (edge && !has(keys, key)) s = NEG_INFINITY;
      if (ASKED) { if (asked) { if (!sees(query, key)) s = NEG_INFINITY; } }
      if (BLOCKS_BY_SCORE) { if (!block_allows(query, key)) s = NEG_INFINITY; }
      float ds = X[i * MC4 + j / 4][j % 4] * scale * slope;
      if (BIAS_MOVES) ds += bias_tangent_of(query, key);
      float p = weight_of(s * LOG2E);
      float moves = p == 0 ? 0 : p * ds;   // what is hidden may have any tangent
      moved[i] += moves;
      if (DROPOUT) {
        if (j % 2 == 0 && 4 * TX * (j / 4) % DRAW_STEP == 0) drawn[j / 2 % 2] = draw(draw_group(key), query, bh);
        const float z = kept(drawn[j / 2 % 2], key) ? keep : 0;
        p *= z; moves *= z;
      }
      S[i * MC4 + j / 4][j % 4] = p;
      X[i * MC4 + j / 4][j % 4] = moves;
    }
  }
  if (Q_MOVES || K_MOVES || BIAS_MOVES) sum_tile(false, key0, edge);
  if (V_MOVES) sum_tile(true, key0, edge);
}

// lse' of whole rows, in place of parts of them: a row is spread over TX invocations.
void sum_over_rows() {
  barrier();
  [[unroll]] for (uint i = 0; i < MR; ++i) tile[P_AT + ((ty + TY * i) * TX + tx) / 4][tx % 4] = moved[i];
  barrier();
  [[unroll]] for (uint i = 0; i < MR; ++i) moved[i] = 0;
  for (uint t = 0; t < TX; ++t)
    [[unroll]] for (uint i = 0; i < MR; ++i) moved[i] += tile[P_AT + ((ty + TY * i) * TX + t) / 4][t % 4];
}

void main() {
  const uint id = workgroup_index();
  if (id >= total || !is_work(id, heads())) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;

  const uint blocks = (nq + BR - 1) / BR, matrices = total / blocks;  // B Hq
  const Place place = place_of_queries(id, blocks, matrices);
  const uint bh = place.matrix;
  row0 = place.block * BR;
  const uint b = bh / heads(), h = bh % heads();
  take_lengths(b);
  rows = query_count(); all_rows = query_slots();
  cols = key_count();
  if (SCORED || ASKED) scores_of(b, h);
  row_a_origin = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh;
  row_b_origin = qt_off + query_origin(b, qt_sb, qt_sn) + h * qt_sh;
  col_a_origin = k_off() + key_origin(b, k_sb, k_sn) + (h / group()) * k_sh;
  col_b_origin = kt_off + key_origin(b, kt_sb, kt_sn) + (h / group()) * kt_sh;
  v_origin = v_off() + key_origin(b, v_sb, v_sn) + (h / group()) * v_sh;
  vt_origin = vt_off + key_origin(b, vt_sb, vt_sn) + (h / group()) * vt_sh;
  bias_tangent_of_head(b, h);
  row_a_sn = q_sn; row_b_sn = qt_sn; col_a_sn = k_sn; col_b_sn = kt_sn;
  [[unroll]] for (uint i = 0; i < MR * MV4; ++i) acc[i] = vec4(0);
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    COUNTING(const bool real = row0 + ty + TY * i < query_count();)
    l[i] = LOADED_IF(lse, 4, real, lse[lse_off() + statistics_row(bh) + min(row0 + ty + TY * i, last_query())]);
    if (l[i] == NEG_INFINITY) l[i] = -NEG_INFINITY;
    moved[i] = 0;
  }

  const Walk keys = key_tiles(row0, min(row0 + BR, query_slots()) - 1, BC);
  uint t = keys.begin;
  if (BLOCK_MASK) {
    // For queries without any it lies beyond the last key, where all is masked.
    take_blocks(b, h, row0);
    t = next_tile(t, keys.end);
    if (t >= keys.end) t = (nk + BC - 1) / BC;
  }
  do {
    if (ASKED) asked = !is_whole_block(t);
    key_tile(t * BC, bh, !is_whole(keys, t));
    ++t;
    if (BLOCK_MASK) t = next_tile(t, keys.end);
  } while (t < keys.end);

  sum_over_rows();
  const uint o_origin = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh, x_origin = x_off() + query_origin(b, x_sb, x_sn) + h * x_sh;
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint row = row0 + ty + TY * i;
    if (row >= all_rows) continue;
    const bool exists = row < rows;
    if (SINKS_MOVE) moved[i] += sink_moves(h, l[i] * LOG2E);
    if (!exists) moved[i] = 0;
    const uint o_at = o_origin + row * g_sn, at = x_origin + row * x_sn;
    [[unroll]] for (uint j = 0; j < MV4; ++j) {
      const uint col = 4 * (tx + TX * j);
      [[unroll]] for (uint e = 0; e < 4; ++e) if (col + e < DV) {
        float y = 0;
        if (exists) y = acc[i * MV4 + j][e] - moved[i] * decode(LOADED(g, BYTES, g1[o_at + col + e]));
        acc[i * MV4 + j][e] = y;
      }
      if (ALIGNED) {
        if (col < DV) STORED(x, 4 * BYTES, x4[(at + col) / 4] = encode4(acc[i * MV4 + j]));
      } else {
        [[unroll]] for (uint e = 0; e < 4; ++e)
          if (col + e < DV) STORED(x, BYTES, x1[at + col + e] = encode(acc[i * MV4 + j][e]));
      }
    }
    if (WRITE_LSE && tx == 0) STORED(lse_tangent, 4, lse_tangent[delta_off() + statistics_row(bh) + row] = moved[i]);
  }
}
