#version 460
// FlashAttention-2 forward for few queries, in plain fp32 arithmetic: decoding, where all there is to do is to read K and V once.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1, with the keys in parts for
// different workgroups as in Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023; combine_parts.comp joins them.
//
// Why it looks this way. With a handful of rows a tile in shared memory would be read a handful of times: staging costs more than it saves,
// and barriers keep loads from being on their way all the time. So nothing is staged. LPR neighbouring lanes share a key: each loads every
// LPR-th piece of 16 bytes of its rows of K and V straight into registers, and holds the same slices of Q and O, of all rows that attend to
// this key head, so that K and V are read once for a whole group of query heads:
//
//   lane = LPR g + s of a subgroup, g < GROUPS = SG/LPR: keys first + g + GROUPS u, u < U, of a batch of BATCH = GROUPS U keys
//                                   pieces s + LPR i of a row, i < KP (of K and Q) or VP (of V and O)
//
// A score is summed over its LPR lanes by a butterfly of shuffles, after which all of them have it. Each group of LPR lanes goes its own
// way: it has m, l and O of the keys that it saw, so that nothing else crosses lanes until the end, and O is rescaled only where m grew.
// The next batch of K is loaded as soon as the scores are computed, that of V as soon as it is added: while one of them is computed with,
// the other is on its way, in the same registers. Subgroups take batches in turn; groups meet by shuffles, and subgroups in shared memory,
// once, at the end.
//
// Builds for caches (CACHE) look the pages of a batch up a batch ahead, one number for each key of a lane, or one for all keys of a batch
// that cannot pass the end of a page: they arrive while scores are computed, and the loads of the next rows wait for nothing.
//
// Builds for lists (LISTS) walk over places in the list of one query, and the workgroup's rows are query heads of that query. Numbers of
// keys are fetched two batches ahead, so that pages can be looked up one batch ahead. Rows of keys that there are not are not loaded, and a
// batch without any is not computed.
//
// Scores are in units of log 2 (Q is loaded times scale log2 e); m starts from the lowest finite number, as in scalar_forward.comp. A row
// with nothing to attend to ends with l = 0 and gives O = 0, lse = -inf.
//
// Which rows and keys are a workgroup's, and how subgroups meet, is in include/few_rows.glsl. Loads beyond the last key or column are moved
// inside.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32.
// With PARTS > 1, 3 and 4 are what combine_parts.comp reads: 3 O over the part's own sum [PARTS,B,Hq,Nq,DV rounded up to 8] fp32, 4 the
// logarithm to base 2 of that sum [PARTS,B,Hq,Nq].
// Push constants: include/args.glsl. Workgroups: blocks of rows, innermost, then parts, key heads, batch: ceil(Nq group/ROWS) PARTS Hk B;
// of packed sequences (include/rows.glsl) those there may be at most, key heads innermost, then parts.
// Variants: DTYPE (include/dtype.glsl); CACHE: keys and values in pages (include/pages.glsl) or quantised
// (include/quantised.glsl), with bindings 5, 6 and 12 to 14; with CACHE besides, LISTS: binding 16 (include/lists.glsl). Needs subgroup
// basic and shuffle in compute, and full subgroups of SG.
//
// Specialization constants:
//
//   0 WG          workgroup size, a multiple of SG
//   1 ROWS        rows of a workgroup
//   2 SG          subgroup size
//   3 D, 4 DV     columns of Q and K, of V and O: 1..576
//   5 and 58  include/mask.glsl     90..92, 100, 101 include/lengths.glsl, rows.glsl: bindings 6 and 7
//   6 ALIGNED     1: every row of q, k, v begins 16-byte aligned (offsets and strides are multiples of 16 bytes), every row of o is aligned
//                 to four elements, and D and DV are multiples of 16 bytes
//   7 WRITE_LSE   1: binding 4 is written (with PARTS > 1 always)
//   8 LPR         lanes of a key, a power of two that divides SG
//   9 U           keys of a lane in a batch
//  10 PARTS       parts that the batches of keys that a block of rows sees are dealt to
//  11 MEET        rows whose sums of subgroups lie in shared memory at the same time
// 112 MAX_LOGIT   include/max_logit.glsl: binding 12, or with CACHE 15
// 116 LISTS_PER_HEAD   with LISTS: include/lists.glsl
// 100 PAGE, 101 COMPRESSED, 102 K_TYPE, 103 V_TYPE   with CACHE: include/pages.glsl, quantised.glsl

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "dtype.glsl"
#include "count.glsl"
#include "args.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint ROWS = 4;
layout(constant_id = 2) const uint SG = 32;
layout(constant_id = 3) const uint D = 128;
layout(constant_id = 4) const uint DV = 128;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool WRITE_LSE = true;
layout(constant_id = 8) const uint LPR = 8;
layout(constant_id = 9) const uint U = 4;
layout(constant_id = 10) const uint PARTS = 1;
layout(constant_id = 11) const uint MEET = 4;

