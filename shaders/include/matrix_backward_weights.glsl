// P and dS into memory: matrix_backward_q.comp built with TO_MEMORY, which then makes no sum. What is multiplied by them follows as plain
// products (standard_product_matrix.comp, standard_backward_product_matrix.comp): five products in all, where kernels of wide heads, whose
// sums do not fit into registers beside their operands, make eight.
//
// Both are matrices of nq rows, pitch elements from row to row, a multiple of 8; a dispatch makes those of a slab, of some heads. dS has
// the factor scale in it, and dropout's; a weight that is dropped has its sign bit set or is 0, as standard_matrix.glsl's DROPOUT has it.
// Behind the last key of a row zeros go on as far as the products read what is there, and so they begin before the first. Rows beyond the
// last query of a batch entry may stay as they are: the products do not read them.
//
// Where every score has an element of the bias of its own, dS without that factor is the gradient with respect to the bias (DBIAS): it is
// written on the way, rounded once, and zeros where no query of the block sees a key.
//
// Of packed sequences a slab has some of the heads of all of them: a matrix has a row for each row of the queries' tensor, and columns
// count from the first key of the row's sequence. DBIAS is 0.
//
// Bindings: 6 P, 7 dS, both [head - first][row][pitch]; 14 dbias.
// Push constants: x_sb is the slab's first head, batch included, x_sh the elements from head to head, and x_sn the pitch; y is dbias. Of
// packed sequences x_sb is the first head of each, and y_sb how many the slab has.
//
// Specialization constants, besides those of matrix_backward.glsl, where H_LEN in form 1 is W FM 2 odd(CK/8), with DBIAS
// W FM (odd(CK/8) + CK/4 + 2):
//   53 ZERO   columns behind the last key that any query of the block sees, up to pitch, and before the first, that are written
//   54 DBIAS  form 1: the gradient with respect to the bias is wanted, of its type; ACCUMULATE is about it alone
//   77 ALIGNED_BIAS   every row of dbias begins at a multiple of 16 bytes, and nk elements are a multiple of that

layout(constant_id = 53) const uint ZERO = 64;
layout(constant_id = 54) const bool DBIAS = false;
layout(constant_id = 77) const bool ALIGNED_BIAS = true;
VIEWS(Y, y, 7, )
VIEWS(Z, z, 14, )
layout(binding = 14) buffer Z32_ { float z32[]; };

uint heads_at_once() { return PACKED ? y_sb : heads(); }   // of which packed sequences have a workgroup for each block

FRAG_A P[RM * NP];
uint slab_at, z_base;   // where this head begins in P and dS, and in dbias

// 8 elements of both.
void put(uint row, uint key, uvec4 p, uvec4 ds) {
  if (row < ROWS && key < x_sn) {
    const uint to = (slab_at + row * x_sn + key) / 8;
    STORED(x, 16, x4[to] = p);
    STORED(y, 16, y4[to] = ds);
  }
}

#define DBIAS_VIEW z
#define DBIAS_AT(row, key) (z_base + (row) * y_sn + (key))
#define DBIAS_ROWS ROWS
#include "matrix_backward_dbias.glsl"

#ifdef SLICED
#include "matrix_backward_slices.glsl"
#define OUT T
#else
#define OUT H
#endif

#ifdef COUNT
// The bytes of the bias that the scores of chunk c are given, as scores.
void count_bias(uint c) {
  if (SCORE_BIAS != 0) for (uint x = lane; x < RM * FM * CK; x += SG)
    if (row0 + x / CK < ROWS && first_key + c * CK + x % CK < nk) counted[3 * COUNT_scores] += 2 * SCORE_BIAS;
}
#endif

