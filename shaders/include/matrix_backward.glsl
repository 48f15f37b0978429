// What matrix_backward_kv.comp (KV defined; rows are keys) and matrix_backward_q.comp (rows are queries) share. One walks over what
// the other owns, so up to their results they are the same kernel with Q, dO and K, V exchanged:
//
//   S = R C^T,  X = R' C'^T     R, R' rows of the workgroup (K, V or Q, dO), C, C' columns, a tile of BC at a time (Q, dO or K, V)
//   P = exp(scale S - lse),  dS = P o (X - delta),  sums: P C' (kv only) and dS C
//
// A subgroup owns RM fragments of FM rows: R and R' as operands (A_REG and B_REG slices in registers, the rest in shared memory), the
// sums as accumulators. It takes the tile in chunks of CK columns: S and X, weights, sums. The rows of C and C' in shared memory, staged
// 16 bytes at a time at an odd pitch, serve as right operands of both kinds, by column for S and X, by row for the sums. P and dS become
// left operands in one of two ways:
//   FORM 1       accumulator and operand A agree (include/matrix_layout.glsl, probed): component by component, in registers
//   FORM 2 or 3  through shared memory: S and X are stored, lanes work on rows of 8, and P and dS are loaded: right for any layout
//
// lse and delta belong to queries. In kv these are columns: both sit in shared memory beside the tile. In q they are rows: in registers
// (form 1) or in shared memory. S - lse is at most 0 up to rounding, so no maximum is needed; a query of nothing (lse = -inf) or
// beyond the last counts as lse = +inf, which makes its P 0. Rows beyond the last are zero when read and never written; columns
// beyond the last are read as the last, and have P = 0. With CAUSAL, tiles that cross the diagonal have a loop of their own with masks.
//
// With DROPOUT, which weights of a tile are kept is drawn once for the workgroup while the tile is staged (each draw serves 16 keys),
// and waits in shared memory, as the words of the draw or as the 16 bits that are asked of it (BY_LANE 2).
//
// Specialization constants of both kernels (odd(x) = x | 1; DF = ceil(D/FK), DN = ceil(D/FN), EF = ceil(DV/FK), EN = ceil(DV/FN)):
//   0 WG = W SG   1 BR = W RM FM rows (kv: keys; q: queries)   2 BC columns of a tile (kv: queries; q: keys)   3 D   4 DV   5 CAUSAL
//   6 ALIGNED     every row of q, k, v, dO and of the gradients begins at a multiple of 16 bytes and D, DV are multiples of 8
//   7 ACCUMULATE  gradients are added to what is there
//   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN (FN and FK multiples of 8)     11 SG subgroup size    12 FORM
//  13 RM row fragments of a subgroup    14 CK columns of a chunk: a multiple of FN and FK that divides BC
//  15 PREFETCH    0 none; 1 the next tile waits in registers; 2 two tiles in shared memory and one barrier a tile: while a chunk is computed,
//                 CK columns of the next tile are on their way
//  16 A_REG, 17 B_REG   slices of R and of R', FK wide, that stay in registers (>= 1; DF and EF keep all)
//  18 DROPOUT     19 HEADS_TOGETHER    heads (kv: key heads) whose blocks of one place follow one another; 1: a head after the other
//  20 A_PITCH >= odd(max(DF FK, DN FN)/8), 21 B_PITCH >= odd(max(EF FK, EN FN)/8)   of the rows of C and C' in shared memory, in 16 bytes
//  22 TILE_LEN    >= BC (A_PITCH + B_PITCH), twice that with PREFETCH 2, and >= W FM odd(PATCH), in 16 bytes
//  23 MASKS       0: no tile needs the loop with masks, which is left out. kv: 0 allowed if not causal. q: 0 allowed if not causal and
//                 nk is a multiple of BC
//  24 STATS_LEN   pairs of floats: kv BC, 2 BC with PREFETCH 2; q: form 1: 1, else BR
//  25 ROWS_LEN    16 bytes: W RM FM (pitch(DF - A_REG) + pitch(EF - B_REG)), pitch(n) = n > 0 ? odd(n FK/8) : 0; at least 1
//  26 X_LEN       floats of exchange: form 1: 1; else W 2 FM CK
//  40 H_LEN       16 bytes of exchange: form 1: 1; else W 2 FM CK/8
//  41 PATCH       16-byte units a row of the patch through which rows enter and gradients leave: a multiple of FK/8 and FN/4
//  42 DROP_LEN    words: at least 64, as include/matrix_attention.glsl says; with DROPOUT 16 KEY_GROUPS times 8 more than the queries of
//                 a tile (kv: BC; q: BR), where KEY_GROUPS counts the groups of 64 keys that the keys of a tile (n = kv: BR; q: BC) may touch:
//                 n/64 where 64 divides n, 1 where n divides 64, else floor(n/64) + 2; BY_LANE 2: a quarter of that
//  43 PARTS       kv: 3 dK and dV; 1 only dK, 2 only dV: two dispatches with half the accumulators each, for wide heads, whose sums do not
//                 fit into registers together (5 products instead of 4). q: ignored
//  44 BY_LANE     how weights find what is drawn for them. 0: each its word. 1: one word does for what a lane holds of a query and 16 keys:
//                 form 1; kv: lanes hold rows q and q + 8 of every 16, q < 8, and FM is a multiple of 16; q: columns 2 q, 2 q + 1, 2 q + 8,
//                 2 q + 9, q < 4, and CK is a multiple of 16; keys of a tile divide 64, or 64 divides them. 2: the same with bits for words;
//                 kv: FM is 16, RM 1, 2 or 4, and components e and e + 1, e even, are columns 2 n and 2 n + 1 of a row
//  27..39         include/matrix_layout.glsl

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint BR = 16;
layout(constant_id = 2) const uint BC = 16;
layout(constant_id = 3) const uint D = 16;
layout(constant_id = 4) const uint DV = 16;
layout(constant_id = 5) const bool CAUSAL = false;
layout(constant_id = 6) const bool ALIGNED = true;
layout(constant_id = 7) const bool ACCUMULATE = false;
layout(constant_id = 8) const uint FM = 16;
layout(constant_id = 9) const uint FN = 16;
layout(constant_id = 10) const uint FK = 16;
layout(constant_id = 11) const uint SG = 32;
layout(constant_id = 12) const uint FORM = 1;
layout(constant_id = 13) const uint RM = 1;
layout(constant_id = 14) const uint CK = 16;
layout(constant_id = 15) const uint PREFETCH = 0;
layout(constant_id = 16) const uint A_REG = 1;
layout(constant_id = 17) const uint B_REG = 1;
layout(constant_id = 18) const bool DROPOUT = false;
layout(constant_id = 19) const uint HEADS_TOGETHER = 1;
layout(constant_id = 20) const uint A_PITCH = 3;
layout(constant_id = 21) const uint B_PITCH = 3;
layout(constant_id = 22) const uint TILE_LEN = 96;
layout(constant_id = 23) const bool MASKS = true;
layout(constant_id = 24) const uint STATS_LEN = 1;
layout(constant_id = 25) const uint ROWS_LEN = 1;
layout(constant_id = 26) const uint X_LEN = 1;
layout(constant_id = 40) const uint H_LEN = 1;
layout(constant_id = 41) const uint PATCH = 4;
layout(constant_id = 42) const uint DROP_LEN = 64;
layout(constant_id = 44) const uint BY_LANE = 0;
#ifdef KV
layout(constant_id = 43) const uint PARTS = 3;
const uint SUMS_A = (PARTS & 1u) != 0u ? RM * ((D + FN - 1) / FN) : 1, SUMS_B = (PARTS & 2u) != 0u ? RM * ((DV + FN - 1) / FN) : 1;
#define WANTED(part) if ((PARTS & part) != 0u)
#define DK_PART 1u
#define DV_PART 2u
#else
#define WANTED(part)
#endif

