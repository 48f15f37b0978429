// How rows of Q enter and rows of O leave: through a patch of shared memory for each subgroup, 16 bytes a lane.

#ifndef SPLIT
// Q, rows from first_row on, of rows in all: asked for, all of it before the first piece is waited for.
void ask_q(uint first_row, uint rows) {
  [[unroll]] for (uint p = 0; p < RM * Q_PASSES; ++p) [[unroll]] for (uint u = 0; u < Q_EACH; ++u) {
    const uint x = min(u * SG + lane, FM * PATCH - 1);
    const uint row = first_row + p / Q_PASSES * FM + x / PATCH, c = p % Q_PASSES * PATCH + x % PATCH;
    const uint inside = min(row, QUERY_LENGTHS ? max(rows, 1) - 1 : rows - 1);
    const uint from = q_base + member_of(inside) * q_sh + query_of(inside) * q_sn;
    uvec4 y;
    COUNTING(const bool real = row < rows && c < KU && u * SG + lane < FM * PATCH;)
    if (ALIGNED) y = LOADED_IF(q, 16, real, q4[from / 8 + min(c, KU - 1)]); else y = GATHER(q, from, c, D, real);
    qr[p * Q_EACH + u] = row < rows && c < KU ? y ^ flip : uvec4(0);
  }
}
// What was asked for becomes operands, in registers or in Qs.
void q_through_patch() {
  [[unroll]] for (uint p = 0; p < RM * Q_PASSES; ++p) {
    [[unroll]] for (uint u = 0; u < Q_EACH; ++u) {
      const uint x = min(u * SG + lane, FM * PATCH - 1);
      PATCH_ROWS[patch_at + x / PATCH * PATCH_PITCH + x % PATCH] = in_k_order(qr[p * Q_EACH + u]);
    }
    MEET
    [[unroll]] for (uint f = 0; f < PATCH / (FK / 8); ++f) {
      const uint r = p / Q_PASSES, d = p % Q_PASSES * (PATCH / (FK / 8)) + f;
      if (d < DF) {
        FRAG_A t; coopMatLoad(t, PATCH_ROWS, patch_at + f * (FK / 8), PATCH_PITCH, BY_ROW);
        if (d < Q_REG) Qm[r * QR + min(d, QR - 1)] = t;
        else coopMatStore(t, Qs, q_at + r * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);
      }
    }
    MEET
  }
}

#endif

// O, m and l of rows that have seen nothing.
void nothing_seen() {
  [[unroll]] for (uint x = 0; x < RM * VF; ++x) O[x] = ACC(0.0);
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) { m[x] = NONE; l[x] = 0.0; }
  if (FORM == 3) {
    for (uint x = lane; x < RM * FM; x += SG) {
      X[stats_at + 3 * x] = NONE; X[stats_at + 3 * x + 1] = 0.0; X[stats_at + 3 * x + 2] = 0.0;
    }
    MEET
  }
}

#ifndef SPLIT
// Zeros in the columns of staged tiles between D, or DV, and the next fragment.
void zero_beyond_columns(uint tiles) {
  if (DF * FK > 8 * KU || VF * FN > 8 * VU) {
    barrier();
    [[unroll]] for (uint t = 0; t < tiles * TILE; t += TILE) {
      if (DF * FK > 8 * KU) for (uint x = tid; x < K_ROWS * (K_PITCH - KU); x += WG)
        KV[t + x / (K_PITCH - KU) * K_PITCH + KU + x % (K_PITCH - KU)] = uvec4(0);
      if (VF * FN > 8 * VU) for (uint x = tid; x < BC * (V_PITCH - VU); x += WG)
        KV[t + V_AT + x / (V_PITCH - VU) * V_PITCH + VU + x % (V_PITCH - VU)] = uvec4(0);
    }
  }
}

#endif

// REPEAT: the weight of the last column of the last tile, which is the last key or one of its repeats, in the row of slot s.
const uint LAST_LANES = WEIGHT(COL_LANE, 0) + WEIGHT(COL_LANE, 1) + WEIGHT(COL_LANE, 2) + WEIGHT(COL_LANE, 3) + WEIGHT(COL_LANE, 4) +
  WEIGHT(COL_LANE, 5) + WEIGHT(COL_LANE, 6);   // the largest col_lane
