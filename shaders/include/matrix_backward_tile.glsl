// The tiles from `first` on, n of each query head; included twice, with and without MASKED, by the matrix backward kernels.

  {
    const uint tiles = KV_OR(n, n * group);
    if (PREFETCH == 1 && tiles > 0) { FETCH(0, first * BC) }
    if (PREFETCH == 2 && tiles > 0) {
      [[dont_unroll]] for (uint at = 0; at < BC; at += PART) { FETCH(0, first * BC + at) STORE(0, at, first * BC + at) }
      barrier();
    }
    uint next_member = 0, next_t = 0;   // PREFETCH 2: (t + 1) / n and (t + 1) % n, those of t after the last tile; chunks need them
    [[dont_unroll]] for (uint t = 0; t < tiles; ++t) {
      const uint member = PREFETCH == 2 ? next_member : KV_OR(0, t / n), j = first + (PREFETCH == 2 ? next_t : KV_OR(t, t % n)), col0 = j * BC;
      const uint tile = PREFETCH == 2 ? t % 2 : 0, tile_at = tile * TILE;
      if (PREFETCH == 2) {
        if (t + 1 < tiles && ++next_t == n) { next_t = 0; ++next_member; }
      } else {
        barrier();
        if (PREFETCH == 0) { FETCH(member, col0) }
        STORE(0, 0, col0)
      }
#ifdef KV
      first_query = col0;
      DRAW_TILE(col0, bh + member)
#else
      first_key = col0;
      DRAW_TILE(first_query, bh)
#endif
      if (PREFETCH != 2 || DROPOUT) barrier();
      if (PREFETCH == 1) {
        const uint next = min(t + 1, tiles - 1);
        FETCH(KV_OR(0, next / n), (first + KV_OR(next, next % n)) * BC)
      }
      // Not unrolled: what chunks have in common (operands in shared memory, addresses) would be kept in registers across them.
      [[dont_unroll]] for (uint c = 0; c < CHUNKS; ++c) {
        const uint next_col = (first + next_t) * BC + c * CK;
        if (PREFETCH == 2) { FETCH(next_member, next_col) }
        ACC S[RM * NS], X[RM * NS]; FRAG_A dS[RM * NP];
        KV_ONLY(FRAG_A P[RM * NP];)
        ALL_ZERO(S)
        PRODUCTS(S, Ra, A_REG, AR, RA_PITCH, ra_at, DF, tile_at, A_PITCH, c)
        if (FORM == 1) { // P is done with its sum before X begins: S and X are never both whole
          WEIGHTS(MASKED == 1)
          KV_ONLY(WANTED(DV_PART) { TO_OPERAND(S, P, KEPT_PAIR) ADD_SUM(sum_b, P, EN, tile_at + B_AT, B_PITCH, c) })
          WANTED(DK_PART) {
            START_X
            PRODUCTS(X, Rb, B_REG, BRG, RB_PITCH, rb_at, EF, tile_at + B_AT, B_PITCH, c)
            SCORE_GRADIENTS
            TO_OPERAND(X, dS, SAME_PAIR)
            ADD_SUM(sum_a, dS, DN, tile_at, A_PITCH, c)
          }
        } else {
          ALL_ZERO(X)
          WANTED(DK_PART) { PRODUCTS(X, Rb, B_REG, BRG, RB_PITCH, rb_at, EF, tile_at + B_AT, B_PITCH, c) }
          WEIGHTS_IN_SHARED(c, MASKED == 1)
          KV_ONLY(WANTED(DV_PART) { ADD_SUM(sum_b, P, EN, tile_at + B_AT, B_PITCH, c) })
          WANTED(DK_PART) { ADD_SUM(sum_a, dS, DN, tile_at, A_PITCH, c) }
        }
        if (PREFETCH == 2) { STORE(1 - tile, c * CK, next_col) }
      }
      if (PREFETCH == 2) barrier();   // nobody reads this tile any more, and the next one is whole
    }
  }
