#version 460
// FlashAttention-2 backward in plain fp32 arithmetic, second of two kernels: dQ.
//
//   P = exp(scale Q K^T - lse),  dP = dO V^T,  dS = P o (dP - delta),  dQ = scale dS K
//
// Dao, "FlashAttention-2", 2023, algorithm 2, turned inside out: a workgroup owns BR queries and walks over the keys in tiles of BC, so
// that dQ is summed in registers in a fixed order instead of by atomic additions; scalar_backward_kv.comp says why there are two kernels.
// With dropout Z (0 or 256/(256 - k) by place): dS = P o (dP o Z - delta).
//
// Tiling, layout of registers and specialization constants: include/scalar_backward.glsl.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dQ, 8.. scores, 11 block mask.
// Push constants: include/args_backward.glsl (x is dQ).
// Workgroups: ceil(nq/BR) B Hq; with a causal mask the longest query blocks first.

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"
#include "args_backward.glsl"
#define SCORE_AT 8
#define PARTS_OF_WHOLES
#include "dropout.glsl"

#define ROW_A q
#define ROW_B g
#define COL_A k
#define COL_B v
#define ASKS_APART
#include "scalar_backward.glsl"

GRADIENT(x, 6)

vec4 dq[MR * MD4];  // without scale

#define PRODUCT add_dq
#define PRODUCT_SUM dq
#define PRODUCT_M4 MD4
#define PRODUCT_PITCH D_WIDTH
#include "micro_product.glsl"

#define WRITE write_dq
#define WRITE_T x
#define WRITE_SUM dq
#define WRITE_M4 MD4
#define WRITE_COLS D
#include "gradient.glsl"

void stage_sum(bool second, uint col, bool edge) { stage_sum_a(V_AT, col_a_origin, col_a_sn, col, cols, 0, edge); }
void add_sum(bool second, uint p_at, uint v_at, uint count) { add_dq(p_at, v_at, count); }

// Draws for four neighbouring keys serve those 4 TX further on as well, unless these lie in another group of 64 or elsewhere in their 8.
const uint DRAW_STEP = TX % 2 + 64 % (4 * TX) + (BC % 64) * (64 % BC) == 0 ? 64 : 1;

float l[MR], dl[MR];  // lse and delta of this invocation's rows

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
      const float p = weight_of(s * LOG2E);
      if (SCORED) { if (p == 0) slope = 1; }   // of a pair that is hidden it may be infinite
      float x = X[i * MC4 + j / 4][j % 4];
      if (DROPOUT) {
        if (j % 2 == 0 && 4 * TX * (j / 4) % DRAW_STEP == 0) drawn[j / 2 % 2] = draw(draw_group(key), query, bh);
        x = kept(drawn[j / 2 % 2], key) ? x * keep : 0;
      }
      X[i * MC4 + j / 4][j % 4] = p * (x - dl[i]) * slope;
      if (PADDED) { if (edge && !has(keys, key)) X[i * MC4 + j / 4][j % 4] = 0; }   // without any key x may be anything
    }
  }
  sum_tile(false, key0, edge);
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
  row_b_origin = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh;
  col_a_origin = k_off() + key_origin(b, k_sb, k_sn) + (h / group()) * k_sh;
  col_b_origin = v_off() + key_origin(b, v_sb, v_sn) + (h / group()) * v_sh;
  row_a_sn = q_sn; row_b_sn = g_sn; col_a_sn = k_sn; col_b_sn = v_sn;
  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) dq[i] = vec4(0);
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    COUNTING(const bool real = row0 + ty + TY * i < query_count();)
    const uint at = statistics_row(bh) + min(row0 + ty + TY * i, last_query());
    l[i] = LOADED_IF(lse, 4, real, lse[lse_off() + at]);
    if (l[i] == NEG_INFINITY) l[i] = -NEG_INFINITY;
    dl[i] = LOADED_IF(delta, 4, real, delta[delta_off() + at]);
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

  write_dq(x_off() + query_origin(b, x_sb, x_sn) + h * x_sh, x_sn, scale);
}
