#version 460
// FlashAttention, the first one, forward on matrix hardware: keys outside, queries inside.
//
//   for each block of keys j:        K_j, V_j into shared memory
//     for each block of queries i:   Q_i, O_i, m_i, l_i read
//       S = scale Q_i K_j^T,  P = exp(S - m'),  l' = exp(m_i - m') l_i + rowsum P
//       O_i = (exp(m_i - m') l_i O_i + P V_j) / l',  l_i = l',  m_i = m'   written back
//
// Dao, Fu, Ermon, Rudra, Re, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022, algorithm 1. The same
// algorithm as scalar_flash1.comp, which tells why it is kept and why a workgroup is a whole head: same loops, same dispatches, O divided by
// l and passed through device memory in fp32 for each block of keys. What happens to a block of queries while a block of keys is staged is
// what matrix_forward.comp does with a tile, by the same code (include/matrix_attention.glsl, include/matrix_chunks.glsl): fragments,
// chunks of keys, forms, and a reference m that need not be the row's maximum. So what the two differ by is the order of the loops.
//
// Between blocks of keys, m and l lie by rows; every lane of a row reads what one wrote, with a barrier of the workgroup between. O is not
// for anybody but the subgroup that left it there: a lane stores the components of its accumulators as it holds them, 16 bytes of every
// lane side by side, and reads the same ones back, whatever the layout of fragments is. (By rows, a fragment's columns are 64 bytes, in pieces of
// 8 on NVIDIA.) In form 3 the driver loads and stores whole fragments. Both reach to the end of the last block of queries: what lies
// beyond the last query belongs to nobody and saves every condition. Its Q is zero, so that all stays finite.
//
// K_j and V_j stay for the whole inner loop, so Q and O have patches of their own to pass through. Subgroups do not wait for each other within
// it. PREFETCH asks for the next block's Q before this one is computed.
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
//  49 ROWS_LEN    patches for rows of Q and O: W FM odd(PATCH), in 16 bytes

#extension GL_GOOGLE_include_directive : require

#define PATCH_ROWS Rows
#define ROW_DONE(row, m, l)                                                                                                        \
  { if (!last) STORED(statistics, 8, statistics[bh * span + row] = vec2(m, l));                                                    \
    else if (WRITE_LSE && row < nq) STORED(lse, 4, lse[lse_off + bh * nq + row] = LSE_OF(m, l)); }
#include "matrix_attention.glsl"

layout(constant_id = 48) const uint KEY_BLOCKS = 1;
layout(constant_id = 49) const uint ROWS_LEN = 80;

layout(binding = 5) workgroupcoherent buffer Statistics { vec2 statistics[]; };   // m, l
layout(binding = 6) buffer Sums4 { vec4 sums4[]; };                               // forms 1 and 2: read by the lane that wrote it
layout(binding = 6) buffer Sums { float sums[]; };
layout(binding = 6) workgroupcoherent buffer SumsOfSubgroup { float shared_sums[]; };   // form 3

shared uvec4 Rows[ROWS_LEN];

const uint HELD = FM * FN / SG;   // components of an accumulator that a lane holds, in forms 1 and 2

// Blocks of keys that any query of block i sees; the first is visited by all.
uint blocks_seen(uint i) {
  const uint all = (nk + BC - 1) / BC;
  if (!CAUSAL) return all;
  return max(min(all, (uint(max(int(min((i + 1) * BR, nq)) + causal_shift, 0)) + BC - 1) / BC), 1);
}

