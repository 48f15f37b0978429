// Wide heads (SLICED, with TO_MEMORY): neither the rows of A and B nor a tile of a and b fit into what a workgroup has. All four pass
// through shared memory SLICE columns at a time, in one stream of steps: those of A and a make S, those of B and b dP, then come those of
// the next tile. While one is computed the next waits in registers (PREFETCH 1). A tile is one chunk, BC = CK.
//
// What of A and B is staged again with every tile comes from the second-level cache; BR rows with BC columns cost 2 SLICE (BR + BC) bytes
// for 4 BR BC SLICE operations.
//
// Instead of include/matrix_backward.glsl's: TILE_LEN is at least (BR + BC) odd(SLICE/8) and, in form 1, what operands take on their way
// out, which lies there too (H_LEN in include/matrix_backward_weights.glsl); A_REG, B_REG, A_PITCH, B_PITCH, ROWS_LEN, H_LEN and PATCH mean
// nothing; PREFETCH is 0 or 1.
//   45 SLICE   columns of a step, a multiple of FK

layout(constant_id = 45) const uint SLICE = 32;

const uint SU = SLICE / 8, S_PITCH = SU | 1u, COLUMNS_AT = BR * S_PITCH;
const uint A_SLICES = (D + SLICE - 1) / SLICE, B_SLICES = (DV + SLICE - 1) / SLICE;
const uint ROWS_EACH = (BR * SU + WG - 1) / WG, COLUMNS_EACH = (BC * SU + WG - 1) / WG;
uvec4 rows_next[ROWS_EACH], columns_next[COLUMNS_EACH];   // a step on its way
uint next_key;                                            // where the tile after this one begins, or this one where none follows

// Slice d of A and a, or of B and b if `second`, a constant where this is called, of the tile of keys from `key` on. What lies beyond the
// last row or column is 0.
void fetch_slice(bool second, uint d, uint key) {
  const uint units = second ? BU : AU;
  EACH(BR * SU, ROWS_EACH, u, x) {
    const uint row = i * BR + x / SU, c = d * SU + x % SU, inside = min(c, units - 1);
    const bool exists = row < ROW_COUNT && c < units;
    uvec4 y;
    if (second) y = row_b(row, inside, exists); else y = row_a(row, inside, exists);
    rows_next[u] = exists ? y : uvec4(0);
  }
  EACH(BC * SU, COLUMNS_EACH, u, x) {
    const uint c = d * SU + x % SU, inside = min(c, units - 1), col = key + x / SU, at = min(col, last_key());
    const bool real = col < key_count() && c < units;
    uvec4 y;
    if (second) y = piece_v(b_columns + at * v_sn, inside, real); else y = piece_k(a_columns + at * k_sn, inside, real);
    columns_next[u] = c < units ? y : uvec4(0);
  }
}
void store_slice() {
  EACH(BR * SU, ROWS_EACH, u, x) T[x / SU * S_PITCH + x % SU] = rows_next[u];
  EACH(BC * SU, COLUMNS_EACH, u, x) T[COLUMNS_AT + x / SU * S_PITCH + x % SU] = columns_next[u];
}

// S = A a^T, or if `second` dP += B b^T, over all slices.
void add_slices(bool second) {
  const uint slices = second ? B_SLICES : A_SLICES;
  [[dont_unroll]] for (uint d = 0; d < slices; ++d) {
    if (PREFETCH == 0) fetch_slice(second, d, first_key);
    barrier();   // the last reads of what is overwritten now
    store_slice();
    barrier();
    if (PREFETCH == 1) {
      if (d + 1 < slices) fetch_slice(second, d + 1, first_key);
      else if (!second) fetch_slice(true, 0, first_key);
      else if (next_key > first_key) fetch_slice(false, 0, next_key);
    }
    [[unroll]] for (uint k = 0; k < SLICE / FK; ++k) {
      FRAG_A a[RM];
      [[unroll]] for (uint r = 0; r < RM; ++r) coopMatLoad(a[r], T, (sub0 + r * FM) * S_PITCH + k * FK / 8, S_PITCH, BY_ROW);
      [[unroll]] for (uint n = 0; n < NS; ++n) {
        FRAG_B b; coopMatLoad(b, T, COLUMNS_AT + n * FN * S_PITCH + k * FK / 8, S_PITCH, BY_COLUMN);
        [[unroll]] for (uint r = 0; r < RM; ++r) {
          const uint x = r * NS + n;
          if (second) dP[x] = coopMatMulAdd(a[r], b, dP[x]); else S[x] = coopMatMulAdd(a[r], b, S[x]);
        }
      }
    }
  }
}

// The tiles from `first` on, n of them; masked is a constant where this is called.
void walk_sliced(uint first, uint n, bool masked) {
  if (PREFETCH == 1 && n > 0) fetch_slice(false, 0, first * BC);
  [[dont_unroll]] for (uint t = 0; t < n; ++t) {
    first_key = (first + t) * BC; next_key = (first + min(t + 1, n - 1)) * BC;
    scores_of(bh);
    if (DROPOUT) {
      barrier();   // the last looks at what was drawn for the tile before
      draw_tile(bh);
    }
    chunk(0, masked);
  }
}
// As walk_all.
void walk_all_sliced(Walk tiles, bool before, bool behind) {
  if (before) walk_sliced(tiles.begin, tiles.whole_begin - tiles.begin, true);
  walk_sliced(tiles.whole_begin, tiles.whole_end - tiles.whole_begin, false);
  if (behind) walk_sliced(tiles.whole_end, tiles.end - tiles.whole_end, true);
}
