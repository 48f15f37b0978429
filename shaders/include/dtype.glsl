// Storage types. DTYPE is 0 (fp32), 1 (fp16) or 2 (bf16); arithmetic is fp32 everywhere.
//
// A tensor is read through one of two views of the same buffer: 16 bytes at a time (T##16, where rows are aligned) or one
// element at a time (T##1). bf16 is the upper half of an fp32 and is handled as bits, so no device feature is needed for it.
// fp16 is only converted, never computed with: of the 16-bit features a device needs storageBuffer16BitAccess alone.

#define F32 0
#define F16 1
#define BF16 2

#if DTYPE != F32
#extension GL_EXT_shader_16bit_storage : require
#endif

#if DTYPE == F32
#define ELEM float
#define UNIT 4          // elements in 16 bytes
#elif DTYPE == F16
#define ELEM float16_t
#define UNIT 8
#else
#define ELEM uint16_t
#define UNIT 8
#endif
#define UNIT4 (UNIT / 4) // vec4s in 16 bytes
#define BYTES (16 / UNIT) // of an element

#define INPUT(T, BINDING)                                                        \
  layout(set = 0, binding = BINDING, std430) readonly buffer T##View16 { uvec4 T##16[]; }; \
  layout(set = 0, binding = BINDING, std430) readonly buffer T##View1 { ELEM T##1[]; };

// Output rows are written four elements at a time where they are aligned to that.
#if DTYPE == F32
#define QUAD vec4
#elif DTYPE == F16
#define QUAD f16vec4
#else
#define QUAD uvec2
#endif
#define OUTPUT(T, BINDING)                                                       \
  layout(set = 0, binding = BINDING, std430) writeonly buffer T##View4 { QUAD T##4[]; };   \
  layout(set = 0, binding = BINDING, std430) writeonly buffer T##View1 { ELEM T##1[]; };
// A gradient may be added to what is there.
#define GRADIENT(T, BINDING)                                                     \
  layout(set = 0, binding = BINDING, std430) buffer T##View4 { QUAD T##4[]; };   \
  layout(set = 0, binding = BINDING, std430) buffer T##View1 { ELEM T##1[]; };

#if DTYPE == F32
float decode(float x) { return x; }
float encode(float x) { return x; }
vec4 encode4(vec4 x) { return x; }
vec4 decode4(vec4 x) { return x; }
void decode16(uvec4 u, out vec4 x[UNIT4]) { x[0] = uintBitsToFloat(u); }
#elif DTYPE == F16
#define decode(x) float(x)
#define encode(x) float16_t(x)
#define encode4(x) f16vec4(x)
#define decode4(x) vec4(x)
void decode16(uvec4 u, out vec4 x[UNIT4]) {
  x[0] = vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
  x[1] = vec4(unpackHalf2x16(u.z), unpackHalf2x16(u.w));
}
#else
#define decode(bits) uintBitsToFloat(uint(bits) << 16)
vec4 decode4(uvec2 u) { return uintBitsToFloat(uvec4(u.x << 16, u.x & 0xffff0000u, u.y << 16, u.y & 0xffff0000u)); }
// Round to nearest, ties to even; a NaN stays one (its payload must not carry into the exponent).
uvec4 bf16_bits(vec4 x) {
  uvec4 u = floatBitsToUint(x);
  uvec4 r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return mix(r, (u >> 16) | 0x40u, isnan(x));
}
#define encode(value) uint16_t(bf16_bits(vec4(value)).x)
uvec2 encode4(vec4 x) {
  uvec4 h = bf16_bits(x);
  return uvec2(h.x | (h.y << 16), h.z | (h.w << 16));
}
void decode16(uvec4 u, out vec4 x[UNIT4]) {
  x[0] = uintBitsToFloat(uvec4(u.x << 16, u.x & 0xffff0000u, u.y << 16, u.y & 0xffff0000u));
  x[1] = uintBitsToFloat(uvec4(u.z << 16, u.z & 0xffff0000u, u.w << 16, u.w & 0xffff0000u));
}
#endif
