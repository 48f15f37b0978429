#version 460
// Standard attention, second of three kernels: P = softmax(S) by rows, in place, and lse.
//
//   m = max_j S_j over the keys j that the row may see,   l = sum_j exp(S_j - m),   P_j = exp(S_j - m) / l,   lse = m + log l
//
// Dao et al., "FlashAttention", 2022, algorithm 0, line 2.
//
// TPR neighbouring invocations share a row and read it four elements at a time, neighbours side by side, so every access is
// coalesced; maximum and sum meet in shared memory, with -DSUBGROUP by shuffles first, which needs full subgroups of size SG. A row of at
// most 4 TPR KEEP elements stays in registers between the passes: one read and one write of the matrix. A longer one (KEEP = 0) is read
// twice, maximum and sum in one pass (online softmax). The mask is applied here: what lies beyond the row's last key is not looked at.
// Arithmetic is fp32 whatever S is stored as. A row that may see nothing becomes zeros, lse = -inf (m starts from the lowest finite number,
// as in scalar_forward.comp).
//
// With DROPOUT a weight that is dropped is stored with its sign bit set: P is never negative, so the one matrix holds the weights and the
// mask, and the kernels that read it need no draws. They take what is negative for 0 and multiply their sums by 256/(256 - k).
//
// Bindings: 0 S, overwritten by P: [bh - bh0][row - row0][pitch], pitch a multiple of 8; 1 lse [B,Hq,Nq] fp32.
// Push constants: include/args.glsl with SLABS.
// `total` counts rows: of all matrices in the slab. Workgroups: ceil(total / (WG/TPR)); `base` counts workgroups.
//
// Specialization constants:
//
//   0 WG   workgroup size, a multiple of TPR     1 TPR  invocations of a row, a power of two
//   2 KEEP  4-element pieces of a row that an invocation keeps: at least ceil(nk / (4 TPR)), or 0
//   4 WRITE_LSE     5 and 58  include/mask.glsl
//   3 ZERO  columns behind the row's last key (up to pitch) that become 0, rounded up to fours: as many as the product reads there,
//           its BR + BC; all with lengths, which the host does not know: it reads the matrix as it is then
//   6 SG    with -DSUBGROUP, invocations of a subgroup, a power of two
//   7 DROPOUT
//   8 SCORES_ONLY  1: scores as functions, bias and masks make them are stored in place, what the softmax is taken of, and that is all;
//                  with lengths -inf behind
//   63..67 include/score.glsl, sinks.glsl: bindings from 2 on     112 MAX_LOGIT  include/max_logit.glsl: binding 6
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

