#version 460
// The row term of attention's backward pass:  delta_i = sum_d dO_id O_id - dlse_i.
//
// Dao, "FlashAttention-2", 2023, algorithm 2, line 4 (there D = rowsum(dO o O)): the softmax's gradient dS = P o (dP - delta) needs of a
// whole row only this number. It is computed once, before the two kernels that read it. dlse is the gradient of lse, where the caller
// has one: d lse_i / d s_ij = p_ij, so it joins the row term.
//
// LANES neighbouring invocations share a row, read 16 bytes each and meet in shared memory. Bound by reading dO and O.
//
// Bindings: 0 dO, 1 O [B,Hq,Nq,DV] (strided, last stride 1), 2 dlse [B,Hq,Nq] fp32 (anything without HAS_DLSE), 3 delta [B,Hq,Nq] fp32.
// Push constants: include/args_backward.glsl (g is dO, x is O, and lse dlse). `total` counts rows, B Hq nq; workgroups:
// ceil(total / (WG/LANES)); `base` counts workgroups.
//
// Specialization constants:
//
//   0 WG     workgroup size, a multiple of LANES
//   1 LANES  invocations of a row, a power of two
//   2 DV     1..576
//   3 ALIGNED   every row of dO and O begins 16-byte aligned and DV is a multiple of 16 bytes
//   4 HAS_DLSE  binding 2 is read

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint DV = 64;
layout(constant_id = 3) const bool ALIGNED = false;
layout(constant_id = 4) const bool HAS_DLSE = false;

#include "args_backward.glsl"

INPUT(g, 0)
INPUT(o, 1)
layout(set = 0, binding = 2, std430) readonly buffer Dlse { float dlse[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Delta { float delta[]; };

shared float meet[WG];

void main() {
  const uint lid = gl_LocalInvocationIndex, lane = lid % LANES;
  const uint id = workgroup_index() * (WG / LANES) + lid / LANES;
  const uint row = min(id, total - 1), bh = row / nq, i = row % nq;
  const uint g_at = g_off() + bh / heads() * g_sb + bh % heads() * g_sh + i * g_sn;
  const uint o_at = x_off() + bh / heads() * x_sb + bh % heads() * x_sh + i * x_sn;
  float sum = 0;
  if (ALIGNED) {
    const uint N = DV / UNIT;
    [[unroll]] for (uint u = 0; u < (N + LANES - 1) / LANES; ++u) {
      const uint c = u * LANES + lane, at = min(c, N - 1);
      vec4 a[UNIT4], b[UNIT4];
      decode16(LOADED_IF(g, 16, id < total && c < N, g16[g_at / UNIT + at]), a);
      decode16(LOADED_IF(o, 16, id < total && c < N, o16[o_at / UNIT + at]), b);
      float part = 0;
      [[unroll]] for (uint e = 0; e < UNIT4; ++e) part += dot(a[e], b[e]);
      sum += c < N ? part : 0;
    }
  } else {
    [[unroll]] for (uint u = 0; u < (DV + LANES - 1) / LANES; ++u) {
      const uint c = u * LANES + lane, at = min(c, DV - 1);
      const float part = decode(LOADED_IF(g, BYTES, id < total && c < DV, g1[g_at + at])) *
        decode(LOADED_IF(o, BYTES, id < total && c < DV, o1[o_at + at]));
      sum += c < DV ? part : 0;
    }
  }
  meet[lid] = sum;
  [[unroll]] for (uint step = LANES / 2; step > 0; step >>= 1) {
    barrier();
    if (lane < step) sum += meet[lid + step];
    barrier();
    meet[lid] = sum;
  }
  if (lane == 0 && id < total) STORED(delta, 4, delta[delta_off() + row] = sum - (HAS_DLSE ? LOADED(lse, 4, dlse[lse_off() + row]) : 0));
}
