// One staged tile of BC keys; included twice by matrix_forward.comp: without masks for the tiles that every row sees whole, and with
// MASKED for the rest. The driver merges two phases of one loop, which puts the mask code into the main loop; two loops it leaves alone.

#if MASKED
// Forms 1 and 2. A key past the end, or after the diagonal: -inf.
#define MASK(c)                                                                                                                    \
  if (FORM != 3) {                                                                                                                 \
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {                                 \
      const int last = last_key(row0 + r * FM + row_lane + ROW_OF(e));                                                             \
      [[unroll]] for (uint n = 0; n < NS; ++n)                                                                                     \
        S[r * NS + n][e] = int(j * BC + (c) * CK + n * FN + col_lane + COL_OF(e)) > last ? -infinity() : S[r * NS + n][e];         \
    }                                                                                                                              \
  }
#else
#define MASK(c)
#endif

    if (PREFETCH == 3) {      // two tiles in shared memory: one barrier a tile
      at = TILE - at; STORE_K STORE_V
      at = TILE - at; FETCH_K(j + 2) FETCH_V(j + 2)
    } else {
      barrier();
      if (PREFETCH == 0) { FETCH_K(j) }
      STORE_K
      if (PREFETCH != 1) { FETCH_V(j) }
      STORE_V
      barrier();
      if (PREFETCH != 0) { FETCH_K(j + 1) }
      if (PREFETCH == 1) { FETCH_V(j + 1) }
    }
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
            [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) grow = grow || mx[x] * scale > m[x] + GROWTH;
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
    if (PREFETCH == 3) { barrier(); at = TILE - at; }
#undef MASK
