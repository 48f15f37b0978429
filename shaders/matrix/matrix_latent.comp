#version 460
// FlashAttention-2 forward on matrix hardware where many rows read few wide keys: decoding with the latent keys of multi-head latent
// attention (MLA; DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1), D 576 and DV 512, where 16 to 128 query heads, of some queries, see one
// key head, and values are the first columns of keys.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1, with the keys in parts for
// different workgroups (Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023; combine_parts.comp joins them).
//
// Why it looks this way. O of 64 rows and 512 columns is half of a multiprocessor's registers and Q of 576 columns more than a quarter of
// them, if each is there once: then nothing but K passes through shared memory, whole rows of a tile of KEYS keys, which serve both
// products. Work is cut three ways:
//
//   scores     TEAMS of FM rows, SPLIT parts of the columns of Q and K, and groups of keys. A subgroup keeps its part of Q in registers,
//              and makes partial sums of F fragments of scores. They meet in shared memory, in the order of lanes; subgroup f of those that
//              share rows and keys owns fragment f, adds up, and makes weights of it.
//   values     O is cut by columns: a subgroup has all rows, and DV / W columns.
//
// What all must agree on is the reference m of a row (it need not be the maximum, and moves rarely; see matrix_forward.comp). An owner
// whose scores outgrew it says so in `grown` before the barrier that the weights need anyway, and only then are maxima exchanged, O scaled
// and weights made again. Owners sum the weights of their own keys; sums meet once, at the end, in a fixed order.
//
// Keys are asked for a tile before they are stored, PREFETCH pieces of a lane, and wait in registers. With STAGES 2 there are two tiles,
// and the next is stored while owners make weights: two barriers a tile, and a subgroup that is done with the second product begins with
// the next tile. With STAGES 1 a tile may be twice as long, and the next is stored behind the second product. Values that lie elsewhere
// take the second tile's place, or that of the keys.
//
// Where registers are short only Q_REG fragments of Q stay in them. The others lie in an array with an index that no compiler knows, which
// is local memory: 16 bytes a lane, in the order of lanes. Left to itself the compiler puts accumulators there.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32; with
// PARTS > 1, 3 and 4 are what combine_parts.comp reads, as in matrix_decode.comp.
// Push constants: include/args.glsl. Workgroups, and which rows and keys are theirs: include/few_rows.glsl.
// Variants: fp16; DTYPE_BF16; CACHE: keys and values in pages (include/pages.glsl), or quantised
// (include/quantised.glsl), whose numbers are made where they are loaded, with bindings 5, 6 and 12 to 14; with CACHE besides, LISTS: a
// workgroup's rows are query heads of one query, and tiles are of places in its list of keys, binding 16 (include/lists.glsl). Full
// subgroups of SG required, a layout of form 1 or 2, and fragments with FN = FK.
//
// Specialization constants:
//
//   0 WG = W SG   1 ROWS of a workgroup, at most TEAMS FM   3 D, 4 DV   5 and 58 (include/mask.glsl)
//   6 ALIGNED     every row of q, k, v begins at a multiple of 16 bytes, of o at one of four elements, and D, DV are multiples of 8
//   7 WRITE_LSE   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN     11 SG subgroup size
//  13 TEAMS       fragments of rows      14 KEYS  keys of a tile: a multiple of FM and of FN W / (TEAMS SPLIT)
//  15 PREFETCH    pieces of 16 bytes of a tile that a lane asks for before the scores
//  16 PARTS       parts that the tiles of keys that a block of rows sees are dealt to
//  17 SPLIT       parts of the columns of scores; no fewer than fragments of scores of a subgroup
//  18 IN_KEYS     V is the first DV columns of K, where it lies
//  19 STAGES      tiles in shared memory, 1 or 2     20 Q_REG  fragments of its part of Q that a subgroup keeps in registers
//  41 WORDS       components 2e and 2e + 1 of an accumulator are columns 2n and 2n + 1 of one row
//  27..39         include/matrix_layout.glsl
//  63..67         include/score.glsl, sinks.glsl: bindings from 8 on     112 MAX_LOGIT  include/max_logit.glsl: binding 12, or 15
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7
// 104..107        with CACHE: include/pages.glsl, quantised.glsl     116 LISTS_PER_HEAD  with LISTS: include/lists.glsl

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

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 32;
layout(constant_id = 1) const uint ROWS = 16;
layout(constant_id = 3) const uint D = 576;
layout(constant_id = 4) const uint DV = 512;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool WRITE_LSE = true;
layout(constant_id = 8) const uint FM = 16;
layout(constant_id = 9) const uint FN = 16;
layout(constant_id = 10) const uint FK = 16;
layout(constant_id = 11) const uint SG = 32;
layout(constant_id = 13) const uint TEAMS = 1;
layout(constant_id = 14) const uint KEYS = 16;
layout(constant_id = 15) const uint PREFETCH = 0;
layout(constant_id = 16) const uint PARTS = 1;
layout(constant_id = 17) const uint SPLIT = 1;
layout(constant_id = 18) const bool IN_KEYS = false;
layout(constant_id = 19) const uint STAGES = 1;
layout(constant_id = 20) const uint Q_REG = 64;
layout(constant_id = 41) const bool WORDS = false;
#include "matrix_types.glsl"
#include "matrix_layout.glsl"

