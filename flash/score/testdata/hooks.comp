#version 460
// Each of the hooks, in a loop over keys as kernels have them: out[i] = s′, s′ and its slope, the mask, coefficient and index,
// s′ made in units of log 2, that and its slope, for the key i.
layout(local_size_x = 64) in;
layout(constant_id = 0) const bool SCORE = true;
layout(binding = 0, std430) readonly buffer Points { uvec4 pair[]; }; // batch, head, query, bits of position
layout(binding = 1, std430) readonly buffer Scores { float scores[]; }; // [pairs, keys]
layout(binding = 2, std430) writeonly buffer Out { float result[]; };   // [pairs, keys, 9]
layout(push_constant) uniform Push { uint pairs, keys; float factor; };

#ifdef FLOATS
#define CONVERTED float(key), float(position - int(key))
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
    float s = scores[at] * factor;   // a product, as kernels have it
    vec4 slope = vec4(s, 1, 0, 0), weight = vec4(0), bits_slope = slope;
    float bits = s;
    float value = s, seen = 1;
    if (SCORE) {
      value = HOOK(1.0).x;
      slope = HOOK(2.0);
      seen = HOOK(3.0).x;
      weight = HOOK(4.0);
      bits = HOOK(5.0).x * 0.69314718;
      bits_slope = HOOK(6.0);
      bits_slope.x *= 0.69314718;
    }
    result[9 * at] = value;
    result[9 * at + 1] = slope.x;
    result[9 * at + 2] = slope.y;
    result[9 * at + 3] = seen;
    result[9 * at + 4] = weight.x;
    result[9 * at + 5] = float(floatBitsToInt(weight.y));
    result[9 * at + 6] = bits;
    result[9 * at + 7] = bits_slope.x;
    result[9 * at + 8] = bits_slope.y;
  }
}
