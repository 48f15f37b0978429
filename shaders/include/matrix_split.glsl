// Attention of fp32 tensors on matrices of 16 bits (builds with SPLIT): every operand is a sum of TERMS numbers of the narrow type,
// x = x0 + x1 (+ x2), each the nearest to what the ones before it leave, and a product is the sum of the products of terms whose indices
// add up to less than TERMS; those left out are as small as what fp32 rounds off. (Henry, Tang, Heinecke, "Leveraging the bfloat16
// Artificial Intelligence Datatype For Higher-Precision Computations", 2019; Ootomo, Yokota, "Recovering single precision accuracy from
// Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.)
//
//   bf16, TERMS = 3      six products. The exponents are fp32's, so that any fp32 number is split to 24 bits.
//   fp16, TERMS = 2, 3   three products to 22 bits, or six to 24; SCALED then, for fp16 has few exponents:
//
// SCALED: a row of Q, K or V is multiplied by the power of two that takes its largest finite number to [2^14, 2^15), which leaves 39 bits
// below it, to the smallest denormal of fp16. Scores are multiplied by those of Q and K back again. That of a row of V goes to the weights
// of its key: P 2^e, in fp32, and its rows are scaled, a chunk of keys at a time, as those of the tensors are. So a V that is large where
// weights are small, or a row of K of 1e30 beside one of 1e-30, costs no bit. Numbers of one row that are further apart than 2^15 do: what
// is less than 2^-39 of the largest one is 0 beside it.
//
// An infinity leaves NaN for the terms after its first: where fp32 arithmetic would give an infinity, this gives NaN.
//
// A row's largest number is found by those who load the row, LANES_OF(units) neighbours of a subgroup, by shuffles. They split it, and the
// terms go to shared memory as planes of rows, term after term, K then V. Q enters as in matrix_rows.glsl, a term at a time, and O leaves
// in fp32. This stands in the place of matrix_staging.glsl.
//
// Specialization constants, beside those of matrix_forward.comp, whose lengths of staged operands are TERMS times as long:
//  51 TERMS   52 SCALED   53 E_LEN  1, or with SCALED BR + 2 BC for each tile of keys in shared memory
//  41 PATCH   16-byte units of a whole row of Q, DF FK/8, and at least FN/4: it holds one term of a row fragment

layout(constant_id = 52) const bool SCALED = false;
layout(constant_id = 53) const uint E_LEN = 1;

shared uint E[E_LEN];   // of Q's rows; then for each tile, factors of scores by K's rows as floats, and exponents of V's rows
const uint KEYS_AT = BR;
uint scales_at() { return KEYS_AT + (at == 0 ? 0u : 2 * BC); }

// Largest numbers as exponents of fp32 with their bias, 0 and what is not finite as 0.
uint exponent_bits(vec4 a) {
  const uvec4 x = floatBitsToUint(a) & 0x7fffffffu, y = mix(x, uvec4(0), greaterThanEqual(x, uvec4(0x7f800000u)));
  return max(max(y.x, y.y), max(y.z, y.w)) >> 23;
}
const uint LEAST = 29;   // 2^-98: smaller rows are scaled as these, so that factors are numbers of fp32
float power(uint e) { return uintBitsToFloat(e << 23); }   // e with its bias
float scale_of(uint e) { return power(268 - max(e, LEAST)); }   // 2^(14 - e)

#include "matrix_terms.glsl"

// Eight columns of a row, zero beyond the last.
#define FOUR(T, row, c, width, real)                                                                                        \
  ((c) >= (width) ? vec4(0) : ALIGNED ? LOADED_IF(T, 16, real, T##4[((row) + (c)) / 4]) : vec4(ONE(T, row, (c) + 0, width, real), \
    ONE(T, row, (c) + 1, width, real), ONE(T, row, (c) + 2, width, real), ONE(T, row, (c) + 3, width, real)))
#define ONE(T, row, c, width, real) ((c) < (width) ? LOADED_IF(T, 4, real, T##1[(row) + (c)]) : 0.0)

// Who loads a row: neighbours of a subgroup, a power of two of them, a unit of 8 columns each, or several.
#define POWER_OF(units) ((units) <= 1 ? 1u : (units) <= 2 ? 2u : (units) <= 4 ? 4u : (units) <= 8 ? 8u : (units) <= 16 ? 16u : 32u)
#define LANES_OF(units) (POWER_OF(units) < SG ? POWER_OF(units) : SG)
const uint KP = DF * FK / 8, VP = VF * FN / 8;   // units of a row, up to a whole fragment
const uint K_LANES = LANES_OF(KP), V_LANES = LANES_OF(VP);
const uint K_UNITS = (KP + K_LANES - 1) / K_LANES, V_UNITS = (VP + V_LANES - 1) / V_LANES;   // of a row, for each of them
const uint K_PIECES = BC * K_LANES, V_PIECES = BC * V_LANES, Q_PIECES = FM * K_LANES;
const uint K_EACH = (K_PIECES + WG - 1) / WG, V_EACH = (V_PIECES + WG - 1) / WG, Q_TURNS = (Q_PIECES + SG - 1) / SG;
vec4 kr[K_EACH * K_UNITS * 2], vr[V_EACH * V_UNITS * 2], qr[RM * Q_TURNS * K_UNITS * 2];   // on their way

