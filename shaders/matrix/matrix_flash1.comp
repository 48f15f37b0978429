#version 460
// FlashAttention, the first one, forward on matrix hardware: keys outside, queries inside.
//
//   for each block of keys j:        K_j, V_j into shared memory
//     for each block of queries i:   Q_i, O_i, m_i, l_i read
//       S = scale Q_i K_j^T,  P = exp(S - m'),  l' = exp(m_i - m') l_i + rowsum P
//       O_i = (exp(m_i - m') l_i O_i + P V_j) / l',  l_i = l',  m_i = m'   written back
//
// Dao, Fu, Ermon, Rudra, Re, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022, algorithm 1. The same
// algorithm as scalar_flash1.comp, which tells why it is kept and why a workgroup is a whole head: same loops, same dispatches, O divided
// by l and passed through device memory in fp32 for each block of keys. What happens to a block of queries while a block of keys is staged
// is what matrix_forward.comp does with a tile, by the same code (include/matrix_softmax.glsl, include/matrix_rows.glsl): fragments,
// chunks of keys, forms, and a reference m that need not be the row's maximum. So what the two differ by is the order of the loops.
//
// Between blocks of keys, m and l lie by rows; every lane of a row reads what one wrote, with a barrier of the workgroup between. O is not
// for anybody but the subgroup that left it there: a lane stores the components of its accumulators as it holds them, 16 bytes of every
// lane side by side, and reads the same ones back, whatever the layout of fragments is. (By rows, a fragment's columns are 64 bytes, in
// pieces of 8 on NVIDIA.) In form 3 the driver loads and stores whole fragments. Both reach to the end of the last block of queries: what
// lies beyond the last query belongs to nobody and saves every condition. Its Q is zero, so that all stays finite.
//
// K_j and V_j stay for the whole inner loop, so Q and O have patches of their own to pass through. Subgroups do not wait for each other
// within it. PREFETCH asks for the next block's Q before this one is computed.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D], 2 V [B,Hk,Nk,DV], 3 O [B,Hq,Nq,DV] (strided, last stride 1), 4 lse [B,Hq,Nq] fp32,
// 5 m and l [B,Hq,N',2] fp32, 6 O between blocks of keys [B,Hq,N'/FM,ceil(DV/FN),FM FN] fp32, with N' = BR ceil(Nq/BR).
// Push constants: include/args.glsl. Workgroups: B Hq for each of ceil(blocks of keys / KEY_BLOCKS) parts, the parts one after the
// other, in dispatches of their own (a device may not answer for too long a dispatch).
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.
//
// Specialization constants: 0 to 47 as in matrix_forward.comp, except for
//  15 PREFETCH    0 none; 1 the next block's Q waits in registers
//  18 PACK        0, 19 HEADS_TOGETHER 1: a workgroup is a head, and there is no other order
//  22 KV_LEN      >= BC (K_PITCH + V_PITCH), in 16 bytes
// and
//  48 KEY_BLOCKS  blocks of keys of a part
//  90..92         include/lengths.glsl: bindings 12 and 13. With lengths, MASKS and RAGGED are 1.
// 112 MAX_LOGIT   include/max_logit.glsl: binding 14
//  49 ROWS_LEN    patches for rows of Q and O: W FM odd(PATCH), in 16 bytes

#extension GL_GOOGLE_include_directive : require

#define OWN_PATCH
#define LENGTHS 12
#define MAX_LOGIT_AT 14
#include "matrix_attention.glsl"

layout(constant_id = 48) const uint KEY_BLOCKS = 1;

layout(binding = 5) workgroupcoherent buffer Statistics { vec2 statistics[]; };   // m, l
layout(binding = 6) buffer Sums4 { vec4 sums4[]; };                               // forms 1 and 2: read by the lane that wrote it
layout(binding = 6) buffer Sums { float sums[]; };
layout(binding = 6) workgroupcoherent buffer SumsOfSubgroup { float shared_sums[]; };   // form 3

const uint HELD = FM * FN / SG;   // components of an accumulator that a lane holds, in forms 1 and 2

int own_logit;   // MAX_LOGIT: the largest score that this lane noted
uint bh, span;   // head over the batch; rows of a head, up to the end of its last block of queries
bool last;       // no further block of keys for these queries

// Blocks of keys that any query of block i sees; the first is visited by all.
uint blocks_seen(uint i) { return max(key_tiles(i * BR, min((i + 1) * BR, nq) - 1, BC).end, 1); }

void row_done(uint row, float reference, float row_sum) {
  if (!last) STORED(statistics, 8, statistics[bh * span + row] = vec2(reference, row_sum));
  else if (WRITE_LSE && row < nq) STORED(lse, 4, lse[lse_off() + bh * nq + row] = lse_of(reference, row_sum));
}

// Where fragment x of O, row fragment by row fragment, of this subgroup's rows begins between blocks of keys, in elements. The sums of a
// head are fewer than 2^32, for a binding is.
uint sum_at(uint x) { return ((bh * span + row0) / FM * VF + x) * (FM * FN); }

