#version 460
// The gradient of attention's sinks:  dsink_h = - sum over b, i of exp(sink_h - lse_i) delta_i
//
// A sink's weight exp(sink - lse) has no value, so dP is 0 there and dS = - weight delta (Dao, "FlashAttention-2", 2023, algorithm 2, for
// dS and delta). A workgroup sums a head, in a fixed order: each invocation every WG-th row, then halves meet.
//
// Bindings: 0 lse, 1 delta (backward_delta.comp), 2 dsinks, from 3 on include/sinks.glsl. Push constants: include/args_backward.glsl (x is
// dsinks). Workgroups: Hq.
//
//   0 WG  workgroup size, a power of two     1 ACCUMULATE  added to what is there     67 include/sinks.glsl
//   90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 7 and 8

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "args_backward.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const bool ACCUMULATE = false;

layout(set = 0, binding = 0, std430) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = 1, std430) readonly buffer Delta { float delta[]; };
layout(set = 0, binding = 2, std430) buffer DSinks { float dsinks[]; };
#define SCORE_AT 3
#define LENGTHS 7
#include "lengths.glsl"
#include "sinks.glsl"

shared float meet[WG];

void main() {
  const uint head = workgroup_index(), lid = gl_LocalInvocationIndex;
  if (head >= total) return;
  const float sink = sinks[sinks_off + head];
  float sum = 0;
  const uint first = PACKED_QUERIES ? query_start(0) : 0;   // of packed rows, those of no sequence are left out
  const uint rows = PACKED_QUERIES ? query_start(batch) - first : batch * nq;
  for (uint row = lid; row < rows; row += WG) {
    const uint at = PACKED_QUERIES ? packed_statistics(head) + first + row : (row / nq * heads() + head) * nq + row % nq;
    const float l = lse[lse_off() + at];
    if (l != NEG_INFINITY) sum -= weight_of((sink - l) * LOG2E) * delta[delta_off() + at];
  }
  meet[lid] = sum;
  [[unroll]] for (uint step = WG / 2; step > 0; step >>= 1) {
    barrier();
    if (lid < step) { sum += meet[lid + step]; meet[lid] = sum; }
  }
  if (lid == 0) dsinks[x_off() + head] = ACCUMULATE ? dsinks[x_off() + head] + sum : sum;
}
