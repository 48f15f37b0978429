#version 460
// Thirty-two places for functions of their own, at 100 … 131, each of a pair by itself: out[32 i + n] = x and y of the n-th.
layout(local_size_x = 64) in;
struct Pair { float s; uint batch, head, query, key; int position; };
layout(binding = 0, std430) readonly buffer Pairs { Pair pair[]; };
layout(binding = 1, std430) writeonly buffer Out { vec2 result[]; };
layout(push_constant) uniform Push { uint pairs; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= pairs) return;
  Pair p = pair[i];
  vec4 first = vec4(p.s, uintBitsToFloat(p.batch), uintBitsToFloat(p.head), uintBitsToFloat(p.query));
  vec4 second = vec4(uintBitsToFloat(p.key), intBitsToFloat(p.position), 0, 0);
#define ONE(n) result[32 * i + n] = refract(first, second, 100.0 + n).xy;
#define EIGHT(n) ONE(n) ONE(n + 1) ONE(n + 2) ONE(n + 3) ONE(n + 4) ONE(n + 5) ONE(n + 6) ONE(n + 7)
  EIGHT(0) EIGHT(8) EIGHT(16) EIGHT(24)
}
