#version 460
// The bandwidth of device memory as a shader sees it: one large buffer copied to another, 16 bytes a time.
//
// A copy command may run on an engine of its own that is slower than the compute units (on an H200: 0.85 of 4.2 TB/s).
// Each invocation moves PIECES pieces a workgroup's width apart, all asked for before the first is written.
//
// Bytes: 32 pieces, read and written. Bindings: 0 from, 1 to. Push constants: uint pieces. Workgroups: ceil(pieces / (WG PIECES)) or more,
// in x and y. Specialization constants: 0 WG workgroup size.

#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 0) const uint WG = 256;
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer From { uvec4 from[]; };
layout(binding = 1) writeonly buffer To { uvec4 to[]; };
layout(push_constant) uniform Args { uint pieces; };

const uint PIECES = 4;

void main() {
  const uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  const uint first = group * WG * PIECES + gl_LocalInvocationIndex;
  uvec4 x[PIECES];
  [[unroll]] for (uint i = 0; i < PIECES; i++) x[i] = from[min(first + i * WG, pieces - 1)];
  [[unroll]] for (uint i = 0; i < PIECES; i++) if (first + i * WG < pieces) to[first + i * WG] = x[i];
}
