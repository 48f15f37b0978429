#version 450
// The program's own shader: cells of a map of attention become pixels of the window, dark where a weight is small and light where it is
// large, on a logarithmic scale of four decades below 1. Pixels are words of blue, green, red and alpha, or of red, green and blue.

layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Args { uint columns, rows, width, height, bgra; };
layout(set = 0, binding = 0, std430) readonly buffer Cells { float cells[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Pixels { uint pixels[]; };

void main() {
  const uvec2 p = gl_GlobalInvocationID.xy;
  if (p.x >= width || p.y >= height) return;
  const float weight = cells[p.y * rows / height * columns + p.x * columns / width];
  const float t = weight > 0 ? clamp(1 + log2(weight) / log2(1e4), 0, 1) : 0;
  const vec3 dark = mix(vec3(0.1, 0.1, 0.4), vec3(0.1, 0.6, 0.6), min(2 * t, 1));
  const vec3 color = weight > 0 ? mix(dark, vec3(1, 0.9, 0.3), max(2 * t - 1, 0)) : vec3(0.1);
  pixels[p.y * width + p.x] = packUnorm4x8(vec4(bgra != 0 ? color.bgr : color, 1));
}
