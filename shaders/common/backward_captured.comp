#version 460
// Before and after scalar_backward_captured.comp: its sums become 0, or floats.
//
//   READ 0   all words are 0
//   READ 1   dt = sum 2^-k, from integers of 64 bits; k follows from the maximum as it does there. Where a term was infinite or no number
//            there is no k, and every element is NaN.
//
// Both words of a sum's magnitude are rounded to fp32, then their sum: dt is within 2^-23 of what the integers say.
//
// Bindings: 0 the sums (scalar_backward_captured.comp), 1 dt. Push constants: include/args_backward.glsl. Workgroups: ceil(ELEMENTS / WG).
//
//   0 WG  workgroup size     1 ACCUMULATE  added to what is there     73 READ     74 ELEMENTS     75 GROUPS_LOG, see there

#extension GL_GOOGLE_include_directive : require
#include "args_backward.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const bool ACCUMULATE = false;
layout(constant_id = 73) const bool READ = true;
layout(constant_id = 74) const uint ELEMENTS = 1;
layout(constant_id = 75) const int GROUPS_LOG = 0;

layout(set = 0, binding = 0, std430) buffer Totals { uint top, nothing; uvec2 totals[]; };
layout(set = 0, binding = 1, std430) buffer DT { float dt[]; };

float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }

void main() {
  const uint at = workgroup_index() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  if (at >= ELEMENTS) return;
  if (!READ) {
    if (at == 0) { top = 0; nothing = 0; }
    totals[at] = uvec2(0);
    return;
  }
  uvec2 sum = totals[at];
  const bool negative = sum.y >> 31 != 0u;
  if (negative) { sum = ~sum; sum.x += 1; if (sum.x == 0u) sum.y += 1; }
  const int minus_k = int(top >> 23) - 126 + GROUPS_LOG - 61, half_of = minus_k / 2;   // in two steps, each within a float's exponents
  float y = (float(sum.y) * 4294967296.0 + float(sum.x)) * power_of_two(half_of) * power_of_two(minus_k - half_of);
  if (negative) y = -y;
  if (top >> 23 == 255u) y = uintBitsToFloat(0x7fc00000u);
  dt[at] = ACCUMULATE ? dt[at] + y : y;
}
