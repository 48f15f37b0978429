// Pieces of 16 quantised numbers in the registers of scalar_decode.comp. Included once per tensor, with these defined:
//
//   QUANTISED, QUANTISED_TYPE, QUANTISED_COLS    as in quantised_rows.glsl
//   HELD          array of uints that holds the words of U keys
//   HELD_PIECES   pieces of a lane and key
//   HELD_ODD      uint: of which of the U keys the row begins in the upper half of a word
//
// A piece is half of a block, for a lane that held 32 numbers of a key would hold as many of each row of Q, and of O: too many. Its words
// stay as they were read until they are computed with, so that loads are on their way for as long; the last one has d. What shifts them
// into place, where a row of blocks begins in the middle of a word, is one of two for a whole piece.
//
//   q8_0  numbers 16 p to 16 p + 15 of the row: 5 words, and d's
//   q4_0  8 bytes, with the numbers 8 (p % 2) to + 7 of the block, and those 16 behind: 3 words, and d's
//   fp8   numbers 16 p to 16 p + 15: 4 words

const uint PASTE(QUANTISED, _held) = QUANTISED_TYPE == Q8_0 ? 6 : 4;   // words of a piece
const uint PASTE(QUANTISED, _sixteens) = (QUANTISED_COLS + 15) / 16;     // pieces of a row

void PASTE(QUANTISED, _hold)(uint u, uint i, uint at) {
  const uint p = min(s + LPR * i, PASTE(QUANTISED, _sixteens) - 1), to = (u * HELD_PIECES + i) * PASTE(QUANTISED, _held);
  if (QUANTISED_TYPE == E4M3) {
    [[unroll]] for (uint w = 0; w < 4; ++w) HELD[to + w] = PASTE(QUANTISED, _bytes)(at, 16 * p + 4 * w);
    return;
  }
  const uint row = PASTE(QUANTISED, _block)(at), steps = QUANTISED_TYPE == Q8_0 ? 17 : 9, block = row + p / 2 * steps;
  const uint words = QUANTISED_TYPE == Q8_0 ? 4 : 2, first = block + 1 + p % 2 * 2 * words;
  if (i == 0) HELD_ODD = HELD_ODD & ~(1u << u) | (row & 1u) << u;
  [[unroll]] for (uint w = 0; w < words; ++w) HELD[to + w] = PASTE(QUANTISED, _words)[first / 2 + w];
  HELD[to + words] = PASTE(QUANTISED, _words)[(first + 2 * words - 1) / 2];   // the last once more where the piece begins with a word
  HELD[to + words + 1] = PASTE(QUANTISED, _words)[block / 2];
}
// Of a key that is not there.
void PASTE(QUANTISED, _drop)(uint u) {
  [[unroll]] for (uint w = 0; w < HELD_PIECES * PASTE(QUANTISED, _held); ++w) HELD[u * HELD_PIECES * PASTE(QUANTISED, _held) + w] = 0;
}
// The numbers of a piece, without d, which is given.
float PASTE(QUANTISED, _numbers)(uint u, uint i, out vec4 x[4]) {
  const uint from = (u * HELD_PIECES + i) * PASTE(QUANTISED, _held);
  if (QUANTISED_TYPE == E4M3) {
    [[unroll]] for (uint c = 0; c < 4; ++c) x[c] = e4m3(HELD[from + c]);
    return 1;
  }
  const uint p = min(s + LPR * i, PASTE(QUANTISED, _sixteens) - 1), words = QUANTISED_TYPE == Q8_0 ? 4 : 2;
  const bool upper = ((HELD_ODD >> u ^ p / 2) & 1u) != 0;   // of its word d lies in the upper half, and the numbers begin with one
  [[unroll]] for (uint c = 0; c < words; ++c) {
    const uint w = upper ? HELD[from + c] : across(HELD[from + c], HELD[from + c + 1]);
    if (QUANTISED_TYPE == Q8_0) x[c] = signed_bytes(w);
    else { x[c] = lower_halves(w); x[c + 2] = upper_halves(w); }
  }
  return block_scale(HELD[from + words + 1], upper);
}
// The column of its four number c, for a piece of the row.
uint PASTE(QUANTISED, _column)(uint p, uint c) {
  return QUANTISED_TYPE == Q4_0 ? p / 2 * 32 + p % 2 * 8 + c % 2 * 4 + c / 2 * 16 : 16 * p + 4 * c;
}

#undef QUANTISED
#undef QUANTISED_TYPE
#undef QUANTISED_COLS
#undef HELD
#undef HELD_PIECES
#undef HELD_ODD