const uint W = WG / SG, BATCH = KEYS;
const uint KEY_GROUPS = W / (TEAMS * SPLIT), F = KEYS / FN / KEY_GROUPS;   // groups of keys, fragments of scores of one
const uint OWNERS = KEY_GROUPS * F;                                        // subgroups that have weights of a row
const uint KD = (D + FK - 1) / FK, QF = (KD + SPLIT - 1) / SPLIT;          // fragments of a row of Q, and those of a subgroup
const uint HELD = Q_REG < QF ? Q_REG : QF, KEPT = QF - HELD;               // in registers, and in local memory
const uint VF = ((DV + FN - 1) / FN + W - 1) / W;                          // fragments of a row of O that a subgroup owns
const uint KU = (D + 7) / 8, VU = (DV + 7) / 8, KW = KD * FK / 8;          // 16-byte pieces of a row, and of K as fragments have it
const uint OW = W * VF * FN / 8, PITCH = (KW > OW ? KW : OW) | 1;          // of a tile's row, odd to spread rows over the banks
const uint ALL_ROWS = TEAMS * FM;
const uint PARTIAL = FM * FN / 4, PARTNERS = SPLIT > 1 ? SPLIT - 1 : 1;    // vec4s of a fragment's partial sums, and how many come
const uint P_PITCH = FN / 8 + 1;                                           // 16 bytes, of which a row of weights has so many
const uint PATCH_PITCH = FN + 4;                                           // floats of a row of the patch through which O leaves
const float NONE = LOWEST;     // reference of a row that has seen nothing
// m = maximum - BELOW, and is moved when a score reaches m + GROWTH: P is 2^BELOW at the maximum then, and below 2^GROWTH.
const float GROWTH = 15.0, BELOW = 4.0;

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
#ifdef LISTS
#define LISTS_AT 16
#include "lists.glsl"
#endif
#define ROWS_SHARED
#include "few_rows.glsl"

