// Writes an invocation's piece of a gradient, or adds it to what is there. Included once per gradient, with these defined
// (they cannot be arguments: GLSL passes no storage buffers, and copies arrays, which differ in length):
//
//   WRITE       name of the function
//   WRITE_T     tensor (declared with GRADIENT)
//   WRITE_SUM   vec4s of the sum: MR times WRITE_M4
//   WRITE_M4    vec4s of a row that an invocation owns
//   WRITE_COLS  columns that the tensor has
//
// The function's arguments: element at which row 0 of the tensor lies, elements from row to row, and a factor for every element. One flat
// loop of few instructions, which every compiler unrolls: a sum indexed by a variable would live in memory.
//
// Needs MR, TX, TY, tx, ty, ALIGNED, ACCUMULATE, lengths.glsl, and row0, rows and all_rows: the workgroup's first row, the rows that sums
// were made of, and those that the gradient has, which are 0 from there on.

void WRITE(uint origin, uint stride, float factor) {
  [[unroll]] for (uint x = 0; x < MR * WRITE_M4; ++x) {
    const uint row = row0 + ty + TY * (x / WRITE_M4), col = 4 * (tx + TX * (x % WRITE_M4)), at = origin + row * stride + col;
    vec4 y = WRITE_SUM[x] * factor;
    if (PADDED) { if (row >= rows) y = vec4(0); }
    if (ALIGNED) {
      if (row < all_rows && col < WRITE_COLS)
        STORED(WRITE_T, 4 * BYTES, PASTE(WRITE_T, 4)[at / 4] =
          encode4(ACCUMULATE ? y + decode4(LOADED(WRITE_T, 4 * BYTES, PASTE(WRITE_T, 4)[at / 4])) : y));
    } else {
      [[unroll]] for (uint e = 0; e < 4; ++e)
        if (row < all_rows && col + e < WRITE_COLS)
          STORED(WRITE_T, BYTES, PASTE(WRITE_T, 1)[at + e] =
            encode(ACCUMULATE ? y[e] + decode(LOADED(WRITE_T, BYTES, PASTE(WRITE_T, 1)[at + e])) : y[e]));
    }
  }
}

#undef WRITE
#undef WRITE_T
#undef WRITE_SUM
#undef WRITE_M4
#undef WRITE_COLS