layout(local_size_x = 256, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint TPR = 256;
layout(constant_id = 2) const uint KEEP = 0;
layout(constant_id = 4) const bool WRITE_LSE = true;
layout(constant_id = 3) const uint ZERO = 256;
#ifdef SUBGROUP
layout(constant_id = 6) const uint SG = 32;
#endif
layout(constant_id = 7) const bool DROPOUT = false;
layout(constant_id = 8) const bool SCORES_ONLY = false;

#define SLABS
#include "args.glsl"
#include "dropout.glsl"

#define LENGTHS 7
#define SCORE_AT 2
#include "walk.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"
#include "sinks.glsl"
#define MAX_LOGIT_AT 6
#include "max_logit.glsl"

layout(set = 0, binding = 0, std430) buffer Scores { QUAD s4[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Lse { float lse[]; };

#include "standard_rows.glsl"

COUNTING(bool is_real;)  // the row exists

// Four scores as functions, bias and masks make them; -inf where the row may not look. Then in units of log 2.
vec4 natural_scores(uint at, uint piece, uint row, Span keys) {
  vec4 s = decode4(LOADED_IF(scores, 4 * BYTES, is_real, s4[at + piece]));
  if (SCORED) [[unroll]] for (uint e = 0; e < 4; ++e) s[e] = scored(s[e], row, 4 * piece + e);
  return mix(vec4(NEG_INFINITY), s, has(keys, 4 * piece + uvec4(0, 1, 2, 3)));
}
vec4 scores(uint at, uint piece, uint row, Span keys) {
  vec4 s = natural_scores(at, piece, row, keys);
  [[unroll]] for (uint e = 0; e < 4; ++e) s[e] = bits_of_score(s[e]);
  return s;
}
// Four weights of a row as they are stored: with their signs set where dropout drops them.
vec4 marked(vec4 p, uint piece, uint row, uint bh) {
  if (!DROPOUT) return p;
  const uint j = 4 * piece;
  const uvec4 low = draw(draw_group(j), row, bh), high = draw(draw_group(j + 2), row, bh);
  const bvec4 keep = bvec4(kept(low, j), kept(low, j + 1), kept(high, j + 2), kept(high, j + 3));
  const uvec4 bits = floatBitsToUint(p) & 0x7fffffffu;  // a NaN's sign as well
  return uintBitsToFloat(mix(bits | 0x80000000u, bits, keep));
}
float top(vec4 s) { return max(max(s.x, s.y), max(s.z, s.w)); }
float sum(vec4 s) { return (s.x + s.y) + (s.z + s.w); }

void main() {
  const uint id = workgroup_index();
  if (id * (WG / TPR) >= total) return;
  const uint own = begin_rows();
  const bool real = id * (WG / TPR) + own < total;  // the last workgroup may have rows to spare
  COUNTING(is_real = real;)
  const uint r = min(id * (WG / TPR) + own, total - 1);
  const uint row = row0 + r % rows;
  const uint bh = bh0 + r / rows;
  if (SCORED) scores_of(bh);
  take_lengths(bh / heads());
  const Span keys = keys_of(row);
  const uint at = r * (pitch / 4);  // r pitch may pass 2^32 bytes, not 2^32 elements
  const uint pieces = (end_of(keys) + 3) / 4;

  if (SCORES_ONLY) {
    if (real) for (uint c = lane; c < pieces; c += TPR) STORED(scores, 4 * BYTES, s4[at + c] = encode4(natural_scores(at, c, row, keys)));
    if (PADDED && real)
      for (uint c = pieces + lane; c < pitch / 4; c += TPR) STORED(scores, 4 * BYTES, s4[at + c] = encode4(vec4(NEG_INFINITY)));
    return;
  }

  float m = LOWEST, l = 0;
  vec4 own4[KEEP > 0 ? KEEP : 1];
  if (KEEP > 0) {
    [[unroll]] for (uint t = 0; t < KEEP; ++t) {
      own4[t] = vec4(NEG_INFINITY);
      if (lane + t * TPR < pieces) own4[t] = scores(at, lane + t * TPR, row, keys);
      m = max(m, top(own4[t]));
    }
    m = max_over_row(m);
    [[unroll]] for (uint t = 0; t < KEEP; ++t) {
      own4[t] = exp2(own4[t] - m);
      l += sum(own4[t]);
    }
  } else {
    for (uint c = lane; c < pieces; c += TPR) {
      const vec4 s = scores(at, c, row, keys);
      const float higher = max(m, top(s));
      l = l * exp2(m - higher) + sum(exp2(s - higher));
      m = higher;
    }
    const float seen = m;
    m = max_over_row(m);
    l *= exp2(seen - m);
  }
  l = sum_over_row(l);
  if (MAX_LOGIT) { if (real && lane == 0) add_logit(bh, logit_of(l == 0 ? NEG_INFINITY : m, l)); }
  float all = l, reference = m;   // of lse: the sink has no weight of its own
  float sunk = 1;
  if (SINKS) { if (query_exists(row)) sunk = join_sink(bh % heads(), reference, all); }
  const float inv = all == 0 ? 0 : sunk / all;

  if (real) {
    if (KEEP > 0) {
      [[unroll]] for (uint t = 0; t < KEEP; ++t)
        if (lane + t * TPR < pieces)
          STORED(scores, 4 * BYTES, s4[at + lane + t * TPR] = encode4(marked(own4[t] * inv, lane + t * TPR, row, bh)));
    } else {
      for (uint c = lane; c < pieces; c += TPR)
        STORED(scores, 4 * BYTES, s4[at + c] = encode4(marked(exp2(scores(at, c, row, keys) - m) * inv, c, row, bh)));
    }
    const uint zero_end = (min(pitch, end_of(keys) + min(ZERO, pitch)) + 3) / 4;
    for (uint c = pieces + lane; c < zero_end; c += TPR) STORED(scores, 4 * BYTES, s4[at + c] = encode4(vec4(0)));
    if (WRITE_LSE && lane == 0)
      STORED(lse, 4, lse[lse_off() + bh * nq + row] = all == 0 ? NEG_INFINITY : score_of_bits(reference + log2(all)));
  }
}
