#version 460
// The gradient with respect to a tensor t that the score functions capture, of which each pair reads one element, in plain fp32 arithmetic,
// after delta:
//
//   P = exp(s' - lse),  dP = dO V^T,  dS = P o (dP - delta),  dt[index] += dS o (ds'/dt[index])
//
// Dao, "FlashAttention-2", 2023, algorithm 2, for dS; the paper has no such functions. A workgroup owns BR queries of a head and walks over
// their keys in tiles of BC; S and dP are made again, as scalar_backward_q.comp does, and the derivative and the index are the function's
// (flash/score, splices them in). With dropout Z (0 or 256/(256 - k) by place): dS = P o (dP o Z - delta).
//
// A table has few elements, which all queries and keys add to, so sums cannot be owned by anyone, and atomic additions of floats would give
// other bits in each run. So terms are added up as integers of 64 bits, whose sums do not depend on the order:
//
//   SUMS 0   the largest, over workgroups, of the sum of |terms|, as the bits of a float, which order as integers do: an atomic maximum
//   SUMS 1   each term times 2^k, rounded to the nearest integer, is added up. k is the largest with (workgroups) 2^k (that maximum)
//            < 2^61, so that no sum overflows
//
// and backward_captured.comp makes floats of them. All of it depends on terms alone, and the same inputs give the same bits. A term is off
// by at most half of 2^-k: with n terms and sums within a workgroup of about one size, sums of n terms are off by 2^-62 n of the sum of
// |terms|, less than what fp32 terms are off themselves as long as n < 2^38.
//
// An invocation keeps the sum of neighbours with the same index in registers; sums of other indices meet in shared memory, two words each
// (the carry goes to the upper one, whoever finds it), and there those of a workgroup before they go to memory, if the tensor is small
// enough (TABLE); else they go there at once.
//
// Tiling, layout of registers and specialization constants: include/scalar_backward.glsl.
//  73 SUMS       74 TABLE   elements of the tensor, where its sums are in shared memory; else 0
//  75 GROUPS_LOG the exponent of the least power of two that is no less than the number of workgroups
//  76 ROUNDED    lse is of scores that were rounded to the storage type, as standard attention's are: so they are here: P adds up to 1
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 the maximum, a word for nothing, and two words an element, lower
// first, all 0 in the beginning. Push constants: include/args_backward.glsl. Workgroups: ceil(nq/BR) B Hq.

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

layout(constant_id = 73) const bool SUMS = true;
layout(constant_id = 74) const uint TABLE = 0;
layout(constant_id = 75) const int GROUPS_LOG = 0;
layout(constant_id = 76) const bool ROUNDED = false;

layout(set = 0, binding = 6, std430) coherent buffer Totals { uint top, nothing; uvec2 totals[]; };

void stage_sum(bool second, uint col, bool edge) {}   // there is no sum over P or dS here
void add_sum(bool second, uint p_at, uint v_at, uint count) {}

// Draws for four neighbouring keys serve those 4 TX further on as well, unless these lie in another group of 64 or elsewhere in their 8.
const uint DRAW_STEP = TX % 2 + 64 % (4 * TX) + (BC % 64) * (64 % BC) == 0 ? 64 : 1;

shared uint meet[SUMS ? 2 * TABLE + 1 : WG];   // sums of the workgroup; SUMS 0: each invocation's

float magnitude = 0;               // SUMS 0: the sum of |terms|
uint index = 0;                    // SUMS 1: of the sum that is kept in registers,
uvec2 kept_sum = uvec2(0);         // lower word first
int first_bit;                     // the exponent of a term's last bit, as floats have it, at which it counts one

uvec2 plus(uvec2 a, uvec2 b) {
  uint carry;
  const uint low = uaddCarry(a.x, b.x, carry);
  return uvec2(low, a.y + b.y + carry);
}
// term 2^k as an integer, rounded to nearest; halves away from zero.
uvec2 whole(float term) {
  const uint bits = floatBitsToUint(term);
  const int shift = int(bits >> 23 & 255u) - first_bit;
  const uint m = bits & 0x7fffffu | 0x800000u;
  uvec2 x = uvec2(0);
  if ((bits & 0x7f800000u) == 0u) return x;   // 0, or a number that devices may take for 0
  if (shift >= 32) x.y = m << min(shift - 32, 31);
  else if (shift > 0) x = uvec2(m << shift, m >> 32 - shift);
  else if (shift == 0) x.x = m;
  else if (shift >= -24) x.x = (m >> -shift - 1) + 1 >> 1;
  return (bits >> 31) != 0u ? plus(~x, uvec2(1, 0)) : x;
}
// Adds what is kept to the sum of its index.
void put_kept() {
  if (TABLE > 0) {
    const uint before = atomicAdd(meet[2 * index], kept_sum.x);
    atomicAdd(meet[2 * index + 1], kept_sum.y + (before + kept_sum.x < before ? 1u : 0u));
  } else {
    const uint before = atomicAdd(totals[index].x, kept_sum.x);
    atomicAdd(totals[index].y, kept_sum.y + (before + kept_sum.x < before ? 1u : 0u));
  }
}
void add(float term, uint at) {
  if (!SUMS) { magnitude += abs(term); return; }
  if (at != index) {
    if (any(notEqual(kept_sum, uvec2(0)))) put_kept();
    index = at; kept_sum = uvec2(0);
  }
  kept_sum = plus(kept_sum, whole(term));
}