const uint DF = (D + FK - 1) / FK, DN = (D + FN - 1) / FN;      // slices of R and C; fragments of a sum over D columns
const uint EF = (DV + FK - 1) / FK, EN = (DV + FN - 1) / FN;    // the same for DV
const uint AU = (D + 7) / 8, BU = (DV + 7) / 8;                 // 16-byte units of a row
const uint A_WIDTH = (DF * FK > DN * FN ? DF * FK : DN * FN) / 8, B_WIDTH = (EF * FK > EN * FN ? EF * FK : EN * FN) / 8;
const uint NS = CK / FN, NP = CK / FK, CHUNKS = BC / CK;        // accumulators of S and operands P across a chunk; chunks of a tile
const uint B_AT = BC * A_PITCH;                                 // C' behind C
const uint TILE = BC * (A_PITCH + B_PITCH), TILES = PREFETCH == 2 ? 2 : 1;  // length of a tile, tiles in shared memory
const uint AR = A_REG < DF ? A_REG : DF, BRG = B_REG < EF ? B_REG : EF;
const uint RA_PITCH = AR < DF ? (DF - AR) * FK / 8 | 1u : 0, RB_PITCH = BRG < EF ? (EF - BRG) * FK / 8 | 1u : 0;
const uint PATCH_PITCH = PATCH | 1u;
const uint A_PASSES = (DF * FK / 8 + PATCH - 1) / PATCH, B_PASSES = (EF * FK / 8 + PATCH - 1) / PATCH;
const uint ROW_EACH = (FM * PATCH + SG - 1) / SG;               // pieces a lane and pass
#ifdef KV
const uint DRAW_KEYS = BR, DRAW_QUERIES = BC;
#else
const uint DRAW_KEYS = BC, DRAW_QUERIES = BR;
#endif
const uint KEY_GROUPS = (DRAW_KEYS % 64) * (64 % DRAW_KEYS) == 0 ? (DRAW_KEYS + 63) / 64 : DRAW_KEYS / 64 + 2;

