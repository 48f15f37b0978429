#version 460
// The fp32 multiply-add rate of a device: nothing but fma, in registers.
//
// Each invocation advances CHAINS independent chains x <- a x + b. They hide the latency of one another, and |a| < 1 keeps them
// finite. Values differ between chains and invocations and are summed into the output, so that no compiler can drop or share any.
//
// Operations: 2 CHAINS UNROLL rounds of every invocation.
// Bindings: 0 one float for every invocation. Push constants: uint rounds, float a, float b. Workgroups: any number, in x.
// Specialization constants: 0 WG workgroup size.

#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WG = 64;
layout(local_size_x_id = 0) in;
layout(binding = 0) writeonly buffer Out { float result[]; };
layout(push_constant) uniform Args { uint rounds; float a; float b; };

const uint CHAINS = 16;
const uint UNROLL = 8;

void main() {
  float x[CHAINS];
  [[unroll]] for (uint c = 0; c < CHAINS; c++) x[c] = float(gl_LocalInvocationIndex * CHAINS + c);
  for (uint r = 0; r < rounds; r++)
    [[unroll]] for (uint u = 0; u < UNROLL; u++)
      [[unroll]] for (uint c = 0; c < CHAINS; c++) x[c] = fma(x[c], a, b);
  float sum = 0;
  [[unroll]] for (uint c = 0; c < CHAINS; c++) sum += x[c];
  result[gl_GlobalInvocationID.x] = sum;
}
