// The bias of scores in accumulators, for kernels on matrices whose rows are queries: two neighbours of a row at a time, asked for before
// the products that they are added to. A load of a subgroup touches 8 rows of the bias however little it reads of them, and the cache
// serves a row at a time: with loads of single elements that took longer than the products did.
//
//   BIAS_PAIRS   form 1; components e and e + 1, e even, of accumulators are columns 2n and 2n + 1 of a row; the bias is of the storage
//                type, has an element for each key, and every row of it begins at a multiple of 16 bytes and is one long
//
// Needs bias_row(r, e): where the row of the bias begins that goes with component e of row fragment r.

layout(constant_id = 93) const bool BIAS_PAIRS = false;
layout(set = 0, binding = SCORE_AT + 1, std430) readonly buffer BiasPairs_ { uint bias_pairs[]; };

const uint BIAS_EACH = FM * FN / SG / 2;   // of an accumulator
uint bias_words[BIAS_PAIRS ? RM * NS * BIAS_EACH : 1];

// For a chunk, of which key0 is the lane's first key.
void ask_bias(uint key0) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2) {
    const uint row = bias_row(r, e);
    [[unroll]] for (uint n = 0; n < NS; ++n)
      bias_words[BIAS_PAIRS ? (r * NS + n) * BIAS_EACH + e / 2 : 0] = bias_pairs[(row + min(key0 + n * FN + COL_OF(e), nk - 2)) / 2];
  }
}
float bias_at(uint r, uint n, uint e, uint query, uint key) {
  if (SCORE_BIAS == 0) return 0;
  if (BIAS_PAIRS) return UNPAIR(bias_words[(r * NS + n) * BIAS_EACH + e / 2])[e % 2];
  return bias_of(query, key);
}