// Tiles: rows of Q at the beginning, then of K and V; at the end a patch for each subgroup.
const uint TILE = KEYS * PITCH, PATCHES = W * FM * PATCH_PITCH / 4;
shared uvec4 Tiles[STAGES * TILE > PATCHES ? STAGES * TILE : PATCHES];
// Of tiles of each stage: partial sums that go to owners, and with WORDS, in the place of those that an owner has read, weights.
const uint SENT = TEAMS * OWNERS * PARTNERS * PARTIAL, HALVES = TEAMS * OWNERS * FM * 8 * P_PITCH;
shared uvec4 Sent[STAGES * SENT];
shared uint16_t Halves[WORDS ? 8 : STAGES * HALVES];   // else weights
const uint TOPS = 0, FACTORS = OWNERS * ALL_ROWS, MS = FACTORS + ALL_ROWS;
shared float Statistics[MS + ALL_ROWS];      // of each owner and row a maximum or sum; of each row a factor, and m
#ifdef CACHE
#define BLOCKED IS_BLOCKS(K_TYPE)
const uint BLOCKS = (D + 31) / 32;
shared float block_scales[KEYS * BLOCKS];    // d of the blocks of a tile's keys
#endif
#ifdef LISTS
shared uint tile_keys[2 * KEYS];             // what is listed at the places of tiles of even and odd number
#endif
shared uint grown[2];                        // of tiles of even and odd number: whether a reference has to move

uint tid, row_lane, col_lane;
uint share, team, owned;                     // the subgroup's part of the columns, its rows, and its fragment of weights among all
bool owner;                                  // whether it makes weights
uint tile;                                   // the tile that is computed
FRAG_A Q[HELD > 0 ? HELD : 1];
uvec4 kept[KEPT > 0 ? KEPT : 1];
uint zero;                                   // 0, which the compiler does not know
ACC O[TEAMS * VF], S[F], own;
#ifdef CACHE
ACC of_block;                                // of a block of columns, before its keys' scales
#endif
float m[SLOTS], l[SLOTS], top[SLOTS], sum[SLOTS];   // of an owner's rows: l and sum of its lane's keys
float largest[MAX_LOGIT ? SLOTS : 1];

uint slot_row(uint s) { return team * FM + row_lane + TABLE(ROW_OF_SLOT, s); }

#include "matrix_latent_rows.glsl"

// A fragment of Q as the words that a lane holds, eight numbers.
uvec4 words_of(FRAG_A a) {
  uvec4 words = uvec4(0);
  [[unroll]] for (uint e = 0; e < FM * FK / SG; ++e)
#ifdef DTYPE_BF16
    words[e / 2 % 4] |= uint(bfloat16BitsToUintEXT(a[e])) << 16 * (e % 2);
#else
    words[e / 2 % 4] |= uint(float16BitsToUint16(a[e])) << 16 * (e % 2);
#endif
  return words;
}
FRAG_A fragment_of(uvec4 words) {
  FRAG_A a;
  [[unroll]] for (uint e = 0; e < FM * FK / SG; ++e)
#ifdef DTYPE_BF16
    a[e] = uintBitsToBFloat16EXT(unpack16(words[e / 2 % 4])[e % 2]);
#else
    a[e] = unpackFloat2x16(words[e / 2 % 4])[e % 2];
#endif
  return a;
}

// Q, KEYS rows at a time, and of those the subgroup's part.
void take_q() {
  [[unroll]] for (uint first = 0; first < ALL_ROWS; first += KEYS) {
    const uint row = first + own_key, at = q_row(min(row0 + row, all_rows - 1));
    const bool real = row < ROWS && row0 + row < all_rows;
    [[unroll]] for (uint u = 0; u < K_EACH; ++u) {
      const uint c = own_col + u * ROW_LANES;
      const bool inside = K_EACH * ROW_LANES == KU || c < KU;
      const uvec4 y = q_piece(at, min(c, KU - 1), real && inside);
      if (K_EACH * ROW_LANES == KW || c < KW) Tiles[own_key * PITCH + c] = real && inside ? in_k_order(y) : uvec4(0);
    }
    barrier();
    if (team * FM >= first && team * FM < first + KEYS)
      [[unroll]] for (uint d = 0; d < QF; ++d) {
        FRAG_A a; coopMatLoad(a, Tiles, (team * FM - first) * PITCH + min(share * QF + d, KD - 1) * FK / 8, PITCH, BY_ROW);
        if (d < HELD) Q[d < HELD ? d : 0] = a; else kept[d - HELD + zero] = words_of(a);
      }
    barrier();
  }
}