const uint W = WG / SG;
const uint GROUPS = SG / LPR;
const uint BATCH = GROUPS * U;
#define SCORE_AT 8
#define LENGTHS 6
#ifdef CACHE
#define PAGES 5
#include "quantised.glsl"
const uint K_UNIT = K_TYPE == NATIVE ? UNIT : 16, V_UNIT = V_TYPE == NATIVE ? UNIT : 16;   // numbers of a piece
#else
#define K_UNIT UNIT
#define V_UNIT UNIT
#endif
// Where the part of a row that lies in four c of a piece stands, in fours of columns.
#ifdef CACHE
#define V_FOUR(p, c) (V_TYPE == NATIVE ? (p) * UNIT4 + c : v_column(p, c) / 4)
#else
#define V_FOUR(p, c) (p) * UNIT4 + c
#endif
#define K_FOURS (K_UNIT / 4)
#define V_FOURS (V_UNIT / 4)
const uint K_PIECES = (D + K_UNIT - 1) / K_UNIT, KP = (K_PIECES + LPR - 1) / LPR;   // of a row, and of a lane
const uint V_PIECES = (DV + V_UNIT - 1) / V_UNIT, VP = (V_PIECES + LPR - 1) / LPR;
const uint KQ = KP * K_FOURS, VQ = VP * V_FOURS;                                // vec4s of a lane
const uint MEET_PITCH = V_PIECES * V_FOURS;                                      // and of one in shared memory

