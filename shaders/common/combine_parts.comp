#version 460
// Puts attention over parts of the keys together:
//
//   lse2 = log2 sum_s exp2(t_s),   O = sum_s exp2(t_s - lse2) O_s,   lse = lse2 ln 2
//
// where O_s is softmax(scale Q K_s^T) V_s over the keys of part s alone, and t_s the logarithm to base 2 of that softmax's sum (-inf, and
// O_s = 0, where the part has no key for a row). This is how Dao, "FlashAttention-2", 2023, section 2.3.1, joins blocks of keys, done once
// over parts that different workgroups computed, as in Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023. With
// few queries only parts give every multiprocessor something to do.
//
// An invocation owns four columns of a row. It passes over every SHARE-th part with a running reference, the larger of those seen, and the
// SHARE invocations of four columns meet in shared memory: with few rows there are more parts than a lone invocation could have on their
// way. The order is fixed, so the same inputs give the same bits. Bound by reading the parts, once.
//
// Bindings: 0 parts [PARTS,B,Hq,Nq,DVP] fp32, 1 t [PARTS,B,Hq,Nq] fp32, 2 O [B,Hq,Nq,DV] (strided, last stride 1), 3 lse [B,Hq,Nq] fp32
// (anything without WRITE_LSE). DVP is DV rounded up to a multiple of 8.
// Push constants: include/args.glsl. `total` counts fours of columns, B Hq nq ceil(DV/4); workgroups: ceil(total / (WG/SHARE)); `base`
// counts workgroups.
//
// Specialization constants:
//
//   0 WG     workgroup size, a multiple of SHARE
//   1 SHARE  invocations of four columns, a power of two
//   2 DV     1..576
//   3 PARTS
//   4 ALIGNED    every row of O begins at a multiple of 16 bytes and DV is a multiple of 16 bytes
//   5 WRITE_LSE

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint SHARE = 8;
layout(constant_id = 2) const uint DV = 64;
layout(constant_id = 3) const uint PARTS = 2;
layout(constant_id = 4) const bool ALIGNED = false;
layout(constant_id = 5) const bool WRITE_LSE = false;

#include "args.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Sums { vec4 sums[]; };
layout(set = 0, binding = 1, std430) readonly buffer Statistics { float statistics[]; };
OUTPUT(o, 2)
layout(set = 0, binding = 3, std430) writeonly buffer Lse { float lse[]; };
#define SCORE_AT 4
#define LENGTHS 5
#include "lengths.glsl"
#include "sinks.glsl"

const uint FOURS = (DV + 3) / 4, PITCH = (DV + 7) / 8 * 2;  // of a row of O, and of a row of a part

shared vec4 met[WG];
shared vec2 met_ml[WG];

// What was seen of a row: reference m, sum of weights l = sum exp2(t_s - m), and the weighted sum of O_s.
float m = LOWEST, l = 0;
vec4 acc = vec4(0);

void join(float m2, float l2, vec4 acc2) {
  const float top = max(m, m2), a = exp2(m - top), b = exp2(m2 - top);
  m = top;
  l = l * a + l2 * b;
  acc = acc * a + acc2 * b;
}

void main() {
  const uint lid = gl_LocalInvocationIndex, items = WG / SHARE, share = lid / items;
  const uint id = workgroup_index() * items + lid % items;
  const uint rows = total / FOURS;  // of a part
  const uint item = min(id, total - 1), row = item / FOURS, four = item % FOURS;
  for (uint s = share; s < (PARTS + SHARE - 1) / SHARE * SHARE; s += SHARE) {  // as often in every invocation
    const bool real = id < total && s < PARTS;
    const uint at = min(s, PARTS - 1) * rows + row;
    const float t = LOADED_IF(statistics, 4, real, statistics[at]);
    const vec4 x = LOADED_IF(sums, 16, real, sums[at * PITCH + four]);
    if (s < PARTS) join(t, 1, x);  // t = -inf: nothing is added, for m is finite
  }
  [[unroll]] for (uint step = SHARE / 2; step > 0; step >>= 1) {
    met[lid] = acc;
    met_ml[lid] = vec2(m, l);
    barrier();
    if (share < step) join(met_ml[lid + step * items].x, met_ml[lid + step * items].y, met[lid + step * items]);
    barrier();
  }
  if (share > 0 || id >= total) return;
  uint b = row / nq / heads(), head = row / nq % heads(), query = row % nq;
  if (PACKED_QUERIES) {   // of all of a head together; those of no sequence are left alone
    const uint packed_row = row % packed_queries;
    if (packed_row < query_start(0) || packed_row >= query_start(batch)) return;
    b = sequence_of(packed_row); head = row / packed_queries; query = packed_row - query_start(b);
  }
  take_lengths(b);
  if (SINKS) { if (query_exists(query)) join(bits_of_score(sinks[sinks_off + head]), 1, vec4(0)); }
  const vec4 y = acc * (l == 0 ? 0 : 1 / l);
  const uint at = o_off() + query_origin(b, o_sb, o_sn) + head * o_sh + query * o_sn + 4 * four;
  if (ALIGNED) STORED(o, 4 * BYTES, o4[at / 4] = encode4(y));
  else [[unroll]] for (uint e = 0; e < 4; ++e) if (4 * four + e < DV) STORED(o, BYTES, o1[at + e] = encode(y[e]));
  if (WRITE_LSE && four == 0) STORED(lse, 4, lse[lse_off() + row] = l == 0 ? NEG_INFINITY : score_of_bits(m + log2(l)));
}
