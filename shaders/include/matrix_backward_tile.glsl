// The tiles from `first` on, n of each query head; included twice, with and without MASKED, by the matrix backward kernels.

  {
    const uint tiles = KV_OR(n, n * group);
    if (PREFETCH != 0 && tiles > 0) { FETCH(0) }
    [[dont_unroll]] for (uint t = 0; t < tiles; ++t) {
      const uint member = KV_OR(0, t / n), j = first + KV_OR(t, t % n), col0 = j * BC;
      barrier();
      if (PREFETCH == 0) { FETCH(t) }
      STORE
#ifdef KV
      first_query = col0;
      DRAW_TILE(col0, bh + member)
#else
      first_key = col0;
      DRAW_TILE(first_query, bh)
#endif
      barrier();
      if (PREFETCH != 0) { FETCH(min(t + 1, tiles - 1)) }
      // Not unrolled: what chunks have in common (operands in shared memory, addresses) would be kept in registers across them.
      [[dont_unroll]] for (uint c = 0; c < CHUNKS; ++c) {
        ACC S[RM * NS], X[RM * NS]; FRAG_A dS[RM * NP];
        KV_ONLY(FRAG_A P[RM * NP];)
        ALL_ZERO(S)
        PRODUCTS(S, Ra, A_REG, AR, RA_PITCH, ra_at, DF, 0, A_PITCH, c)
        if (FORM == 1) { // P is done with its sum before X begins: S and X are never both whole
          WEIGHTS(MASKED == 1)
          KV_ONLY(WANTED(DV_PART) { TO_OPERAND(S, P, kept_part) ADD_SUM(sum_b, P, EN, B_AT, B_PITCH, c) })
          WANTED(DK_PART) {
            START_X
            PRODUCTS(X, Rb, B_REG, BRG, RB_PITCH, rb_at, EF, B_AT, B_PITCH, c)
            SCORE_GRADIENTS
            TO_OPERAND(X, dS, SAME)
            ADD_SUM(sum_a, dS, DN, 0, A_PITCH, c)
          }
        } else {
          ALL_ZERO(X)
          WANTED(DK_PART) { PRODUCTS(X, Rb, B_REG, BRG, RB_PITCH, rb_at, EF, B_AT, B_PITCH, c) }
          WEIGHTS_IN_SHARED(c, MASKED == 1)
          KV_ONLY(WANTED(DV_PART) { ADD_SUM(sum_b, P, EN, B_AT, B_PITCH, c) })
          WANTED(DK_PART) { ADD_SUM(sum_a, dS, DN, 0, A_PITCH, c) }
        }
      }
    }
  }
