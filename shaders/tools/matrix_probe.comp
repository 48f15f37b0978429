#version 460
// Which element of a cooperative matrix each invocation holds, for an fp32 accumulator (M x N) and a 16-bit operand A (M x K).
//
// GLSL and SPIR-V leave that to the driver. A kernel that keeps the softmax in registers must know it, so one subgroup loads
// matrices whose elements are their own row, then their own column, and writes down what it finds in each component. Row and
// column are probed apart: each is a small integer, which bf16 too holds exactly up to 256.
//
// Binding 0, uints: [0] components of an accumulator in each invocation, [1] of A, [2] the subgroup's size, [3] 0; then for each
// invocation SLOTS entries of the accumulator and SLOTS of A, each row * 65536 + column. What has no component is not written.
// Workgroups: 1, of one full subgroup. Specialization constants: 0 WG (the subgroup's size), 1 M, 2 N, 3 K.

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#if DTYPE == 2
#extension GL_EXT_bfloat16 : require
#define ELEM bfloat16_t
#else
#define ELEM float16_t
#endif
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint M = 16;
layout(constant_id = 2) const uint N = 16;
layout(constant_id = 3) const uint K = 16;
layout(local_size_x_id = 0) in;
layout(binding = 0) writeonly buffer Out { uint held[]; };

const uint SLOTS = 64;  // internal/kernel/probe.go sizes the buffer with the same number

shared float acc_rows[M * N], acc_cols[M * N];
shared ELEM a_rows[M * K], a_cols[M * K];

void main() {
  const uint lane = gl_SubgroupInvocationID;
  for (uint i = gl_LocalInvocationID.x; i < M * N; i += WG) {
    acc_rows[i] = float(i / N);
    acc_cols[i] = float(i % N);
  }
  for (uint i = gl_LocalInvocationID.x; i < M * K; i += WG) {
    a_rows[i] = ELEM(float(i / K));
    a_cols[i] = ELEM(float(i % K));
  }
  barrier();
  coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> cr, cc;
  coopmat<ELEM, gl_ScopeSubgroup, M, K, gl_MatrixUseA> ar, ac;
  coopMatLoad(cr, acc_rows, 0, N, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(cc, acc_cols, 0, N, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(ar, a_rows, 0, K, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(ac, a_cols, 0, K, gl_CooperativeMatrixLayoutRowMajor);
  if (gl_LocalInvocationID.x == 0) {
    held[0] = cr.length();
    held[1] = ar.length();
    held[2] = gl_SubgroupSize;
    held[3] = 0;
  }
  const uint at = 4 + lane * 2 * SLOTS;
  for (uint e = 0; e < min(cr.length(), SLOTS); ++e) held[at + e] = uint(cr[e]) * 65536u + uint(cc[e]);
  for (uint e = 0; e < min(ar.length(), SLOTS); ++e) held[at + SLOTS + e] = uint(float(ar[e])) * 65536u + uint(float(ac[e]));
}
