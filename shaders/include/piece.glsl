// Loads 16 bytes of a tensor's row for the kernels for few rows. Included once per tensor, with these defined
// (they cannot be arguments: GLSL passes no storage buffers):
//
//   PIECE       name of the function
//   PIECE_T     tensor (declared with INPUT, and in fp16 a view PIECE_T##Bits of its elements' bits)
//   PIECE_COLS  columns that the tensor has
//   PIECE_LANE, PIECE_LANES   which of the lanes that share a row this is, and how many do: of pieces it has number PIECE_LANE, and every
//               PIECE_LANES-th from there
//
// The function's arguments: element at which the row begins; which piece of this lane, 0 beyond PIECE_COLS where rows are ragged; and
// whether the row is not another in its place. Needs ALIGNED.

uvec4 PIECE(uint at, uint i, bool real) {
  const uint pieces = (PIECE_COLS + UNIT - 1) / UNIT, piece = PIECE_LANE + PIECE_LANES * i;
  const uint inside = pieces % PIECE_LANES == 0 ? piece : min(piece, pieces - 1);
  if (ALIGNED) return LOADED_IF(PIECE_T, 16, real && piece < pieces, PASTE(PIECE_T, 16)[at / UNIT + inside]);
  uvec4 bits = uvec4(0);
  [[unroll]] for (uint e = 0; e < UNIT; ++e) {
    const uint col = UNIT * piece + e, from = at + min(col, PIECE_COLS - 1);
#if DTYPE == F32
    const uint x = LOADED_IF(PIECE_T, BYTES, real && col < PIECE_COLS, floatBitsToUint(PASTE(PIECE_T, 1)[from]));
#elif DTYPE == F16
    const uint x = LOADED_IF(PIECE_T, BYTES, real && col < PIECE_COLS, uint(PASTE(PIECE_T, Bits)[from]));
#else
    const uint x = LOADED_IF(PIECE_T, BYTES, real && col < PIECE_COLS, uint(PASTE(PIECE_T, 1)[from]));
#endif
    if (col < PIECE_COLS) bits[e * BYTES / 4] |= x << 8 * (e * BYTES % 4);
  }
  return bits;
}

#undef PIECE
#undef PIECE_T
#undef PIECE_COLS
#undef PIECE_LANE
#undef PIECE_LANES
