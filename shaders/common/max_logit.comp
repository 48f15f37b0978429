#version 460
// Makes the largest scores of heads -inf, before the kernels of a forward pass add theirs to them (include/max_logit.glsl). A command that
// fills buffers would do it too, but for buffers of the caller's, which need not have been made for transfers.
//
// Bindings: 0 the numbers, fp32 [B,Hq]; 1 further arguments. Push constants: include/args.glsl, where total is how many numbers there are.
// Workgroups: 1, for they are few. Specialization constants: 0 WG   112 MAX_LOGIT  1

#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "common.glsl"
#define SCORE_AT 1
#define MAX_LOGIT_AT 0
#include "max_logit.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;

void main() {
  for (uint i = gl_LocalInvocationIndex; i < total; i += WG) max_logit_below[max_logit_off + i] = floatBitsToUint(NEG_INFINITY);
}
