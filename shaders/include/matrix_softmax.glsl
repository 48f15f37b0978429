// One staged tile j of BC keys against the rows of a subgroup, in chunks of CK keys: scores, weights, weighted sum.

#ifdef SPLIT
#include "matrix_split_products.glsl"
#else
#ifdef CACHE
// Keys as whole numbers: the sum of a block's columns, times d of its key.
void add_blocks(uint c) {
  const uint STEPS_OF_BLOCK = 32 / FK;
  [[unroll]] for (uint g = 0; g < BLOCKS_OF_KEY; ++g) {
    FRAG_A qa[RM * STEPS_OF_BLOCK];
    [[unroll]] for (uint x = 0; x < RM * STEPS_OF_BLOCK; ++x) {
      const uint r = x / STEPS_OF_BLOCK, d = g * STEPS_OF_BLOCK + x % STEPS_OF_BLOCK;
      if (d < Q_REG) qa[x] = Qm[r * QR + min(d, QR - 1)];
      else coopMatLoad(qa[x], Qs, q_at + r * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);
    }
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      ACC s[RM];
      [[unroll]] for (uint r = 0; r < RM; ++r) s[r] = ACC(0.0);
      [[unroll]] for (uint step = 0; step < STEPS_OF_BLOCK; ++step) {
        FRAG_B kb; coopMatLoad(kb, KV, at + (c * CK + n * FN) * K_PITCH + (g * STEPS_OF_BLOCK + step) * FK / 8, K_PITCH, BY_COLUMN);
        [[unroll]] for (uint r = 0; r < RM; ++r) s[r] = coopMatMulAdd(qa[r * STEPS_OF_BLOCK + step], kb, s[r]);
      }
      const uint from = scales_at() + g * BC + c * CK + n * FN + col_lane;
      [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
        const float d = key_scales_of_tile[from + COL_OF(e)];
        [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n][e] = fma(d, s[r][e], S[r * NS + n][e]);
      }
    }
  }
}
#endif
// S = Q K^T for chunk c of the staged tile.
void scores(uint c) {
  [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0);
#ifdef CACHE
  if (KEY_TERMS == 0) { add_blocks(c); return; }
#endif
  [[unroll]] for (uint d = 0; d < DF; ++d) {
    FRAG_A qa[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      if (d < Q_REG) qa[r] = Qm[r * QR + min(d, QR - 1)];
      else coopMatLoad(qa[r], Qs, q_at + r * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);
    }
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      FRAG_B kb; coopMatLoad(kb, KV, at + (c * CK + n * FN) * K_PITCH + d * FK / 8, K_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(qa[r], kb, S[r * NS + n]);
#ifdef CACHE
      if (KEY_TERMS == 2) {
        coopMatLoad(kb, KV, at + (BC + c * CK + n * FN) * K_PITCH + d * FK / 8, K_PITCH, BY_COLUMN);
        [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(qa[r], kb, S[r * NS + n]);
      }
#endif
    }
  }
}

// O += P V for chunk c.
void weighted_sum(uint c) {
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint d = 0; d < VF; ++d) {
    FRAG_B vb; coopMatLoad(vb, KV, at + V_AT + (c * CK + n * FK) * V_PITCH + d * FN / 8, V_PITCH, BY_ROW);
    [[unroll]] for (uint r = 0; r < RM; ++r) O[r * VF + d] = coopMatMulAdd(P[r * NP + n], vb, O[r * VF + d]);
  }
}

// SUMS: row_sums += P 1, with ones in a fragment as narrow as the device has. What is summed are operands, rounded as they weigh V.
void sum_by_product() {
  const coopmat<T16, gl_ScopeSubgroup, FK, SUM_N, gl_MatrixUseB> ones = coopmat<T16, gl_ScopeSubgroup, FK, SUM_N, gl_MatrixUseB>(1.0);
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint r = 0; r < RM; ++r)
    row_sums[r] = coopMatMulAdd(P[r * NP + n], ones, row_sums[r]);
}

#endif