// The largest exponent among `lanes` neighbours.
uint row_exponent(uint e, uint lanes) {
  [[unroll]] for (uint b = 1; b < lanes; b *= 2) e = max(e, subgroupShuffleXor(e, b));
  return e;
}

uint last_tile;
// As in matrix_staging.glsl: a key beyond the last is read as the last.
#define CLAMPED (MASKS && RAGGED)
uint key_row(uint j, uint x) { return CLAMPED ? min(j * BC + x, last_key()) : min(j, last_tile) * BC + x; }
#define IS_KEY(j, x) (!CLAMPED || (j) * BC + (x) < key_count())
void own_places() {}

#define FETCH(T, PIECE, WIDTH)                                                                                              \
  [[unroll]] for (uint u = 0, x = tid; u < T##_EACH; ++u, x += WG) [[unroll]] for (uint i = 0; i < T##_UNITS; ++i) {        \
    const uint key = min(x / T##_LANES, BC - 1), c = 8 * (x % T##_LANES + i * T##_LANES);                                   \
    const uint row = PIECE##_base + key_row(j, key) * PIECE##_sn;                                                           \
    COUNTING(const bool real = IS_KEY(j, key) && x < T##_PIECES;)                                                           \
    PIECE##r[(u * T##_UNITS + i) * 2] = FOUR(PIECE, row, c, WIDTH, real);                                                   \
    PIECE##r[(u * T##_UNITS + i) * 2 + 1] = FOUR(PIECE, row, c + 4, WIDTH, real);                                           \
  }
void fetch_k(uint j, bool clamp) { FETCH(K, k, D) }
void fetch_v(uint j, bool clamp) { FETCH(V, v, DV) }

// What was fetched becomes terms in shared memory. FACTOR is what becomes of a row's exponent e in E.
#define STORE(T, PIECE, P_, BEGIN, E_AT, FACTOR)                                                                            \
  [[unroll]] for (uint u = 0, x = tid; u < T##_EACH; ++u, x += WG) {                                                        \
    float by = 1.0;                                                                                                         \
    const bool mine = T##_PIECES % WG == 0 || x < T##_PIECES;                                                               \
    if (SCALED) {                                                                                                           \
      uint e = 0;                                                                                                           \
      [[unroll]] for (uint i = 0; i < 2 * T##_UNITS; ++i) e = max(e, exponent_bits(PIECE##r[u * T##_UNITS * 2 + i]));       \
      e = row_exponent(e, T##_LANES);                                                                                       \
      by = scale_of(e);                                                                                                     \
      e = max(e, LEAST);                                                                                                    \
      if (mine && x % T##_LANES == 0) E[scales_at() + E_AT + x / T##_LANES] = FACTOR;                                       \
    }                                                                                                                       \
    [[unroll]] for (uint i = 0; i < T##_UNITS; ++i) {                                                                       \
      const uint c = x % T##_LANES + i * T##_LANES;                                                                         \
      vec4 lo = PIECE##r[(u * T##_UNITS + i) * 2] * by, hi = PIECE##r[(u * T##_UNITS + i) * 2 + 1] * by;                    \
      [[unroll]] for (uint t = 0; t < TERMS; ++t) {                                                                         \
        const uvec4 y = take_eight(lo, hi);                                                                                 \
        if (mine && (P_ % T##_LANES == 0 || c < P_)) KV[at + BEGIN + (t * BC + x / T##_LANES) * T##_PITCH + c] = y;         \
      }                                                                                                                     \
    }                                                                                                                       \
  }
void store_k() { STORE(K, k, KP, 0, 0, floatBitsToUint(power(e - 28))) }
void store_v(uint j, bool clamp) { STORE(V, v, VP, V_AT, BC, e) }

// Q, rows from first_row on, of rows in all.
void ask_q(uint first_row, uint rows) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint u = 0; u < Q_TURNS; ++u) [[unroll]] for (uint i = 0; i < K_UNITS; ++i) {
    const uint x = min(u * SG + lane, Q_PIECES - 1), row = first_row + r * FM + x / K_LANES, c = 8 * (x % K_LANES + i * K_LANES);
    const uint inside = min(row, QUERY_LENGTHS ? max(rows, 1) - 1 : rows - 1);
    const uint from = q_base + member_of(inside) * q_sh + query_of(inside) * q_sn;
    COUNTING(const bool real = row < rows && u * SG + lane < Q_PIECES;)
    vec4 lo = FOUR(q, from, c, D, real), hi = FOUR(q, from, c + 4, D, real);
    const uint p = ((r * Q_TURNS + u) * K_UNITS + i) * 2;
    qr[p] = row < rows ? uintBitsToFloat(floatBitsToUint(lo) ^ flip & 0x80000000u) : vec4(0);
    qr[p + 1] = row < rows ? uintBitsToFloat(floatBitsToUint(hi) ^ flip & 0x80000000u) : vec4(0);
  }
}
float q_factor[RM * SLOTS];   // SCALED: of this lane's rows
// What was asked for becomes operands, in registers or in Qs.
void q_through_patch() {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    if (SCALED) [[unroll]] for (uint u = 0; u < Q_TURNS; ++u) {
      const uint x = min(u * SG + lane, Q_PIECES - 1), p = (r * Q_TURNS + u) * K_UNITS * 2;
      uint e = 0;
      [[unroll]] for (uint i = 0; i < 2 * K_UNITS; ++i) e = max(e, exponent_bits(qr[p + i]));
      e = row_exponent(e, K_LANES);
      [[unroll]] for (uint i = 0; i < 2 * K_UNITS; ++i) qr[p + i] *= scale_of(e);
      E[(gl_SubgroupID * RM + r) * FM + x / K_LANES] = max(e, LEAST);
    }
    [[unroll]] for (uint t = 0; t < TERMS; ++t) {
      [[unroll]] for (uint u = 0; u < Q_TURNS; ++u) [[unroll]] for (uint i = 0; i < K_UNITS; ++i) {
        const uint x = min(u * SG + lane, Q_PIECES - 1), c = x % K_LANES + i * K_LANES, p = ((r * Q_TURNS + u) * K_UNITS + i) * 2;
        const uvec4 y = take_eight(qr[p], qr[p + 1]);
        if (KP % K_LANES == 0 || c < KP) PATCH_ROWS[patch_at + x / K_LANES * PATCH_PITCH + c] = y;
      }
      MEET
      [[unroll]] for (uint d = 0; d < DF; ++d) {
        FRAG_A f; coopMatLoad(f, PATCH_ROWS, patch_at + d * (FK / 8), PATCH_PITCH, BY_ROW);
        if (d < Q_REG) Qm[(t * RM + r) * QR + min(d, QR - 1)] = f;
        else coopMatStore(f, Qs, t * BR * Q_PITCH + q_at + r * FM * Q_PITCH + (d - Q_REG) * FK / 8, Q_PITCH, BY_ROW);
      }
      MEET
    }
  }
  if (SCALED) [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x)
    q_factor[x] = power(E[gl_SubgroupID * RM * FM + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS)]);
}
void zero_beyond_columns(uint tiles) {}   // rows are stored up to a whole fragment

#ifndef KEY_PARTS
// The rows of O below rows, through the patch, a fragment at a time.
void store_o(uint rows) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < VF; ++d) {
    coopMatStore(O[r * VF + d], PATCH_ROWS, patch_at, PATCH_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0; u < (FM * FN / 4 + SG - 1) / SG; ++u) {
      const uint x = u * SG + lane, y = min(x, FM * FN / 4 - 1), row = row0 + r * FM + y / (FN / 4), c = d * FN + y % (FN / 4) * 4;
      const uint to = o_base + c + member_of(row) * o_sh + query_of(row) * o_sn;
      const vec4 four = uintBitsToFloat(PATCH_ROWS[patch_at + y / (FN / 4) * PATCH_PITCH + y % (FN / 4)]);
      if (((FM * FN / 4) % SG == 0 || x < FM * FN / 4) && row < rows && c < DV) {
        if (ALIGNED) STORED(o, 16, o4[to / 4] = four);
        else [[unroll]] for (uint e = 0; e < 4; ++e) if (c + e < DV) STORED(o, 4, o1[to + e] = four[e]);
      }
    }
    MEET
  }
}
#endif

// Forms 2 and 3: this subgroup's FM x CK floats at x_at become terms in H, planes of W FM CK/8, then operands of row fragment r.
const uint H_PLANE = BR / RM * CK / 8;
void shared_to_halves() {
  [[unroll]] for (uint u = 0; u < (FM * CK / 8 + SG - 1) / SG; ++u) {
    const uint x = min(u * SG + lane, FM * CK / 8 - 1), from = x_at + 8 * x;
    vec4 lo = vec4(X[from], X[from + 1], X[from + 2], X[from + 3]), hi = vec4(X[from + 4], X[from + 5], X[from + 6], X[from + 7]);
    [[unroll]] for (uint t = 0; t < TERMS; ++t) H[t * H_PLANE + h_at + x] = take_eight(lo, hi);
  }
}
void halves_to_operand(uint r) {
  [[unroll]] for (uint t = 0; t < TERMS; ++t) [[unroll]] for (uint n = 0; n < NP; ++n)
    coopMatLoad(P[(t * RM + r) * NP + n], H, t * H_PLANE + h_at + n * FK / 8, CK / 8, BY_ROW);
}
