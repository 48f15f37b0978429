// Moves rows of K or V for matrix_cache_rows.glsl, which includes it once per tensor (GLSL passes no storage buffers), with
//
//   STAGED, STAGED_SIZE   tensor: k or v, and K or V
//   STAGED_TYPE, STAGED_COLS, STAGED_ORIGIN   its type, columns, and the element at which row 0 of the head lies
//   STAGED_MASKS   of numbers in a word, see hide_masks
//   STAGED_LANE, STAGED_LANES, STAGED_COUNT   which of the lanes that share a row this is, how many do, and pieces of each

#define STAGED_(x) PASTE(STAGED_SIZE, x)

// Where a row begins, in units; rows that do not begin at whole words are put together elsewhere.
uint PASTE(STAGED, _unit)(uint row) {
  const uint words = IS_FLOAT8(STAGED_TYPE) ? (PASTE(STAGED, _off)() + row) / 4 : PASTE(STAGED, _block)(row) / 2;
  return STAGED_(_WIDE) == 2 ? words / 2 : words;
}
// Once: rows of a batch lie one behind the other, wherever it begins.
void PASTE(STAGED, _find_places)() {
  [[unroll]] for (uint i = 0; i < STAGED_(_EACH); ++i) {
    const uint unit = min(lane + SG * i, KEYS * STAGED_(_UNITS) - 1);
    const uint row = unit / STAGED_(_UNITS) * PASTE(STAGED, _sn);
    STAGED_(_places)[i] = PASTE(STAGED, _unit)(row) - PASTE(STAGED, _unit)(0) + unit % STAGED_(_UNITS);
  }
}
void PASTE(STAGED, _take)(uint i, uint place) {
  if (STAGED_(_WIDE) == 2) {
    const uvec2 bits = PASTE(STAGED, _pairs)[place];
    STAGED_(_units)[2 * i] = bits.x;
    STAGED_(_units)[2 * i + 1] = bits.y;
  } else STAGED_(_units)[i] = PASTE(STAGED, _words)[place];
}

// Asks for the rows of a batch: of whole batches in one page by the places of their units, of others a row after the other.
void PASTE(STAGED, _stage)(uint of) {
  const uint first_key = of * BATCH;
  if (STAGED_(_WIDE) != 0 && ONE_PAGE && first_key + BATCH <= seen) {
    const uint first = PASTE(STAGED, _unit)(row_in_page(STAGED_ORIGIN, first_key, k_page[0], PASTE(STAGED, _sb), PASTE(STAGED, _sn)));
    [[unroll]] for (uint i = 0; i < STAGED_(_EACH); ++i) PASTE(STAGED, _take)(i, first + STAGED_(_places)[i]);
    if (is_lost(k_page[0])) [[unroll]] for (uint i = 0; i < STAGED_(_EACH) * STAGED_(_UNIT_WORDS); ++i) STAGED_(_units)[i] = 0;
    return;
  }
  [[unroll]] for (uint i = 0; i < STAGED_(_EACH); ++i) {
    const uint unit = min(lane + SG * i, KEYS * STAGED_(_UNITS) - 1), word = unit % STAGED_(_UNITS) * STAGED_(_UNIT_WORDS);
    const uint key = min(first_key + unit / STAGED_(_UNITS), max(seen, 1) - 1), page = ONE_PAGE ? k_page[0] : page_of(key);
    const uint row = row_in_page(STAGED_ORIGIN, key, page, PASTE(STAGED, _sb), PASTE(STAGED, _sn));
    if (STAGED_(_WIDE) != 0) PASTE(STAGED, _take)(i, PASTE(STAGED, _unit)(row) + unit % STAGED_(_UNITS));
    else if (IS_FLOAT8(STAGED_TYPE)) STAGED_(_units)[i] = PASTE(STAGED, _bytes)(row, 4 * word);
    else {   // a row may end in the middle of a word, of which nothing behind is read
      const uint step = PASTE(STAGED, _block)(row) + 2 * word;
      STAGED_(_units)[i] = 2 * word + 1 < STAGED_(_BYTES) / 2 ? PASTE(STAGED, _at_step)(step)
                                                              : PASTE(STAGED, _words)[step / 2] >> 16 * (step & 1u);
    }
    if (is_lost(page)) [[unroll]] for (uint e = 0; e < STAGED_(_UNIT_WORDS); ++e) STAGED_(_units)[i * STAGED_(_UNIT_WORDS) + e] = 0;
  }
}
// Puts them into the patch, which others of the subgroup may have been reading. One place for all units of a lane, and constants beside it:
// a place for each took an eighth of all instructions.
void PASTE(STAGED, _store)() {
  const uint to = subgroup * PATCH + lane * STAGED_(_UNIT_WORDS);
  SUBGROUP_MEETS
  [[unroll]] for (uint i = 0; i < STAGED_(_EACH); ++i)
    if ((i + 1) * SG <= KEYS * STAGED_(_UNITS) || lane + SG * i < KEYS * STAGED_(_UNITS)) {
      [[unroll]] for (uint e = 0; e < STAGED_(_UNIT_WORDS); ++e)
        patch_words[to + SG * i * STAGED_(_UNIT_WORDS) + e] = STAGED_(_units)[i * STAGED_(_UNIT_WORDS) + e];
    }
  SUBGROUP_MEETS
}
uint PASTE(STAGED, _piece_of)(uint c) { return cached_piece(STAGED_LANE, STAGED_LANES, STAGED_COUNT, c); }
// Piece c of the lane, of a key of the batch.
void PASTE(STAGED, _staged)(uint x, uint c, out T16 numbers[8]) {
  const uint piece = PASTE(STAGED, _piece_of)(c);
  piece_numbers(STAGED_TYPE, subgroup * PATCH + x * STAGED_(_UNITS) * STAGED_(_UNIT_WORDS), STAGED_COLS, STAGED_LANES, STAGED_COUNT, piece,
    is_odd(piece, STAGED_LANES, STAGED_COUNT, c), STAGED_MASKS, numbers);
}
// Zeros in place of the rows from `seen` on.
void PASTE(STAGED, _drop_beyond)() {
  [[unroll]] for (uint i = 0; i < STAGED_(_EACH); ++i)
    if (current * BATCH + (lane + SG * i) / STAGED_(_UNITS) >= seen)
      [[unroll]] for (uint e = 0; e < STAGED_(_UNIT_WORDS); ++e) STAGED_(_units)[i * STAGED_(_UNIT_WORDS) + e] = 0;
}

#undef STAGED
#undef STAGED_TYPE
#undef STAGED_COLS
#undef STAGED_SIZE
#undef STAGED_ORIGIN
#undef STAGED_LANE
#undef STAGED_LANES
#undef STAGED_COUNT
#undef STAGED_MASKS
#undef STAGED_