INPUT(q, 0)
INPUT(k, 1)
INPUT(v, 2)
OUTPUT(o, 3)
layout(set = 0, binding = 3, std430) writeonly buffer Sums { vec4 sums[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };  // or the parts' statistics
#include "walk.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"
#include "sinks.glsl"
#ifdef CACHE
#define MAX_LOGIT_AT 15
#else
#define MAX_LOGIT_AT 12
#endif
#include "max_logit.glsl"

#ifdef LISTS
#define LISTS_AT 16
#include "lists.glsl"
#endif
#include "few_rows.glsl"

vec4 Q[ROWS * KQ], O[ROWS * VQ];  // this lane's slices; O not scaled
float m[ROWS], l[ROWS];           // of the keys that this group of lanes saw
float S[ROWS * U];                // scores of a batch, then P
#ifdef CACHE
uvec4 K[K_TYPE == NATIVE ? U * KP : 1], V[V_TYPE == NATIVE ? U * VP : 1];   // a batch; or as words
uint K_words[K_TYPE == NATIVE ? 1 : U * KP * 6], V_words[V_TYPE == NATIVE ? 1 : U * VP * 6], K_odd, V_odd;
#else
uvec4 K[U * KP], V[U * VP];       // a batch
#endif

uint s, g;

#ifdef LISTS
uint listed[U], listed_next[U], listed_later[U];   // keys of the batch that is computed, of the one that is loaded next, of that after it
#define KEY_AT(batch, u) min(listed[u], last_key())
bool is_listed(uint u) { return listed_next[u] != NO_KEY; }
uint key_to_load(uint u) { return min(listed_next[u], last_key()); }
void ask_list(uint batch) {
  [[unroll]] for (uint u = 0; u < U; ++u) listed_later[u] = listed_key(batch * BATCH + g + GROUPS * u);
}
void next_list() {
  [[unroll]] for (uint u = 0; u < U; ++u) { listed[u] = listed_next[u]; listed_next[u] = listed_later[u]; }
}
// Whether the batch that is computed has any key, of any lane.
bool has_keys() {
  uint all = NO_KEY;
  [[unroll]] for (uint u = 0; u < U; ++u) all = min(all, listed[u]);
  [[unroll]] for (uint step = LPR; step < SG; step <<= 1) all = min(all, subgroupShuffleXor(all, step));
  return all != NO_KEY;
}
#else
#define KEY_AT(batch, u) batch * BATCH + g + GROUPS * u
#endif

#if DTYPE == F16
layout(set = 0, binding = 0, std430) readonly buffer qBits_ { uint16_t qBits[]; };
layout(set = 0, binding = 1, std430) readonly buffer kBits_ { uint16_t kBits[]; };
layout(set = 0, binding = 2, std430) readonly buffer vBits_ { uint16_t vBits[]; };
#endif

#define PIECE q_piece
#define PIECE_T q
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS D
#include "piece.glsl"

#define PIECE k_piece
#define PIECE_T k
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS D
#include "piece.glsl"

#define PIECE v_piece
#define PIECE_T v
#define PIECE_LANE s
#define PIECE_LANES LPR
#define PIECE_COLS DV
#include "piece.glsl"

#ifdef CACHE
#define QUANTISED k
#define QUANTISED_TYPE K_TYPE
#define QUANTISED_COLS D
#define HELD K_words
#define HELD_PIECES KP
#define HELD_ODD K_odd
#include "quantised_piece.glsl"
#define QUANTISED v
#define QUANTISED_TYPE V_TYPE
#define QUANTISED_COLS DV
#define HELD V_words
#define HELD_PIECES VP
#define HELD_ODD V_odd
#include "quantised_piece.glsl"

// Four columns of a row of Q, from a multiple of 4 on.
vec4 q_four(uint at, uint col) {
  if (ALIGNED) {
    vec4 x[UNIT4];
    decode16(q16[at / UNIT + min(col, D - 1) / UNIT], x);
    return col < D ? x[col / 4 % UNIT4] : vec4(0);
  }
  vec4 x = vec4(0);
  [[unroll]] for (uint e = 0; e < 4; ++e) if (col + e < D) x[e] = decode(q1[at + col + e]);
  return x;
}
void drop_keys(uint u) {
  if (K_TYPE != NATIVE) k_drop(u);
  else [[unroll]] for (uint i = 0; i < KP; ++i) K[u * KP + i] = uvec4(0);
}
void drop_values(uint u) {
  if (V_TYPE != NATIVE) v_drop(u);
  else [[unroll]] for (uint i = 0; i < VP; ++i) V[u * VP + i] = uvec4(0);
}

#ifdef LISTS
const uint LOOKUPS = U;
#define KEY_TO_LOOK_UP(batch, u) key_to_load(u)
#else
const uint LOOKUPS = PAGE_ROWS % BATCH == 0 ? 1 : U;   // of a lane and batch
#define KEY_TO_LOOK_UP(batch, u) min(batch * BATCH + (LOOKUPS == 1 ? 0 : g + GROUPS * u), max(seen, 1) - 1)
#endif
uint page[LOOKUPS];  // of the batch that is loaded next
uint lost;           // bits: keys of this lane, of the batch that is computed with, whose pages there are not

uint page_of_key(uint u) { return page[LOOKUPS == 1 ? 0 : u]; }
void ask_pages(uint batch) {
  [[unroll]] for (uint u = 0; u < LOOKUPS; ++u)
    page[u] = page_of(KEY_TO_LOOK_UP(batch, u));
}
void note_lost() {
  lost = 0;
  [[unroll]] for (uint u = 0; u < U; ++u) lost |= is_lost(page_of_key(u)) ? 1u << u : 0;
}
void lose_keys() {
  [[unroll]] for (uint u = 0; u < U; ++u) if ((lost >> u & 1u) != 0) drop_keys(u);
}
void lose_values() {
  [[unroll]] for (uint u = 0; u < U; ++u) if ((lost >> u & 1u) != 0) drop_values(u);
}
#define ROW_AT(origin, key, u, sb, sn) row_in_page(origin, key, page_of_key(u), sb, sn)
#else
#define ROW_AT(origin, key, u, sb, sn) origin + key * sn
#endif

void load_keys(uint batch) {
  [[unroll]] for (uint u = 0; u < U; ++u) {
#ifdef LISTS
    const uint key = key_to_load(u), at = ROW_AT(k_origin, key, u, k_sb, k_sn);
    if (!is_listed(u)) drop_keys(u);
    else if (K_TYPE != NATIVE) [[unroll]] for (uint i = 0; i < KP; ++i) k_hold(u, i, at);
    else [[unroll]] for (uint i = 0; i < KP; ++i) K[u * KP + i] = k_piece(at, i, true);
#else
    const uint key = batch * BATCH + g + GROUPS * u, at = ROW_AT(k_origin, min(key, max(seen, 1) - 1), u, k_sb, k_sn);
#ifdef CACHE
    if (K_TYPE != NATIVE) {
      [[unroll]] for (uint i = 0; i < KP; ++i) k_hold(u, i, at);
      continue;
    }
#endif
    [[unroll]] for (uint i = 0; i < KP; ++i) K[u * KP + i] = k_piece(at, i, key < seen);
#endif
  }
}

void load_values(uint batch) {
  [[unroll]] for (uint u = 0; u < U; ++u) {
#ifdef LISTS
    const uint key = key_to_load(u), at = ROW_AT(v_origin, key, u, v_sb, v_sn);
    if (!is_listed(u)) drop_values(u);
    else if (V_TYPE != NATIVE) [[unroll]] for (uint i = 0; i < VP; ++i) v_hold(u, i, at);
    else [[unroll]] for (uint i = 0; i < VP; ++i) V[u * VP + i] = v_piece(at, i, true);
#else
    const uint key = batch * BATCH + g + GROUPS * u, at = ROW_AT(v_origin, min(key, max(seen, 1) - 1), u, v_sb, v_sn);
#ifdef CACHE
    if (V_TYPE != NATIVE) {
      [[unroll]] for (uint i = 0; i < VP; ++i) v_hold(u, i, at);
      continue;
    }
#endif
    [[unroll]] for (uint i = 0; i < VP; ++i) V[u * VP + i] = v_piece(at, i, key < seen);
#endif
  }
}

void scores() {
  [[unroll]] for (uint x = 0; x < ROWS * U; ++x) S[x] = 0;
#ifdef CACHE
  if (K_TYPE != NATIVE) {
    [[unroll]] for (uint u = 0; u < U; ++u)
      [[unroll]] for (uint i = 0; i < KP; ++i) {
        vec4 x[4];
        const float d = k_numbers(u, i, x);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          float sum = 0;
          [[unroll]] for (uint c = 0; c < 4; ++c) sum += dot(Q[r * KQ + i * 4 + c], x[c]);
          S[r * U + u] += d * sum;
        }
      }
    return;
  }
#endif
  [[unroll]] for (uint u = 0; u < U; ++u)
    [[unroll]] for (uint i = 0; i < KP; ++i) {
      vec4 x[UNIT4];
      decode16(K[u * KP + i], x);
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < UNIT4; ++c) S[r * U + u] += dot(Q[r * KQ + i * UNIT4 + c], x[c]);
    }
}