// Form 1: P and dS lie in shared memory by rows on their way out, as operands; with DBIAS dS as it is, in fp32, of which operand and
// gradient are made where lanes hold 8 neighbours of a row.
const uint H_PITCH = CK / 8 | 1u, H_PIECES = FM * CK / 8, DS_PITCH = DBIAS ? CK / 4 + 2 : H_PITCH, H_EACH = FM * (H_PITCH + DS_PITCH);
void to_operands() {
  const float unit = scale * keep_scale * P_UNIT;
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2) {
    const uint x = r * NS + n;
    HALVES(S[x][e] * P_UNIT, S[x][e + 1] * P_UNIT, COMPONENT(P, r, n, e), COMPONENT(P, r, n, e + 1))
    if (!DBIAS) HALVES(dP[x][e] * unit, dP[x][e + 1] * unit, COMPONENT(dS, r, n, e), COMPONENT(dS, r, n, e + 1))
  }
}
void put_operands(uint c) {
  const uint at = gl_SubgroupID * H_EACH, ds_at = at + FM * H_PITCH;
  const float unit = scale * keep_scale * P_UNIT;
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint n = 0; n < NP; ++n) {
      coopMatStore(P[r * NP + n], OUT, at + n * FK / 8, H_PITCH, BY_ROW);
      if (!DBIAS) coopMatStore(dS[r * NP + n], OUT, ds_at + n * FK / 8, DS_PITCH, BY_ROW);
    }
    if (DBIAS) [[unroll]] for (uint n = 0; n < NS; ++n) coopMatStore(dP[r * NS + n], OUT, ds_at + n * FN / 4, DS_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0, x = lane; u < (H_PIECES + SG - 1) / SG; ++u, x += SG) if (H_PIECES % SG == 0 || x < H_PIECES) {
      const uint in_row = x / (CK / 8), k = x % (CK / 8), row = row0 + r * FM + in_row, key = first_key + c * CK + k * 8;
      const uvec4 p = OUT[at + in_row * H_PITCH + k];
      if (DBIAS) {
        const uint from = ds_at + in_row * DS_PITCH + 2 * k;
        const vec4 lo = uintBitsToFloat(OUT[from]), hi = uintBitsToFloat(OUT[from + 1]), a = lo * unit, b = hi * unit;
        put(row, key, p, uvec4(HALVES_OF(a.x, a.y), HALVES_OF(a.z, a.w), HALVES_OF(b.x, b.y), HALVES_OF(b.z, b.w)));
        put_bias(row, key, lo * keep_scale, hi * keep_scale);
      } else put(row, key, p, OUT[ds_at + in_row * DS_PITCH + k]);
    }
    MEET
  }
}

#ifdef SLICED
#define SCORES(c) { [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0); add_slices(false); }
#define WEIGHT_GRADIENTS(c) add_slices(true);
#else
#define SCORES(c) scores(c);
#define WEIGHT_GRADIENTS(c) weight_gradients(c);
#endif

// Chunk c of the staged tile of keys.
void chunk(uint c, bool masked) {
  if (BIAS_PAIRS) ask_bias(first_key + c * CK + col_lane);
  COUNTING(count_bias(c);)
  SCORES(c)                // S = Q K^T
  if (FORM == 1) {
    weights(c, masked);    // P = exp(scale S - lse)
    minus_delta(c);
    WEIGHT_GRADIENTS(c)    // dP - delta = dO V^T - delta
    score_gradients(c);    // dS = P o (dP - delta)
    to_operands();
#ifdef SLICED
    barrier();             // they leave by way of where the last slice lies
#endif
    put_operands(c);
  } else {
    zero_gradients();
    WEIGHT_GRADIENTS(c)
    weights_through_shared(c, masked);
  }
}

// Zeros of the workgroup's rows, in P and dS and in dbias, from column `first` up to `last`; then before tile `begin` and from tile
// `end` on.
void put_zero(uint first, uint last) {
  const uint pieces = last > first ? (last - first + 7) / 8 : 0;
  for (uint x = tid; x < BR * pieces; x += WG) put(i * BR + x / pieces, first + x % pieces * 8, uvec4(0), uvec4(0));
}
void put_zeros(uint begin, uint end) {
  uint last = min((i + 1) * BR, ROWS) - 1;
  if (QUERY_LENGTHS) last = min(last, max(i * BR, last_query()));   // as the walk has it: queries beyond see nothing
  const uint width = PADDED ? min((key_count() + 7) / 8 * 8, x_sn) : x_sn;   // no product reads what lies beyond
  put_zero(end * BC, min(end_of(keys_of(last)) + ZERO, width));
  if (LOWER_BOUND) put_zero(uint(max(keys_of(i * BR).first - int(ZERO), 0)) / 8 * 8, min(begin * BC, x_sn));
  if (DBIAS) put_unseen_bias(begin, end);
}