// Partial sums of the subgroup's fragments of Q K^T, those that others own on their way.
void scores() {
  const uint group = owned / F, at = keys_at(tile) + group / TEAMS * F * FN * PITCH + share * QF * FK / 8;
  const uint place = group * F * PARTNERS * PARTIAL + tile % STAGES * SENT;   // of the first fragment of those that share rows and keys
  [[unroll]] for (uint f = 0; f < F; ++f) S[f] = ACC(0.0);
  [[unroll]] for (uint d = 0; d < QF; ++d)
    if (SPLIT * QF == KD || share * QF + d < KD)
      [[unroll]] for (uint f = 0; f < F; ++f) {
        FRAG_B kb; coopMatLoad(kb, Tiles, at + f * FN * PITCH + d * FK / 8, PITCH, BY_COLUMN);
#ifdef CACHE
        if (BLOCKED) {
          of_block = ACC(0.0);
          if (d < HELD) of_block = coopMatMulAdd(Q[d < HELD ? d : 0], kb, of_block);
          else of_block = coopMatMulAdd(fragment_of(kept[d - HELD + zero]), kb, of_block);
          const uint scales = ((group / TEAMS * F + f) * FN + col_lane) * BLOCKS + (share * QF + d) * FK / 32;
          [[unroll]] for (uint e = 0; e < of_block.length(); ++e)
            S[f][e] = fma(block_scales[scales + COL_OF(e) * BLOCKS], of_block[e], S[f][e]);
        } else
#endif
        if (d < HELD) S[f] = coopMatMulAdd(Q[d < HELD ? d : 0], kb, S[f]);
        else S[f] = coopMatMulAdd(fragment_of(kept[d - HELD + zero]), kb, S[f]);
      }
  [[unroll]] for (uint f = 0; f < F; ++f)
    if (share != f)
      [[unroll]] for (uint e = 0; e < S[0].length(); e += 4)
        Sent[place + (f * PARTNERS + (share < f ? share : share - 1)) * PARTIAL + e / 4 * SG + lane] =
          floatBitsToUint(vec4(S[f][e], S[f][e + 1], S[f][e + 2], S[f][e + 3]));
}
// The owner's scores, in units of log 2.
void own_scores() {
  own = S[0];
  [[unroll]] for (uint f = 1; f < F; ++f) if (share == f) own = S[f];
  [[unroll]] for (uint p = 0; p < SPLIT - 1; ++p)
    [[unroll]] for (uint e = 0; e < own.length(); e += 4) {
      const vec4 more = uintBitsToFloat(Sent[tile % STAGES * SENT + (owned * PARTNERS + p) * PARTIAL + e / 4 * SG + lane]);
      [[unroll]] for (uint i = 0; i < 4; ++i) own[e + i] += more[i];
    }
  own *= score_scale
#ifdef CACHE
    * key_scale(b, kh)
#endif
    ;
}
// The place of column 0 of the owner's scores that is the lane's: of a tile of keys, or of places in a list.
uint first_place() { return (owned / F / TEAMS * F + share) * FN + col_lane; }
#ifdef LISTS
#define KEY_AT(e) tile_keys[tile % 2 * KEYS + first_place() + COL_OF(e)]
#define SCORED_KEY(e) INSIDE(KEY_AT(e))
#else
#define KEY_AT(e) (tile * KEYS + first_place() + COL_OF(e))
#define SCORED_KEY(e) KEY_AT(e)
#endif

