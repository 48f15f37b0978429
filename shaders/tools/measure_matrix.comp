#version 460
// The matrix multiply-add rate of a device: nothing but coopMatMulAdd of f16 fragments into f32 accumulators, in registers.
//
// Each subgroup advances CHAINS accumulators, C_c <- A B + C_c, with fragments A and B that it loaded once. The accumulators begin
// apart and are summed into the output, so that no compiler can drop or share any. The data should be random: a GPU that multiplies
// zeros draws less power and clocks higher than any real kernel.
//
// Operations: 2 M N K CHAINS rounds of every subgroup.
// Bindings: 0 A, then B, row-major f16, M K + K N elements; 1 M N floats for every subgroup. Push constants: uint rounds.
// Workgroups: any number, in x.
// Specialization constants: 0 WG workgroup size (a multiple of the subgroup size), 1 M, 2 N, 3 K.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint M = 16;
layout(constant_id = 2) const uint N = 16;
layout(constant_id = 3) const uint K = 16;
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer In { float16_t ab[]; };
layout(binding = 1) writeonly buffer Out { float result[]; };
layout(push_constant) uniform Args { uint rounds; };

const uint CHAINS = 8;

void main() {
  coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a;
  coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
  coopMatLoad(a, ab, 0, K, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, ab, M * K, N, gl_CooperativeMatrixLayoutRowMajor);
  coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> acc[CHAINS];
  [[unroll]] for (uint c = 0; c < CHAINS; c++)
    acc[c] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(float(c));
  for (uint r = 0; r < rounds; r++)
    [[unroll]] for (uint c = 0; c < CHAINS; c++) acc[c] = coopMatMulAdd(a, b, acc[c]);
  [[unroll]] for (uint c = 1; c < CHAINS; c++) acc[0] += acc[c];
  uint subgroup = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  coopMatStore(acc[0], result, subgroup * M * N, N, gl_CooperativeMatrixLayoutRowMajor);
}
