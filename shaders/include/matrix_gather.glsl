// 16 bytes (8 elements) of a row that may begin anywhere and end anywhere, zero beyond the last column. (Macros: a function cannot take a
// storage buffer.)

uint pair_at(uint16_t lo, uint16_t hi) { return uint(lo) | (uint(hi) << 16); }
#define ELEMENT(T, row, c, width, real) ((c) < (width) ? LOADED_IF(T, 2, real, T##16[(row) + (c)]) : uint16_t(0))
// 8 elements from column 8c; real: see count.glsl
#define GATHER(T, row, c, width, real) uvec4(                                                                              \
  pair_at(ELEMENT(T, row, 8 * (c) + 0, width, real), ELEMENT(T, row, 8 * (c) + 1, width, real)),                           \
  pair_at(ELEMENT(T, row, 8 * (c) + 2, width, real), ELEMENT(T, row, 8 * (c) + 3, width, real)),                           \
  pair_at(ELEMENT(T, row, 8 * (c) + 4, width, real), ELEMENT(T, row, 8 * (c) + 5, width, real)),                           \
  pair_at(ELEMENT(T, row, 8 * (c) + 6, width, real), ELEMENT(T, row, 8 * (c) + 7, width, real)))