float l[MR], dl[MR];  // lse and delta of this invocation's rows

void key_tile(uint key0, uint bh) {
  scores(key0, true);
  const float keep = DROPOUT ? drop_scale() : 1.0;
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint query = row0 + ty + TY * i;
    const Span keys = keys_of(query);
    uvec4 drawn[2];
    [[unroll]] for (uint j = 0; j < MC; ++j) {
      const uint key = key0 + 4 * (tx + TX * (j / 4)) + j % 4;
      float s = S[i * MC4 + j / 4][j % 4] * scale;
      if (ROUNDED) s = decode(encode(s));
      float x = X[i * MC4 + j / 4][j % 4];
      if (DROPOUT) {
        if (j % 2 == 0 && 4 * TX * (j / 4) % DRAW_STEP == 0) drawn[j / 2 % 2] = draw(draw_group(key), query, bh);
        x = kept(drawn[j / 2 % 2], key) ? x * keep : 0;
      }
      bool seen = query < query_count() && has(keys, key);
      if (BLOCK_MASK) { if (seen) seen = block_allows(query, key); }
      if (seen) {
        const float ds = weight_of((scored(s, query, key) - l[i]) * LOG2E) * (x - dl[i]);
        const vec2 by = HOOK(s, query, key, 4.0).xy;   // coefficient and index
        if (ds != 0) add(ds * by.x, floatBitsToUint(by.y));
      }
    }
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total || !is_work(id, heads())) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;
  if (SUMS) for (uint x = lid; x < 2 * TABLE; x += WG) meet[x] = 0;
  first_bit = 150 + int(top >> 23) - 126 + GROUPS_LOG - 61;   // the maximum is below 2^(its exponent - 126)
  barrier();

  const uint blocks = (nq + BR - 1) / BR, matrices = total / blocks;  // B Hq
  const Place place = place_of_queries(id, blocks, matrices);
  const uint bh = place.matrix;
  row0 = place.block * BR;
  const uint b = bh / heads(), h = bh % heads();
  take_lengths(b);
  rows = query_count();
  cols = key_count();
  scores_of(b, h);
  row_a_origin = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh;
  row_b_origin = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh;
  col_a_origin = k_off() + key_origin(b, k_sb, k_sn) + (h / group()) * k_sh;
  col_b_origin = v_off() + key_origin(b, v_sb, v_sn) + (h / group()) * v_sh;
  row_a_sn = q_sn; row_b_sn = g_sn; col_a_sn = k_sn; col_b_sn = v_sn;
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const uint at = statistics_row(bh) + min(row0 + ty + TY * i, last_query());
    l[i] = lse[lse_off() + at];
    if (l[i] == NEG_INFINITY) l[i] = -NEG_INFINITY;
    dl[i] = delta[delta_off() + at];
  }

  take_blocks(b, h, row0);
  const Walk keys = key_tiles(row0, min(row0 + BR, query_slots()) - 1, BC);
  uint t = keys.begin;
  do key_tile(t * BC, bh); while (++t < keys.end);

  if (!SUMS) {
    meet[lid] = floatBitsToUint(magnitude);
    barrier();
    if (lid == 0) {   // in a fixed order, as the sums before
      float all = 0;
      for (uint x = 0; x < WG; ++x) all += uintBitsToFloat(meet[x]);
      atomicMax(top, floatBitsToUint(all) & 0x7fffffffu);
    }
    return;
  }
  put_kept();
  if (TABLE == 0) return;
  barrier();
  for (uint x = lid; x < TABLE; x += WG) {
    const uvec2 sum = uvec2(meet[2 * x], meet[2 * x + 1]);
    if (any(notEqual(sum, uvec2(0)))) {
      const uint before = atomicAdd(totals[x].x, sum.x);
      atomicAdd(totals[x].y, sum.y + (before + sum.x < before ? 1u : 0u));
    }
  }
}