// Where the bias of a row begins: include/matrix_bias.glsl.
uint bias_row(uint r, uint e) {
  const uint row = row0 + r * FM + row_lane + ROW_OF(e);
  return bias_off + b * bias_sb + (q_head + member_of(row)) * bias_sh + min(query_of(row), nq - 1) * bias_sn;
}
#include "matrix_bias.glsl"
#ifdef BIAS_AHEAD
#include "matrix_bias_ahead.glsl"
#else
#define TILE_KEY(c) (j * BC + (c) * CK + col_lane)
#define KEY_BESIDE(key0, c, n, e) key0 + (n) * FN + COL_OF(e)
#define KEY_FROM(c, n, e) (n) * FN + COL_OF(e)
#define BIAS_AT(r, c, n, e, query, key) bias_at(r, n, e, query, key)
#define KEY_OF_MASK(c, n, e) j * BC + (c) * CK + (n) * FN + col_lane + COL_OF(e)
#endif

// Scores as functions, bias and masks make them, in units of log 2.
void score_pairs(uint c) {
  const uint key0 = TILE_KEY(c);
  const float float_key0 = float(key0), ahead0 = float(int(row0 + row_lane + key_count()) - int(query_count() + key0));
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    const uint row = row0 + r * FM + row_lane + ROW_OF(e), query = query_of(row);
    const float ahead = PACK ? float(int(query + key_count()) - int(query_count() + key0)) : ahead0;
    if (PACK) scores_of(b, q_head + member_of(row));
    [[unroll]] for (uint n = 0; n < NS; ++n)
      S[r * NS + n][e] = score_bits(S[r * NS + n][e], natural_scale, query, KEY_BESIDE(key0, c, n, e),
        float_key0 + float(KEY_FROM(c, n, e)), ahead + float(int(PACK ? 0 : r * FM + ROW_OF(e)) - int(KEY_FROM(c, n, e))),
        BIAS_AT(r, c, n, e, query, KEY_BESIDE(key0, c, n, e)));
  }
}

// ASKED: a score that mask functions hide becomes -inf.
void ask(uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    const uint query = query_of(row0 + r * FM + row_lane + ROW_OF(e));
    [[unroll]] for (uint n = 0; n < NS; ++n)
      if (!sees(query, KEY_OF_MASK(c, n, e))) S[r * NS + n][e] = -infinity();
  }
}
// A score of a key that the row does not attend to becomes -inf.
void mask(uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    const uint query = query_of(row0 + r * FM + row_lane + ROW_OF(e));
    const Span keys = keys_of(query);
    [[unroll]] for (uint n = 0; n < NS; ++n)
      S[r * NS + n][e] = allowed(keys, query, KEY_OF_MASK(c, n, e)) ? S[r * NS + n][e] : -infinity();
  }
  // A step of its own, under one branch: a tile that only the bounds make an edge asks no function.
  if (ASKED) { if (asked) ask(c); }
}

void lane_max() {
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) top[x] = -infinity();
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
    top[r * SLOTS + SLOT_OF(e)] = max(top[r * SLOTS + SLOT_OF(e)], S[r * NS + n][e]);
}

// S = exp2(S scale - m) in place and, if `summed`, sum = its row sums over this lane's columns, on top of l if `onto`. The weights stay
// fp32 until after the vote: converted before it, they meet in a phi as single halves and cost a conversion and a move each.
void weights(bool onto, bool summed) {
  if (summed) [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) sum[x] = onto ? l[x] : 0.0;
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    S[r * NS + n][e] = exp2(fma(S[r * NS + n][e], scale, -m[r * SLOTS + SLOT_OF(e)]));
    if (summed) sum[r * SLOTS + SLOT_OF(e)] += S[r * NS + n][e];
  }
}

// The reference m moves up to the maximum so far, and O and l follow.
void rescale() {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    float shrink[SLOTS];
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      const uint x = r * SLOTS + s;
      const float y = max(m[x], row_max(top[x]) * scale - BIAS);
      shrink[s] = exp2(m[x] - y); m[x] = y; l[x] *= shrink[s];
    }
    [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= shrink[SLOT_OF(e)];
  }
}

