// How the products of standard_matrix.glsl leave. Included where a kernel has defined, besides what is there, my_col, the column of the
// workgroup's tile at which the subgroup's piece begins, and put(row, column, unit), which writes eight elements, counted in that tile.

uint strip;  // where the subgroup's strip begins in tile[]

// A unit of the result, of what begins at `at` in a strip.
uvec4 from_strip(uint at) {
#ifdef WIDE
  const vec4 x = uintBitsToFloat(tile[at]), y = uintBitsToFloat(tile[at + 1]);
  return uvec4(pack2(x.xy), pack2(x.zw), pack2(y.xy), pack2(y.zw));
#else
  return tile[at];
#endif
}

// The subgroup shares out the units x of UNITS.
#define EACH_OF_SUBGROUP(UNITS, u, x) \
  [[unroll]] for (uint u = 0, x = gl_SubgroupInvocationID; u < (UNITS + SG - 1) / SG; ++u, x += SG) if ((UNITS) % SG == 0 || x < UNITS)

// Takes the subgroup's piece of C out by strips. Two halves spelled out, one flat loop over the fragments of each and no condition around
// it: NVIDIA's compiler else keeps all fragments in memory, for the whole shader.
void out_by_strips() {
  [[unroll]] for (uint f = 0; f < UPPER * FC; ++f)
    coopMatStore(TO_STRIP(acc[UPPER_AT * FC + f]), tile,
      strip + f / FC * M * STRIP_PITCH + f % FC * (N / STRIP_UNIT), STRIP_PITCH, ROW_MAJOR);
  MEET
  EACH_OF_SUBGROUP(UPPER * M * STRIP_WIDTH, u, x)
    put(my_row + UPPER_AT * M + x / STRIP_WIDTH, my_col + x % STRIP_WIDTH * UNIT,
      from_strip(strip + x / STRIP_WIDTH * STRIP_PITCH + x % STRIP_WIDTH * (UNIT / STRIP_UNIT)));
  MEET
  [[unroll]] for (uint f = 0; f < LOWER * FC; ++f)
    coopMatStore(TO_STRIP(acc[LOWER_AT * FC + f]), tile,
      strip + f / FC * M * STRIP_PITCH + f % FC * (N / STRIP_UNIT), STRIP_PITCH, ROW_MAJOR);
  MEET
  EACH_OF_SUBGROUP(LOWER * M * STRIP_WIDTH, u, x)
    put(my_row + LOWER_AT * M + x / STRIP_WIDTH, my_col + x % STRIP_WIDTH * UNIT,
      from_strip(strip + x / STRIP_WIDTH * STRIP_PITCH + x % STRIP_WIDTH * (UNIT / STRIP_UNIT)));
  MEET
}