#include "matrix_types.glsl"
#define P_UNIT (FORM == 1 ? CUT : 1.0)   // how much smaller operands P and dS are than what they stand for, on average
#include "count.glsl"

layout(binding = 0) readonly buffer Q4_ { uvec4 q4[]; };
layout(binding = 0) readonly buffer Q16_ { uint16_t q16[]; };
layout(binding = 1) readonly buffer K4_ { uvec4 k4[]; };
layout(binding = 1) readonly buffer K16_ { uint16_t k16[]; };
layout(binding = 2) readonly buffer V4_ { uvec4 v4[]; };
layout(binding = 2) readonly buffer V16_ { uint16_t v16[]; };
layout(binding = 3) readonly buffer G4_ { uvec4 g4[]; };
layout(binding = 3) readonly buffer G16_ { uint16_t g16[]; };
layout(binding = 4) readonly buffer Lse_ { float lse[]; };
layout(binding = 5) readonly buffer Delta_ { float delta[]; };
layout(binding = 6) buffer X4_ { uvec4 x4[]; };
layout(binding = 6) buffer X16_ { uint16_t x16[]; };
#ifdef KV
layout(binding = 7) buffer Y4_ { uvec4 y4[]; };
layout(binding = 7) buffer Y16_ { uint16_t y16[]; };
#endif
#include "args_backward.glsl"
#include "dropout.glsl"
#include "dropout_bits.glsl"
#include "matrix_layout.glsl"
#include "matrix_gather.glsl"

shared uvec4 T[TILE_LEN];        // staged tiles: C, then C' at B_AT; before and after the loops, one fragment's patch per subgroup
shared uvec4 R_[ROWS_LEN];       // slices of R and R' that are not in registers
shared vec2 stats[STATS_LEN];    // lse in units of log 2, delta
shared float E[X_LEN];           // exchange of forms 2 and 3: S, then X, of a row fragment and chunk
shared uvec4 H[H_LEN];           // P, then dS
shared uint drawn[DROP_LEN];     // dropout's draws: [group of 64 keys][4 words; not with BITS][4 draws][query of the tile, and 8]: a subgroup BY_LANE meets every bank once

// The names of rows and columns. Tensor, row stride, last row of columns.
#ifdef KV
#define ROW_A k
#define ROW_B v
#define COL_A q
#define COL_B g
#define COL_A_SN q_sn
#define COL_B_SN g_sn
#define COL_LAST (nq - 1)
#else
#define ROW_A q
#define ROW_B g
#define COL_A k
#define COL_B v
#define COL_A_SN k_sn
#define COL_B_SN v_sn
#define COL_LAST (nk - 1)
#endif
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define GATHER_(T, row, c, width, real) GATHER(T, row, c, width, real)

uint bh, key0, first_key, first_query; // head of queries; keys of the workgroup or tile, see weigh
uint member0_a, member0_b, member_a, member_b; // where C and C' of the first head begin; from head to head of the group
#define WITHOUT_SCALE(x) (DROPOUT ? (x) / keep_scale : (x))
#define BITS (DROPOUT && BY_LANE == 2)
float keep_scale;   // of dropout, 1/(1-p): sums take X and delta without it, and gradients are multiplied in the end

float log2_units(float l) { return l == -infinity() ? infinity() : l * 1.4426950408889634; }

// A workgroup moves PART columns of a tile at once; invocation tid moves pieces tid, tid + WG, ...
const uint PART = PREFETCH == 2 ? CK : BC, A_PIECES = PART * AU, B_PIECES = PART * BU;
const uint A_EACH = (A_PIECES + WG - 1) / WG, B_EACH = (B_PIECES + WG - 1) / WG;
#define EACH(pieces, each, u, x) [[unroll]] for (uint u = 0, x = tid; u < each; ++u, x += WG) if (pieces % WG == 0 || x < pieces)
uvec4 load_a(uint origin, uint col, uint c) {
  const uint at = origin + min(col, COL_LAST) * COL_A_SN;
  if (ALIGNED) return LOADED_IF(COL_A, 16, col <= COL_LAST, PASTE(COL_A, 4)[at / 8 + c]);
  return GATHER_(COL_A, at, c, D, col <= COL_LAST);
}
uvec4 load_b(uint origin, uint col, uint c) {
  const uint at = origin + min(col, COL_LAST) * COL_B_SN;
  if (ALIGNED) return LOADED_IF(COL_B, 16, col <= COL_LAST, PASTE(COL_B, 4)[at / 8 + c]);
  return GATHER_(COL_B, at, c, DV, col <= COL_LAST);
}
#ifdef KV
const uint STAT_EACH = (PART + WG - 1) / WG;
// What is made of lse waits for it, so that it comes with the store.
#define FETCH_STATS(member, from)                                                                                                  \
  EACH(PART, STAT_EACH, u, x) {                                                                                                    \
    const uint query = (from) + x, s = (bh + (member)) * nq + min(query, nq - 1);                                                  \
    lr[u] = LOADED_IF(lse, 4, query < nq, lse[lse_off() + s]);                                                                     \
    dr[u] = LOADED_IF(delta, 4, query < nq, delta[delta_off() + s]);                                                               \
  }
