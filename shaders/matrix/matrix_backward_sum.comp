#version 460
// FlashAttention-2 backward on matrix hardware with atomic sums, after matrix_backward_kv.comp with ATOMIC_DQ: dQ = scale times the sums,
// in the storage type.
//
// A subgroup owns FM queries. Fragments of sums are loaded as they were added to, component by component (matrix_backward_sums.glsl), and
// leave as those of matrix_backward_q.comp do, through a patch of shared memory, into rows of any stride, alignment and number, added to
// what is there with ACCUMULATE. Bound by memory: 4 bytes a number are read, and two written.
//
// Tiling and specialization constants: include/matrix_backward.glsl. No columns are staged: TILE_LEN is for the patch alone, RM is 1.
//
// Bindings: 6 dQ, 14 sums, the others as in matrix_backward_q.comp, of which those of lengths are read. Push constants:
// include/args_backward.glsl (x is dQ). Workgroups: ceil(nq/BR) B Hq.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.

#extension GL_GOOGLE_include_directive : require
#include "matrix_backward.glsl"
#include "matrix_backward_sums.glsl"

// Of no use here: nothing is walked over.
void chunk(uint c, bool masked) {}
void fetch_statistics(uint member, uint from) {}
void store_statistics(uint at, uint from) {}
float lse_at(uint row, uint col, uint r, uint e) { return 0; }
float delta_at(uint row, uint col, uint r, uint e) { return 0; }

void main() {
  if (workgroup_index() >= total || !is_work(workgroup_index(), heads())) return;
  take_place();
  if (PACKED) take_item(heads()); else find_block((nq + BR - 1) / BR);
  const uint b = matrix / heads(), h = matrix % heads();
  take_lengths(b);
  row0 = i * BR + sub0;
  x_base = x_off() + query_origin(b, x_sb, x_sn) + h * x_sh;
  [[unroll]] for (uint d = 0; d < DN; ++d) {
    ACC dQ = ACC(0.0);
    if (row0 < query_count()) {
      const uint from = sums_at(matrix, row0, d) + lane;
      [[unroll]] for (uint e = 0; e < dQ.length(); ++e) dQ[e] = LOADED(sums, 4, sums[from + e * SG]);
    }
    coopMatStore(dQ, T, patch_at, PATCH_PITCH, BY_ROW); MEET
    store_x(0, d, scale * keep_scale * P_UNIT); MEET
  }
}
