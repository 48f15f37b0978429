// Push constants of every forward kernel (flash/args.go writes them in this order; all 4 bytes, 116 in all), and how a
// workgroup finds its work.
//
// Tensors are strided: element (b, h, n, d) of a tensor lies at off + b*sb + h*sh + n*sn + d, counted in elements of its type.

layout(push_constant) uniform Args {
  uint nq, nk;             // queries, keys
  uint heads, group;       // query heads; query heads per key head
  uint q_off, k_off, v_off, o_off, lse_off;
  uint q_sb, q_sh, q_sn;   // strides of batch, head, row
  uint k_sb, k_sh, k_sn;
  uint v_sb, v_sh, v_sn;
  uint o_sb, o_sh, o_sn;
  float scale_log2;        // scale * log2(e): scores are kept in units of log 2
  int causal_shift;        // causal: key j is allowed for query i iff j <= i + causal_shift
  uint base;               // first workgroup of this dispatch
  uint total;              // workgroups of the whole problem, over all dispatches
  uint seed_lo, seed_hi;   // dropout, see dropout.glsl
  uint drop_offset, drop_k;
};

// A grid is flattened, since a dimension may not pass 65,535, and may be cut into several dispatches by base.
uint workgroup_index() { return base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x; }