// LATE: rows that have seen nothing get their reference from this chunk's scores. O and l are zeros there. Weights start at a quarter, so
// that scores may grow by 18 in log 2 before weights pass the largest fp16.
void first_references() {
  lane_max();
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
    const float y = max(NONE, row_max(top[x]) * scale + 2.0);
    m[x] = m[x] == NONE ? y : m[x];
  }
}

// LATE 3: references become the logarithms of what rows have summed so far, and O and l follow. Rows that have seen nothing keep theirs.
void settle_references() {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    float shrink[SLOTS];
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      const uint x = r * SLOTS + s;
      const float all_weights = row_sum(l[x]), y = all_weights == 0.0 ? m[x] : m[x] + log2(all_weights);
      shrink[s] = exp2(m[x] - y); m[x] = y; l[x] *= shrink[s];
    }
    [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= shrink[SLOT_OF(e)];
  }
}

#ifndef SPLIT
// Form 1: accumulator components to operand components.
void to_operand() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2)
    HALVES(S[r * NS + n][e], S[r * NS + n][e + 1],
      P[r * NP + n * FN / FK][A_OF(n % (FK / FN), e)], P[r * NP + n * FN / FK][A_OF(n % (FK / FN), e + 1)])
}

#endif

// Whether the scores of a chunk, or its sums, grew past what the references allow, in some lane of the subgroup.
bool scores_grew() {
  bool grew = false;
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x)
    grew = grew || (STEPS ? fma(top[x], scale, -m[x]) > GROWTH : top[x] * scale >= m[x] + GROWTH);
  return subgroupAny(grew);
}
bool sums_grew() {
  bool grew = false;
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) grew = grew || sum[x] > SUM_LIMIT;
  return subgroupAny(grew);
}

// P of chunk c from its scores, and l. late: LATE, in the loop without masks.
void softmax(uint c, bool masked, bool late) {
  if (SCORED) score_pairs(c);
#ifdef BIAS_AHEAD
  if (BIAS_EIGHTS) ask_ahead(c);
#endif
  if (masked) mask(c);
  if (late) {
    if (LATE == 1 && c == 0) { if (j == late_first) first_references(); }
    weights(true, !SUMS);
  } else {
    if (MAX_FIRST || MAX_LOGIT) lane_max();
    if (MAX_LOGIT) note_scores();
    if (MAX_FIRST) {
      if (scores_grew()) rescale();
      weights(true, true);
    } else {
      weights(false, true);
      if (sums_grew()) {   // the chunk once more
        scores(c);
        if (SCORED) score_pairs(c);
        if (masked) mask(c);
        lane_max();
        rescale();
        weights(false, true);
      }
    }
  }
  if (!(late && SUMS)) [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) l[x] = MAX_FIRST || late ? sum[x] : l[x] + sum[x];
  if (DROPOUT) drop(c);
#ifdef SPLIT
  if (SCALED) join_scales(c);
#endif
  if (FORM == 1) to_operand(); else operand_through_shared();
}

void add_chunk(uint c, bool late) {
#ifndef SPLIT
  if (late && SUMS) sum_by_product();
#endif
  weighted_sum(c);
}

// The whole tile. masked is a constant where this is called: a tile that every row sees whole has no mask code.
void attend(bool masked, bool late) {
  if (DROPOUT) draw_tile();
  [[unroll]] for (uint c = 0; c <= CHUNKS; ++c) {
    if (BIAS_PAIRS) { if (c < CHUNKS) ask_bias(j * BC + c * CK + col_lane); }
    if (c < CHUNKS) scores(c);
    if (PIPE == 1 && c > 0) add_chunk(c - 1, late);
    if (c < CHUNKS) { if (FORM == 3) weights_in_shared(c, masked); else softmax(c, masked, late); }
    if (PIPE == 0 && c < CHUNKS) add_chunk(c, late);
  }
}
