#version 460
// Each of the hooks, in a loop over keys as kernels have them: out[i] = s′, s′ and its slope, the mask, coefficient and index,
// for the key i.
layout(local_size_x = 64) in;
layout(constant_id = 0) const bool SCORE = true;
layout(binding = 0, std430) readonly buffer Points { uvec4 pair[]; }; // batch, head, query, bits of position
layout(binding = 1, std430) readonly buffer Scores { float scores[]; }; // [pairs, keys]
layout(binding = 2, std430) writeonly buffer Out { float result[]; };   // [pairs, keys, 6]
layout(push_constant) uniform Push { uint pairs, keys; };

#ifdef FLOATS
#define CONVERTED float(key), float(position)
#else
#define CONVERTED 0, 0
#endif
#define HOOK(eta) refract(vec4(s, uintBitsToFloat(p.x), uintBitsToFloat(p.y), uintBitsToFloat(p.z)), \
                          vec4(uintBitsToFloat(key), intBitsToFloat(position), CONVERTED), eta)

void main() {
  uint n = gl_GlobalInvocationID.x;
  if (n >= pairs) return;
  uvec4 p = pair[n];
  int position = int(p.w);
  for (uint key = 0; key < keys; key++) {
    uint at = n * keys + key;
    float s = scores[at];
    vec4 slope = vec4(s, 1, 0, 0), weight = vec4(0);
    float value = s, seen = 1;
    if (SCORE) {
      value = HOOK(1.0).x;
      slope = HOOK(2.0);
      seen = HOOK(3.0).x;
      weight = HOOK(4.0);
    }
    result[6 * at] = value;
    result[6 * at + 1] = slope.x;
    result[6 * at + 2] = slope.y;
    result[6 * at + 3] = seen;
    result[6 * at + 4] = weight.x;
    result[6 * at + 5] = float(floatBitsToInt(weight.y));
  }
}
