#version 460
// Standard attention's backward pass, the softmax's part: from dP, in its place,
//
//   delta_i = sum_j P_ij z_ij dP_ij - dlse_i,   dS_ij = scale P_ij (z_ij dP_ij - delta_i) f'(S_ij)
//
// with f' the derivative of the score functions by the scaled products S, where it is not 1 everywhere (SCORE_FUNCTIONS).
//
// Dao et al., "FlashAttention", 2022, algorithm 3. The unfused backward keeps the matrix P of forward (standard_scores.comp,
// standard_softmax.comp). Its kernels, each on matrices too:
//   S = scale Q K^T       standard_scores.comp, with SCORE_FUNCTIONS alone: P tells nothing of S where f is not invertible
//   dP = dO V^T           standard_scores.comp with dO, V, DV and scale 1 in place of Q, K, D and scale
//   dS                    this one
//   dV = (z o P)^T dO     standard_backward_product.comp
//   dQ = dS K             standard_product.comp with dS, K, D in place of P, V, DV
//   dK = dS^T Q           standard_backward_product.comp
// The factor `scale` of dQ and dK is taken into dS here, where it costs nothing. delta is sum_d dO O as well, but not of numbers rounded as
// dP is here: taken from dP itself, what rounding did to the row cancels, and a row that sees one key gets the zeros it should.
//
// TPR neighbouring invocations share a row and take four elements each at a time. A row of at most 4 TPR KEEP elements stays in registers:
// two reads of a matrix and one write. A longer one (KEEP = 0) is read twice. What lies beyond the row's last key is not looked at and
// becomes 0 as far as the product dS K reads.
// With dropout the weights that were dropped have their sign bits set (standard_softmax.comp): z is 0 for them and drop_scale() for others.
//
// Bindings: 0 P, 1 dP, overwritten by dS: [bh - bh0][row - row0][pitch], pitch a multiple of 8; 2 dlse [B,Hq,Nq] fp32, with DLSE;
// 3 S as it was stored in forward, with SCORE_FUNCTIONS; from 4 on those of score.glsl.
// Push constants: include/args.glsl with SLABS; lse is dlse.
// `total` counts rows: of all matrices in the slab. Workgroups: ceil(total / (WG/TPR)); `base` counts workgroups.
//
// Specialization constants:
//
//   0 WG   workgroup size, a multiple of TPR     1 TPR  invocations of a row, a power of two
//   2 KEEP  4-element pieces of a row that an invocation keeps: at least ceil(nk / (4 TPR)), or 0
//   4 DLSE     5 and 58  include/mask.glsl
//   3 ZERO  columns behind the row's last key (up to pitch) that become 0, rounded up to fours: as many as the product reads there,
//           its BR + BC
//   6 SG    with -DSUBGROUP, invocations of a subgroup, a power of two
//   7 DROPOUT
//   65 SCORE_FUNCTIONS  include/score.glsl; the others there are of forward alone, and off here
//   90..92, 100, 101  include/lengths.glsl: bindings 7 and 8

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint TPR = 128;
layout(constant_id = 2) const uint KEEP = 0;
layout(constant_id = 4) const bool DLSE = false;
layout(constant_id = 3) const uint ZERO = 256;
#ifdef SUBGROUP
layout(constant_id = 6) const uint SG = 32;
#endif
layout(constant_id = 7) const bool DROPOUT = false;

#define SLABS
#include "args.glsl"
#include "dropout.glsl"

#define LENGTHS 7
#define SCORE_AT 4
#include "walk.glsl"
#include "score.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Weights { QUAD p4[]; };
layout(set = 0, binding = 1, std430) buffer Scores { QUAD s4[]; };
layout(set = 0, binding = 2, std430) readonly buffer DLse { float dlse[]; };
layout(set = 0, binding = 3, std430) readonly buffer Raw { QUAD raw4[]; };

#include "standard_rows.glsl"

COUNTING(bool is_real;)  // the row exists

// Four weights and z dP of a row; zeros from the key on that is not its own.
void load(uint at, uint piece, Span keys, out vec4 p, out vec4 g) {
  const bvec4 seen = has(keys, 4 * piece + uvec4(0, 1, 2, 3));
  p = mix(vec4(0), decode4(LOADED_IF(scores, 4 * BYTES, is_real, p4[at + piece])), seen);
  g = mix(vec4(0), decode4(LOADED_IF(gradients, 4 * BYTES, is_real, s4[at + piece])), seen);
  if (DROPOUT) {
    g = mix(g * drop_scale(), vec4(0), lessThan(p, vec4(0)));
    p = abs(p);
  }
}

// The derivatives of the score functions at four scores of a row with weights p; 1 where there is no weight, whatever they are there.
vec4 slopes(vec4 p, uint at, uint piece, uint row) {
  vec4 x = vec4(1);
  if (SCORE_FUNCTIONS) {
    const vec4 s = decode4(LOADED_IF(scores, 4 * BYTES, is_real, raw4[at + piece]));
    [[unroll]] for (uint e = 0; e < 4; ++e) x[e] = p[e] == 0 ? 1 : scored_with_slope(s[e], row, 4 * piece + e).y;
  }
  return x;
}

void main() {
  const uint id = workgroup_index();
  if (id * (WG / TPR) >= total) return;
  const uint own = begin_rows();
  const bool real = id * (WG / TPR) + own < total;  // the last workgroup may have rows to spare
  COUNTING(is_real = real;)
  const uint r = min(id * (WG / TPR) + own, total - 1);
  const uint row = row0 + r % rows;
  if (SCORE_FUNCTIONS) scores_of(bh0 + r / rows);
  take_lengths((bh0 + r / rows) / heads());
  const Span keys = keys_of(row);
  const uint at = r * (pitch / 4);  // r pitch may pass 2^32 bytes, not 2^32 elements
  const uint pieces = (end_of(keys) + 3) / 4;

  float delta = 0;
  vec4 p[KEEP > 0 ? KEEP : 1], g[KEEP > 0 ? KEEP : 1];
  if (KEEP > 0) {
    [[unroll]] for (uint t = 0; t < KEEP; ++t) {
      p[t] = g[t] = vec4(0);
      if (lane + t * TPR < pieces) load(at, lane + t * TPR, keys, p[t], g[t]);
      delta += dot(p[t], g[t]);
    }
  } else {
    for (uint c = lane; c < pieces; c += TPR) {
      load(at, c, keys, p[0], g[0]);
      delta += dot(p[0], g[0]);
    }
  }
  delta = sum_over_row(delta);
  if (DLSE) delta -= LOADED_IF(lse, 4, real, dlse[lse_off() + (bh0 + r / rows) * nq + row]);

  if (real) {
    if (KEEP > 0) {
      [[unroll]] for (uint t = 0; t < KEEP; ++t)
        if (lane + t * TPR < pieces) {
          const vec4 ds = p[t] * (g[t] - delta) * score_scale * slopes(p[t], at, lane + t * TPR, row);
          STORED(gradients, 4 * BYTES, s4[at + lane + t * TPR] = encode4(ds));
        }
    } else {
      for (uint c = lane; c < pieces; c += TPR) {
        load(at, c, keys, p[0], g[0]);
        STORED(gradients, 4 * BYTES, s4[at + c] = encode4(p[0] * (g[0] - delta) * score_scale * slopes(p[0], at, c, row)));
      }
    }
    const uint zero_end = (min(pitch, end_of(keys) + min(ZERO, pitch)) + 3) / 4;
    for (uint c = pieces + lane; c < zero_end; c += TPR) STORED(gradients, 4 * BYTES, s4[at + c] = encode4(vec4(0)));
  }
}