#define STORE_STATS(at, from)                                                                                                      \
  EACH(PART, STAT_EACH, u, x) {                                                                                                    \
    const float l_ = (from) + x < nq ? log2_units(lr[u]) : infinity(), d_ = WITHOUT_SCALE(dr[u]);                                  \
    stats[(at) + x] = BITS ? vec2(l_ + 1.0, 2.0 * d_) : vec2(l_, d_);                                                              \
  }
#else
#define FETCH_STATS(member, from)
#define STORE_STATS(at, from)
#endif
// PART columns from `from` on, of a head of the group: from memory, and into shared memory, where they begin at column `at` of tile `tile`
#define FETCH(member, from) {                                                                                                      \
  EACH(A_PIECES, A_EACH, u, x) ar[u] = load_a(member0_a + (member) * member_a, (from) + x / AU, x % AU);                           \
  EACH(B_PIECES, B_EACH, u, x) br[u] = load_b(member0_b + (member) * member_b, (from) + x / BU, x % BU);                           \
  FETCH_STATS(member, from) }
#define STORE(tile, at, from) {                                                                                                    \
  EACH(A_PIECES, A_EACH, u, x) T[(tile) * TILE + ((at) + x / AU) * A_PITCH + x % AU] = ar[u];                                      \
  EACH(B_PIECES, B_EACH, u, x) T[(tile) * TILE + B_AT + ((at) + x / BU) * B_PITCH + x % BU] = br[u];                               \
  STORE_STATS((tile) * BC + (at), from) }
#ifdef KV
#define KV_OR(q, kv) (kv)
#else
#define KV_OR(q, kv) (q)
#endif
// What dropout keeps of the tile, drawn by the workgroup: DRAW_QUERIES queries from query0, groups of keys from key0 on. BITS: in q a query
// has its word of 16 bits; in kv, where a lane holds queries 2 n and 2 n + 1 side by side, word 2 n has what both keep of keys 0 to 7 of
// every 16, and word 2 n + 1 of the others.
const uint TOGETHER = KV_OR(1, BY_LANE == 2 ? 2 : 1);  // queries that an invocation draws for at once
const uint DRAWN_PITCH = DRAW_QUERIES + 8, DRAWS = DRAW_QUERIES / TOGETHER * KEY_GROUPS * 4, DRAW_EACH = (DRAWS + WG - 1) / WG;
#define DRAW_TILE(query0, head)                                                                                                    \
  if (DROPOUT) EACH(DRAWS, DRAW_EACH, u, x) {                                                                                      \
    const uint of_query = x % (DRAW_QUERIES / TOGETHER) * TOGETHER, group_ = x / (DRAW_QUERIES / TOGETHER) / 4, q_ = x / (DRAW_QUERIES / TOGETHER) % 4; \
    const uint keys_ = 4 * (first_key / 64 + group_) + q_, bits_at = (group_ * 4 + q_) * DRAWN_PITCH + of_query;                   \
    const uvec4 y = draw(keys_, (query0) + of_query, head);                                                                        \
    if (BITS) { STORE_BITS(kept_bits(y), kept_bits(draw(keys_, (query0) + of_query + 1, head))) }                                  \
    else [[unroll]] for (uint t_ = 0; t_ < 4; ++t_) drawn[((group_ * 4 + t_) * 4 + q_) * DRAWN_PITCH + of_query] = y[t_];          \
  }
#ifdef KV
#define STORE_BITS(mine, next) {                                                                                                   \
    const uint a_ = mine, b_ = next;                                                                                               \
    drawn[bits_at] = a_ & 0xffffu | b_ << 16; drawn[bits_at + 1] = a_ >> 16 | b_ & 0xffff0000u; }
#else
#define STORE_BITS(mine, next) drawn[bits_at] = mine;
#endif

// The word that draw q of a query has for the 16 keys of `key`.
uint drawn_word(uint query, uint key, uint q) {
  const uint from = first_key % 64 + (key - first_key);  // in the groups of 64 keys of the tile
  return drawn[((from / 64 * 4 + from / 16 % 4) * 4 + q) * DRAWN_PITCH + (query - first_query)];
}
// The weight of a score
float weight(float s, float l, uint query, uint key, bool masked) {
  float p = exp2(fma(s, scale * 1.4426950408889634, -l));
  if (masked) {
    if (CAUSAL && int(key) > int(query) + causal_shift) p = 0;
#ifndef KV
    if (key >= nk) p = 0;
#endif
  }
  return p;
}
// With dropout, a weight that is dropped is kept as its negative.
// Of such a weight p: what dV is summed with (without dropout's scale; a NaN stays one), and dS, given an element x of X.
float kept_part(float p) { return DROPOUT && p < 0 ? 0 : p; }
float score_gradient(float p, float x, float dl) { return DROPOUT ? abs(p) * ((p > 0 ? x : 0) - dl) : p * (x - dl); }

