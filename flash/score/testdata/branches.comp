#version 460
// Hooks of one score in both branches of a condition, in a loop that carries more than its key: what is made for one branch is
// no use in the other.
layout(local_size_x = 64) in;
layout(binding = 0, std430) readonly buffer Scores { float scores[]; }; // [pairs, keys]
layout(binding = 1, std430) writeonly buffer Out { float result[]; };   // [pairs]: the sum of s′, twice that where the key is odd
layout(push_constant) uniform Push { uint pairs, keys; };

void main() {
  uint n = gl_GlobalInvocationID.x;
  if (n >= pairs) return;
  float sum = 0;
  uint head = n % 8;
  for (uint key = 0; key < keys; key++) {
    float s = scores[n * keys + key];
    vec4 first = vec4(s, uintBitsToFloat(n / 8), uintBitsToFloat(head), uintBitsToFloat(n));
    vec4 second = vec4(uintBitsToFloat(key), intBitsToFloat(int(n) - 4), 0, 0);
    if (key % 2 == 1) sum += 2 * refract(first, second, 1.0).x;
    else sum += refract(first, second, 2.0).x;
    head = (head + 1) % 8; // another head for each key
  }
  result[n] = sum;
}