// Scores, which are in units of log 2, as functions, bias and masks make them.
void score_pairs(uint batch) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    scores_of(b, kh * group() + member_of(row0 + r));
    [[unroll]] for (uint u = 0; u < U; ++u)
      S[r * U + u] = bits_of_score(scored(S[r * U + u] * LN2, query_of(row0 + r), KEY_AT(batch, u)));
  }
}

void sum_scores() {
  [[unroll]] for (uint step = 1; step < LPR; step <<= 1)
    [[unroll]] for (uint x = 0; x < ROWS * U; ++x) S[x] += subgroupShuffleXor(S[x], step);
}

// Padding keys read the last key's row in their place. Its values are taken away, for a weight of 0 would make a NaN of an infinity. Keys
// that are none of a list read nothing.
void mask(uint batch) {
#ifdef LISTS
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint u = 0; u < U; ++u) if (listed[u] == NO_KEY) S[r * U + u] = NEG_INFINITY;
#else
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const Span keys = keys_of(query_of(row0 + r));
    [[unroll]] for (uint u = 0; u < U; ++u)
      if (!has(keys, batch * BATCH + g + GROUPS * u)) S[r * U + u] = NEG_INFINITY;
  }
  [[unroll]] for (uint u = 0; u < U; ++u)
    if (batch * BATCH + g + GROUPS * u >= seen)
