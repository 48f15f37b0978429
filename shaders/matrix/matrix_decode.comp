#version 460
// FlashAttention-2 forward for few queries on matrix hardware: decoding, where reading K and V once is all there is to do, and every
// instruction that is spent on a number keeps a load from being asked for.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1, with the keys in parts for
// different workgroups as in Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023; combine_parts.comp joins them.
//
// Why it looks this way. A product of fragments takes one instruction for FM FK numbers of K or V, whatever the number of rows up to FN;
// the plain kernel (scalar_decode.comp) takes one for each number and row. But K and V must not pass through shared memory, as in
// matrix_forward.comp, for each number is used once. So the products are turned round, S^T = K Q^T and O^T = V^T P^T: K and V are operand
// A, whose layout is probed (include/matrix_layout.glsl), and lanes load 16 bytes of a row straight into the registers of their
// components:
//
//   K    row of A = key, column = column of K. A lane holds SLOTS keys and, of each, HELD columns in every fragment. Which columns these
//        are is a matter of names, as long as Q has them in the same order: piece tc + COL_LANES c of 8 columns is the lane's in
//        fragments 8/HELD c and following, and Q enters shared memory in that order once (tc: which of the COL_LANES lanes that share a
//        key).
//   V^T  row of A = column of V, column = key. A lane holds HELD keys and, of each, SLOTS columns in every fragment: of the pieces
//        tr + ROW_LANES c those of fragments 8/SLOTS c and following. O has its columns in the same order, which the end undoes.
//
// P passes through a patch of shared memory for each subgroup: few numbers. All lanes of a subgroup share the reference m of a row, which
// is moved only when some score passes m + GROWTH (as in matrix_forward.comp, with one vote a batch), so that O is hardly ever rescaled.
// The next batch of K is loaded as soon as the scores are computed, that of V as soon as it is added; quantised rows, which wait in
// registers for their turn in shared memory, as soon as those before them have left. Numbers of pages are asked for a batch before.
//
// Scores are in units of log 2. A row with nothing to attend to ends with l = 0 and gives O = 0, lse = -inf. Which rows and keys are a
// workgroup's, and how subgroups meet, is in include/few_rows.glsl. Loads beyond the last key or column are moved inside.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32.
// With PARTS > 1, 3 and 4 are what combine_parts.comp reads: 3 O over the part's own sum [PARTS,B,Hq,Nq,DV rounded up to 8] fp32, 4 the
// logarithm to base 2 of that sum [PARTS,B,Hq,Nq].
// Push constants: include/args.glsl. Workgroups: blocks of rows, innermost, then parts, key heads, batch: ceil(Nq group/ROWS) PARTS Hk B;
// of packed sequences (include/rows.glsl) those there may be at most, key heads innermost, then parts.
// Variants: fp16; DTYPE_BF16; CACHE: keys and values in pages (include/pages.glsl) or quantised (include/quantised.glsl,
// matrix_cache_rows.glsl), with bindings 5, 6 and 12 to 14. Full subgroups of SG required, and a layout of form 1.
//
// Specialization constants:
//
//   0 WG = W SG   1 ROWS of a workgroup, at most RN FN   3 D, 4 DV   5 and 58 (include/mask.glsl)
//   6 ALIGNED     every row of q, k, v begins at a multiple of 16 bytes, of o at one of four elements, and D, DV are multiples of 8
//   7 WRITE_LSE   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN     11 SG subgroup size
//  13 RN          fragments of rows      14 KEYS  keys of a batch: a multiple of FM and FK
//  16 PARTS       parts that the batches of keys that a block of rows sees are dealt to
//  17 MEET        rows whose sums of subgroups lie in shared memory at the same time
//  18, 19 J_OF_COMP    entry f components + e: which of a lane's HELD columns the component A_OF(f, e) of operand A is
//  20, 21 COL_OF_J     the column of operand A that it is, less the lane's part; the first ones are the accumulator's
//  27..39         include/matrix_layout.glsl
//  63..67         include/score.glsl, sinks.glsl: bindings from 8 on     112 MAX_LOGIT  include/max_logit.glsl: binding 12, or 15
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7
// 104..107        with CACHE: include/pages.glsl, quantised.glsl

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require

