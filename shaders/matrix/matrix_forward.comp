#version 460
// FlashAttention-2 forward on matrix hardware, from VK_KHR_cooperative_matrix alone.
//
//   S = scale Q K^T,  P = exp(S - m),  l = rowsum(P),  O = P V / l,  lse = m + log l
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1: a workgroup keeps BR
// queries and walks over the keys in tiles of BC. A subgroup owns RM fragments of FM rows (Q as operands and O as accumulators stay in
// registers) and takes the tile in chunks of CK keys: scores, weights, weighted sum. Chunks keep few registers alive, two row
// fragments (RM = 2) halve the shared-memory reads per product.
//
// The softmax stays in registers although GLSL does not say which invocation holds which element: the layout is probed
// (include/matrix_layout.glsl). FORM says how much of it holds on this device:
//   1  accumulator and operand A agree: the weights go from accumulator to operand component by component
//   2  rows sit in groups of lanes, A differs: the weights pass through shared memory
//   3  nothing is assumed: scores, weights and row statistics pass through shared memory
//
// Reference instead of maximum. P = exp2(S scale - m) with a reference m that need not be the row's maximum: exactness asks only that
// nothing overflows. m starts from "nothing seen", and is set to (maximum so far) - BIAS when a lane sees too much growth; only then do
// lanes reduce and O and l get rescaled, one vote a chunk. Two ways to notice (MAX_FIRST): compare the lane's maximum before the
// exponentials (fewer registers), or take the exponentials, which l needs summed anyway, and find the partial sum past SUM_LIMIT: no
// maximum is computed at all unless it grew, and then the chunk is done again. Either way P <= 2^15 fits fp16, sums are fp32.
// LATE looks at no chunk of the loop without masks: a row's reference is the maximum of its first chunk there, scores may grow by 18 (in
// log 2) beyond that, and every 32 tiles the sums tell whether a weight may have passed the largest fp16. If one did, the workgroup
// begins anew, in a loop that looks at each chunk: right for every input, and slower, up to twice the time, for scores that grow so much.
// Without the look the driver is free to put one chunk's exponentials beside another's products. With SUMS weights are summed there by
// products with ones, since the number of instructions bounds the loop and a narrow product is one for many additions.
// With LATE 3 the order of tiles is turned: those with masks, and one at least, go first and are looked at; the rest is not. A row's
// reference then is the logarithm of what it has summed over keys around its own position, where functions of scores and windows have
// the largest scores, and which are more than a chunk's. With BLOCK_CLASSES edges go first anyway.
//
// Keys that end within a tile. With REPEAT no score is masked: the last key stands in for those that its tile lacks, with a value of 0. So
// O is right, and l has the weight of the last key so many times too often. The last column of the tile ends with that very weight, and it
// is taken off in the end. It is one of the row's own, whatever scores are, so that l loses log2(BC) of its 24 bits at most, where the last
// key has nearly all the weight. Rows beyond an entry's last query are left out in the end, too. The loop ends before it would fetch that
// tile, and so looks nowhere whether a key is there; the rest is a loop of the same steps that does.
//
// K and V are staged in shared memory 16 bytes at a time, rows padded to an odd pitch in 16-byte units (no bank conflicts). Keys before
// the diagonal run in a loop without mask code. With a causal mask the longest query blocks go first, HEADS_TOGETHER heads at a time (long
// blocks of many heads would thrash the cache, those of one head would leave a tail). PACK puts the query heads of one key head into one
// tile, row r = query r / group of head r % group, so that few queries fill a fragment and K and V are read once for all of them.
// Q enters and O leaves through a patch of shared memory per subgroup, 16 bytes a lane: a fragment loaded from or stored to device memory
// directly takes 2 bytes a lane (NVIDIA), and short sequences then spend a third of their time there. Ragged and unaligned rows take the
// same way. A masked score is -inf while m starts at a finite NONE, so (-inf) - (-inf) never
// occurs; a row with nothing to attend to ends with l = 0 and gives O = 0, lse = -inf. A negative scale negates Q instead.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32.
// Push constants: include/args.glsl. Workgroups: ceil(rows/BR) B heads, with rows = nq and heads = Hq, or nq group and Hk with PACK;
// of packed sequences (include/rows.glsl) those there may be at most, and heads innermost.
// Variants: fp16; DTYPE_BF16; CACHE: keys and values in pages (include/pages.glsl) or quantised (include/quantised.glsl), with bindings 5,
// 6 and 12 to 14, and no block mask; KEY_PARTS: keys in parts, PARTS times as many workgroups, other bindings 3 and 4
// (include/matrix_parts.glsl); SPLIT: tensors of fp32, operands of two or three terms of the type (include/matrix_split.glsl and
// matrix_split_products.glsl), no CACHE. Full subgroups of SG required.
//
// The steps are in include/: matrix_staging.glsl (K and V), matrix_rows.glsl (Q and O), matrix_softmax.glsl (a staged tile),
// matrix_shared_softmax.glsl (forms 2 and 3), matrix_dropout.glsl; matrix_attention.glsl has what they work on.
//
// Specialization constants (odd(x) = x | 1):
//   0 WG = W SG   1 BR = W RM FM   2 BC   3 D   4 DV   5 and 58 (include/mask.glsl)
//   6 ALIGNED     every row of q, k, v, o begins at a multiple of 16 bytes and D, DV are multiples of 8
//   7 WRITE_LSE   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN     11 SG subgroup size    12 FORM
//  13 RM row fragments of a subgroup    14 CK keys of a chunk: a multiple of FN and FK that divides BC
//  15 PREFETCH    0 none; 1 the next K and V wait in registers; 2 only K; 3 as 1, with two tiles in shared memory;
//                 4 two tiles, the next K and V asked for when a tile begins and stored when it ends; 5 as 1. 4 and 5 ask under a branch
//  16 PIPE        1: the next chunk's scores are asked for before this chunk's weighted sum
//  17 MAX_FIRST   18 PACK   19 HEADS_TOGETHER
// 117 LATE        1: references from the loop's first chunk; 2: from its scores, made once more before the loop; 3: from tiles
//                 with masks, which go first
// 118 SUMS        1: LATE's loop sums weights by products with ones (no dropout), of fragments FM x SUM_N x FK (119), whose
//                 accumulators' components have the slots SLOT_OF_SUM (120), a nibble each
// 121 LOOK_APART  1: LATE looks at sums in a loop around the one over tiles
//  20 K_PITCH >= odd(ceil(D/FK) FK/8), 21 V_PITCH >= odd(ceil(DV/FN) FN/8)      (FK and FN are multiples of 8)
//  22 KV_LEN      >= (PREFETCH = 3 or 4 ? 2 : 1) BC (K_PITCH + V_PITCH) and >= W FM odd(PATCH), in 16 bytes
//  23 Q_REG       slices of Q, FK wide, that stay in registers (>= 1); the rest in shared memory
//  24 Q_PITCH     odd(FK/8 (ceil(D/FK) - Q_REG)), 25 Q_LEN = W RM FM Q_PITCH; 1 and 1 if all of Q is in registers
//  26 X_LEN       floats of exchange: form 1: 1; 2: W FM CK; 3: W (FM CK + FM FN + 3 RM FM)
//  40 H_LEN       16 bytes of exchange: form 1: 1; 2 and 3: W FM CK/8
//  41 PATCH       16-byte units a row of the patch through which Q enters and O leaves: a multiple of FK/8 and FN/4
//  42 MASKS       0: not causal and nk is a multiple of BC, or REPEAT, so the loop with masks is left out (fewer registers)
//  43 DROPOUT     1: weights are dropped (include/dropout.glsl) after their sum is taken; each subgroup draws for its own rows, once a tile
//  44 DROP_LEN    words: at least 64; with DROPOUT 16 W RM FM KEY_GROUPS, the groups of 64 keys that BC keys may touch: BC/64 where 64
//                 divides BC, 1 where BC divides 64, else floor(BC/64) + 2
//  45 BY_LANE     1: form 1, lanes hold columns 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of every 16, q < 4; BC divides 64 or 64 divides BC
//  46 STEPS       1: pieces of K and V by steps that all invocations share, where a turn of the workgroup is whole rows
//                 (include/matrix_staging.glsl), and MAX_FIRST's growth by an fma: fewer instructions, but some shapes run at half the pace
// 122 REPEAT      1: no masks at all, and the last key is there for keys that its tile lacks: neither bounds, blocks, dropout, functions, a
//                 bias, a mask, MAX_LOGIT nor CACHE, and not form 3. MASKS is 0 and RAGGED 1 then.
//  47 RAGGED      0: nk is a multiple of BC, so that no row of a tile is clamped (with MASKS 0 none is, whatever this says)
//  27..39         include/matrix_layout.glsl
//  63..67         include/score.glsl, sinks.glsl: bindings from 8 on
//  59..62, 72, 81 the block mask, binding 5: include/mask.glsl. With BLOCK_MASK, PACK is 0; with BLOCK_CLASSES, MASKS is 1. (Not with
//                 KEY_PARTS, nor with CACHE: a module of both is 700 KB.)
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7. With lengths, RAGGED and MASKS or REPEAT are 1.
//  110 WITHIN      include/dropout.glsl: at the binding of further arguments     112 MAX_LOGIT  include/max_logit.glsl: binding 12, or 15
//  50, 104..107   with CACHE: include/matrix_attention.glsl, pages.glsl, quantised.glsl

