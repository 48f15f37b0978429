// Dropout in the forward kernels on matrices: draws of 16 keys each for tile j, in shared memory.
//
// BY_LANE: what a draw serves lies in one lane (which holds columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of every 16), so that a lane draws
// for itself, and the draws of its rows wait in shared memory that is its own: no barrier, no draw twice, also over the tiles of one group
// of 64 keys. Else each subgroup draws for its rows, and looks up its scores one by one.

const uint LANE_GROUPS = BC > 64 ? BC / 64 : 1;

void draw_tile() {
  const uint keys = j * BC / 64;   // group of 64 keys that the tile begins in
  if (BY_LANE) {
    if (BC % 64 == 0 || drawn_for != uvec2(row0, keys)) {
      drawn_for = uvec2(row0, keys);
      [[unroll]] for (uint g = 0; g < LANE_GROUPS; ++g) [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
        const uint row = row_of_slot(x);
        const uvec4 y = draw(4 * (keys + g) + col_lane / 2 % 4, query_of(row), b * heads() + q_head + member_of(row));
        [[unroll]] for (uint t = 0; t < 4; ++t) drawn[((g * RM * SLOTS + x) * 4 + t) * WG + gl_LocalInvocationID.x] = y[t];
      }
    }
  } else {
    MEET
    [[unroll]] for (uint u = 0; u < DRAW_EACH; ++u) {
      const uint x = min(u * SG + lane, DRAWS - 1), row = row0 + x / (4 * KEY_GROUPS);
      const uvec4 y = draw(4 * (keys + x / 4 % KEY_GROUPS) + x % 4, query_of(row), b * heads() + q_head + member_of(row));
      [[unroll]] for (uint t = 0; t < 4; ++t) drawn[4 * (drop_at + x) + t] = y[t];
    }
    MEET
  }
}

// Whether key x of the tile is kept in row i of the subgroup.
bool is_kept(uint i, uint x) {
  const uint key = j * BC % 64 + x;
  return kept(drawn[4 * (drop_at + (i * KEY_GROUPS + key / 64) * 4 + key / 2 % 4) + key / 16 % 4], byte_of(key));
}

// The weights of chunk c that are dropped become 0. BY_LANE all elements of a row and 16 keys are in one word.
void drop(uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    if (BY_LANE) {
      const uint key = j * BC % 64 + c * CK + n * FN;
      const uint word = drawn[((key / 64 * RM * SLOTS + r * SLOTS + SLOT_OF(e)) * 4 + key / 16 % 4) * WG + gl_LocalInvocationID.x];
      S[r * NS + n][e] = kept(word, byte_of(n * FN + COL_OF(e))) ? S[r * NS + n][e] : 0.0;
    } else {
      S[r * NS + n][e] = is_kept(r * FM + row_lane + ROW_OF(e), c * CK + n * FN + col_lane + COL_OF(e)) ? S[r * NS + n][e] : 0.0;
    }
  }
}