#include "dtype.glsl"
#include "count.glsl"
#include "args.glsl"
#include "common.glsl"

#include "matrix_types.glsl"
#undef MEET
#define SUBGROUP_MEETS { subgroupMemoryBarrierShared(); subgroupBarrier(); }

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint ROWS = 4;
layout(constant_id = 3) const uint D = 128;
layout(constant_id = 4) const uint DV = 128;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool WRITE_LSE = true;
layout(constant_id = 8) const uint FM = 16;
layout(constant_id = 9) const uint FN = 16;
layout(constant_id = 10) const uint FK = 16;
layout(constant_id = 11) const uint SG = 32;
layout(constant_id = 13) const uint RN = 1;
layout(constant_id = 14) const uint KEYS = 16;
layout(constant_id = 16) const uint PARTS = 1;
layout(constant_id = 17) const uint MEET = 4;
layout(constant_id = 18) const uint J_OF_COMP_LO = 0;
layout(constant_id = 19) const uint J_OF_COMP_HI = 0;
layout(constant_id = 20) const uint COL_OF_J_LO = 0;
layout(constant_id = 21) const uint COL_OF_J_HI = 0;
#include "matrix_layout.glsl"

const uint W = WG / SG, BATCH = KEYS;
const uint COMPONENTS = FM * FN / SG, OPERANDS = FK / FN;            // of an accumulator; accumulators side by side that make an operand A
const uint HELD = FM * FK / SG / SLOTS, ACC_HELD = COMPONENTS / SLOTS;   // columns of operand A, and of an accumulator, that a lane holds
const uint COL_LANES = FK / HELD, ROW_LANES = FM / SLOTS;              // lanes that share a row, and a column, of operand A
const uint KF = KEYS / FM, VF = KEYS / FK;                             // fragments of a batch of K, of V
const uint KC = (D + 8 * COL_LANES - 1) / (8 * COL_LANES), VC = (DV + 8 * ROW_LANES - 1) / (8 * ROW_LANES);   // pieces of a lane and row
const uint K_STEPS = 8 / HELD, V_STEPS = 8 / SLOTS;                    // fragments of a piece
const uint QF = KC * K_STEPS, OF = VC * V_STEPS;                       // fragments of a row of Q, of a column of O^T
const uint Q_PITCH = QF * FK + 8, P_PITCH = RN * FN + 8;
const uint MEET_PITCH = VC * ROW_LANES * 2;
const float NONE = LOWEST;     // reference of a row that has seen nothing
// m = maximum - BELOW, and is moved when a score reaches m + GROWTH: P is 2^BELOW at the maximum then, and below 2^GROWTH.
const float GROWTH = 15.0, BELOW = 4.0;
#define J_OF(f, e) TABLE(J_OF_COMP, (f) * COMPONENTS + (e))

