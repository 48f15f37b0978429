#version 450
// The program's own work after attention: y = x + o.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer O { float o[]; };
layout(set = 0, binding = 2) writeonly buffer Y { float y[]; };

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= x.length()) return;
  y[i] = x[i] + o[i];
}
