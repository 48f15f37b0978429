#version 460
// Standard attention's backward pass, the softmax's part:  dS = scale P o (dP - delta), in place of dP.
//
// The unfused backward keeps the matrix P of forward (standard_scores.comp, standard_softmax.comp). Its kernels:
//   dP = dO V^T           standard_scores.comp with dO, V, DV and scale 1 in place of Q, K, D and scale
//   dS                    this one
//   dV = P^T dO           standard_backward_product.comp
//   dQ = dS K             standard_product.comp with dS, K, D in place of P, V, DV
//   dK = dS^T Q           standard_backward_product.comp
// The factor `scale` of dQ and dK is taken into dS here, where it costs nothing.
//
// TPR neighbouring invocations share a row and take four elements each at a time. Bound by two reads and one write of the matrix.
// What lies beyond the row's last key is not looked at and becomes 0 as far as the product dS K reads.
//
// Bindings: 0 P, 1 dP, overwritten by dS: [bh - bh0][row - row0][pitch], pitch a multiple of 8; 2 delta [B,Hq,Nq] fp32
// (backward_delta.comp). `total` counts rows: of all matrices in the slab. Workgroups: ceil(total / (WG/TPR)); `base` counts workgroups.
//
// Specialization constants:
//
//   0 WG   workgroup size, a multiple of TPR     1 TPR  invocations of a row
//   2 CAUSAL
//   3 ZERO  columns behind the row's last key (up to pitch) that become 0, rounded up to fours: as many as the product reads there,
//           its BR + BC

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint TPR = 128;
layout(constant_id = 2) const bool CAUSAL = false;
layout(constant_id = 3) const uint ZERO = 256;

layout(push_constant) uniform Args {
  uint nq, nk, rows, pitch;
  uint bh0, row0;
  int causal_shift;
  uint delta_off;
  uint base, total;
  float scale;
};

layout(set = 0, binding = 0, std430) readonly buffer Weights { QUAD p4[]; };
layout(set = 0, binding = 1, std430) buffer Scores { QUAD s4[]; };
layout(set = 0, binding = 2, std430) readonly buffer Delta { float delta[]; };

void main() {
  const uint id = (base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * (WG / TPR) + gl_LocalInvocationIndex / TPR;
  if (id >= total) return;
  const uint row = row0 + id % rows;
  const uint keys = CAUSAL ? uint(clamp(int(row) + causal_shift + 1, 0, int(nk))) : nk;  // that the row may see
  const float d = LOADED(delta, 4, delta[delta_off + (bh0 + id / rows) * nq + row]);
  const uint end = min((keys + ZERO + 3) / 4, pitch / 4), at = id * (pitch / 4);
  for (uint c = gl_LocalInvocationIndex % TPR; c < end; c += TPR) {
    vec4 x = vec4(0);
    if (4 * c < keys) {
      x = decode4(LOADED(scores, 4 * BYTES, p4[at + c])) * (decode4(LOADED(gradients, 4 * BYTES, s4[at + c])) - d) * scale;
      [[unroll]] for (uint e = 0; e < 4; ++e) if (4 * c + e >= keys) x[e] = 0;
    }
    STORED(gradients, 4 * BYTES, s4[at + c] = encode4(x));
  }
}
