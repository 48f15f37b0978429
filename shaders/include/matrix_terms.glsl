// Numbers of fp32 as sums of terms of the operands' type, each the nearest to what the ones before it leave.
//
// Terms are rounded by their bits: a compiler may take a conversion to fp16 and back for nothing (Mesa's does), and what is left would be
// 0. What is below fp16's normal numbers becomes a denormal and is cut off at 2^-24.

#ifdef DTYPE_BF16
const uint HALF_UNIT = 0x8000u;   // of the last place
#define AS_PAIR(t) (t.x >> 16 | t.y)
#define AS_TERM(t) uintBitsToBFloat16EXT(unpack16(t).y)
#else
const uint HALF_UNIT = 0x1000u;
#define AS_PAIR(t) packFloat2x16(f16vec2(uintBitsToFloat(t)))
#define AS_TERM(t) float16_t(uintBitsToFloat(t))
#endif
uvec2 nearest(vec2 x) {
  const uvec2 u = floatBitsToUint(x), r = u + HALF_UNIT;
  const bvec2 large = greaterThanEqual(u & 0x7fffffffu, uvec2(0x7f800000u - HALF_UNIT));   // and what is not finite: cut off
  return mix(r, u, large) & ~(2 * HALF_UNIT - 1);
}
// The first term of two numbers as a pair, and what is left of them.
uint take_pair(inout vec2 x) {
  const uvec2 t = nearest(x);
  x -= uintBitsToFloat(t);
  return AS_PAIR(t);
}
#define TERM(rest, to) { const uint term = nearest(vec2(rest)).x; to = AS_TERM(term); rest -= uintBitsToFloat(term); }
uvec4 take_eight(inout vec4 lo, inout vec4 hi) {
  vec2 a = lo.xy, b = lo.zw, c = hi.xy, d = hi.zw;
  const uvec4 t = uvec4(take_pair(a), take_pair(b), take_pair(c), take_pair(d));
  lo = vec4(a, b); hi = vec4(c, d);
  return t;
}
