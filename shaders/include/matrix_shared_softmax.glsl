// Forms 2 and 3 of the forward kernels on matrices: weights that pass through shared memory.

#ifndef SPLIT
// This subgroup's FM x CK floats at x_at become halves at h_at, then operands of row fragment r.
void shared_to_halves() {
  [[unroll]] for (uint u = 0; u < (FM * CK / 8 + SG - 1) / SG; ++u) {
    const uint x = min(u * SG + lane, FM * CK / 8 - 1);
    H[h_at + x] = uvec4(PAIR(X[x_at + 8 * x], X[x_at + 8 * x + 1]), PAIR(X[x_at + 8 * x + 2], X[x_at + 8 * x + 3]),
      PAIR(X[x_at + 8 * x + 4], X[x_at + 8 * x + 5]), PAIR(X[x_at + 8 * x + 6], X[x_at + 8 * x + 7]));
  }
}
void halves_to_operand(uint r) {
  [[unroll]] for (uint n = 0; n < NP; ++n) coopMatLoad(P[r * NP + n], H, h_at + n * FK / 8, CK / 8, BY_ROW);
}
#endif
void scores_to_shared(uint r) { [[unroll]] for (uint n = 0; n < NS; ++n) coopMatStore(S[r * NS + n], X, x_at + n * FN, CK, BY_ROW); }

void operand_through_shared() {
  [[unroll]] for (uint r = 0; r < RM; ++r) { scores_to_shared(r); MEET shared_to_halves(); MEET halves_to_operand(r); MEET }
}

// Statistic `which` of the rows of fragment r, spread over the columns of a matrix.
void spread(uint r, uint which) {
  [[unroll]] for (uint u = 0; u < (FM * FN + SG - 1) / SG; ++u) {
    const uint x = min(u * SG + lane, FM * FN - 1);
    X[spread_at + x] = X[stats_at + 3 * (r * FM + x / FN) + which];
  }
}
// Rows of fragment r of O times what was spread.
void scale_o(uint r) {
  ACC by; coopMatLoad(by, X, spread_at, FN, BY_ROW);
  [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= by[e];
}

// Form 3: a row belongs to one lane, which walks along it; shrink reaches O as a matrix whose rows hold it, so that equal components
// of equal types meet whatever the layout is. Row statistics: m, l and shrink of row r FM + i at stats_at + 3 (r FM + i).
void weights_in_shared(uint c, bool masked) {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    scores_to_shared(r); MEET
    [[unroll]] for (uint u = 0; u < (FM + SG - 1) / SG; ++u) {
      const uint i = min(u * SG + lane, FM - 1), s = stats_at + 3 * (r * FM + i), x0 = x_at + i * CK, row = row0 + r * FM + i;
      const bool mine = u * SG + lane < FM;
      Span keys = Span(0, int(key_count()) - 1);
      if (masked) keys = keys_of(query_of(row));
      if (SCORED) {
        if (PACK) scores_of(b, q_head + member_of(row));
        if (mine) for (uint k = 0; k < CK; ++k) {
          const uint key = j * BC + c * CK + k;
          X[x0 + k] = score_bits(X[x0 + k], natural_scale, query_of(row), key, 0, 0, SCORE_BIAS == 0 ? 0 : bias_of(query_of(row), key));
        }
        subgroupMemoryBarrierShared(); subgroupBarrier();
      }
      if (ASKED && masked) {
        if (asked && mine) for (uint k = 0; k < CK; ++k) if (!sees(query_of(row), j * BC + c * CK + k)) X[x0 + k] = -infinity();
        subgroupMemoryBarrierShared(); subgroupBarrier();
      }
      float most = -infinity(), all_weights = 0.0;
      for (uint k = 0; k < CK; ++k) if (allowed(keys, query_of(row), j * BC + c * CK + k)) most = max(most, X[x0 + k]);
      if (MAX_LOGIT && mine) largest[r * NOTED_ROWS + u] = max(largest[r * NOTED_ROWS + u], most);
      const float before = X[s], now = max(before, most * scale - BIAS);
      subgroupBarrier();
      if (mine) {
        for (uint k = 0; k < CK; ++k) {
          const float w = allowed(keys, query_of(row), j * BC + c * CK + k) ? exp2(fma(X[x0 + k], scale, -now)) : 0.0;
          X[x0 + k] = w; all_weights += w;
          if (DROPOUT) { if (!is_kept(r * FM + i, c * CK + k)) X[x0 + k] = 0.0; }
        }
        X[s] = now; X[s + 2] = exp2(before - now); X[s + 1] = X[s + 1] * X[s + 2] + all_weights;
      }
    }
    MEET shared_to_halves(); spread(r, 2); MEET halves_to_operand(r); scale_o(r); MEET
  }
}