#ifdef CACHE
      drop_values(u);
#else
      [[unroll]] for (uint i = 0; i < VP; ++i) V[u * VP + i] = uvec4(0);
#endif
#endif
}

void weigh() {
  float top[ROWS];
  bool grew = false;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    top[r] = m[r];
    [[unroll]] for (uint u = 0; u < U; ++u) top[r] = max(top[r], S[r * U + u]);
    grew = grew || top[r] > m[r];
  }
  if (grew) {
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const float alpha = exp2(m[r] - top[r]);
      m[r] = top[r];
      l[r] *= alpha;
      [[unroll]] for (uint j = 0; j < VQ; ++j) O[r * VQ + j] *= alpha;
    }
  }
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint u = 0; u < U; ++u) {
      S[r * U + u] = exp2(S[r * U + u] - m[r]);
      l[r] += S[r * U + u];
    }
}

void add_values() {
#ifdef CACHE
  if (V_TYPE != NATIVE) {
    [[unroll]] for (uint u = 0; u < U; ++u)
      [[unroll]] for (uint i = 0; i < VP; ++i) {
        vec4 x[4];
        const float d = v_numbers(u, i, x);
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
          [[unroll]] for (uint c = 0; c < 4; ++c) O[r * VQ + i * 4 + c] += (S[r * U + u] * d) * x[c];
      }
    return;
  }
#endif
  [[unroll]] for (uint u = 0; u < U; ++u)
    [[unroll]] for (uint i = 0; i < VP; ++i) {
      vec4 x[UNIT4];
      decode16(V[u * VP + i], x);
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < UNIT4; ++c) O[r * VQ + i * UNIT4 + c] += S[r * U + u] * x[c];
    }
}

// The groups of a subgroup have what the subgroup saw.
void join_groups() {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    float top = m[r];
    [[unroll]] for (uint step = LPR; step < SG; step <<= 1) top = max(top, subgroupShuffleXor(top, step));
    const float a = exp2(m[r] - top);
    m[r] = top;
    l[r] *= a;
    [[unroll]] for (uint step = LPR; step < SG; step <<= 1) l[r] += subgroupShuffleXor(l[r], step);
    [[unroll]] for (uint j = 0; j < VQ; ++j) {
      vec4 x = O[r * VQ + j] * a;
      [[unroll]] for (uint step = LPR; step < SG; step <<= 1) x += subgroupShuffleXor(x, step);
      O[r * VQ + j] = x;
    }
  }
}