#extension GL_GOOGLE_include_directive : require

#if !defined(KEY_PARTS) && !defined(CACHE)
#define BLOCKS 5
#define ASKS_APART
#endif
#if !defined(SPLIT) && !defined(CACHE) && !defined(BIAS_AHEAD)
#define REPEATS
#define TURNS   // LATE 3: there is no row of tiles that wants it elsewhere
#endif
#define LENGTHS 6
#define PARTS_OF_WHOLES
#ifdef CACHE
#define MAX_LOGIT_AT 15
#else
#define MAX_LOGIT_AT 12
#endif
#include "matrix_attention.glsl"
#include "items.glsl"
const bool TWO_TILES = PREFETCH == 3 || PREFETCH == 4;
const uint LATE_FROM = BLOCK_CLASSES ? 3 : BLOCK_MASK ? 4 : 1;   // the least that there is
#ifdef BIAS_AHEAD
const bool IS_LATE = LATE >= LATE_FROM && FORM != 3 && !MAX_LOGIT && !BIAS_EIGHTS;
#else
const bool IS_LATE = LATE >= LATE_FROM && FORM != 3 && !MAX_LOGIT;
#endif
#ifdef TURNS
const bool TURNED = IS_LATE && LATE == 3 && !BLOCK_MASK;
#else
const bool TURNED = false;
#endif
const float LATE_LIMIT = 65504.0;
const uint LATE_TILES = 32;
const uint AHEAD = PREFETCH == 3 ? 2 : 1;   // tiles that are fetched before they are worked on
shared uint grew;   // LATE: some lane's sum passed LATE_LIMIT