// O is stored divided by l: times l again it is the sum that attend() adds to. l is a sum over the lanes of a row as well.
void bring_sums() {
  if (FORM == 3) {
    for (uint x = lane; x < RM * FM; x += SG) {
      const vec2 s = LOADED(statistics, 8, statistics[bh * span + row0 + x]);
      X[stats_at + 3 * x] = s.x; X[stats_at + 3 * x + 1] = s.y; X[stats_at + 3 * x + 2] = s.y;
    }
    MEET
    [[unroll]] for (uint x = 0; x < RM * VF; ++x) {
      coopMatLoad(O[x], shared_sums, sum_at(x), FN, BY_ROW);
      COUNTING(counted[3 * COUNT_OF(sums)] += FM * FN * 4 / SG;)
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) { spread(r, 2); MEET scale_o(r); MEET }
  } else {
    [[unroll]] for (uint x = 0; x < RM * VF; ++x) {
      if (HELD % 4 == 0) [[unroll]] for (uint e = 0; e < O[0].length(); e += 4) {
        const vec4 s = LOADED(sums, 16, sums4[sum_at(x) / 4 + e / 4 * SG + lane]);
        O[x][e] = s.x; O[x][e + 1] = s.y; O[x][e + 2] = s.z; O[x][e + 3] = s.w;
      } else [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[x][e] = LOADED(sums, 4, sums[sum_at(x) + e * SG + lane]);
    }
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      float before[SLOTS];
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
        const vec2 y = LOADED(statistics, 8, statistics[bh * span + row_of_slot(r * SLOTS + s)]);
        m[r * SLOTS + s] = y.x; l[r * SLOTS + s] = col_lane == 0 ? y.y : 0.0; before[s] = y.y / P_UNIT;
      }
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= before[SLOT_OF(e)];
    }
    subgroupBarrier();   // no lane writes m and l before all have read them
  }
}

void leave_sums() {
  [[unroll]] for (uint x = 0; x < RM * VF; ++x) {
    if (FORM == 3) {
      coopMatStore(O[x], shared_sums, sum_at(x), FN, BY_ROW);
      COUNTING(counted[3 * COUNT_OF(sums) + 1] += FM * FN * 4 / SG;)
    } else if (HELD % 4 == 0) {
      [[unroll]] for (uint e = 0; e < O[0].length(); e += 4)
        STORED(sums, 16, sums4[sum_at(x) / 4 + e / 4 * SG + lane] = vec4(O[x][e], O[x][e + 1], O[x][e + 2], O[x][e + 3]));
    } else {
      [[unroll]] for (uint e = 0; e < O[0].length(); ++e) STORED(sums, 4, sums[sum_at(x) + e * SG + lane] = O[x][e]);
    }
  }
}

// Block i of queries against the staged block j of keys.
void block(uint i, bool masked) {
  row0 = i * BR + gl_SubgroupID * RM * FM;
  last = j + 1 == blocks_seen(i);
  if (PREFETCH == 0) ask_q(row0, query_count());
  q_through_patch();
  if (PREFETCH != 0) ask_q(row0 + BR, query_count());
  if (j == 0) nothing_seen(); else bring_sums();
  if (MAX_LOGIT) forget_scores();
  attend(masked, false);
  if (MAX_LOGIT) own_logit = max(own_logit, noted_of_all(query_count()));
  divide_by_sum(DROPOUT && last, SINKS && last, true, span);
  if (last) {
    store_o(nq);
    if (TWO_PATCHES) MEET   // the next block's queries go through the patch
  } else leave_sums();
}

void main() {
  take_place();
  const uint id = workgroup_index();
  if (id >= total) return;

  const uint query_blocks = (nq + BR - 1) / BR, key_blocks = (nk + BC - 1) / BC;
  const uint matrices = total / ((key_blocks + KEY_BLOCKS - 1) / KEY_BLOCKS), part = id / matrices;   // B Hq
  span = query_blocks * BR;
  bh = id % matrices; b = bh / heads(); q_head = bh % heads();
  take_lengths(b);
  if (SCORED) scores_of(b, q_head);
  k_base = k_off() + b * k_sb + q_head / group() * k_sh;
  v_base = v_off() + b * v_sb + q_head / group() * v_sh;
  q_base = q_off() + b * q_sb + q_head * q_sh; o_base = o_off() + b * o_sb + q_head * o_sh;
  at = 0;
  last_tile = key_blocks - 1;

  // Blocks of keys that any query sees, and the first one, which all visit; a part beyond them has nothing to do.
  const uint end_j = min((part + 1) * KEY_BLOCKS, blocks_seen(QUERY_LENGTHS ? last_query() / BR : query_blocks - 1));
  j = part * KEY_BLOCKS;
  if (j >= end_j) return;

  own_logit = NO_LOGIT;
  own_places();
  zero_beyond_columns(1);

  [[dont_unroll]] for (; j < end_j; ++j) {
    const Walk queries = query_tiles(j * BC, (j + 1) * BC - 1, BR, 0, QUERY_LENGTHS ? (query_count() + BR - 1) / BR * BR : span);
    uint i = j > 0 ? queries.begin : 0;
    const uint end_i = j > 0 ? queries.end : query_blocks;
    if (LOWER_BOUND) { if (i >= end_i) continue; }   // before every window
    fetch_k(j, true); fetch_v(j, true);
    if (KEY_LENGTHS) { if (key_count() == 0) [[unroll]] for (uint u = 0; u < V_EACH; ++u) vr[u] = uvec4(0); }   // there may be no number
    // Blocks of queries from whole up to full see all keys of the block.
    uint whole = i, full = end_i;
    if (MASKS) {
      whole = max(queries.whole_begin, i);
      if (LOWER_BOUND) full = max(queries.whole_end, whole);
      if ((j + 1) * BC > key_count() || QUERY_LENGTHS) whole = full = end_i;
    }
    if (PREFETCH != 0) ask_q(i * BR + gl_SubgroupID * RM * FM, query_count());
    // K, V and statistics of the block before have been read and written
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    store_k(); store_v(j, true);
    barrier();
    if (MASKS) [[dont_unroll]] for (; i < whole; ++i) block(i, true);
    [[dont_unroll]] for (; i < full; ++i) block(i, false);
    if (LOWER_BOUND) [[dont_unroll]] for (; i < end_i; ++i) block(i, true);
  }
  if (MAX_LOGIT) add_logit_of_subgroup(own_logit);
}