// S or X of chunk c, on top of what is there
#define PRODUCTS(ACC_, ROWS_, REG, KEPT, PITCH, AT, SLICES, TILE_AT, TILE_PITCH, c)                                                \
  [[unroll]] for (uint d = 0; d < SLICES; ++d) {                                                                                   \
    FRAG_A a[RM];                                                                                                                  \
    [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                     \
      if (d < REG) a[r] = ROWS_[r * KEPT + min(d, KEPT - 1)];                                                                      \
      else coopMatLoad(a[r], R_, AT + r * FM * PITCH + (d - KEPT) * FK / 8, PITCH, BY_ROW);                                        \
    }                                                                                                                              \
    [[unroll]] for (uint n_ = 0; n_ < NS; ++n_) {                                                                                  \
      FRAG_B b; coopMatLoad(b, T, TILE_AT + ((c) * CK + n_ * FN) * TILE_PITCH + d * FK / 8, TILE_PITCH, BY_COLUMN);                \
      [[unroll]] for (uint r = 0; r < RM; ++r) ACC_[r * NS + n_] = coopMatMulAdd(a[r], b, ACC_[r * NS + n_]);                      \
    }                                                                                                                              \
  }
// sum += W (rows of the tile) for chunk c
#define ADD_SUM(SUM, W_, FRAGMENTS, TILE_AT, TILE_PITCH, c)                                                                        \
  [[unroll]] for (uint n_ = 0; n_ < NP; ++n_) [[unroll]] for (uint d = 0; d < FRAGMENTS; ++d) {                                    \
    FRAG_B b; coopMatLoad(b, T, TILE_AT + ((c) * CK + n_ * FK) * TILE_PITCH + d * FN / 8, TILE_PITCH, BY_ROW);                     \
    [[unroll]] for (uint r = 0; r < RM; ++r) SUM[r * FRAGMENTS + d] = coopMatMulAdd(W_[r * NP + n_], b, SUM[r * FRAGMENTS + d]);   \
  }

#define EACH_SCORE [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n_ = 0; n_ < NS; ++n_) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
#ifdef KV
// BY_LANE: what a draw serves of a query and 16 keys lies in one lane, so that one look at a word does for all of them.
// BITS: the bits that elements e and e + 1 (e even) have of a word are shifted, both at once, to where they are the lowest bit of an fp16
// number's exponent, hence 2 for a weight that is kept and 0 for another: a factor, without comparison or selection. To make up for it
// weights are half of what they are (lse + 1 in units of log 2) and delta is twice: P = 2 (P/2), dS = (P/2) (2 X - 2 delta).
// In a word, key j's bit is 8 (j mod 2) + 7 - floor(j/16) mod 4. That of row fragment r is one place further right than of r - 1.
#define BITS_OF(n_, e) drawn[((first_key % 64 + sub0) / 64 * 4 + row_lane / 2 % 4) * DRAWN_PITCH + c * CK + (n_) * FN + col_lane + COL_OF(e) + ROW_OF(e) / 8]
#define FIRST_BITS(n_, e) (BITS_OF(n_, e) << 8 - 8 * (row_lane % 2) + (first_key % 64 + sub0) / 16 % 4)
#define KEPT_BITS(r, n_, e) (((r) == 0 ? FIRST_BITS(n_, e) >> 1 : FIRST_BITS(n_, e) << max(r, 1) - 1) & 0x40004000u)
#define X_BY_BITS(x, d_, r, n_, e) fma(unpackHalf2x16(KEPT_BITS(r, n_, (e) / 2 * 2))[(e) % 2], x, -(d_))
#define WORD_BY_LANE(query, r, n_) drawn_word(query, key0 + sub0 + (r) * FM, row_lane / 2 % 4)
#define BYTE_BY_LANE(n_, e) (row_lane % 2 + 2 * (ROW_OF(e) / 8))
#define STAT_L(row, col, r, e) stats[tile * BC + (col)].x
#define STAT_D(row, col, r, e) stats[tile * BC + (col)].y
#define QUERY_OF(row, col) (col0 + (col))
#define KEY_OF(row, col) (key0 + (row))
#else
#define WORD_BY_LANE(query, r, n_) drawn_word(query, col0 + c * CK + (n_) * FN, col_lane / 2 % 4)
#define BYTE_BY_LANE(n_, e) byte_of((n_) * FN + COL_OF(e))
// BITS: a look at a query's word for 64 keys; X has delta already
#define BITS_OF(r, n_, e) drawn[((first_key % 64 + c * CK + (n_) * FN) / 64 * 4 + col_lane / 2 % 4) * DRAWN_PITCH + sub0 + (r) * FM + row_lane + ROW_OF(e)]
#define BIT_OF(n_, e) (0x80u << 8 * BYTE_BY_LANE(n_, e) >> (first_key % 64 + c * CK + (n_) * FN) / 16 % 4)
#define X_BY_BITS(x, d_, r, n_, e) ((BITS_OF(r, n_, e) & BIT_OF(n_, e)) != 0u ? x : -(d_))
#define STAT_L(row, col, r, e) (FORM == 1 ? l[(r) * SLOTS + SLOT_OF(e)] : stats[row].x)
#define STAT_D(row, col, r, e) (FORM == 1 ? dl[(r) * SLOTS + SLOT_OF(e)] : stats[row].y)
#define QUERY_OF(row, col) (first_query + (row))
#define KEY_OF(row, col) (col0 + (col))
#endif
// Form 1, element e of fragment n_ of row fragment r: its row in the workgroup and its column in the tile
#define PLACE const uint row = sub0 + r * FM + row_lane + ROW_OF(e), col = c * CK + n_ * FN + col_lane + COL_OF(e);
// S becomes weights; X starts from -delta, and from X comes dS
#define WEIGHTS(masked)                                                                                                            \
  EACH_SCORE { PLACE S[r * NS + n_][e] = weight(S[r * NS + n_][e], STAT_L(row, col, r, e), QUERY_OF(row, col), KEY_OF(row, col), masked); } \
  if (DROPOUT && !BITS) EACH_SCORE { PLACE                                                                                         \
    const uint query = QUERY_OF(row, col), key = KEY_OF(row, col);                                                                 \
    if (BY_LANE == 1) S[r * NS + n_][e] = kept(WORD_BY_LANE(query, r, n_), BYTE_BY_LANE(n_, e)) ? S[r * NS + n_][e] : -S[r * NS + n_][e]; \
    else S[r * NS + n_][e] = kept(drawn_word(query, key, key / 2 % 4), byte_of(key)) ? S[r * NS + n_][e] : -S[r * NS + n_][e];     \
  }
