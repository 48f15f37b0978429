// The products of matrix_softmax.glsl with operands that are sums of terms (matrix_split.glsl). The products of first terms and all others
// have an accumulator each, so that few roundings meet the large sum. Matrix units may cut off instead of rounding (NVIDIA's do): O is
// therefore added to in fp32, a chunk at a time, and not by the matrix unit.

// S = Q K^T for chunk c of the staged tile.
void scores(uint c) {
  [[unroll]] for (uint n = 0; n < NS; ++n) {
    ACC first[RM], rest[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) { first[r] = ACC(0.0); rest[r] = ACC(0.0); }
    [[unroll]] for (uint d = 0; d < DF; ++d) {
      FRAG_A qa[TERMS * RM];
      [[unroll]] for (uint x = 0; x < TERMS * RM; ++x) {
        if (d < Q_REG) qa[x] = Qm[x * QR + min(d, QR - 1)];
        else coopMatLoad(qa[x], Qs, x / RM * BR * Q_PITCH + q_at + x % RM * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);
      }
      [[unroll]] for (uint t = 0; t < TERMS; ++t) {
        FRAG_B kb; coopMatLoad(kb, KV, at + (t * BC + c * CK + n * FN) * K_PITCH + d * FK / 8, K_PITCH, BY_COLUMN);
        [[unroll]] for (uint s = 0; s < TERMS; ++s) [[unroll]] for (uint r = 0; r < RM; ++r) {
          if (s + t == 0) first[r] = coopMatMulAdd(qa[r], kb, first[r]);
          else if (s + t < TERMS) rest[r] = coopMatMulAdd(qa[s * RM + r], kb, rest[r]);
        }
      }
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = first[r] + rest[r];
    if (SCALED) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
      const float by = uintBitsToFloat(E[scales_at() + c * CK + n * FN + col_lane + COL_OF(e)]);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n][e] = S[r * NS + n][e] * by * q_factor[r * SLOTS + SLOT_OF(e)];
    }
  }
}

float o_factor[RM * SLOTS];   // SCALED: what the products of a chunk are multiplied by

// SCALED: the weights of chunk c times the powers of two that its rows of V were divided by, and times one for each row of P.
void join_scales(uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    uint top[SLOTS];   // largest exponents, with both biases
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) top[s] = 0;
    [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
      const uint x = floatBitsToUint(S[r * NS + n][e]) >> 23, v = E[scales_at() + BC + c * CK + n * FN + col_lane + COL_OF(e)];
      if (x > 0 && x < 255) top[SLOT_OF(e)] = max(top[SLOT_OF(e)], x + v);
    }
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      top[s] = max(uint(row_max(float(top[s]))), 127 + LEAST);
      o_factor[r * SLOTS + s] = power(top[s] - 127 - 28);
    }
    [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
      const uint bits = floatBitsToUint(S[r * NS + n][e]), x = bits >> 23, v = E[scales_at() + BC + c * CK + n * FN + col_lane + COL_OF(e)];
      const int y = int(x + v + 141) - int(top[SLOT_OF(e)]);   // 14 at the largest, with one bias
      if (x < 255) S[r * NS + n][e] = x == 0 || y <= 0 ? 0.0 : uintBitsToFloat(bits & 0x7fffffu | uint(y) << 23);
    }
  }
}

// Form 1: accumulator components to terms of operand components.
void to_operand() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e) {
    float x = S[r * NS + n][e];
    [[unroll]] for (uint t = 0; t < TERMS; ++t) TERM(x, P[(t * RM + r) * NP + n * FN / FK][A_OF(n % (FK / FN), e)])
  }
}

// O += P V for chunk c.
void weighted_sum(uint c) {
  [[unroll]] for (uint d = 0; d < VF; ++d) {
    ACC first[RM], rest[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) { first[r] = ACC(0.0); rest[r] = ACC(0.0); }
    [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint t = 0; t < TERMS; ++t) {
      FRAG_B vb; coopMatLoad(vb, KV, at + V_AT + (t * BC + c * CK + n * FK) * V_PITCH + d * FN / 8, V_PITCH, BY_ROW);
      [[unroll]] for (uint s = 0; s < TERMS; ++s) [[unroll]] for (uint r = 0; r < RM; ++r) {
        if (s + t == 0) first[r] = coopMatMulAdd(P[r * NP + n], vb, first[r]);
        else if (s + t < TERMS) rest[r] = coopMatMulAdd(P[(s * RM + r) * NP + n], vb, rest[r]);
      }
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      first[r] += rest[r];
      [[unroll]] for (uint e = 0; e < O[0].length(); ++e) {
        if (SCALED) O[r * VF + d][e] = fma(first[r][e], o_factor[r * SLOTS + SLOT_OF(e)], O[r * VF + d][e]);
        else O[r * VF + d][e] += first[r][e];
      }
    }
  }
}