// Tiles of keys that the workgroup takes, from first up to end; those from whole up to full need no look at single scores.
uint first, whole, full, end;
// LATE 3: the tile that goes first, with those up to the end, before the first ones; and the number from which on no chunk is looked at.
uint start, stop;
// The walk over tiles: next(1) is the tile after this one, next(2) the one after that. With BLOCK_MASK it goes over numbers, which are
// those of the tiles, or with BLOCK_CLASSES as next_of_classes has them; from `last` on there is none.
const bool WALKED = BLOCK_MASK || TURNED;
uint n0, n1, n2, last;   // of this tile and the next ones
uint turned(uint n) {
  n = n == end ? first : n;
  return n == start ? end : n;
}
uint after(uint n) {
  return TURNED ? turned(n + 1) : BLOCK_CLASSES ? after_of_classes(n, Walk(first, whole, full, end)) : next_tile(n + 1, end);
}
uint tile_of(uint n) { return BLOCK_CLASSES && n >= end ? n - end : n; }
void begin_walk() {
  if (BLOCK_MASK && !BLOCKS_OF_TILES) full = whole = first;
  last = BLOCK_CLASSES ? end_of_classes(Walk(first, whole, full, end)) : end;
  j = first;
  if (WALKED) {
    n0 = TURNED ? start : BLOCK_CLASSES ? next_of_classes(first, Walk(first, whole, full, end)) : next_tile(first, end);
    n1 = after(n0);
    if (PREFETCH == 3) n2 = after(n1);
    j = tile_of(n0);
  }
}
uint next(uint n) { return WALKED ? tile_of(n == 1 ? n1 : n2) : j + n; }
#ifdef BIAS_AHEAD
uint next_tile_of_keys() { return next(1); }
#endif
bool is_next() { return WALKED ? n1 < last : j + 1 < end; }
void advance() {
  if (WALKED) {
    n0 = n1;
    j = tile_of(n0);
    if (PREFETCH == 3) { n1 = n2; n2 = after(n1); } else n1 = after(n0);
  } else ++j;
}