#define START_X                                                                                                                    \
  EACH_SCORE { PLACE X[r * NS + n_][e] = KV_OR(false, BITS) ? 0.0 : -STAT_D(row, col, r, e); }
#define SCORE_GRADIENTS                                                                                                            \
  EACH_SCORE { PLACE                                                                                                               \
    const float p = S[r * NS + n_][e], x = X[r * NS + n_][e];                                                                      \
    if (BITS) X[r * NS + n_][e] = p * X_BY_BITS(x, STAT_D(row, col, r, e), r, n_, e);                                              \
    else X[r * NS + n_][e] = DROPOUT ? abs(p) * (p > 0 ? x : -STAT_D(row, col, r, e)) : p * x;                                          \
  }
#define ALL_ZERO(F) [[unroll]] for (uint x = 0; x < RM * NS; ++x) F[x] = ACC(0.0);
// Elements e and e + 1 as components of an operand, which PUT_PAIR makes of them: as they are, or what dropout keeps of them
#define TO_OPERAND(F, W_, PUT_PAIR)                                                                                                \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n_ = 0; n_ < NS; ++n_) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2) \
    PUT_PAIR(F[r * NS + n_][e], F[r * NS + n_][e + 1], r, n_, e,                                                                   \
      W_[r * NP + n_ * FN / FK][A_OF(n_ % (FK / FN), e)], W_[r * NP + n_ * FN / FK][A_OF(n_ % (FK / FN), e + 1)])
#define SAME_PAIR(x0, x1, r, n_, e, lo, hi) HALVES(x0, x1, lo, hi)
#define KEPT_PAIR(x0, x1, r, n_, e, lo, hi) {                                                                                      \
    if (BITS) { const uint kept_ = KEPT_BITS(r, n_, e); KEPT_HALVES(x0, x1, kept_, lo, hi) }                                       \
    else HALVES(kept_part(x0), kept_part(x1), lo, hi)                                                                              \
  }
