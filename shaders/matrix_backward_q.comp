#version 460
// FlashAttention-2 backward on matrix hardware, second of two kernels: dQ.
//
//   P = exp(scale Q K^T - lse),  dP = dO V^T,  dS = P o (dP - delta),  dQ = scale dS K
//
// Dao, "FlashAttention-2", 2023, algorithm 2, turned inside out: a workgroup owns BR queries and walks over the keys in tiles of BC, so
// that dQ is summed in registers in a fixed order instead of by atomic additions; matrix_backward_kv.comp says why there are two kernels. With
// dropout Z (0 or 256/(256 - k) by place): dS = P o (dP o Z - delta).
//
// Tiling, forms and specialization constants: include/matrix_backward.glsl.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dQ. Push constants: include/args_backward.glsl (x is dQ).
// Workgroups: ceil(nq/BR) B Hq; with CAUSAL the longest query blocks first, HEADS_TOGETHER heads at a time.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.

#extension GL_GOOGLE_include_directive : require
#include "matrix_backward.glsl"

void main() {
  const uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
  const uint id = workgroup_index();
  if (id >= total) return;
  const uint blocks = (nq + BR - 1) / BR;
  FIND_BLOCK(blocks)
  if (CAUSAL) i = blocks - 1 - i;
  const uint b = matrix / heads, h = matrix % heads;
  const uint sub0 = gl_SubgroupID * RM * FM, row0 = i * BR + sub0;
  const uint row_lane = lane_part(ROW_LANE, lane), col_lane = lane_part(COL_LANE, lane);
  const uint patch_at = gl_SubgroupID * FM * PATCH_PITCH, e_at = gl_SubgroupID * 2 * FM * CK, h_at = gl_SubgroupID * 2 * FM * CK / 8;
  const uint ra_at = gl_SubgroupID * RM * FM * (RA_PITCH + RB_PITCH), rb_at = ra_at + RM * FM * RA_PITCH;
  bh = matrix;
  first_query = i * BR;
  keep_scale = DROPOUT ? drop_scale() : 1.0;
  member0_a = k_off() + b * k_sb + h / group * k_sh; member_a = 0;
  member0_b = v_off() + b * v_sb + h / group * v_sh; member_b = 0;

  FRAG_A Ra[RM * AR], Rb[RM * BRG];
  LOAD_ROWS(q, q_off() + b * q_sb + h * q_sh, q_sn, nq, D, AU, DF, A_PASSES, Ra, A_REG, AR, RA_PITCH, ra_at)
  LOAD_ROWS(g, g_off() + b * g_sb + h * g_sh, g_sn, nq, DV, BU, EF, B_PASSES, Rb, B_REG, BRG, RB_PITCH, rb_at)
  ACC sum_a[RM * DN];   // dQ / scale
  [[unroll]] for (uint x = 0; x < RM * DN; ++x) sum_a[x] = ACC(0.0);
  float l[RM * SLOTS], dl[RM * SLOTS];
  if (FORM == 1) {
    [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
      const uint row = row0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS), s = bh * nq + min(row, nq - 1);
      l[x] = row < nq ? log2_units(LOADED(lse, 4, lse[lse_off() + s])) : infinity();
      dl[x] = WITHOUT_SCALE(LOADED_IF(delta, 4, row < nq, delta[delta_off() + s]));
    }
  } else {
    for (uint x = tid; x < BR; x += WG) {
      const uint row = i * BR + x, s = bh * nq + min(row, nq - 1);
      stats[x] = vec2(row < nq ? log2_units(LOADED(lse, 4, lse[lse_off() + s])) : infinity(), WITHOUT_SCALE(LOADED_IF(delta, 4, row < nq, delta[delta_off() + s])));
    }
  }
  barrier();
  ZERO_EDGES

  // keys [0, BC full) are allowed for every row of the workgroup, those from BC end on for none
  int allowed = int(nk), shared_by_all = int(nk);
  if (CAUSAL) {
    allowed = clamp(int(min((i + 1) * BR, nq)) + causal_shift, 0, int(nk));
    shared_by_all = clamp(int(i * BR) + causal_shift + 1, 0, int(nk));
  }
  const uint end = (uint(allowed) + BC - 1) / BC, full = MASKS ? uint(shared_by_all) / BC : end;
  uvec4 ar[A_EACH], br[B_EACH];
  {
    const uint first = 0, n = full;
#define MASKED 0
#include "matrix_backward_tile.glsl"
#undef MASKED
  }
  if (MASKS) {
    const uint first = full, n = end - full;
#define MASKED 1
#include "matrix_backward_tile.glsl"
#undef MASKED
  }

  barrier();
  WRITE_GRADIENT(x, x_off() + b * x_sb + h * x_sh, x_sn, nq, D, sum_a, DN, scale * keep_scale * P_UNIT)
}