#ifdef KEY_PARTS
#include "matrix_parts.glsl"
void row_done(uint row, float reference, float row_sum) {
  STORED(statistics, 4, statistics[part_row(row)] = row_sum == 0.0 ? -infinity() : reference + log2(row_sum));
}
#else
const uint PARTS = 1;
void row_done(uint row, float reference, float row_sum) {
  STORED(lse, 4, lse[lse_off() + statistics_row(b * heads() + q_head + member_of(row)) + query_of(row)] = lse_of(reference, row_sum));
}
#endif

// Whether some row of the subgroup may see some key of tile j: in causal order, where several tiles cross the diagonal of a block. Of two,
// half of the subgroups would leave one out, and packed sequences get slower; so do windows. Not where weights go through shared memory:
// lavapipe runs loops that no invocation enters (docs/notes/host.md).
const bool SKIPS = FORM == 1 && UNEVEN && BR >= 4 * BC;
bool sees_tile() { return int(j * BC) <= int(query_of(row0 + RM * FM - 1)) + high_shift(); }

// The staged tile j, and the next one on its way. clamp: keys may end within either, or before (include/matrix_staging.glsl).
void tile(bool masked, bool late, bool clamp) {
  if (PREFETCH == 3) {          // two tiles in shared memory: one barrier a tile
    at = TILE - at; store_k(); store_v(next(1), clamp);
    at = TILE - at; fetch_k(next(2), clamp); fetch_v(next(2), clamp);
  } else if (PREFETCH != 4) {   // with 4 the tile before has stored this one
    barrier();
    if (PREFETCH == 0) fetch_k(j, clamp);
    store_k();
    if (PREFETCH == 0 || PREFETCH == 2) fetch_v(j, clamp);
    store_v(j, clamp);
    barrier();
    if (PREFETCH == 1 || PREFETCH == 2) fetch_k(next(1), clamp);
    if (PREFETCH == 1) fetch_v(next(1), clamp);
  }
  // The branch keeps the loads here. Without it the driver moves them into the middle of the tile, where registers are free, and their
  // latency is waited for.
  if (PREFETCH >= 4) { if (is_next()) { fetch_k(next(1), clamp); fetch_v(next(1), clamp); } }
  if (!(masked && SKIPS) || sees_tile()) attend(masked, late);
  if (TWO_TILES) {
    at = TILE - at;
    if (PREFETCH == 4) { store_k(); store_v(next(1), clamp); }
    barrier();
  }
}

// LATE: weights and sums are right as long as no weight passed LATE_LIMIT, the largest fp16. A lane's sum bounds its weights; it is looked
// at every LATE_TILES tiles, so that long rows of weights alike do not pass the limit, and waits in `before` then.
float before[RM * SLOTS];
bool fits;
void look_at_sums() {
  if (SUMS) {   // those of whole rows; an operand is finite as long as they are below the limit, however weights are rounded
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < row_sums[0].length(); ++e)
      fits = fits && row_sums[r][e] < LATE_LIMIT;
    return;
  }
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
    fits = fits && l[x] <= LATE_LIMIT;   // not of NaN
    before[x] += l[x]; l[x] = 0.0;
  }
}
// Whether a sum of any lane of the workgroup passed the limit. Every tile has a barrier, so grew is 0 before the first look.
bool some_grew() {
  if (!fits) grew = 1;
  barrier();
  return grew != 0;
}
// The first tiles on their way into shared memory.
void fetch_first(bool any) {
  if (any) {
    if (PREFETCH != 0) fetch_k(j, true);
    if (PREFETCH != 0 && PREFETCH != 2) fetch_v(j, true);
  }
}
void store_first(bool any) {
  if (TWO_TILES) {
    barrier();
    store_k(); store_v(j, true);
    if (PREFETCH == 3 && any) { fetch_k(next(1), true); fetch_v(next(1), true); }
    barrier();
  }
}

// REPEAT: the tiles that the loop before would fetch the last one in. S is of the last chunk then, and so it is not kept from before.
void rest() {
  if (j < end) {
    [[dont_unroll]] do { tile(false, IS_LATE, true); advance(); } while (j < end);
  } else [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0);
}

