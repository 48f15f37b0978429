#version 460
// Merges attention over disjoint keys, of tensors that different passes left:
//
//   lse = log sum_n exp(lse_n),   O = sum_n exp(lse_n - lse) O_n
//
// where O_n is softmax(scale Q K_n^T) V_n over the keys of part n alone, and lse_n the natural logarithm of that softmax's sum: -inf where
// the part has no key for a row, and then its row of O_n is not used whatever it holds. A row that no part has a key for is 0, with -inf.
// This is how Ye et al., "FlashInfer: Efficient and Customizable Attention Engine for LLM Inference Serving", 2025, compose attention
// states, and what a prefix that many requests share needs (Juravsky et al., "Hydragen: High-Throughput LLM Inference with Shared
// Prefixes", 2024). combine_parts.comp does the same for the parts that one kernel cuts its own keys into.
//
// An invocation owns 16 bytes of a row of O where every row of every tensor is aligned to that, else one element. It takes parts by fours:
// their loads do not wait for one another, and what was summed before is rescaled once for four. Sums and weights are fp32, relative to the
// largest lse_n so far, so that no exponential is above 1. The order is fixed: the same inputs give the same bits. Bound by reading the
// parts.
//
// A dispatch has up to four tensors of one part each, or with STACKED one tensor of any number. More tensors are a chain of dispatches:
// all but the last leave reference, sum of weights and weighted sum, unrounded, for the next. The invocations of a row all read its two
// statistics and one writes them: they have two places, by turns.
//
// Bindings: 0 to 3 O_n [B,H,n,DV] (strided, last stride 1), with STACKED 0 alone [PARTS B,H,n,DV]; 4 to 7 lse_n [B,H,n] fp32 (strided, last
// stride 1), likewise; 8 O [B,H,n,DV] (strided), 9 lse [B,H,n] fp32, 10 weighted sums in the order of invocations, fp32, 11 statistics 2 x
// [B,H,n] of two fp32. Push constants: below. `total` counts invocations, B H n ceil(DV / those elements); workgroups: ceil(total / WG);
// `base` counts workgroups.
//
//   0 WG   1 DV
//   2 ALIGNED     every row of every tensor begins at a multiple of 16 bytes and is a multiple of 16 bytes long
//   3 TENSORS     1..4, of the dispatch
//   4 STACKED
//   5 PARTS_F32   O_n is fp32, whatever DTYPE
//   6 RESULT_F32  O is

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint DV = 64;
layout(constant_id = 2) const bool ALIGNED = false;
layout(constant_id = 3) const uint TENSORS = 1;
layout(constant_id = 4) const bool STACKED = false;
layout(constant_id = 5) const bool PARTS_F32 = false;
layout(constant_id = 6) const bool RESULT_F32 = false;

layout(push_constant) uniform Args {
  uint nq, row_heads, batch;
  uint parts;                    // of the one tensor with STACKED
  uint offsets;                  // of O_0 | O_1 << 8 | O_2 << 16 | O_3 << 24, in elements
  uint more_offsets;             // of lse_n likewise
  uint chain;                    // of O | lse << 8 | CONTINUES and its like
  uint p0_sb, p0_sh, p0_sn;      // strides of batch, head, row, in elements
  uint p1_sb, p1_sh, p1_sn;
  uint p2_sb, p2_sh, p2_sn;
  uint p3_sb, p3_sh, p3_sn;
  uint l0_sb, l0_sh;             // of lse_n, whose rows stand one behind the other
  uint l1_sb, l1_sh;
  uint l2_sb, l2_sh;
  uint l3_sb, l3_sh;
  uint o_sb, o_sh, o_sn;
  uint base;                     // first workgroup of this dispatch
  uint total;                    // invocations of the whole problem, over all dispatches of a link
};

// Bits of chain.
const uint CONTINUES = 1 << 16;  // a dispatch before left sums
const uint CONTINUED = 2 << 16;  // one behind takes them
const uint ODD = 4 << 16;        // statistics are read from the second place and written to the first
const uint WRITE_LSE = 8 << 16;

