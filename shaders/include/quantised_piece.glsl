// Pieces of 16 quantised numbers in the registers of scalar_decode.comp. Included once per tensor, with these defined:
//
//   QUANTISED, QUANTISED_TYPE, QUANTISED_COLS    as in quantised_rows.glsl
//   HELD          array of uints that holds the words of U keys
//   HELD_PIECES   pieces of a lane and key
//   HELD_ODD      uint: of which of the U keys the row begins in the upper half of a word
//
// A piece is half of a block, for a lane that held 32 numbers of a key would hold as many of each row of Q, and of O: too many. Its words
// stay as they were read until they are computed with, so that loads are on their way for as long; the last ones have d, and what else is
// before a block's numbers. What shifts them into place, where a block begins in the middle of a word, is one of two for a whole piece.
//
//   q8_0     numbers 16 p to 16 p + 15 of the row: 5 words, and d's
//   floats   numbers 16 p to 16 p + 15: 4 words
//   others   8 bytes, with the numbers 8 (p % 2) to + 7 of the block, and those 16 behind: 3 words, and 1 of q4_0 and iq4_nl, 2 of q4_1 and
//            q5_0, 3 of q5_1

// Words of a piece that have what is before the numbers, and all of them.
const uint PASTE(QUANTISED, _heads) = HEAD_OF(QUANTISED_TYPE) / 2 + 1;
const uint PASTE(QUANTISED, _held) = QUANTISED_TYPE == Q8_0 ? 6 : IS_FLOAT8(QUANTISED_TYPE) ? 4 : 3 + PASTE(QUANTISED, _heads);
const uint PASTE(QUANTISED, _sixteens) = (QUANTISED_COLS + 15) / 16;     // pieces of a row

void PASTE(QUANTISED, _hold)(uint u, uint i, uint at) {
  const uint p = min(s + LPR * i, PASTE(QUANTISED, _sixteens) - 1), to = (u * HELD_PIECES + i) * PASTE(QUANTISED, _held);
  if (IS_FLOAT8(QUANTISED_TYPE)) {
    [[unroll]] for (uint w = 0; w < 4; ++w) HELD[to + w] = PASTE(QUANTISED, _bytes)(at, 16 * p + 4 * w);
    return;
  }
  const uint row = PASTE(QUANTISED, _block)(at), block = row + p / 2 * STEPS_OF(QUANTISED_TYPE);
  const uint words = QUANTISED_TYPE == Q8_0 ? 4 : 2, first = block + HEAD_OF(QUANTISED_TYPE) + p % 2 * 2 * words;
  if (i == 0) HELD_ODD = HELD_ODD & ~(1u << u) | (row & 1u) << u;
  [[unroll]] for (uint w = 0; w < words; ++w) HELD[to + w] = PASTE(QUANTISED, _words)[first / 2 + w];
  HELD[to + words] = PASTE(QUANTISED, _words)[(first + 2 * words - 1) / 2];   // the last once more where the piece begins with a word
  HELD[to + words + 1] = PASTE(QUANTISED, _words)[block / 2];
  [[unroll]] for (uint h = 1; h < PASTE(QUANTISED, _heads); ++h)
    HELD[to + words + 1 + h] = PASTE(QUANTISED, _words)[min(block / 2 + h, (block + HEAD_OF(QUANTISED_TYPE) - 1) / 2)];
}
// Of a key that is not there.
void PASTE(QUANTISED, _drop)(uint u) {
  [[unroll]] for (uint w = 0; w < HELD_PIECES * PASTE(QUANTISED, _held); ++w) HELD[u * HELD_PIECES * PASTE(QUANTISED, _held) + w] = 0;
}
// The numbers of a piece, without what is given, which they are to be multiplied by.
float PASTE(QUANTISED, _numbers)(uint u, uint i, out vec4 x[4]) {
  const uint from = (u * HELD_PIECES + i) * PASTE(QUANTISED, _held);
  if (IS_FLOAT8(QUANTISED_TYPE)) {
    [[unroll]] for (uint c = 0; c < 4; ++c) x[c] = FROM_FLOAT8(QUANTISED_TYPE, HELD[from + c]);
    return 1;
  }
  const uint p = min(s + LPR * i, PASTE(QUANTISED, _sixteens) - 1), words = QUANTISED_TYPE == Q8_0 ? 4 : 2, head = from + words + 1;
  const bool upper = ((HELD_ODD >> u ^ p / 2 * STEPS_OF(QUANTISED_TYPE)) & 1u) != 0;   // of its word d lies in the upper half
  const bool whole = HEAD_OF(QUANTISED_TYPE) % 2 == 0 ? !upper : upper;                // and the numbers begin with one
  const uint second = head + min(1, PASTE(QUANTISED, _heads) - 1), last = head + PASTE(QUANTISED, _heads) - 1;
  uint fifths = 0;
  if (QUANTISED_TYPE == Q5_0) fifths = upper ? HELD[second] : across(HELD[head], HELD[second]);
  if (QUANTISED_TYPE == Q5_1) fifths = upper ? across(HELD[second], HELD[last]) : HELD[second];
  fifths >>= p % 2 * 8;
  [[unroll]] for (uint c = 0; c < words; ++c) {
    const uint w = whole ? HELD[from + c] : across(HELD[from + c], HELD[from + c + 1]);
    if (QUANTISED_TYPE == Q8_0) x[c] = signed_bytes(w);
    else if (QUANTISED_TYPE == Q4_0) { x[c] = lower_halves(w); x[c + 2] = upper_halves(w); }
    else {
      x[c] = block_numbers(QUANTISED_TYPE, lower_four(w), fifths >> 4 * c);
      x[c + 2] = block_numbers(QUANTISED_TYPE, upper_four(w), fifths >> 16 + 4 * c);
    }
  }
  if (!HAS_LEAST(QUANTISED_TYPE)) return block_scale(HELD[head], upper);
  const vec2 scale = unpackHalf2x16(upper ? across(HELD[head], HELD[second]) : HELD[head]);
  [[unroll]] for (uint c = 0; c < 4; ++c) x[c] = fma(vec4(scale.x), x[c], vec4(scale.y));
  return 1;
}
// The column of its four number c, for a piece of the row.
uint PASTE(QUANTISED, _column)(uint p, uint c) {
  return QUANTISED_TYPE == Q8_0 || IS_FLOAT8(QUANTISED_TYPE) ? 16 * p + 4 * c : p / 2 * 32 + p % 2 * 8 + c % 2 * 4 + c / 2 * 16;
}

#undef QUANTISED
#undef QUANTISED_TYPE
#undef QUANTISED_COLS
#undef HELD
#undef HELD_PIECES
#undef HELD_ODD