#ifdef DTYPE_BF16
#define AS_OPERAND(w) uintBitsToFloat(FORM == 1 ? floatBitsToUint(w) & 0xffff0000u : bf16_bits(w) << 16)   // as HALVES, or PAIR, makes it
#else
#define AS_OPERAND(w) float(float16_t(w))
#endif
float last_weight(uint r, uint s) {
  float w = 0.0;
  [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
    if (SLOT_OF(e) == s && COL_OF(e) + LAST_LANES == FN - 1) w = col_lane == LAST_LANES ? S[r * NS + NS - 1][e] : 0.0;
  if (SUMS && summed_operands) w = AS_OPERAND(w) * P_UNIT;   // as it was summed
  return row_sum(w);
}
// REPEAT: rows beyond the entry's last query saw keys like all others. Nothing of that is left, not even NaN.
void leave_out_rows() {
  if (row0 + RM * FM > (PACK ? query_count() * group() : query_count())) {
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      const uint x = r * SLOTS + s;
      if (!query_exists(query_of(row_of_slot(x)))) {
        l[x] = 0.0;
        [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
          if (SLOT_OF(e) == s) S[r * NS + n][e] = 0.0;
        [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e)
          if (SLOT_OF(e) == s) O[r * VF + d][e] = 0.0;
      }
    }
  }
}

// O / l, with the factor of dropout if `dropped` and the sink if `sunk`; every row below rows is handed to row_done, if `wanted`.
void divide_by_sum(bool dropped, bool sunk, bool wanted, uint rows) {
  if (FORM == 3) {
    for (uint x = lane; x < RM * FM; x += SG) {
      const uint s = stats_at + 3 * x, row = row0 + x;
      float factor = 1;
      if (sunk && query_exists(query_of(row))) factor = join_sink(q_head + member_of(row), X[s], X[s + 1]);
      const float all_weights = X[s + 1];
      X[s + 2] = all_weights == 0.0 ? 0.0 : factor / all_weights;
      if (dropped) X[s + 2] *= drop_scale();
#ifdef CACHE
      X[s + 2] *= value_factor;
#endif
      if (wanted && row < rows) row_done(row, X[s], all_weights);
    }
    MEET
    [[unroll]] for (uint r = 0; r < RM; ++r) { spread(r, 2); MEET scale_o(r); MEET }
  } else {
    if (REPEAT && QUERY_LENGTHS) leave_out_rows();
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      float inverse[SLOTS];
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
        const uint x = r * SLOTS + s;
        l[x] = row_sum(l[x]);
        if (REPEAT) l[x] = repeats > 0 ? fma(-float(repeats), last_weight(r, s), l[x]) : l[x];
        float factor = P_UNIT;
        if (sunk && query_exists(query_of(row_of_slot(x)))) factor *= join_sink(q_head + member_of(row_of_slot(x)), m[x], l[x]);
        inverse[s] = l[x] == 0.0 ? 0.0 : factor / l[x];
        if (dropped) inverse[s] *= drop_scale();
#ifdef CACHE
        inverse[s] *= value_factor;
#endif
      }
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= inverse[SLOT_OF(e)];
    }
    if (wanted && col_lane == 0) {
      [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) { const uint row = row_of_slot(x); if (row < rows) row_done(row, m[x], l[x]); }
    }
  }
}

#if !defined(KEY_PARTS) && !defined(SPLIT)
// Eight columns of a row of O, from column c on, where the row is not aligned or ends within them.
void store_ragged(uint to, uint c, vec4 lo, vec4 hi) {
  [[unroll]] for (uint x = 0; x < 8; ++x) if (c + x < DV) STORED(o, 2, o16[to + x] = ELEMENT_BITS(x < 4 ? lo[x % 4] : hi[x % 4]));
}
// The rows of O below rows, through the patch, a fragment at a time. (One loop over pieces of several fragments put O into local memory.)
// Where the patch has room for two side by side, one is read while the next is put beside it.
const bool TWO_PATCHES = PATCH >= FN / 2;
void store_o(uint rows) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < VF; ++d) {
    const uint patch_now = patch_at + (TWO_PATCHES ? (r * VF + d) % 2 * FN / 4 : 0);
    coopMatStore(O[r * VF + d], PATCH_ROWS, patch_now, PATCH_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0; u < (FM * FN / 8 + SG - 1) / SG; ++u) {
      const uint x = u * SG + lane, y = min(x, FM * FN / 8 - 1), row = row0 + r * FM + y / (FN / 8), c = d * FN + y % (FN / 8) * 8;
      const uint to = o_base + c + member_of(row) * o_sh + query_of(row) * o_sn;
      const uint from = patch_now + y / (FN / 8) * PATCH_PITCH + y % (FN / 8) * 2;
      const vec4 lo = from_v_order(uintBitsToFloat(PATCH_ROWS[from])), hi = from_v_order(uintBitsToFloat(PATCH_ROWS[from + 1]));
      if (((FM * FN / 8) % SG == 0 || x < FM * FN / 8) && row < rows) {
        if (!ALIGNED) store_ragged(to, c, lo, hi);
        else if (DV % FN == 0 || c < DV)
          STORED(o, 16, o4[to / 8] = uvec4(PAIR(lo.x, lo.y), PAIR(lo.z, lo.w), PAIR(hi.x, hi.y), PAIR(hi.z, hi.w)));
      }
    }
    if (!TWO_PATCHES) MEET
  }
}
#endif
