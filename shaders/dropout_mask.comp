#version 460
// Writes out which weights dropout keeps, for tests: 1 kept, 0 dropped, one 32-bit word a weight, in [B,Hq,Nq,Nk] order.
//
// The definition is include/dropout.glsl's, which every kernel with dropout uses. An invocation writes one weight.
//
// Bindings: 0 mask. Push constants: below, 9 words. `total` counts weights, B Hq nq nk; workgroups: ceil(total/WG); `base` counts workgroups.
// With drop_k = 0 every weight is kept.
//
// Specialization constants:  0 WG  workgroup size

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require

layout(local_size_x = 64, local_size_x_id = 0) in;

layout(push_constant) uniform Args {
  uint nq, nk;
  uint mask_off;           // in words
  uint base, total;
  uint seed_lo, seed_hi;
  uint drop_offset, drop_k;
};
#include "dropout.glsl"

layout(set = 0, binding = 0, std430) writeonly buffer Mask { uint mask[]; };

void main() {
  const uint at = (base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  if (at >= total) return;
  const uint j = at % nk, i = at / nk % nq, bh = at / nk / nq;
  mask[mask_off + at] = kept(draw(draw_group(j), i, bh), j) ? 1u : 0u;
}