// The largest scores of the workgroup's rows, each added to its head's. met_ml has what subgroups saw.
void take_max_logits() {
  for (uint r = subgroup * SG + lane; r < ROWS; r += WG) {
    if (row0 + r >= all_rows || query_of(row0 + r) >= query_count()) continue;
    int own = NO_LOGIT;
    [[unroll]] for (uint w = 0; w < W; ++w) {
      const vec2 ml = met_ml[w * ROWS + r];
      own = max(own, logit_of(ml.y == 0 ? NEG_INFINITY : ml.x, ml.y));
    }
    add_logit(b * heads() + kh * group() + member_of(row0 + r), own);
  }
}

void main() {
  if (!take_rows()) return;
  s = lane % LPR;
  g = lane / LPR;
#ifdef LISTS
  ask_list(current);
  next_list();
#endif
#ifdef CACHE
  ask_pages(current);
  note_lost();
#endif
  load_keys(current);
  load_values(current);
#ifdef LISTS
  ask_list(current + W);
  next_list();
#endif

  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const uint at = q_row(row0 + r);
#ifdef CACHE
    if (K_TYPE != NATIVE) {
      [[unroll]] for (uint i = 0; i < KP; ++i)
        [[unroll]] for (uint c = 0; c < 4; ++c)
          Q[r * KQ + i * 4 + c] =
            s + LPR * i < K_PIECES ? q_four(at, k_column(s + LPR * i, c)) * (score_scale * key_scale(b, kh)) : vec4(0);
    } else
#endif
    [[unroll]] for (uint i = 0; i < KP; ++i) {
      vec4 x[UNIT4];
      decode16(q_piece(at, i, row0 + r < all_rows), x);
      [[unroll]] for (uint c = 0; c < UNIT4; ++c) Q[r * KQ + i * UNIT4 + c] = s + LPR * i < K_PIECES ? x[c] * score_scale : vec4(0);
    }
    m[r] = LOWEST;
    l[r] = 0;
    [[unroll]] for (uint j = 0; j < VQ; ++j) O[r * VQ + j] = vec4(0);
  }

  do {
    const uint next = current + W;
#ifdef CACHE
    if (PAGE != 0) {
      if (next < keys.end) ask_pages(next);
      if (lost != 0) lose_keys();
    }
#endif
#ifdef LISTS
    // A subgroup goes one way. What is loaded for the next batch, and noted of its pages, does not depend on this one.
    const bool busy = has_keys();
    if (busy) scores();
    if (next < keys.end) { load_keys(next); ask_list(next + W); }
    if (busy) {
      sum_scores();
      if (SCORED) score_pairs(current);
      mask(current);
      weigh();
    }
#else
    scores();
    if (next < keys.end) load_keys(next);
    sum_scores();
    if (SCORED) score_pairs(current);
    if (!is_whole(keys, current)) mask(current);
    weigh();
#endif
#ifdef CACHE
    if (PAGE != 0) {
      if (lost != 0) lose_values();
      note_lost();
    }
#endif
#ifdef LISTS
    if (busy) add_values();
    if (next < keys.end) load_values(next);
    next_list();
#else
    add_values();
    if (next < keys.end) load_values(next);
#endif
    current = next;
  } while (current < keys.end);

  join_groups();
  [[unroll]] for (uint r = 0; r < ROWS; ++r) if (lane == 0) met_ml[subgroup * ROWS + r] = vec2(m[r], l[r]);
  [[unroll]] for (uint first_row = 0; first_row < ROWS; first_row += MEET) {
    if (first_row > 0) barrier();  // other subgroups have read the rows before these
    [[unroll]] for (uint r = first_row; r < min(first_row + MEET, ROWS); ++r)
      if (r % GROUPS == g)
        [[unroll]] for (uint i = 0; i < VP; ++i)
          if (s + LPR * i < V_PIECES)
            [[unroll]] for (uint c = 0; c < V_FOURS; ++c)
              met[(subgroup * MEET + r - first_row) * MEET_PITCH + V_FOUR(s + LPR * i, c)] = O[r * VQ + i * V_FOURS + c];
    barrier();
    if (MAX_LOGIT && first_row == 0) take_max_logits();
    store_met(first_row);
  }
}
