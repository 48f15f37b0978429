// One staged tile j of BC keys against the rows of a subgroup, in chunks of CK keys: scores, weights, weighted sum. MASKED as in
// matrix_tile.glsl.

#if MASKED
// Forms 1 and 2. A key past the end, or after the diagonal: -inf.
#define MASK(c)                                                                                                                    \
  if (FORM != 3) {                                                                                                                 \
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {                                 \
      const int last = last_key(row0 + r * FM + row_lane + ROW_OF(e));                                                             \
      [[unroll]] for (uint n = 0; n < NS; ++n)                                                                                     \
        S[r * NS + n][e] = HIDDEN(row0 + r * FM + row_lane + ROW_OF(e), j * BC + (c) * CK + n * FN + col_lane + COL_OF(e), last) ? -infinity() : S[r * NS + n][e];\
    }                                                                                                                              \
  }
#else
#define MASK(c)
#endif

    if (DROPOUT) DRAW_TILE
    ACC S[RM * NS]; FRAG_A P[RM * NP];
    [[unroll]] for (uint c = 0; c <= CHUNKS; ++c) {
      if (c < CHUNKS) SCORES(c)
      if (PIPE == 1 && c > 0) WEIGHTED_SUM(c - 1)
      if (c < CHUNKS) {
        MASK(c)
        if (FORM == 3) {
          WEIGHTS_IN_SHARED(c, MASKED == 1)
        } else {
          float mx[RM * SLOTS], sum[RM * SLOTS]; bool grow = false;
          if (MAX_FIRST) {
            LANE_MAX
            [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) grow = grow || (STEPS ? fma(mx[x], scale, -m[x]) > GROWTH : mx[x] * scale > m[x] + GROWTH);
            if (subgroupAny(grow)) RESCALE
            WEIGHTS
          } else {
            WEIGHTS
            [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) grow = grow || sum[x] > SUM_LIMIT;
            if (subgroupAny(grow)) { SCORES(c) MASK(c) LANE_MAX RESCALE WEIGHTS }
          }
          [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) l[x] = MAX_FIRST ? sum[x] : l[x] + sum[x];
          if (DROPOUT) DROP(c)
          if (FORM == 1) TO_OPERAND else OPERAND_THROUGH_SHARED
        }
      }
      if (PIPE == 0 && c < CHUNKS) WEIGHTED_SUM(c)
    }
#undef MASK
