// A chunk of a staged tile in the backward kernels on matrices: S and dP by products, then P and dS, in place and as operands. These are
// the steps of algorithm 2 between the loads and the sums, of which a kernel's chunk() is made, in both of the ways to operands that
// include/matrix_backward.glsl tells of.

// S = A a^T for chunk c.
void scores(uint c) {
  [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0);
  [[unroll]] for (uint d = 0; d < DF; ++d) {
    FRAG_A a[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      if (d < A_REG) a[r] = Am[r * AR + min(d, AR - 1)];
      else coopMatLoad(a[r], Rows, ra_at + r * FM * RA_PITCH + (d - AR) * FK / 8, RA_PITCH, BY_ROW);
    }
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      FRAG_B b; coopMatLoad(b, T, tile_at + (c * CK + n * FN) * A_PITCH + d * FK / 8, A_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(a[r], b, S[r * NS + n]);
    }
  }
}

// What dP starts from. Form 1: -delta, so that the products make dP - delta of it. Forms 2 and 3: 0.
void minus_delta(uint c) {
  EACH_SCORE dP[r * NS + n][e] = KEYS_ARE_ROWS && BITS ? 0.0 : -delta_at(row_of(r, e), column_of(c, n, e), r, e);
}
void zero_gradients() { [[unroll]] for (uint x = 0; x < RM * NS; ++x) dP[x] = ACC(0.0); }
// dP += B b^T for chunk c.
void weight_gradients(uint c) {
  [[unroll]] for (uint d = 0; d < EF; ++d) {
    FRAG_A a[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      if (d < B_REG) a[r] = Bm[r * BRG + min(d, BRG - 1)];
      else coopMatLoad(a[r], Rows, rb_at + r * FM * RB_PITCH + (d - BRG) * FK / 8, RB_PITCH, BY_ROW);
    }
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      FRAG_B b; coopMatLoad(b, T, tile_at + B_AT + (c * CK + n * FN) * B_PITCH + d * FK / 8, B_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) dP[r * NS + n] = coopMatMulAdd(a[r], b, dP[r * NS + n]);
    }
  }
}

// As weight_of; BITS makes half of the weights of keys (include/matrix_backward_dropout.glsl).
float clamped_weight(float above) {
  if (KEYS_ARE_ROWS && BITS) return above > -1.0 ? 0.5 : exp2(above);
  return weight_of(above);
}
// The weight of a score, and the slope of its function, 1 without.
float weight(float s, float l, uint query, uint key, bool masked, float float_key, float ahead, float bias, out float slope) {
  slope = 1;
  float p;
  if (SCORED) {
    const vec2 x = score_bits_with_slope(s, scale, query, key, float_key, ahead, bias);
    p = clamped_weight(x.x - l); slope = x.y;
    if (l == infinity()) p = slope = 0;   // of a query that does not exist functions may make anything: infinities and NaNs
  } else p = clamped_weight(fma(s, scale * 1.4426950408889634, -l));
  if (masked) {
    if (out_of_band(query, key)) p = 0;
    if (!KEYS_ARE_ROWS && key >= key_count()) p = 0;
    if (BLOCKS_BY_SCORE) { if (!block_allows(query, key)) p = 0; }
  }
  if (SLOPES) { if (p == 0) slope = 1; }   // of a pair that is hidden it may be infinite
  return p;
}
float weight(float s, float l, uint query, uint key, bool masked, out float slope) {
  return weight(s, l, query, key, masked, 0, 0, SCORE_BIAS == 0 ? 0 : bias_of(query, key), slope);
}
#ifdef KV
#define BIAS_OF(r, n, e, query, key) (SCORE_BIAS == 0 ? 0 : bias_of(query, key))
#else
uint bias_row(uint r, uint e) { return bias_base + min(query_of(row_of(r, e), 0), nq - 1) * bias_sn; }
#include "matrix_bias.glsl"
#define BIAS_OF bias_at
#endif
// P = exp(scale S - lse) in place. A weight that dropout drops is kept as its negative, until its two uses are made of it: what dV is
// summed with (without dropout's scale; a NaN stays one), and dS.
void weights(uint c, bool masked) {
  const int query0 = int(first_query + key_count()) - int(query_count());
  const int row_lane0 = int(sub0 + row_lane), col_lane0 = int(c * CK + col_lane);
  const int key0 = int(first_key) + (KEYS_ARE_ROWS ? row_lane0 : col_lane0);
  const float float_key0 = float(key0), ahead0 = float(query0 + (KEYS_ARE_ROWS ? col_lane0 : row_lane0) - key0);
  EACH_SCORE {
    const uint row = row_of(r, e), col = column_of(c, n, e);
    const int in_row = int(r * FM + ROW_OF(e)), in_col = int(n * FN + COL_OF(e));   // beyond the lane's first
    float slope;
    S[r * NS + n][e] = weight(S[r * NS + n][e], lse_at(row, col, r, e), query_of(row, col), key_of(row, col), masked,
      float_key0 + float(KEYS_ARE_ROWS ? in_row : in_col), ahead0 + float(KEYS_ARE_ROWS ? in_col - in_row : in_row - in_col),
      BIAS_OF(r, n, e, query_of(row, col), key_of(row, col)), slope);
    if (SLOPES) slopes[r * NS + n][e] = slope;
  }
  if (ASKED && masked) {
    if (asked) EACH_SCORE {
      const uint row = row_of(r, e), col = column_of(c, n, e);
      if (!sees(query_of(row, col), key_of(row, col))) {
        S[r * NS + n][e] = 0;
        if (SLOPES) slopes[r * NS + n][e] = 1;
      }
    }
  }
  if (DROPOUT && !BITS) EACH_SCORE S[r * NS + n][e] = is_kept(c, r, n, e) ? S[r * NS + n][e] : -S[r * NS + n][e];
}
float kept_part(float p) { return DROPOUT && p < 0 ? 0 : p; }
// dS = P o (dP - delta), in the place of dP; unless `sloped`, before the score functions' derivatives go into it: by the scores that a bias
// is added to.
void score_gradients(uint c, bool sloped) {
  EACH_SCORE {
    const uint row = row_of(r, e), col = column_of(c, n, e);
    const float p = S[r * NS + n][e], x = dP[r * NS + n][e];
    if (BITS) dP[r * NS + n][e] = p * by_bits(x, delta_at(row, col, r, e), c, r, n, e);
    else dP[r * NS + n][e] = DROPOUT ? abs(p) * (p > 0 ? x : -delta_at(row, col, r, e)) : p * x;
    if (SLOPES && sloped) dP[r * NS + n][e] *= slopes[r * NS + n][e];
  }
}
void score_gradients(uint c) { score_gradients(c, true); }
void slope_gradients() { if (SLOPES) EACH_SCORE dP[r * NS + n][e] *= slopes[r * NS + n][e]; }
// The same where dP is whole: forms 2 and 3.
float score_gradient(float p, float x, float dl) { return DROPOUT ? abs(p) * ((p > 0 ? x : 0) - dl) : p * (x - dl); }

