#version 460
// FlashAttention-2 backward in plain fp32 arithmetic, first of two kernels: dK and dV.
//
//   P = exp(scale Q K^T - lse),  dV = P^T dO,  dP = dO V^T,  dS = P o (dP - delta),  dK = scale dS^T Q
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 2, without its atomic sums into
// dQ: a workgroup owns BR keys of one key head and walks over the queries in tiles of BC, and over the query heads of the group one
// after the other, so dK and dV are summed in a fixed order and written once; scalar_backward_q.comp does dQ, recomputing P a second time
// (7 products instead of 5, nothing of size Nq x Nk in memory, and the same bits from the same inputs). Here S and P are transposed: rows
// are keys. With dropout Z (0 or 256/(256 - k) by place): dV = (P o Z)^T dO, dS = P o (dP o Z - delta).
//
// Tiling, layout of registers and specialization constants: include/scalar_backward.glsl.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dK, 7 dV, 8.. scores, 11 block mask.
// Push constants: include/args_backward.glsl (x is dK, y is dV). Workgroups: ceil(nk/BR) B Hk; with a
// causal mask the key blocks that most queries see first.

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"
#include "args_backward.glsl"
#define SCORE_AT 8
#define PARTS_OF_WHOLES
#include "dropout.glsl"

#define KV
#define ROW_A k
#define ROW_B v
#define COL_A q
#define COL_B g
#define ASKS_APART
#include "scalar_backward.glsl"

GRADIENT(x, 6)
GRADIENT(y, 7)

vec4 dk[MR * MD4], dv[MR * MV4];  // dk without scale, both without dropout's scale

// dO as an operand of dV
#define STAGE stage_sum_b
#define STAGE_T COL_B
#define STAGE_ROWS VC
#define STAGE_WIDTH V_WIDTH
#define STAGE_COLS DV
#define STAGE_PITCH V_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

#define PRODUCT add_dk
#define PRODUCT_SUM dk
#define PRODUCT_M4 MD4
#define PRODUCT_PITCH D_WIDTH
#include "micro_product.glsl"

#define PRODUCT add_dv
#define PRODUCT_SUM dv
#define PRODUCT_M4 MV4
#define PRODUCT_PITCH V_WIDTH
#include "micro_product.glsl"

#define WRITE write_dk
#define WRITE_T x
#define WRITE_SUM dk
#define WRITE_M4 MD4
#define WRITE_COLS D
#include "gradient.glsl"

#define WRITE write_dv
#define WRITE_T y
#define WRITE_SUM dv
#define WRITE_M4 MV4
#define WRITE_COLS DV
#include "gradient.glsl"

void stage_sum(bool second, uint col, bool edge) {
  if (second) stage_sum_b(V_AT, col_b_origin, col_b_sn, col, cols, 0, edge);
  else stage_sum_a(V_AT, col_a_origin, col_a_sn, col, cols, 0, edge);
}
void add_sum(bool second, uint p_at, uint v_at, uint count) {
  if (second) add_dv(p_at, v_at, count); else add_dk(p_at, v_at, count);
}

// A draw serves all of an invocation's keys of one group of 64, unless they are no multiple of 8 apart or straddle groups.
const uint DRAW_STEP = TY % 8 + 64 % TY + (BR % 64) * (64 % BR) == 0 ? 64 : 1;

