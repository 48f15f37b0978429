// Push constants of the backward kernels (flash/args.go writes them in this order; all 4 bytes, 128 in all, what every device has), and
// how a workgroup finds its work.
//
// g is dO, the gradient of the output; x and y are what the kernel writes: dK and dV, or dQ (y unused). Tensors are strided: element
// (b, h, n, d) of a tensor lies at off + b*sb + h*sh + n*sn + d, counted in elements of its type. Offsets are what is left after
// bindings were aligned down, so they fit into a byte each. lse and delta are [B,Hq,Nq], fp32, dense.

layout(push_constant) uniform Args {
  uint nq, nk;             // queries, keys
  uint heads, group;       // query heads; query heads per key head
  uint off_a;              // q | k << 8 | v << 16 | g << 24
  uint off_b;              // lse | delta << 8 | x << 16 | y << 24
  uint q_sb, q_sh, q_sn;   // strides of batch, head, row
  uint k_sb, k_sh, k_sn;
  uint v_sb, v_sh, v_sn;
  uint g_sb, g_sh, g_sn;
  uint x_sb, x_sh, x_sn;
  uint y_sb, y_sh, y_sn;
  float scale;
  int causal_shift;        // causal: key j is allowed for query i iff j <= i + causal_shift
  uint base;               // first workgroup of this dispatch
  uint total;              // workgroups of the whole problem, over all dispatches
  uint seed_lo, seed_hi;   // dropout, see dropout.glsl
  uint drop_offset, drop_k;
};

uint q_off() { return off_a & 255u; }
uint k_off() { return off_a >> 8 & 255u; }
uint v_off() { return off_a >> 16 & 255u; }
uint g_off() { return off_a >> 24; }
uint lse_off() { return off_b & 255u; }
uint delta_off() { return off_b >> 8 & 255u; }
uint x_off() { return off_b >> 16 & 255u; }
uint y_off() { return off_b >> 24; }

uint workgroup_index() { return base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x; }