// Form 1: dS from accumulator components to operand components.
#define COMPONENT(W, r, n, e) W[(r) * NP + (n) * FN / FK][A_OF((n) % (FK / FN), e)]   // of an operand; a macro because it is assigned to
void gradients_to_operand() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2)
    HALVES(dP[r * NS + n][e], dP[r * NS + n][e + 1], COMPONENT(dS, r, n, e), COMPONENT(dS, r, n, e + 1))
}
// Forms 2 and 3: P and dS of 8 columns of a row, from S and dP, which are in shared memory.
void weights_of_piece(uint row, uint col0, uint s_at, uint dp_at, bool masked, out uvec4 weights, out uvec4 gradients) {
  float p[8], ds[8];
  [[unroll]] for (uint e = 0; e < 8; ++e) {
    const uint col = col0 + e, query = query_of(row, col), key = key_of(row, col);
    float slope;
    float w = weight(E[s_at + e], lse_at(row, col, 0, 0), query, key, masked, slope);
    if (ASKED && masked) { if (asked) { if (!sees(query, key)) { w = 0; slope = 1; } } }
    if (DROPOUT) w = kept(drawn_word(query, key, key / 2 % 4), byte_of(key)) ? w : -w;
    ds[e] = score_gradient(w, E[dp_at + e], delta_at(row, col, 0, 0));
    if (SLOPES) ds[e] *= slope;
#ifdef TO_MEMORY
    ds[e] *= scale * keep_scale;
#endif
    p[e] = kept_part(w);
  }
  weights = uvec4(PAIR(p[0], p[1]), PAIR(p[2], p[3]), PAIR(p[4], p[5]), PAIR(p[6], p[7]));
  gradients = uvec4(PAIR(ds[0], ds[1]), PAIR(ds[2], ds[3]), PAIR(ds[4], ds[5]), PAIR(ds[6], ds[7]));
}
#ifdef TO_MEMORY
void put(uint row, uint key, uvec4 p, uvec4 ds);
#endif
// P (kv only) and dS of chunk c as operands, or (TO_MEMORY) into memory; a lane takes 8 columns of a row.
void weights_through_shared(uint c, bool masked) {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      coopMatStore(S[r * NS + n], E, e_at + n * FN, CK, BY_ROW);
      coopMatStore(dP[r * NS + n], E, e_at + FM * CK + n * FN, CK, BY_ROW);
    }
    MEET
    [[unroll]] for (uint u = 0; u < (FM * CK / 8 + SG - 1) / SG; ++u) {
      const uint piece = min(u * SG + lane, FM * CK / 8 - 1), at = e_at + piece * 8;
      uvec4 p, ds;
      weights_of_piece(sub0 + r * FM + piece * 8 / CK, c * CK + piece * 8 % CK, at, at + FM * CK, masked, p, ds);
#ifdef TO_MEMORY
      if (piece == u * SG + lane) put(row0 + r * FM + piece * 8 / CK, first_key + c * CK + piece * 8 % CK, p, ds);
#else
      H[h_at + piece] = p;
      H[h_at + FM * CK / 8 + piece] = ds;
#endif
    }
    MEET
#ifndef TO_MEMORY
    [[unroll]] for (uint n = 0; n < NP; ++n) {
#ifdef KV
      coopMatLoad(P[r * NP + n], H, h_at + n * FK / 8, CK / 8, BY_ROW);
#endif
      coopMatLoad(dS[r * NP + n], H, h_at + FM * CK / 8 + n * FK / 8, CK / 8, BY_ROW);
    }
    MEET
#endif
  }
}