// Before the loop without masks and without a look at each chunk.
void begin_late() {
  if (tid == 0) grew = 0;
  fits = true;
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) before[x] = 0.0;
  if (SUMS) [[unroll]] for (uint r = 0; r < RM; ++r) row_sums[r] = SUM(0.0);
}
// That loop.
void late_loop() {
  begin_late();
  late_first = j;
  if (LATE == 2 && j < (REPEAT ? end : full)) {
    if (!TWO_TILES) { barrier(); if (PREFETCH == 0) fetch_k(j, true); store_k(); barrier(); }
    scores(0);
    if (SCORED) score_pairs(0);
    first_references();
  }
  if (LOOK_APART) {   // the loop over tiles then moves nothing of what a look changes
    bool again = false;
    [[dont_unroll]] while (!again && j < full) {
      const uint look = min(full, j + LATE_TILES);
      [[dont_unroll]] for (; j < look; advance()) tile(false, true, !REPEAT);
      look_at_sums();
      again = some_grew();
    }
    if (REPEAT && again) j = end;
  } else [[dont_unroll]] for (; j < full; advance()) {
    tile(false, true, !REPEAT);
    if (j % LATE_TILES == LATE_TILES - 1) { look_at_sums(); if (some_grew()) { if (REPEAT) j = end; break; } }
  }
}
// Whether all must be done anew.
bool late_is_wrong() {
  look_at_sums();
  if (SUMS) {   // the lanes of a row share its sum, since l is a lane's part elsewhere
    summed_operands = true;
    float share = P_UNIT;
    [[unroll]] for (uint b = 0; b < 7; ++b) if (WEIGHT(COL_LANE, b) != 0u) share *= 0.5;
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < row_sums[0].length(); ++e)
      l[r * SLOTS + (SLOT_OF_SUM >> 4 * e & 15u)] = row_sums[r][e] * share;
  } else [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) l[x] = before[x];
  return some_grew();
}
// The same with LATE 3, of what the tiles that went first leave.
bool late_rest() {
  begin_late();
  settle_references();
  [[dont_unroll]] for (; n0 < last; advance()) {
    tile(false, true, true);
    if (j % LATE_TILES == LATE_TILES - 1) { look_at_sums(); if (some_grew()) break; }
  }
  return late_is_wrong();
}

// LATE 3: where the walk starts, so that each row sees a key in the tiles that go first and gets a reference from them. With bounds that is
// the tile of the first row's last key, and all with masks go first. Else functions of scores may make those near the diagonal the largest:
// the tiles of the block's own positions go first.
void take_start(uint query) {
  const uint seen = max(end_of(keys_of(query)), 1) - 1;
  start = max(first, min(min(full, seen / BC), end - 1));
  stop = whole < start ? whole : end;
  if (SCORED && !MASKS) {
    start = clamp(uint(max(int(query + key_count()) - int(query_count()), 0)) / BC, first, max(first + 1, end) - 1);
    const uint behind = start + (BR + BC - 1) / BC;
    stop = behind < end ? behind : first < start ? first : end;
  }
}

