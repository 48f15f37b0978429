// Push constants of the backward kernels: the 32 words that every device has. The host writes them by these
// names (internal/kernel/args.go). (Standard attention's backward kernels have those of args.glsl.)
//
// g is dO, the gradient of the output; x and y are what the kernel writes: dK and dV, or dQ (y unused). Strides and offsets as in
// args.glsl. lse and delta are [B,Hq,Nq], fp32, dense.

layout(push_constant) uniform Args {
  uint nq, nk;             // queries, keys
  uint heads_large;        // args_common.glsl
  uint offsets;            // of q | k << 8 | v << 16 | g << 24
  uint more_offsets;       // of lse | delta << 8 | x << 16 | y << 24
  uint bytes;              // drop_k | log2 of the key heads of a slab of dS << 8 | smaller of two numbers of heads << 16
  uint q_sb, q_sh, q_sn;   // strides of batch, head, row
  uint k_sb, k_sh, k_sn;
  uint v_sb, v_sh, v_sn;
  uint g_sb, g_sh, g_sn;
  uint x_sb, x_sh, x_sn;
  uint y_sb, y_sh, y_sn;
  float scale;
  int first_shift, last_shift;   // include/mask.glsl
  uint base;               // first workgroup of this dispatch
  uint total;              // workgroups of the whole problem, over all dispatches
  uint seed_lo, seed_hi;   // dropout, see dropout.glsl
  uint drop_offset;
};

uint q_off() { return offsets & 255u; }
uint k_off() { return offsets >> 8 & 255u; }
uint v_off() { return offsets >> 16 & 255u; }
uint g_off() { return offsets >> 24; }
uint lse_off() { return more_offsets & 255u; }
uint delta_off() { return more_offsets >> 8 & 255u; }
uint x_off() { return more_offsets >> 16 & 255u; }
uint y_off() { return more_offsets >> 24; }

#include "args_common.glsl"