// Scores as functions, bias and masks make them.
void score_pairs() {
  [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
    const uint row = row0 + slot_row(s), query = query_of(row);
    scores_of(b, kh * group() + member_of(row));
    [[unroll]] for (uint e = 0; e < own.length(); ++e)
      if (SLOT_OF(e) == s) own[e] = bits_of_score(scored(own[e] * LN2, query, SCORED_KEY(e)));
  }
}
void mask() {
#ifdef LISTS
  [[unroll]] for (uint e = 0; e < own.length(); ++e) if (KEY_AT(e) == NO_KEY) own[e] = NEG_INFINITY;
#else
  [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
    const Span span = keys_of(query_of(row0 + slot_row(s)));
    [[unroll]] for (uint e = 0; e < own.length(); ++e) if (SLOT_OF(e) == s && !has(span, KEY_AT(e))) own[e] = NEG_INFINITY;
  }
#endif
}
bool scores_grew() {
  bool grew = false;
  [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
    top[s] = NEG_INFINITY;
    [[unroll]] for (uint e = 0; e < own.length(); ++e) if (SLOT_OF(e) == s) top[s] = max(top[s], own[e]);
    grew = grew || top[s] >= m[s] + GROWTH;
    if (MAX_LOGIT) largest[s] = max(largest[s], top[s]);
  }
  return grew;
}
// Weights of the owner's scores, and their sums.
void weigh() {
  [[unroll]] for (uint s = 0; s < SLOTS; ++s) sum[s] = 0;
  float p[FM * FN / SG];
  [[unroll]] for (uint e = 0; e < own.length(); ++e) {
    p[e] = exp2(own[e] - m[SLOT_OF(e)]);
    sum[SLOT_OF(e)] += p[e];
  }
  if (WORDS) {
    if (SPLIT > 1) MEET   // all lanes have read what they take the place of
    [[unroll]] for (uint e = 0; e < own.length(); e += 2) {
      const uint to = tile % STAGES * SENT + owned * PARTNERS * PARTIAL + (row_lane + ROW_OF(e)) * P_PITCH, column = col_lane + COL_OF(e);
      Sent[to + column / 8][column / 2 % 4] = PAIR(p[e], p[e + 1]);
    }
  } else {
    [[unroll]] for (uint e = 0; e < own.length(); ++e)
      Halves[tile % STAGES * HALVES + (owned * FM + row_lane + ROW_OF(e)) * 8 * P_PITCH + col_lane + COL_OF(e)] = ELEMENT_BITS(p[e]);
  }
}
// References move up to the maximum so far, and O, l and weights follow.
void rescale() {
  if (owner)
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      const float most = row_max(top[s]);
      if (col_lane == 0) Statistics[TOPS + owned / F / TEAMS * F * ALL_ROWS + share * ALL_ROWS + slot_row(s)] = most;
    }
  barrier();
  if (owner) {
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      float reference = m[s];
      [[unroll]] for (uint x = 0; x < OWNERS; ++x)
        reference = max(reference, Statistics[TOPS + x * ALL_ROWS + slot_row(s)] - BELOW);
      const float alpha = exp2(m[s] - reference);
      m[s] = reference; l[s] *= alpha;
      if (share == 0 && owned / F / TEAMS == 0 && col_lane == 0) Statistics[FACTORS + slot_row(s)] = alpha;
    }
    weigh();
  }
  barrier();
  [[unroll]] for (uint t = 0; t < TEAMS; ++t) {
    float alpha[SLOTS];
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) alpha[s] = Statistics[FACTORS + t * FM + row_lane + TABLE(ROW_OF_SLOT, s)];
    [[unroll]] for (uint d = 0; d < VF; ++d)
      [[unroll]] for (uint e = 0; e < own.length(); ++e) O[t * VF + d][e] *= alpha[SLOT_OF(e)];
  }
}

// O += P V.
void add_values() {
  const uint at = values_at(tile) + subgroup * VF * FN / 8;
  [[unroll]] for (uint n = 0; n < KEYS / FK; ++n) {
    FRAG_A pa[TEAMS];
    [[unroll]] for (uint t = 0; t < TEAMS; ++t) {
      const uint from = (n / F * TEAMS + t) * F + n % F;
      if (WORDS) coopMatLoad(pa[t], Sent, tile % STAGES * SENT + from * PARTNERS * PARTIAL, P_PITCH, BY_ROW);
      else coopMatLoad(pa[t], Halves, tile % STAGES * HALVES + from * FM * 8 * P_PITCH, 8 * P_PITCH, BY_ROW);
    }
    [[unroll]] for (uint d = 0; d < VF; ++d) {
      FRAG_B vb; coopMatLoad(vb, Tiles, at + n * FK * PITCH + d * FN / 8, PITCH, BY_ROW);
      [[unroll]] for (uint t = 0; t < TEAMS; ++t) O[t * VF + d] = coopMatMulAdd(pa[t], vb, O[t * VF + d]);
    }
  }
}