// One tile of queries of query head bh. edge: some of its scores may have to be masked, some of its queries may not exist.
void query_tile(uint query0, uint bh, bool edge) {
  scores(query0, edge);
  const float keep = DROPOUT ? drop_scale() : 1.0;
  [[unroll]] for (uint j = 0; j < MC; ++j) {
    const uint query = query0 + 4 * (tx + TX * (j / 4)) + j % 4;
    const uint at = statistics_row(bh) + min(query, last_query());
    const bool real = query < query_count();
    float l = LOADED_IF(lse, 4, real, lse[lse_off() + at]);
    if (l == NEG_INFINITY || !real) l = -NEG_INFINITY;
    const float dl = LOADED_IF(delta, 4, real, delta[delta_off() + at]);
    uvec4 drawn;
    [[unroll]] for (uint i = 0; i < MR; ++i) {
      const uint key = row0 + ty + TY * i;
      // One rounding, of the difference: where scores are large, one of either term would weigh as much as all other errors together.
      float s = fma(S[i * MC4 + j / 4][j % 4], scale, -l), slope = 1;
      if (SCORED) {
        const vec2 scored = scored_with_slope(S[i * MC4 + j / 4][j % 4] * scale, query, key);
        s = scored.x - l; slope = scored.y;
      }
      if (edge && out_of_band(query, key)) s = NEG_INFINITY;
      if (ASKED) { if (asked) { if (!sees(query, key)) s = NEG_INFINITY; } }
      if (BLOCKS_BY_SCORE) { if (!block_allows(query, key)) s = NEG_INFINITY; }
      const float p = weight_of(s * LOG2E);
      if (SCORED) { if (p == 0) slope = 1; }   // of a pair that is hidden it may be infinite
      float x = X[i * MC4 + j / 4][j % 4], z = p;
      if (DROPOUT) {
        if (TY * i % DRAW_STEP == 0) drawn = draw(draw_group(key), query, bh);
        const bool keeps = kept(drawn, key);
        x = keeps ? x * keep : 0;
        z = keeps ? p : 0;
      }
      S[i * MC4 + j / 4][j % 4] = z;
      X[i * MC4 + j / 4][j % 4] = p * (x - dl) * slope;
      // Keys that no query attends to do a tile of none, and may be anything: NaNs too. So may functions of a query that does not exist.
      if (BLOCK_MASK || PADDED || SCORED) { if (!real) S[i * MC4 + j / 4][j % 4] = X[i * MC4 + j / 4][j % 4] = 0; }
    }
  }
  sum_tile(true, query0, edge);   // dV
  sum_tile(false, query0, edge);  // dK
}

void main() {
  const uint id = workgroup_index();
  if (id >= total || !is_work(id, key_heads())) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;

  const uint blocks = (nk + BR - 1) / BR, matrices = total / blocks;  // B Hk
  const Place place = place_of_keys(id, blocks, matrices);
  const uint matrix = place.matrix;
  row0 = place.block * BR;
  const uint b = matrix / key_heads(), h = matrix % key_heads();
  take_lengths(b);
  rows = key_count(); all_rows = key_slots();
  cols = query_count();
  row_a_origin = k_off() + key_origin(b, k_sb, k_sn) + h * k_sh;
  row_b_origin = v_off() + key_origin(b, v_sb, v_sn) + h * v_sh;
  row_a_sn = k_sn; row_b_sn = v_sn; col_a_sn = q_sn; col_b_sn = g_sn;
  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) dk[i] = vec4(0);
  [[unroll]] for (uint i = 0; i < MR * MV4; ++i) dv[i] = vec4(0);

  const Walk queries = query_tiles(row0, row0 + BR - 1, BC, 0, query_count());
  for (uint member = 0; member < group(); ++member) {
    const uint head = h * group() + member;
    if (SCORED || ASKED) scores_of(b, head);
    col_a_origin = q_off() + query_origin(b, q_sb, q_sn) + head * q_sh;
    col_b_origin = g_off() + query_origin(b, g_sb, g_sn) + head * g_sh;
    // One tile at least, if only to mask it, see scalar_forward.comp.
    uint t = min(queries.begin, (PADDED ? max(queries.end, 1) : queries.end) - 1);
    if (BLOCK_MASK) {
      // For keys without any it lies beyond the last query, whose weights are 0.
      take_blocks(b, head, row0);
      t = next_tile(t, queries.end);
      if (t >= queries.end) t = (nq + BC - 1) / BC;
    }
    do {
      if (ASKED) asked = !is_whole_block(t);
      query_tile(t * BC, b * heads() + head, !is_whole(queries, t));
      ++t;
      if (BLOCK_MASK) t = next_tile(t, queries.end);
    } while (t < queries.end);
  }

  write_dk(x_off() + key_origin(b, x_sb, x_sn) + h * x_sh, x_sn, scale);
  write_dv(y_off() + key_origin(b, y_sb, y_sn) + h * y_sh, y_sn, DROPOUT ? drop_scale() : 1.0);
}