// Where fragment x of O, row fragment by row fragment, of this subgroup's rows begins between blocks of keys, in elements. The sums of a
// head are fewer than 2^32, for a binding is.
#define SUM_AT(x) (((bh * span + row0) / FM * VF + (x)) * (FM * FN))
#define EACH_SUM [[unroll]] for (uint x = 0; x < RM * VF; ++x)
// O is stored divided by l: times l again it is the sum that matrix_chunks.glsl adds to. l is a sum over the lanes of a row as well.
#define BRING_SUMS {                                                                                                               \
  if (FORM == 3) {                                                                                                                 \
    for (uint x = lane; x < RM * FM; x += SG) {                                                                                    \
      const vec2 s = LOADED(statistics, 8, statistics[bh * span + row0 + x]);                                                      \
      X[stats_at + 3 * x] = s.x; X[stats_at + 3 * x + 1] = s.y; X[stats_at + 3 * x + 2] = s.y;                                     \
    }                                                                                                                              \
    MEET                                                                                                                           \
    EACH_SUM {                                                                                                                     \
      coopMatLoad(O[x], shared_sums, SUM_AT(x), FN, BY_ROW);                                                                       \
      COUNTING(counted[3 * COUNT_OF(sums)] += FM * FN * 4 / SG;)                                                                   \
    }                                                                                                                              \
    [[unroll]] for (uint r = 0; r < RM; ++r) { SPREAD(r, 2) MEET SCALE_O(r) MEET }                                                 \
  } else {                                                                                                                         \
    EACH_SUM {                                                                                                                     \
      if (HELD % 4 == 0) [[unroll]] for (uint e = 0; e < O[0].length(); e += 4) {                                                  \
        const vec4 s = LOADED(sums, 16, sums4[SUM_AT(x) / 4 + e / 4 * SG + lane]);                                                 \
        O[x][e] = s.x; O[x][e + 1] = s.y; O[x][e + 2] = s.z; O[x][e + 3] = s.w;                                                    \
      } else [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[x][e] = LOADED(sums, 4, sums[SUM_AT(x) + e * SG + lane]);       \
    }                                                                                                                              \
    [[unroll]] for (uint r = 0; r < RM; ++r) {                                                                                     \
      float before[SLOTS];                                                                                                         \
      [[unroll]] for (uint s = 0; s < SLOTS; ++s) {                                                                                \
        const vec2 y = LOADED(statistics, 8, statistics[bh * span + row0 + r * FM + row_lane + TABLE(ROW_OF_SLOT, s)]);            \
        m[r * SLOTS + s] = y.x; l[r * SLOTS + s] = col_lane == 0 ? y.y : 0.0; before[s] = y.y / P_UNIT;                                     \
      }                                                                                                                            \
      [[unroll]] for (uint d = 0; d < VF; ++d) [[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= before[SLOT_OF(e)];\
    }                                                                                                                              \
    subgroupBarrier();   /* no lane writes m and l before all have read them */                                                    \
  } }
#define LEAVE_SUMS {                                                                                                               \
  if (FORM == 3) {                                                                                                                 \
    EACH_SUM {                                                                                                                     \
      coopMatStore(O[x], shared_sums, SUM_AT(x), FN, BY_ROW);                                                                      \
      COUNTING(counted[3 * COUNT_OF(sums) + 1] += FM * FN * 4 / SG;)                                                               \
    }                                                                                                                              \
  } else EACH_SUM {                                                                                                                \
    if (HELD % 4 == 0) [[unroll]] for (uint e = 0; e < O[0].length(); e += 4)                                                      \
      STORED(sums, 16, sums4[SUM_AT(x) / 4 + e / 4 * SG + lane] = vec4(O[x][e], O[x][e + 1], O[x][e + 2], O[x][e + 3]));           \
    else [[unroll]] for (uint e = 0; e < O[0].length(); ++e) STORED(sums, 4, sums[SUM_AT(x) + e * SG + lane] = O[x][e]);           \
  } }

void main() {
  const uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
  const uint id = workgroup_index();
  if (id >= total) return;

  const uint query_blocks = (nq + BR - 1) / BR, key_blocks = (nk + BC - 1) / BC, span = query_blocks * BR;
  const uint matrices = total / ((key_blocks + KEY_BLOCKS - 1) / KEY_BLOCKS);   // B Hq
  const uint part = id / matrices, bh = id % matrices, b = bh / heads, q_head = bh % heads;
  k_base = k_off + b * k_sb + q_head / group * k_sh;
  v_base = v_off + b * v_sb + q_head / group * v_sh;
  const uint q_base = q_off + b * q_sb + q_head * q_sh, o_base = o_off + b * o_sb + q_head * o_sh;
  PLACES
  const float scale = abs(scale_log2);
  const uint flip = scale_log2 < 0.0 ? 0x80008000u : 0u;
  const uint at = 0;
  last_tile = key_blocks - 1;

  // Blocks of keys that any query sees, and the first one, which all visit; a part beyond them has nothing to do.
  const uint end_j = min((part + 1) * KEY_BLOCKS, blocks_seen(query_blocks - 1));
  uint j = part * KEY_BLOCKS;
  if (j >= end_j) return;

  uvec4 kr[K_EACH], vr[V_EACH], qr[RM * Q_PASSES * Q_EACH];
  OWN_PLACES
  FRAG_A Qm[RM * QR];
  ACC O[RM * VF]; float m[RM * SLOTS], l[RM * SLOTS];
  ZERO_BEYOND_COLUMNS(1)

  [[dont_unroll]] for (; j < end_j; ++j) {
    FETCH_K(j) FETCH_V(j)
    uint i = CAUSAL && j > 0 ? uint(max(int(j * BC) - causal_shift, 0)) / BR : 0;   // first block of queries that sees a key of the block
    uint whole = i;                                                                 // first one that sees all of them
    if (MASKS) {
      if (CAUSAL) whole = clamp((uint(max(int((j + 1) * BC) - 1 - causal_shift, 0)) + BR - 1) / BR, i, query_blocks);
      if ((j + 1) * BC > nk) whole = query_blocks;
    }
    if (PREFETCH != 0) ASK_Q(i * BR + gl_SubgroupID * RM * FM, nq)
    // K, V and statistics of the block before have been read and written
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    STORE_K STORE_V
    barrier();
    if (MASKS) [[dont_unroll]] for (; i < whole; ++i)
#define MASKED 1
#include "matrix_flash1_block.glsl"
#undef MASKED
    [[dont_unroll]] for (; i < query_blocks; ++i)
#define MASKED 0
#include "matrix_flash1_block.glsl"
#undef MASKED
  }
}