// Weights of a tile whose keys are there; whether a reference has to move.
bool make_weights(bool masked) {
  const bool more = tile + 1 < keys.end;
  if (STAGES == 1 && more) fetch_keys(NEXT_KEY, next_page, 0, K_AHEAD);
  if (!IN_KEYS) fetch_values(OWN_KEY, own_page, 0, V_AHEAD);
  ASK(later, tile + 2)   // beyond the last key that of the last
  scores();
  barrier();
  if (tid == 0) grown[(tile + 1) % 2] = 0;
  if (STAGES == 2 && more) {
    fetch_keys(NEXT_KEY, next_page, K_AHEAD, K_EACH);
    store_keys(tile + 1, NEXT_KEY, next_page);
    if (tile + 2 < keys.end) fetch_keys(LATER_KEY, later_page, 0, K_AHEAD);
  }
  if (!IN_KEYS) {
    fetch_values(OWN_KEY, own_page, V_AHEAD, V_EACH);
    store_values(OWN_KEY, own_page);
  }
  bool grew = false;
  if (owner) {
    own_scores();
    if (SCORED) score_pairs();
    if (masked) mask();
    grew = scores_grew();
    weigh();
  }
  if (subgroupAny(grew)) { if (lane == 0) atomicOr(grown[tile % 2], 1u); }
  barrier();
  return grown[tile % 2] != 0;
}
// The second product of a tile, which is done with then.
void use_weights() {
  const bool more = tile + 1 < keys.end;
  if (owner) [[unroll]] for (uint s = 0; s < SLOTS; ++s) l[s] += sum[s];
  add_values();
  if (STAGES == 1) {
    if (more) fetch_keys(NEXT_KEY, next_page, K_AHEAD, K_EACH);
    barrier();
    if (more) store_keys(tile + 1, NEXT_KEY, next_page);
    barrier();
  }
#ifdef CACHE
  own_page = next_page; next_page = later_page;
#endif
#ifdef LISTS
  own_listed = next_listed; next_listed = later_listed;
#endif
  ++tile;
}

// The largest scores that the owner saw of each row, added to its head's. Before sums of rows meet.
void take_max_logits() {
  [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
    const uint row = slot_row(s);
    const bool exists = row < ROWS && row0 + row < all_rows && query_of(row0 + row) < query_count();
    int most = exists ? logit_of(largest[s], l[s]) : NO_LOGIT;
    [[unroll]] for (uint bit = 0; bit < 7; ++bit) if (WEIGHT(COL_LANE, bit) != 0u) most = max(most, subgroupShuffleXor(most, 1u << bit));
    if (col_lane == 0) add_logit(b * heads() + kh * group() + member_of(row0 + row), most);
  }
}

// m and l of each row, and the factor of O.
void finish_rows() {
  if (owner)
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
      const float all_keys = row_sum(l[s]);
      if (col_lane == 0) {
        Statistics[TOPS + owned / F / TEAMS * F * ALL_ROWS + share * ALL_ROWS + slot_row(s)] = all_keys;
        if (share == 0 && owned / F / TEAMS == 0) Statistics[MS + slot_row(s)] = m[s];
      }
    }
  barrier();
  for (uint row = tid; row < ALL_ROWS; row += WG) {
    float reference = Statistics[MS + row], all_weights = 0, factor = 1;
    [[unroll]] for (uint x = 0; x < OWNERS; ++x) all_weights += Statistics[TOPS + x * ALL_ROWS + row];
    if (SINKS && PARTS == 1) {
      if (query_exists(query_of(row0 + row))) factor = join_sink(kh * group() + member_of(row0 + row), reference, all_weights);
    }
    Statistics[MS + row] = reference;
    Statistics[TOPS + row] = all_weights;
#ifdef CACHE
    factor *= value_scale(b, kh);
#endif
    Statistics[FACTORS + row] = all_weights == 0 ? 0 : factor / all_weights;
  }
  barrier();
}

