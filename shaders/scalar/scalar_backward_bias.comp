#version 460
// The gradient of a bias of attention in plain fp32 arithmetic, after delta:
//
//   P = exp(s' - lse),  dP = dO V^T,  dbias = sum of dS = P o (dP - delta)     over all scores that an element of the bias was added to
//
// Dao, "FlashAttention-2", 2023, algorithm 2, for dS; the paper has no bias. A workgroup owns a tile of BR
// queries and BC keys of the bias and walks over what the tile stands for: batch entries, heads, and all blocks of queries where a bias has
// one row for all. So every element is summed in a fixed order and written once; S and dP are made again, as scalar_backward_q.comp does.
// With dropout Z (0 or 256/(256 - k) by place): dS = P o (dP o Z - delta).
//
// Tiling, layout of registers and specialization constants: include/scalar_backward.glsl.
//  69 OWN_BATCH, 70 OWN_HEADS, 71 OWN_QUERIES   the bias has an element for each batch entry, head, query; else one for all
//  111 GRADIENT_32   it is of fp32, not of the storage type
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dbias, 8.. scores, 11 block mask.
// Push constants: include/args_backward.glsl (x is dbias).
// Workgroups: ceil(nk/BC) tiles of keys, then ceil(nq/BR) blocks of queries, then heads, then batch entries, of the bias.

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
#include "scalar_backward.glsl"

layout(constant_id = 69) const bool OWN_BATCH = true;
layout(constant_id = 70) const bool OWN_HEADS = true;
layout(constant_id = 71) const bool OWN_QUERIES = true;
layout(constant_id = 111) const bool GRADIENT_32 = false;

GRADIENT(x, 6)
layout(set = 0, binding = 6, std430) buffer xView32 { float x32[]; };

void stage_sum(bool second, uint col, bool edge) {}   // there is no sum over P or dS here
void add_sum(bool second, uint p_at, uint v_at, uint count) {}

// Draws for four neighbouring keys serve those 4 TX further on as well, unless these lie in another group of 64 or elsewhere in their 8.
const uint DRAW_STEP = TX % 2 + 64 % (4 * TX) + (BC % 64) * (64 % BC) == 0 ? 64 : 1;

vec4 sum[MR * MC4];

// What a block of queries of head bh adds to the tile of keys.
void add_scores_of(uint bh, uint key0) {
  scores(key0, true);
  const float keep = DROPOUT ? drop_scale() : 1.0;
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint query = row0 + ty + TY * i, at = statistics_row(bh) + min(query, last_query());
    const Span keys = keys_of(query);
    float l = lse[lse_off() + at];
    if (l == NEG_INFINITY || query >= query_count()) l = -NEG_INFINITY;
    float dl = delta[delta_off() + at];
    if (!query_exists(query)) dl = 0;
    uvec4 drawn[2];
    [[unroll]] for (uint j = 0; j < MC; ++j) {
      const uint key = key0 + 4 * (tx + TX * (j / 4)) + j % 4;
      float s = scored(S[i * MC4 + j / 4][j % 4] * scale, query, key) - l;
      if (!has(keys, key) || l == -NEG_INFINITY) s = NEG_INFINITY;   // whatever functions make of a query that does not exist
      if (BLOCK_MASK && !BLOCKS_OF_TILES) { if (!block_allows(query, key)) s = NEG_INFINITY; }
      float x = X[i * MC4 + j / 4][j % 4];
      if (DROPOUT) {
        if (j % 2 == 0 && 4 * TX * (j / 4) % DRAW_STEP == 0) drawn[j / 2 % 2] = draw(draw_group(key), query, bh);
        x = kept(drawn[j / 2 % 2], key) ? x * keep : 0;
      }
      sum[i * MC4 + j / 4][j % 4] += weight_of(s * LOG2E) * (x - dl);
    }
  }
}

void put(uint at, float y) {
  if (GRADIENT_32) x32[at] = ACCUMULATE ? x32[at] + y : y;
  else x1[at] = encode(ACCUMULATE ? decode(x1[at]) + y : y);
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;

  const uint across = (nk + BC - 1) / BC, blocks = (nq + BR - 1) / BR, down = OWN_QUERIES ? blocks : 1;
  const uint key0 = id % across * BC, block = id / across % down, slot = id / (across * down);
  const uint slot_h = OWN_HEADS ? slot % heads() : 0, slot_b = OWN_HEADS ? slot / heads() : slot;
  row_a_sn = q_sn; row_b_sn = g_sn; col_a_sn = k_sn; col_b_sn = v_sn;
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) sum[i] = vec4(0);

  uint b = OWN_BATCH ? slot_b : 0;
  do {
    uint h = slot_h;
    do {
      scores_of(b, h);
      take_lengths(b);
      rows = query_count(); cols = key_count();
      row_a_origin = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh;
      row_b_origin = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh;
      col_a_origin = k_off() + key_origin(b, k_sb, k_sn) + (h / group()) * k_sh;
      col_b_origin = v_off() + key_origin(b, v_sb, v_sn) + (h / group()) * v_sh;
      uint i = block;
      do {
        row0 = i * BR;
        take_blocks(b, h, row0);
        if (!BLOCK_MASK || next_tile(key0 / BC, key0 / BC + 1) == key0 / BC) add_scores_of(b * heads() + h, key0);
        ++i;
      } while (!OWN_QUERIES && i < blocks);
      ++h;
    } while (!OWN_HEADS && h < heads());
    ++b;
  } while (!OWN_BATCH && b < batch);

  const uint origin = x_off() + slot_b * x_sb + slot_h * x_sh;
  if (OWN_QUERIES) {
    row0 = block * BR;
    [[unroll]] for (uint x = 0; x < MR * MC; ++x) {
      const uint row = row0 + ty + TY * (x / MC), col = key0 + 4 * (tx + TX * (x % MC / 4)) + x % 4;
      if (row < nq && col < nk) put(origin + row * x_sn + col, sum[x / 4][x % 4]);
    }
    return;
  }
  // One row for all queries: the sums of TY invocations meet.
  barrier();
  [[unroll]] for (uint j = 0; j < MC4; ++j) {
    vec4 y = vec4(0);
    [[unroll]] for (uint i = 0; i < MR; ++i) y += sum[i * MC4 + j];
    tile[ty * (BC / 4) + tx + TX * j] = y;
  }
  barrier();
  if (ty > 0) return;
  [[unroll]] for (uint j = 0; j < MC4; ++j) {
    vec4 y = vec4(0);
    for (uint t = 0; t < TY; ++t) y += tile[t * (BC / 4) + tx + TX * j];
    [[unroll]] for (uint e = 0; e < 4; ++e) {
      const uint col = key0 + 4 * (tx + TX * j) + e;
      if (col < nk) put(origin + col, y[e]);
    }
  }
}