void main() {
  take_place();
  if (workgroup_index() >= total) return;
  uint groups = total / PARTS;   // of a part of the keys: of packed sequences those that there are, for no more may have been started
#ifdef KEY_PARTS
  if (PACKED) groups = max(items() * (PACK ? key_heads() : heads()), 1);
#endif
  const uint part = PARTS == 1 ? 0 : workgroup_index() / groups, id = workgroup_index() - part * groups;
#ifdef KEY_PARTS
  if (PACKED && part >= PARTS) return;
#endif
  if (!is_work(id, PACK ? key_heads() : heads())) return;

  // which query block of which head
  const uint heads_ = PACK ? key_heads() : heads(), blocks = ((PACK ? nq * group() : nq) + BR - 1) / BR;
  uint bh, i;
  if (PACKED) {
    const Place place = place_of_items(id, heads_, HEADS_TOGETHER);
    bh = place.matrix; i = place.block;
  } else if (HEADS_TOGETHER > 1) {
    const uint span = HEADS_TOGETHER * blocks, first_head = id / span * HEADS_TOGETHER, rest = id % span;
    const uint members = min(HEADS_TOGETHER, groups / blocks - first_head);
    i = rest / members; bh = first_head + rest % members;
  } else { bh = id / blocks; i = id % blocks; }
  if (!PACKED) i = longest_first(i, blocks);
  const uint h = bh % heads_;
  const uint kv_head = PACK ? h : h / group();
  b = bh / heads_; q_head = PACK ? h * group() : h;
  take_lengths(b);
  const uint rows = PACK ? query_slots() * group() : query_slots();
  if (SCORED || ASKED) scores_of(b, q_head);
  k_base = K_OFF + key_origin(b, k_sb, k_sn) + kv_head * k_sh;
  v_base = V_OFF + key_origin(b, v_sb, v_sn) + kv_head * v_sh;
#ifdef CACHE
  take_scales(kv_head);
#endif
  q_base = q_off() + query_origin(b, q_sb, q_sn) + q_head * q_sh; o_base = o_off() + query_origin(b, o_sb, o_sn) + q_head * o_sh;
  row0 = i * BR + gl_SubgroupID * RM * FM;

  const Walk keys = part_of(key_tiles(query_of(i * BR), query_of(min((i + 1) * BR, rows) - 1), BC), part, PARTS);
  first = keys.begin; end = keys.end;
  whole = max(first, min(keys.whole_begin, end));
  full = MASKS ? min(keys.whole_end, end) : end;
  if (REPEAT) full = min(end, max(key_count() / BC, AHEAD) - AHEAD);
#ifdef KEY_PARTS
  part_rows = part * statistics_rows(groups / blocks * (PACK ? group() : 1));
#endif
  own_places();
  last_tile = end - 1;
  if (REPEAT) repeats = end > first ? max(end * BC, key_count()) - key_count() : 0;
  if (TURNED) take_start(query_of(i * BR));
  if (BLOCK_MASK) take_blocks(b, q_head, i * BR);
  begin_walk();
  at = 0;
  const bool any = BLOCK_MASK ? n0 < last : end > first;
#ifdef TURNS
  if (LATE == 3 && BLOCK_CLASSES) stop = max(end, min(n0 + 1, last));   // without edges a whole tile, for references
#endif
  fetch_first(any);
  ask_q(row0, PACK ? query_count() * group() : query_count());   // all of Q is on its way before the first piece is waited for
  q_through_patch();
#ifdef BIAS_AHEAD
  if (BIAS_EIGHTS) ask_eights(j, 0);
#endif
  nothing_seen();
  if (MAX_LOGIT) forget_scores();
  zero_beyond_columns(TWO_TILES ? 2 : 1);

  store_first(any);
  // The driver merges two phases of one loop, which puts the mask code into the main loop; two loops it leaves alone.
#ifdef TURNS
  if (IS_LATE && LATE == 3) {
    bool anew = false;   // all of it in the first of these loops
    [[dont_unroll]] do {
      [[dont_unroll]] for (; BLOCK_CLASSES ? n0 < stop : n0 != stop; advance()) {
        if (BLOCK_CLASSES) asked = !is_whole_block(j);
        tile(MASKS, false, true);
      }
      if (anew) break;
      anew = late_rest();
      if (anew) {
        nothing_seen();
        begin_walk();
        stop = last;
        at = 0;
        fetch_first(true);
        store_first(true);
      }
    } while (anew);
  } else if (BLOCK_CLASSES) {
#else
  if (BLOCK_CLASSES) {
#endif
    [[dont_unroll]] for (; n0 < end; advance()) { asked = !is_whole_block(j); tile(true, false, true); }
    [[dont_unroll]] for (; n0 < last; advance()) tile(false, false, true);
  } else {
    if (LOWER_BOUND) [[dont_unroll]] for (; j < whole; advance()) tile(true, false, true);
    if (IS_LATE) late_loop(); else [[dont_unroll]] for (; j < full; advance()) tile(false, false, !REPEAT);
    if (REPEAT) rest();
    if (IS_LATE) {
      if (late_is_wrong()) {   // anew, all of it in the loop that follows
        summed_operands = false;
        nothing_seen();
        j = first; at = 0;
        fetch_first(true);
        store_first(true);
      }
    }
    if (MASKS || IS_LATE) [[dont_unroll]] for (; j < end; advance()) tile(MASKS, false, true);
  }

  if (MAX_LOGIT) add_logits(PACK ? query_count() * group() : query_count());
#ifdef KEY_PARTS
  divide_by_sum(DROPOUT, false, true, rows);
  barrier();
  store_part(rows);
#else
  divide_by_sum(DROPOUT, SINKS, WRITE_LSE, rows);
  barrier();
  store_o(rows);
#endif
}
