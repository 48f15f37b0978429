// Reads rows of quantised numbers. Included by quantised.glsl once per tensor (GLSL passes no storage buffers), with
//
//   QUANTISED         tensor: k or v
//   QUANTISED_TYPE    its type, as K_TYPE
//   QUANTISED_COLS    columns that it has
//   QUANTISED_AT      its binding

layout(set = 0, binding = QUANTISED_AT, std430) readonly buffer PASTE(QUANTISED, Words_) { uint PASTE(QUANTISED, _words)[]; };

// The step at which the block with an element begins, which lies in the upper half of its word if that is odd.
uint PASTE(QUANTISED, _block)(uint element) { return PASTE(QUANTISED, _off)() + element / 32 * STEPS_OF(QUANTISED_TYPE); }
uint PASTE(QUANTISED, _at_step)(uint x) {
  const uint w = PASTE(QUANTISED, _words)[x / 2];
  return (x & 1u) == 0 ? w : across(w, PASTE(QUANTISED, _words)[(x + 1) / 2]);
}
// Four floats of a byte from column col on, zeros beyond the last.
uint PASTE(QUANTISED, _bytes)(uint at, uint col) {
  const uint from = PASTE(QUANTISED, _off)() + at;
  const uint first = from + min(col, QUANTISED_COLS - 1), last = from + min(col + 3, QUANTISED_COLS - 1);
  uint w = PASTE(QUANTISED, _words)[first / 4];
  if (!ALIGNED) w = (w >> 8 * (first % 4)) | (first % 4 == 0 ? 0 : PASTE(QUANTISED, _words)[last / 4] << (32 - 8 * (first % 4)));
  const uint there = QUANTISED_COLS - min(col, QUANTISED_COLS);
  return there >= 4 ? w : w & (1u << 8 * there) - 1;
}
vec4 PASTE(QUANTISED, _four)(uint at, uint col) {
  if (IS_FLOAT8(QUANTISED_TYPE)) return FROM_FLOAT8(QUANTISED_TYPE, PASTE(QUANTISED, _bytes)(at, col));
  const uint block = PASTE(QUANTISED, _block)(at + col);
  const float d = block_scale(PASTE(QUANTISED, _words)[block / 2], (block & 1u) != 0);
  if (QUANTISED_TYPE == Q8_0) return d * signed_bytes(PASTE(QUANTISED, _at_step)(block + 1 + col % 32 / 2));
  const uint w = PASTE(QUANTISED, _at_step)(block + HEAD_OF(QUANTISED_TYPE) + col % 16 / 2);
  if (QUANTISED_TYPE == Q4_0) return d * (col % 32 < 16 ? lower_halves(w) : upper_halves(w));
  uint fifths = 0;
  if (HAS_FIFTHS(QUANTISED_TYPE)) fifths = PASTE(QUANTISED, _at_step)(block + HEAD_OF(QUANTISED_TYPE) - 2) >> col % 32;
  const vec4 x = block_numbers(QUANTISED_TYPE, col % 32 < 16 ? lower_four(w) : upper_four(w), fifths);
  if (!HAS_LEAST(QUANTISED_TYPE)) return d * x;
  return fma(vec4(d), x, vec4(block_scale(PASTE(QUANTISED, _words)[(block + 1) / 2], (block & 1u) == 0)));
}

#undef QUANTISED
#undef QUANTISED_TYPE
#undef QUANTISED_COLS
#undef QUANTISED_AT