// The rows of O, through the subgroup's patch, a fragment at a time. (Every loop is unrolled: a driver that cannot fold an index keeps all
// of O, or of Q, in memory.)
void store_o() {
  const uint patch_at = subgroup * FM * PATCH_PITCH / 4;
  const uint rows = min(ROWS, all_rows - row0);
  [[unroll]] for (uint t = 0; t < TEAMS; ++t)
    [[unroll]] for (uint d = 0; d < VF; ++d) {
      coopMatStore(O[t * VF + d], Tiles, patch_at, PATCH_PITCH / 4, BY_ROW);
      MEET
      [[unroll]] for (uint u = 0; u < FM * FN / 4 / SG; ++u) {
        const uint x = u * SG + lane;
        const uint row = t * FM + x / (FN / 4), four = (subgroup * VF + d) * FN / 4 + x % (FN / 4);
        if (row < rows && four < FOURS) {
          const float factor = Statistics[FACTORS + row];
          const vec4 y = from_v_order(uintBitsToFloat(Tiles[patch_at + x / (FN / 4) * (PATCH_PITCH / 4) + x % (FN / 4)]));
          store(row0 + row, four, factor == 0 ? vec4(0) : y * factor, Statistics[MS + row], Statistics[TOPS + row]);
        }
      }
      MEET
    }
}

void main() {
  if (!take_rows()) return;
  tid = gl_LocalInvocationID.x;
  row_lane = lane_part(ROW_LANE, lane);
  col_lane = lane_part(COL_LANE, lane);
  // Subgroups that follow one another do not share rows and keys: of those that do one owns the weights, and schedulers take turns.
  const uint group = subgroup % (TEAMS * KEY_GROUPS);
  share = subgroup / (TEAMS * KEY_GROUPS); team = group % TEAMS;
  owned = group * F + min(share, F - 1);   // fragments by group of keys, then team
  owner = share < F;
  zero = gl_NumWorkGroups.z - 1;
  tile = keys.begin;
  own_key = tid / ROW_LANES; own_col = tid % ROW_LANES;
  ASK(own, tile) ASK(next, tile + 1)
  fetch_keys(OWN_KEY, own_page, 0, K_EACH);   // the first tile is waited for
  take_q();
  [[unroll]] for (uint s = 0; s < SLOTS; ++s) { m[s] = NONE; l[s] = 0; sum[s] = 0; }
  if (MAX_LOGIT) [[unroll]] for (uint s = 0; s < SLOTS; ++s) largest[s] = NEG_INFINITY;
  [[unroll]] for (uint x = 0; x < TEAMS * VF; ++x) O[x] = ACC(0.0);
  if (tid < 2) grown[tid] = 0;
  store_keys(tile, OWN_KEY, own_page);
  if (STAGES == 2 && tile + 1 < keys.end) fetch_keys(NEXT_KEY, next_page, 0, K_AHEAD);
  barrier();

  // A loop of its own for tiles whose references stay: where O is scaled in the same loop, drivers move all of it between registers for
  // every tile.
  [[dont_unroll]] while (tile < keys.end) {
    bool moved;
    [[dont_unroll]] do {
#ifdef LISTS
      moved = make_weights(true);
#else
      moved = make_weights(!is_whole(keys, tile));
#endif
      if (!moved) use_weights();
    } while (!moved && tile < keys.end);
    if (moved) { rescale(); use_weights(); }
  }

  if (MAX_LOGIT) { if (owner) take_max_logits(); }
  finish_rows();
  store_o();
}