#ifdef DTYPE_BF16
#define KEPT_HALVES(x0, x1, factors, lo, hi) { const vec2 w_ = vec2(x0, x1) * unpackHalf2x16(factors); HALVES(w_.x, w_.y, lo, hi) }
#else // in pairs: twice a rounded half is as exact as the whole, but for the smallest
#define KEPT_HALVES(x0, x1, factors, lo, hi) { const f16vec2 w_ = f16vec2(x0, x1) * unpackFloat2x16(factors); lo = w_.x; hi = w_.y; }
#endif
// Forms 2 and 3: a lane takes 8 columns of a row
#define WEIGHTS_IN_SHARED(c, masked) {                                                                                             \
  [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                       \
    [[unroll]] for (uint n_ = 0; n_ < NS; ++n_) {                                                                                  \
      coopMatStore(S[r * NS + n_], E, e_at + n_ * FN, CK, BY_ROW);                                                                 \
      coopMatStore(X[r * NS + n_], E, e_at + FM * CK + n_ * FN, CK, BY_ROW);                                                       \
    }                                                                                                                              \
    MEET                                                                                                                           \
    [[unroll]] for (uint u = 0; u < (FM * CK / 8 + SG - 1) / SG; ++u) {                                                            \
      const uint piece = min(u * SG + lane, FM * CK / 8 - 1), row = sub0 + r * FM + piece * 8 / CK;                                \
      float p[8], ds[8];                                                                                                           \
      [[unroll]] for (uint e = 0; e < 8; ++e) {                                                                                    \
        const uint col = (c) * CK + piece * 8 % CK + e;                                                                            \
        const uint query = QUERY_OF(row, col), key = KEY_OF(row, col);                                                             \
        float w = weight(E[e_at + piece * 8 + e], STAT_L(row, col, 0, 0), query, key, masked);                                     \
        if (DROPOUT) w = kept(drawn_word(query, key, key / 2 % 4), byte_of(key)) ? w : -w;                                         \
        ds[e] = score_gradient(w, E[e_at + FM * CK + piece * 8 + e], STAT_D(row, col, 0, 0));                                      \
        p[e] = kept_part(w);                                                                                                       \
      }                                                                                                                            \
      H[h_at + piece] = uvec4(PAIR(p[0], p[1]), PAIR(p[2], p[3]), PAIR(p[4], p[5]), PAIR(p[6], p[7]));                             \
      H[h_at + FM * CK / 8 + piece] = uvec4(PAIR(ds[0], ds[1]), PAIR(ds[2], ds[3]), PAIR(ds[4], ds[5]), PAIR(ds[6], ds[7]));       \
    }                                                                                                                              \
    MEET                                                                                                                           \
    [[unroll]] for (uint n_ = 0; n_ < NP; ++n_) {                                                                                  \
      KV_ONLY(coopMatLoad(P[r * NP + n_], H, h_at + n_ * FK / 8, CK / 8, BY_ROW);)                                                 \
      coopMatLoad(dS[r * NP + n_], H, h_at + FM * CK / 8 + n_ * FK / 8, CK / 8, BY_ROW);                                           \
    }                                                                                                                              \
    MEET                                                                                                                           \
  } }
#ifdef KV
#define KV_ONLY(x) x
#else
#define KV_ONLY(x)
#endif

// Rows of R or R' through the patch into operands: all of them are on their way before the first piece is waited for.
#define LOAD_ROWS(TENSOR, ORIGIN, STRIDE, ROWS_, WIDTH, UNITS, SLICES, PASSES, FRAGS, REG, KEPT, PITCH, AT) {                      \
  uvec4 in_[RM * PASSES * ROW_EACH];                                                                                               \
  [[unroll]] for (uint p = 0; p < RM * PASSES; ++p) [[unroll]] for (uint u = 0; u < ROW_EACH; ++u) {                               \
    const uint x = min(u * SG + lane, FM * PATCH - 1), row = row0 + p / PASSES * FM + x / PATCH, c = p % PASSES * PATCH + x % PATCH; \
    const uint from = ORIGIN + min(row, ROWS_ - 1) * STRIDE;                                                                       \
    uvec4 y;                                                                                                                       \
    COUNTING(const bool real = row < ROWS_ && c < UNITS && u * SG + lane < FM * PATCH;)                                            \
    if (ALIGNED) y = LOADED_IF(TENSOR, 16, real, PASTE(TENSOR, 4)[from / 8 + min(c, UNITS - 1)]);                                  \
    else y = GATHER_(TENSOR, from, c, WIDTH, real);                                                                                \
    in_[p * ROW_EACH + u] = row < ROWS_ && c < UNITS ? y : uvec4(0);                                                               \
  }                                                                                                                                \
  [[unroll]] for (uint p = 0; p < RM * PASSES; ++p) {                                                                              \
    [[unroll]] for (uint u = 0; u < ROW_EACH; ++u) {                                                                               \
      const uint x = min(u * SG + lane, FM * PATCH - 1);                                                                           \
      T[patch_at + x / PATCH * PATCH_PITCH + x % PATCH] = in_[p * ROW_EACH + u];                                                   \
    }                                                                                                                              \
    MEET                                                                                                                           \
    [[unroll]] for (uint f = 0; f < PATCH / (FK / 8); ++f) {                                                                       \
      const uint r = p / PASSES, d = p % PASSES * (PATCH / (FK / 8)) + f;                                                          \
      if (d < SLICES) {                                                                                                            \
        FRAG_A t; coopMatLoad(t, T, patch_at + f * (FK / 8), PATCH_PITCH, BY_ROW);                                                 \
        if (d < REG) FRAGS[r * KEPT + min(d, KEPT - 1)] = t;                                                                       \
        else coopMatStore(t, R_, AT + r * FM * PITCH + (d - KEPT) * FK / 8, PITCH, BY_ROW);                                        \
      }                                                                                                                            \
    }                                                                                                                              \
    MEET                                                                                                                           \
  } }

