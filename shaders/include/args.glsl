// Push constants of every forward kernel: 25 words of the 32 that every device has. The host writes them by these
// names (internal/kernel/args.go). Standard attention's kernels, of both passes, have words for a slab of its matrices besides (SLABS).
//
// Tensors are strided: element (b, h, n, d) of a tensor lies at off + b*sb + h*sh + n*sn + d, counted in elements of its type. Offsets are
// what is left after bindings were aligned down to the device's alignment, at most 256 bytes, so they fit into a byte each.

layout(push_constant) uniform Args {
  uint nq, nk;             // queries, keys
  uint heads_large;        // args_common.glsl
  uint offsets;            // of q | k << 8 | v << 16 | o << 24
  uint bytes;              // drop_k | offset of lse << 8 | smaller of two numbers of heads << 16
  uint q_sb, q_sh, q_sn;   // strides of batch, head, row
  uint k_sb, k_sh, k_sn;
  uint v_sb, v_sh, v_sn;
  uint o_sb, o_sh, o_sn;
  float score_scale;       // scale * log2(e): scores are kept in units of log 2; with SLABS scale itself
  int first_shift, last_shift;   // include/mask.glsl
  uint base;               // first workgroup of this dispatch
  uint total;              // workgroups of the whole problem, over all dispatches
  uint seed_lo, seed_hi;   // dropout, see dropout.glsl
  uint drop_offset;
#ifdef SLABS
  uint bh0, slab_heads;    // first of the slab's matrices (batch and head flattened), and how many
  uint row0, rows;         // first row of the slab, and how many of a matrix
  uint pitch;              // elements from row to row
#endif
};

uint q_off() { return offsets & 255u; }
uint k_off() { return offsets >> 8 & 255u; }
uint v_off() { return offsets >> 16 & 255u; }
uint o_off() { return offsets >> 24; }
uint lse_off() { return bytes >> 8 & 255u; }

#include "args_common.glsl"