#define SCORE_AT 8
#define LENGTHS 6
#ifdef CACHE
#define PAGES 5
#include "quantised.glsl"
#endif
INPUT(q, 0)
INPUT(k, 1)
INPUT(v, 2)
OUTPUT(o, 3)
layout(set = 0, binding = 0, std430) readonly buffer qBits_ { uint16_t qBits[]; };
layout(set = 0, binding = 1, std430) readonly buffer kBits_ { uint16_t kBits[]; };
layout(set = 0, binding = 2, std430) readonly buffer vBits_ { uint16_t vBits[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Sums { vec4 sums[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };  // or the parts' statistics
#include "walk.glsl"
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#include "score.glsl"
#include "sinks.glsl"
#ifdef CACHE
#define MAX_LOGIT_AT 15
#else
#define MAX_LOGIT_AT 12
#endif
#include "max_logit.glsl"
#include "few_rows.glsl"

shared uint16_t Qs[RN * FN * Q_PITCH];     // rows of Q, columns in the order of K's fragments
shared uint16_t Ps[W * KEYS * P_PITCH];    // a subgroup's weights: keys, then rows

FRAG_B Q[QF * RN];
ACC O[OF * RN], S[KF * RN];
float m[RN * ACC_HELD], l[RN * ACC_HELD];  // of the lane's rows; l of the keys that it holds
float largest[MAX_LOGIT ? RN * ACC_HELD : 1];   // scores of these rows and keys: references stay behind them
uvec4 K[KF * SLOTS * KC], V[VF * HELD * VC];   // a batch

uint row_lane, col_lane;   // the lane's part of rows and columns of a fragment
uint tr, tc;               // which of the lanes that share a column, and a row, it is

// Key `u` of those of a batch that the lane holds of K, and of V.
uint k_key(uint u) { return u / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, u % SLOTS); }
uint v_key(uint u) { return u / HELD * FK + col_lane + TABLE(COL_OF_J, u % HELD); }
// The column of number `y` of the lane's piece c.
#ifdef CACHE
uint number_column(uint type, uint piece, uint y);
#ifdef DTYPE_BF16
#define K_AFTER false
uint whole_column(uint c, uint y) { return 0; }
#else
#define K_AFTER ((COL_LANES == 4 || COL_LANES == 8) && HELD <= 4 && IS_BLOCKS(K_TYPE))
uint whole_column(uint c, uint y);
#endif
uint k_piece_of(uint c);
uint v_piece_of(uint c);
uint k_column(uint c, uint y) {
  if (K_AFTER) return whole_column(c, y);
  return K_TYPE == NATIVE ? 8 * (tc + COL_LANES * c) + y : number_column(K_TYPE, k_piece_of(c), y);
}
uint v_column(uint c, uint y) { return V_TYPE == NATIVE ? 8 * (tr + ROW_LANES * c) + y : number_column(V_TYPE, v_piece_of(c), y); }
#else
uint k_column(uint c, uint y) { return 8 * (tc + COL_LANES * c) + y; }
uint v_column(uint c, uint y) { return 8 * (tr + ROW_LANES * c) + y; }
#endif
// Row of the workgroup that component e of accumulator n is of.
#define ROW_AT(n, e) ((n) * FN + col_lane + COL_OF(e))

#define PIECE k_piece
#define PIECE_T k
#define PIECE_COLS D
#define PIECE_LANE tc
#define PIECE_LANES COL_LANES
#include "piece.glsl"

#define PIECE v_piece
#define PIECE_T v
#define PIECE_COLS DV
#define PIECE_LANE tr
#define PIECE_LANES ROW_LANES
#include "piece.glsl"

#ifdef CACHE
// Pages of the batch that is loaded next, one number for each key or, where a batch cannot pass the end of a page, for all of them.
const bool ONE_PAGE = PAGE % BATCH == 0;   // tensors, whose PAGE is 0, are one too
uint k_page[ONE_PAGE ? 1 : KF * SLOTS], v_page[ONE_PAGE ? 1 : VF * HELD];
uint k_page_of(uint u) { return k_page[ONE_PAGE ? 0 : u]; }
uint v_page_of(uint u) { return ONE_PAGE ? k_page[0] : v_page[u]; }
void ask_pages(uint of) {
  const uint first = of * BATCH, last = max(seen, 1) - 1;
  if (ONE_PAGE) { k_page[0] = page_of(min(first, last)); return; }
  [[unroll]] for (uint u = 0; u < KF * SLOTS; ++u) k_page[u] = page_of(min(first + k_key(u), last));
  [[unroll]] for (uint u = 0; u < VF * HELD; ++u) v_page[u] = page_of(min(first + v_key(u), last));
}
uint k_lost, v_lost;   // bits: keys of this lane, of the batch that is computed with, whose pages there are not
void note_lost() {
  k_lost = v_lost = 0;
  [[unroll]] for (uint u = 0; u < KF * SLOTS; ++u) k_lost |= is_lost(k_page_of(u)) ? 1u << u : 0;
  [[unroll]] for (uint u = 0; u < VF * HELD; ++u) v_lost |= is_lost(v_page_of(u)) ? 1u << u : 0;
}
void lose_keys() {
  [[unroll]] for (uint u = 0; u < KF * SLOTS; ++u)
    if ((k_lost >> u & 1u) != 0) [[unroll]] for (uint c = 0; c < KC; ++c) K[u * KC + c] = uvec4(0);
}
void lose_values() {
  [[unroll]] for (uint u = 0; u < VF * HELD; ++u)
    if ((v_lost >> u & 1u) != 0) [[unroll]] for (uint c = 0; c < VC; ++c) V[u * VC + c] = uvec4(0);
}
#define K_ROW(key, u) row_in_page(k_origin, key, k_page_of(u), k_sb, k_sn)
#define V_ROW(key, u) row_in_page(v_origin, key, v_page_of(u), v_sb, v_sn)
#include "matrix_cache_rows.glsl"
#else
#define K_ROW(key, u) k_origin + (key) * k_sn
#define V_ROW(key, u) v_origin + (key) * v_sn
#endif
#ifdef CACHE
#define K_NATIVE K_TYPE == NATIVE
#define V_NATIVE V_TYPE == NATIVE
#else
#define K_NATIVE true
#define V_NATIVE true
#endif

void load_keys(uint of) {
#ifdef CACHE
  if (K_TYPE != NATIVE) { k_stage(of); return; }
#endif
  [[unroll]] for (uint u = 0; u < KF * SLOTS; ++u) {
    const uint key = of * BATCH + k_key(u), at = K_ROW(min(key, max(seen, 1) - 1), u);
    [[unroll]] for (uint c = 0; c < KC; ++c) K[u * KC + c] = k_piece(at, c, key < seen);
  }
}

void load_values(uint of) {
#ifdef CACHE
  if (V_TYPE != NATIVE) { v_stage(of); return; }
#endif
  [[unroll]] for (uint u = 0; u < VF * HELD; ++u) {
    const uint key = of * BATCH + v_key(u), at = V_ROW(min(key, max(seen, 1) - 1), u);
    [[unroll]] for (uint c = 0; c < VC; ++c) V[u * VC + c] = v_piece(at, c, key < seen);
  }
}

// The eight numbers of a piece, which are elements as they are.
void elements(uvec4 piece, out T16 x[8]) {
  [[unroll]] for (uint y = 0; y < 8; ++y) {
#ifdef DTYPE_BF16
    x[y] = uintBitsToBFloat16EXT(unpack16(piece[y / 2])[y % 2]);
#else
    x[y] = unpackFloat2x16(piece[y / 2])[y % 2];
#endif
  }
}
void k_numbers_of(uint u, uint c, out T16 x[8]) {
#ifdef CACHE
  if (K_TYPE != NATIVE) { k_staged(k_key(u), c, x); return; }
#endif
  elements(K[u * KC + c], x);
}
void v_numbers_of(uint u, uint c, out T16 x[8]) {
#ifdef CACHE
  if (V_TYPE != NATIVE) { v_staged(v_key(u), c, x); return; }
#endif
  elements(V[u * VC + c], x);
}

#if defined(CACHE) && !defined(DTYPE_BF16)
// K_AFTER: S^T by blocks of columns, each times d of its keys. Sums begin at what numbers as they are make too much: K_MORE times the sum
// of the block's columns of Q, by products with a matrix of that number. Where blocks have an m, K_MORE is 1024, and m times that sum is
// added, which is as exact.
ACC starts[KC * K_PER * RN];
void begin_blocks() {
  [[unroll]] for (uint x = 0; x < KC * K_PER * RN; ++x) starts[x] = ACC(0.0);
  [[unroll]] for (uint c = 0; c < KC; ++c)
    [[unroll]] for (uint h = 0; h < K_STEPS; ++h)
      [[unroll]] for (uint n = 0; n < RN; ++n) {
        const uint x = (c * K_PER + h * HELD / 4 % K_PER) * RN + n;
        starts[x] = coopMatMulAdd(FRAG_A(T16(-K_MORE)), Q[(c * K_STEPS + h) * RN + n], starts[x]);
      }
}
void block_scores() {
  [[unroll]] for (uint f = 0; f < KF; ++f)
    [[unroll]] for (uint c = 0; c < KC; ++c) {
      T16 x[SLOTS * 8], eight[8];
      [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot) {
        whole_numbers(k_key(f * SLOTS + slot), c, eight);
        [[unroll]] for (uint y = 0; y < 8; ++y) x[slot * 8 + y] = eight[y];
      }
      [[unroll]] for (uint part = 0; part < K_PER; ++part) {
        ACC s[RN];
        float d[SLOTS], m[SLOTS];
        [[unroll]] for (uint n = 0; n < RN; ++n) s[n] = starts[(c * K_PER + part) * RN + n];
        [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot) d[slot] = whole_scale(k_key(f * SLOTS + slot), c * K_PER + part);
        if (HAS_LEAST(K_TYPE))
          [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot) m[slot] = whole_least(k_key(f * SLOTS + slot), c * K_PER + part) / -1024;
        [[unroll]] for (uint step = 0; step < K_STEPS / K_PER; ++step) {
          const uint h = part * (K_STEPS / K_PER) + step;
          FRAG_A a;
          [[unroll]] for (uint g = 0; g < OPERANDS; ++g)
            [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) a[A_OF(g, e)] = x[SLOT_OF(e) * 8 + h * HELD + J_OF(g, e)];
          [[unroll]] for (uint n = 0; n < RN; ++n) s[n] = coopMatMulAdd(a, Q[(c * K_STEPS + h) * RN + n], s[n]);
        }
        [[unroll]] for (uint n = 0; n < RN; ++n)
          [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) S[f * RN + n][e] = fma(d[SLOT_OF(e)], s[n][e], S[f * RN + n][e]);
        if (HAS_LEAST(K_TYPE))
          [[unroll]] for (uint n = 0; n < RN; ++n)
            [[unroll]] for (uint e = 0; e < COMPONENTS; ++e)
              S[f * RN + n][e] = fma(m[SLOT_OF(e)], starts[(c * K_PER + part) * RN + n][e], S[f * RN + n][e]);
      }
    }
}
#endif

// S^T = scale K Q^T, in units of log 2.
void scores() {
  [[unroll]] for (uint x = 0; x < KF * RN; ++x) S[x] = ACC(0.0);
#if defined(CACHE) && !defined(DTYPE_BF16)
  if (K_AFTER) block_scores(); else
#endif
  [[unroll]] for (uint f = 0; f < KF; ++f)
    [[unroll]] for (uint c = 0; c < KC; ++c) {
      T16 x[SLOTS * 8], eight[8];
      [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot) {
        k_numbers_of(f * SLOTS + slot, c, eight);
        [[unroll]] for (uint y = 0; y < 8; ++y) x[slot * 8 + y] = eight[y];
      }
      [[unroll]] for (uint h = 0; h < K_STEPS; ++h) {
        FRAG_A a;
        [[unroll]] for (uint g = 0; g < OPERANDS; ++g)
          [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) a[A_OF(g, e)] = x[SLOT_OF(e) * 8 + h * HELD + J_OF(g, e)];
        [[unroll]] for (uint n = 0; n < RN; ++n) S[f * RN + n] = coopMatMulAdd(a, Q[(c * K_STEPS + h) * RN + n], S[f * RN + n]);
      }
    }
  const float scale = score_scale
#ifdef CACHE
    * key_scale(b, kh)
#endif
    ;
  [[unroll]] for (uint x = 0; x < KF * RN; ++x) S[x] *= scale;
}

// Scores as functions, bias and masks make them.
void score_pairs() {
  [[unroll]] for (uint n = 0; n < RN; ++n)
    [[unroll]] for (uint j = 0; j < ACC_HELD; ++j) {
      const uint row = row0 + n * FN + col_lane + TABLE(COL_OF_J, j), query = query_of(row);
      scores_of(b, kh * group() + member_of(row));
      [[unroll]] for (uint f = 0; f < KF; ++f)
        [[unroll]] for (uint e = 0; e < COMPONENTS; ++e)
          if (J_OF(0, e) == j)
            S[f * RN + n][e] = bits_of_score(scored(S[f * RN + n][e] * LN2, query, current * BATCH + f * FM + row_lane + ROW_OF(e)));
    }
}

// Padding keys read the last key's row in their place. Its values are taken away, for a weight of 0 would make a NaN of an infinity.
void mask() {
  [[unroll]] for (uint n = 0; n < RN; ++n)
    [[unroll]] for (uint j = 0; j < ACC_HELD; ++j) {
      const Span span = keys_of(query_of(row0 + n * FN + col_lane + TABLE(COL_OF_J, j)));
      [[unroll]] for (uint f = 0; f < KF; ++f)
        [[unroll]] for (uint e = 0; e < COMPONENTS; ++e)
          if (J_OF(0, e) == j && !has(span, current * BATCH + f * FM + row_lane + ROW_OF(e))) S[f * RN + n][e] = NEG_INFINITY;
    }
#ifdef CACHE
  if (V_TYPE != NATIVE) { v_drop_beyond(); return; }
#endif
  [[unroll]] for (uint u = 0; u < VF * HELD; ++u)
    if (current * BATCH + v_key(u) >= seen) [[unroll]] for (uint c = 0; c < VC; ++c) V[u * VC + c] = uvec4(0);
}

// Over the lanes that hold other keys of the same rows.
float over_keys_max(float x) {
  [[unroll]] for (uint bit = 0; bit < 7; ++bit) if (WEIGHT(ROW_LANE, bit) != 0u) x = max(x, subgroupShuffleXor(x, 1u << bit));
  return x;
}
float over_keys_sum(float x) {
  [[unroll]] for (uint bit = 0; bit < 7; ++bit) if (WEIGHT(ROW_LANE, bit) != 0u) x += subgroupShuffleXor(x, 1u << bit);
  return x;
}

// Weights of a batch, into Ps, and their sums.
void weigh() {
  float top[RN * ACC_HELD];
  bool grew = false;
  [[unroll]] for (uint n = 0; n < RN; ++n)
    [[unroll]] for (uint j = 0; j < ACC_HELD; ++j) {
      float x = NEG_INFINITY;
      [[unroll]] for (uint f = 0; f < KF; ++f)
        [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) if (J_OF(0, e) == j) x = max(x, S[f * RN + n][e]);
      top[n * ACC_HELD + j] = x;
      grew = grew || x >= m[n * ACC_HELD + j] + GROWTH;
    }
  if (MAX_LOGIT) [[unroll]] for (uint r = 0; r < RN * ACC_HELD; ++r) largest[r] = max(largest[r], top[r]);
  if (subgroupAny(grew)) {
    [[unroll]] for (uint n = 0; n < RN; ++n)
      [[unroll]] for (uint j = 0; j < ACC_HELD; ++j) {
        const uint r = n * ACC_HELD + j;
        const float reference = max(m[r], over_keys_max(top[r]) - BELOW), alpha = exp2(m[r] - reference);
        m[r] = reference;
        l[r] *= alpha;
        [[unroll]] for (uint x = 0; x < OF; ++x)
          [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) if (J_OF(0, e) == j) O[x * RN + n][e] *= alpha;
      }
  }
  SUBGROUP_MEETS
  [[unroll]] for (uint n = 0; n < RN; ++n)
    [[unroll]] for (uint f = 0; f < KF; ++f)
      [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) {
        const float p = exp2(S[f * RN + n][e] - m[n * ACC_HELD + J_OF(0, e)]);
        l[n * ACC_HELD + J_OF(0, e)] += p;
        Ps[(subgroup * KEYS + f * FM + row_lane + ROW_OF(e)) * P_PITCH + ROW_AT(n, e)] = ELEMENT_BITS(p);
      }
  SUBGROUP_MEETS
}

// O^T += V^T P^T.
void add_values() {
  [[unroll]] for (uint f = 0; f < VF; ++f) {
    FRAG_B p[RN];
    [[unroll]] for (uint n = 0; n < RN; ++n) coopMatLoad(p[n], Ps, (subgroup * KEYS + f * FK) * P_PITCH + n * FN, P_PITCH, BY_ROW);
    [[unroll]] for (uint c = 0; c < VC; ++c) {
      T16 x[HELD * 8], eight[8];
      [[unroll]] for (uint j = 0; j < HELD; ++j) {
        v_numbers_of(f * HELD + j, c, eight);
        [[unroll]] for (uint y = 0; y < 8; ++y) x[j * 8 + y] = eight[y];
      }
      [[unroll]] for (uint h = 0; h < V_STEPS; ++h) {
        FRAG_A a;
        [[unroll]] for (uint g = 0; g < OPERANDS; ++g)
          [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) a[A_OF(g, e)] = x[J_OF(g, e) * 8 + h * SLOTS + SLOT_OF(e)];
        [[unroll]] for (uint n = 0; n < RN; ++n)
          O[(c * V_STEPS + h) * RN + n] = coopMatMulAdd(a, p[n], O[(c * V_STEPS + h) * RN + n]);
      }
    }
  }
}

// Q, columns in the order of K's fragments; as operands.
void take_q() {
  for (uint n = subgroup * ROW_LANES + tr; n < RN * FN; n += W * ROW_LANES) {
    const uint at = q_row(row0 + n);
    [[unroll]] for (uint c = 0; c < KC; ++c)
      [[unroll]] for (uint y = 0; y < 8; ++y) {
        const uint col = k_column(c, y), to = (c * K_STEPS + y / HELD) * FK + col_lane + TABLE(COL_OF_J, y % HELD);
        const uint x = LOADED_IF(q, BYTES, col < D && n < ROWS && row0 + n < all_rows, uint(qBits[at + min(col, D - 1)]));
        Qs[n * Q_PITCH + to] = uint16_t(col < D ? x : 0);
      }
  }
  barrier();
  [[unroll]] for (uint x = 0; x < QF; ++x)
    [[unroll]] for (uint n = 0; n < RN; ++n) coopMatLoad(Q[x * RN + n], Qs, n * FN * Q_PITCH + x * FK, Q_PITCH, BY_COLUMN);
}

// The largest scores that the subgroup saw of each row, added to its head's. Before sums of rows meet.
void take_max_logits() {
  [[unroll]] for (uint r = 0; r < RN * ACC_HELD; ++r) {
    const uint row = r / ACC_HELD * FN + col_lane + TABLE(COL_OF_J, r % ACC_HELD);
    const bool exists = row < ROWS && row0 + row < all_rows && query_of(row0 + row) < query_count();
    int own = exists ? logit_of(largest[r], l[r]) : NO_LOGIT;
    [[unroll]] for (uint bit = 0; bit < 7; ++bit) if (WEIGHT(ROW_LANE, bit) != 0u) own = max(own, subgroupShuffleXor(own, 1u << bit));
    if (tr == 0) add_logit(b * heads() + kh * group() + member_of(row0 + row), own);
  }
}

void main() {
  if (!take_rows()) return;
  row_lane = lane_part(ROW_LANE, lane);
  col_lane = lane_part(COL_LANE, lane);
  tr = tc = 0;
  uint rows_at = 0, columns_at = 0;
  [[unroll]] for (uint bit = 0; bit < 7; ++bit) {
    if (WEIGHT(ROW_LANE, bit) != 0u) tr |= (lane >> bit & 1u) << rows_at++;
    if (WEIGHT(COL_LANE, bit) != 0u) tc |= (lane >> bit & 1u) << columns_at++;
  }
#ifdef CACHE
  ask_pages(current);
  note_lost();
  hide_masks(); fill_table();
  if (K_TYPE != NATIVE) k_find_places();
  if (V_TYPE != NATIVE) v_find_places();
#endif
  load_keys(current);
  load_values(current);
  take_q();
#if defined(CACHE) && !defined(DTYPE_BF16)
  if (K_AFTER) begin_blocks();
#endif
#ifdef CACHE
  if (PAGE != 0 && current + W < keys.end) ask_pages(current + W);
#endif
  [[unroll]] for (uint r = 0; r < RN * ACC_HELD; ++r) { m[r] = NONE; l[r] = 0; }
  if (MAX_LOGIT) [[unroll]] for (uint r = 0; r < RN * ACC_HELD; ++r) largest[r] = NEG_INFINITY;
  [[unroll]] for (uint x = 0; x < OF * RN; ++x) O[x] = ACC(0.0);

  // As many turns for every subgroup, the last of some masked: lavapipe (26.1) takes a barrier of a subgroup for one of the workgroup, and
  // ends subgroups that meet more of them than others.
  uint turns = (max(keys.end, keys.begin + 1) - keys.begin + W - 1) / W;
  do {
    const uint next = current + W < keys.end ? current + W : all.end;
    const bool more = next < keys.end;
#ifdef CACHE
    if (PAGE != 0 && K_TYPE == NATIVE && k_lost != 0) lose_keys();
    if (K_TYPE != NATIVE) {
      k_store();
      if (more) load_keys(next);   // what it was in is free
    }
#endif
    scores();
    if (K_NATIVE && more) load_keys(next);
    if (SCORED) score_pairs();
    if (!is_whole(keys, current)) mask();
    weigh();
#ifdef CACHE
    if (PAGE != 0) {
      if (V_TYPE == NATIVE && v_lost != 0) lose_values();
      note_lost();
    }
    if (V_TYPE != NATIVE) {
      v_store();
      if (more) load_values(next);
    }
#endif
    add_values();
    if (V_NATIVE && more) load_values(next);
#ifdef CACHE
    if (PAGE != 0 && next + W < keys.end) ask_pages(next + W);
#endif
    current = next;
  } while (--turns > 0);

  if (MAX_LOGIT) take_max_logits();
  // Every lane of a row has the same m, and the sum of its own keys.
  [[unroll]] for (uint n = 0; n < RN; ++n)
    [[unroll]] for (uint j = 0; j < ACC_HELD; ++j) {
      const uint r = n * ACC_HELD + j, row = n * FN + col_lane + TABLE(COL_OF_J, j);
      const float sum = over_keys_sum(l[r]);
      if (tr == 0 && row < ROWS) met_ml[subgroup * ROWS + row] = vec2(m[r], sum);
    }
  [[unroll]] for (uint first_row = 0; first_row < ROWS; first_row += MEET) {
    if (first_row > 0) barrier();  // other subgroups have read the rows before these
    [[unroll]] for (uint n = 0; n < RN; ++n)
      [[unroll]] for (uint e = 0; e < COMPONENTS; ++e) {
        const uint row = ROW_AT(n, e);
        if (row >= first_row && row < min(first_row + MEET, ROWS))
          [[unroll]] for (uint x = 0; x < OF; ++x) {
            const uint col = v_column(x / V_STEPS, x % V_STEPS * SLOTS + SLOT_OF(e));
            met[(subgroup * MEET + row - first_row) * MEET_PITCH + col / 4][col % 4] = O[x * RN + n][e];
          }
      }
    barrier();
    store_met(first_row);
  }
}