#define PART(N, AT)                                                                                                          \
  INPUT(o##N##_, AT)                                                                                                         \
  layout(set = 0, binding = AT, std430) readonly buffer Part##N##Float { float o##N##_float[]; };
PART(0, 0)
PART(1, 1)
PART(2, 2)
PART(3, 3)
layout(set = 0, binding = 4, std430) readonly buffer Lse0 { float lse0[]; };
layout(set = 0, binding = 5, std430) readonly buffer Lse1 { float lse1[]; };
layout(set = 0, binding = 6, std430) readonly buffer Lse2 { float lse2[]; };
layout(set = 0, binding = 7, std430) readonly buffer Lse3 { float lse3[]; };
OUTPUT(o, 8)
layout(set = 0, binding = 8, std430) writeonly buffer oFloat4 { vec4 o_float4[]; };
layout(set = 0, binding = 8, std430) writeonly buffer oFloat1 { float o_float1[]; };
layout(set = 0, binding = 9, std430) writeonly buffer Lse { float lse[]; };
layout(set = 0, binding = 10, std430) buffer Sums4 { vec4 sums4[]; };
layout(set = 0, binding = 10, std430) buffer Sums1 { float sums1[]; };
layout(set = 0, binding = 11, std430) buffer Statistics { vec2 statistics[]; };

const uint FOURS = ALIGNED ? UNIT4 : 1;  // vectors that an invocation owns; one element stands in the first of one
const uint OWN = ALIGNED ? UNIT : 1;     // elements
const uint ITEMS = (DV + OWN - 1) / OWN; // invocations of a row

// What was seen of a row: reference m, l = sum exp(lse_n - m), and the sum of exp(lse_n - m) O_n.
float m = LOWEST, l = 0;
vec4 acc[UNIT4];

// Element `at` of part N and those behind it that the invocation owns.
#define LOAD_PART(N, at, to)                                                                                                 \
  if (PARTS_F32) {                                                                                                           \
    if (!ALIGNED) to[0][0] = o##N##_float[at];                                                                               \
    else [[unroll]] for (uint f = 0; f < UNIT4; ++f) to[f] = uintBitsToFloat(o##N##_16[(at) / 4 + f]);                       \
  } else if (ALIGNED) decode16(o##N##_16[(at) / UNIT], to);                                                                  \
  else to[0][0] = decode(o##N##_1[at]);

// Joins four parts; those beyond the last have -inf.
void join(vec4 t, vec4 x[4][UNIT4]) {
  const float top = max(m, max(max(t.x, t.y), max(t.z, t.w)));
  const float kept = exp(m - top);
  const vec4 w = exp(t - top);
  const bvec4 empty = equal(floatBitsToUint(t), uvec4(floatBitsToUint(NEG_INFINITY)));
  m = top;
  l = l * kept + w.x + w.y + w.z + w.w;
  [[unroll]] for (uint f = 0; f < FOURS; ++f) {
    acc[f] *= kept;
    [[unroll]] for (uint n = 0; n < 4; ++n) if (!empty[n]) acc[f] += w[n] * x[n][f];
  }
}

void main() {
  const uint group = base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  if (group > (total - 1) / gl_WorkGroupSize.x) return;  // before the next line could pass 32 bits
  const uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  if (id >= total) return;
  const uint item = id % ITEMS, row = id / ITEMS, rows = total / ITEMS, column = item * OWN;
  const uint i = row % nq, h = row / nq % row_heads, b = row / nq / row_heads;

  [[unroll]] for (uint f = 0; f < UNIT4; ++f) acc[f] = vec4(0);
  if ((chain & CONTINUES) != 0) {
    const vec2 ml = statistics[((chain & ODD) != 0 ? rows : 0) + row];
    m = ml.x; l = ml.y;
    if (!ALIGNED) acc[0].x = sums1[id];
    else [[unroll]] for (uint f = 0; f < UNIT4; ++f) acc[f] = sums4[id * UNIT4 + f];
  }

  vec4 t, x[4][UNIT4];
  [[unroll]] for (uint n = 0; n < 4; ++n) [[unroll]] for (uint f = 0; f < UNIT4; ++f) x[n][f] = vec4(0);
  if (STACKED) {
    for (uint first = 0; first < parts; first += 4) {
      [[unroll]] for (uint n = 0; n < 4; ++n) {
        const uint part = min(first + n, parts - 1);
        const uint at = (offsets & 255u) + (part * batch + b) * p0_sb + h * p0_sh + i * p0_sn + column;
        t[n] = first + n < parts ? lse0[(more_offsets & 255u) + (part * batch + b) * l0_sb + h * l0_sh + i] : NEG_INFINITY;
        LOAD_PART(0, at, x[n])
      }
      join(t, x);
    }
  } else {
    t = vec4(lse0[(more_offsets & 255u) + b * l0_sb + h * l0_sh + i], NEG_INFINITY, NEG_INFINITY, NEG_INFINITY);
    LOAD_PART(0, (offsets & 255u) + b * p0_sb + h * p0_sh + i * p0_sn + column, x[0])
    if (TENSORS > 1) {
      t.y = lse1[(more_offsets >> 8 & 255u) + b * l1_sb + h * l1_sh + i];
      LOAD_PART(1, (offsets >> 8 & 255u) + b * p1_sb + h * p1_sh + i * p1_sn + column, x[1])
    }
    if (TENSORS > 2) {
      t.z = lse2[(more_offsets >> 16 & 255u) + b * l2_sb + h * l2_sh + i];
      LOAD_PART(2, (offsets >> 16 & 255u) + b * p2_sb + h * p2_sh + i * p2_sn + column, x[2])
    }
    if (TENSORS > 3) {
      t.w = lse3[(more_offsets >> 24) + b * l3_sb + h * l3_sh + i];
      LOAD_PART(3, (offsets >> 24) + b * p3_sb + h * p3_sh + i * p3_sn + column, x[3])
    }
    join(t, x);
  }

  if ((chain & CONTINUED) != 0) {
    if (item == 0) statistics[((chain & ODD) != 0 ? 0 : rows) + row] = vec2(m, l);
    if (!ALIGNED) sums1[id] = acc[0].x;
    else [[unroll]] for (uint f = 0; f < UNIT4; ++f) sums4[id * UNIT4 + f] = acc[f];
    return;
  }
  if (item == 0 && (chain & WRITE_LSE) != 0) lse[(chain >> 8 & 255u) + row] = l == 0 ? NEG_INFINITY : m + log(l);
  const float over = l == 0 ? 1 : l;  // nothing was added to the sum then
  const uint at = (chain & 255u) + b * o_sb + h * o_sh + i * o_sn + column;
  if (!ALIGNED) {
    if (RESULT_F32) o_float1[at] = acc[0].x / over;
    else o1[at] = encode(acc[0].x / over);
  } else [[unroll]] for (uint f = 0; f < UNIT4; ++f) {
    if (RESULT_F32) o_float4[at / 4 + f] = acc[f] / over;
    else o4[at / 4 + f] = encode4(acc[f] / over);
  }
}
