#version 460
// FlashAttention-2 backward on matrix hardware, from VK_KHR_cooperative_matrix alone; first of two kernels: dK and dV.
//
//   P = exp(scale Q K^T - lse),  dV = P^T dO,  dP = dO V^T,  dS = P o (dP - delta),  dK = scale dS^T Q
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 2, without its atomic sums into
// dQ: a workgroup owns BR keys of one key head and walks over the queries of all query heads of the group, so dK and dV are summed in a
// fixed order and written once; matrix_backward_q.comp does dQ, recomputing P a second time. S and P are transposed: rows are keys.
// With dropout Z (0 or 256/(256 - k) by place): dV = (P o Z)^T dO, dS = P o (dP o Z - delta).
//
// Tiling, forms and specialization constants: include/matrix_backward.glsl.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dK, 7 dV. Push constants: include/args_backward.glsl (x is dK,
// y is dV). Workgroups: ceil(nk/BR) B Hk; with CAUSAL the key blocks that most queries see first, HEADS_TOGETHER heads at a time.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.

#extension GL_GOOGLE_include_directive : require
#define KV
#include "matrix_backward.glsl"

void main() {
  const uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
  const uint id = workgroup_index();
  if (id >= total) return;
  const uint blocks = (nk + BR - 1) / BR, key_heads = heads / group;
  FIND_BLOCK(blocks)
  const uint b = matrix / key_heads, h = matrix % key_heads;
  const uint sub0 = gl_SubgroupID * RM * FM, row0 = i * BR + sub0;
  const uint row_lane = lane_part(ROW_LANE, lane), col_lane = lane_part(COL_LANE, lane);
  const uint patch_at = gl_SubgroupID * FM * PATCH_PITCH, e_at = gl_SubgroupID * 2 * FM * CK, h_at = gl_SubgroupID * 2 * FM * CK / 8;
  const uint ra_at = gl_SubgroupID * RM * FM * (RA_PITCH + RB_PITCH), rb_at = ra_at + RM * FM * RA_PITCH;
  bh = b * heads + h * group;
  first_key = key0 = i * BR;
  keep_scale = DROPOUT ? drop_scale() : 1.0;
  member0_a = q_off() + b * q_sb + h * group * q_sh; member_a = q_sh;
  member0_b = g_off() + b * g_sb + h * group * g_sh; member_b = g_sh;

  FRAG_A Ra[RM * AR], Rb[RM * BRG];
  LOAD_ROWS(k, k_off() + b * k_sb + h * k_sh, k_sn, nk, D, AU, DF, A_PASSES, Ra, A_REG, AR, RA_PITCH, ra_at)
  WANTED(DK_PART) LOAD_ROWS(v, v_off() + b * v_sb + h * v_sh, v_sn, nk, DV, BU, EF, B_PASSES, Rb, B_REG, BRG, RB_PITCH, rb_at)
  ACC sum_a[SUMS_A], sum_b[SUMS_B];   // dK / scale, dV
  [[unroll]] for (uint x = 0; x < SUMS_A; ++x) sum_a[x] = ACC(0.0);
  [[unroll]] for (uint x = 0; x < SUMS_B; ++x) sum_b[x] = ACC(0.0);
  barrier();
  ZERO_EDGES

  // queries [0, BC begin) see no key of the block, those from BC whole on see all of it
  const uint end = (nq + BC - 1) / BC;
  uint begin = 0, whole = 0;
  if (CAUSAL) {
    begin = min(uint(max(int(key0) - causal_shift, 0)) / BC, end);
    whole = min((uint(max(int(key0 + BR - 1) - causal_shift, 0)) + BC - 1) / BC, end);
  }
  uvec4 ar[A_EACH], br[B_EACH]; float lr[STAT_EACH], dr[STAT_EACH];
  if (MASKS) {
    const uint first = begin, n = whole - begin;
#define MASKED 1
#include "matrix_backward_tile.glsl"
#undef MASKED
  }
  {
    const uint first = whole, n = end - whole;
#define MASKED 0
#include "matrix_backward_tile.glsl"
#undef MASKED
  }

  barrier();
  WANTED(DK_PART) { WRITE_GRADIENT(x, x_off() + b * x_sb + h * x_sh, x_sn, nk, D, sum_a, DN, scale * keep_scale * P_UNIT) }
  WANTED(DV_PART) { WRITE_GRADIENT(y, y_off() + b * y_sb + h * y_sh, y_sn, nk, DV, sum_b, EN, keep_scale * P_UNIT) }
}
