#version 450
// The program's own work before attention: q, k and v from x. A model would multiply by weights here.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) writeonly buffer Q { float q[]; };
layout(set = 0, binding = 2) writeonly buffer K { float k[]; };
layout(set = 0, binding = 3) writeonly buffer V { float v[]; };

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= x.length()) return;
  q[i] = 2.0 * x[i];
  k[i] = x[i];
  v[i] = 1.0 - x[i];
}