#define PUT(TENSOR, e, z, WIDTH) if (c + e < WIDTH)                                                                                \
  STORED(TENSOR, 2, PASTE(TENSOR, 16)[to + e] = ELEMENT_BITS(ACCUMULATE ? z + UNPAIR(uint(LOADED(TENSOR, 2, PASTE(TENSOR, 16)[to + e]))).x : z));
// A gradient leaves through the patch, a fragment at a time (matrix_forward.comp says why).
#define WRITE_GRADIENT(TENSOR, ORIGIN, STRIDE, ROWS_, WIDTH, SUM, FRAGMENTS, FACTOR)                                               \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < FRAGMENTS; ++d) {                                       \
    coopMatStore(SUM[r * FRAGMENTS + d], T, patch_at, PATCH_PITCH, BY_ROW);                                                        \
    MEET                                                                                                                           \
    [[unroll]] for (uint u = 0; u < (FM * FN / 8 + SG - 1) / SG; ++u) {                                                            \
      const uint x = u * SG + lane, y = min(x, FM * FN / 8 - 1), row = row0 + r * FM + y / (FN / 8), c = d * FN + y % (FN / 8) * 8; \
      const uint to = ORIGIN + c + row * STRIDE, from = patch_at + y / (FN / 8) * PATCH_PITCH + y % (FN / 8) * 2;                  \
      vec4 lo = uintBitsToFloat(T[from]) * (FACTOR), hi = uintBitsToFloat(T[from + 1]) * (FACTOR);                                 \
      if (((FM * FN / 8) % SG == 0 || x < FM * FN / 8) && row < ROWS_) {                                                           \
        if (ALIGNED) {                                                                                                             \
          if (WIDTH % FN == 0 || c < WIDTH) {                                                                                      \
            if (ACCUMULATE) {                                                                                                      \
              const uvec4 was = LOADED(TENSOR, 16, PASTE(TENSOR, 4)[to / 8]);                                                      \
              lo += vec4(UNPAIR(was.x), UNPAIR(was.y)); hi += vec4(UNPAIR(was.z), UNPAIR(was.w));                                  \
            }                                                                                                                      \
            STORED(TENSOR, 16, PASTE(TENSOR, 4)[to / 8] = uvec4(PAIR(lo.x, lo.y), PAIR(lo.z, lo.w), PAIR(hi.x, hi.y), PAIR(hi.z, hi.w))); \
          }                                                                                                                        \
        } else {                                                                                                                   \
          PUT(TENSOR, 0, lo.x, WIDTH) PUT(TENSOR, 1, lo.y, WIDTH) PUT(TENSOR, 2, lo.z, WIDTH) PUT(TENSOR, 3, lo.w, WIDTH)          \
          PUT(TENSOR, 4, hi.x, WIDTH) PUT(TENSOR, 5, hi.y, WIDTH) PUT(TENSOR, 6, hi.z, WIDTH) PUT(TENSOR, 7, hi.w, WIDTH)          \
        }                                                                                                                          \
      }                                                                                                                            \
    }                                                                                                                              \
    MEET                                                                                                                           \
  }

// Columns of C and C' between their last and the next fragment are zero once and for all.
#define ZERO_EDGE(AT, PITCH, WIDTH, UNITS)                                                                                         \
  if (WIDTH > UNITS) for (uint x = tid; x < TILES * BC * (WIDTH - UNITS); x += WG) {                                               \
    const uint column = x / (WIDTH - UNITS);                                                                                       \
    T[column / BC * TILE + AT + column % BC * PITCH + UNITS + x % (WIDTH - UNITS)] = uvec4(0);                                     \
  }
#define ZERO_EDGES ZERO_EDGE(0, A_PITCH, A_WIDTH, AU) ZERO_EDGE(B_AT, B_PITCH, B_WIDTH, BU)

// Block i of head (kv: key head) `matrix`, batch included
#define FIND_BLOCK(blocks)                                                                                                         \
  uint matrix, i;                                                                                                                  \
  if (HEADS_TOGETHER > 1) {                                                                                                        \
    const uint span = HEADS_TOGETHER * blocks, first_ = id / span * HEADS_TOGETHER, rest = id % span;                              \
    const uint members = min(HEADS_TOGETHER, total / blocks - first_);                                                             \
    i = rest / members; matrix = first_ + rest % members;                                                                          \
  } else { matrix = id / blocks; i = id % blocks; }
