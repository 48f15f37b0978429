#version 460
// FlashAttention-2 backward on matrix hardware, from VK_KHR_cooperative_matrix alone; first of two kernels: dK and dV.
//
//   P = exp(scale Q K^T - lse),  dV = P^T dO,  dP = dO V^T,  dS = P o (dP - delta),  dK = scale dS^T Q
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 2, without its atomic sums into
// dQ: a workgroup owns BR keys of one key head and walks over the queries of all query heads of the group, so dK and dV are summed in a
// fixed order and written once; matrix_backward_q.comp does dQ, recomputing P a second time. S and P are transposed: rows are keys.
// With dropout Z (0 or 256/(256 - k) by place): dV = (P o Z)^T dO, dS = P o (dP o Z - delta).
//
// dS^T may be left in memory (KEEP_DS) for dQ = scale dS K, a plain product then (standard_backward_product_matrix.comp): a fifth product
// in place of three, for memory of a slab, of some heads. It is there where a query sees a key, as operands that are summed here:
// without scale, and of bf16 cut off.
//
// Tiling, forms and specialization constants: include/matrix_backward.glsl.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dK, 7 dV, 8.. scores, 11 block mask, 12 and 13 lengths, 14 dS^T
// [query head of the slab][ceil(nk/FM)][ceil(nq/FK)] operands, each [A_UNITS][lane] 16 bytes; slabs begin at multiples of group() <<
// slab_of_ds(). Of packed sequences heads are those of all of them, rows of a sequence begin at ds_row_of(), and a slab's workgroups follow
// those of the slabs before: total is of all.
// Push constants: include/args_backward.glsl (x is dK, y is dV). Workgroups: ceil(nk/BR) B Hk; with a
// causal mask the key blocks that most queries see first, HEADS_TOGETHER heads at a time.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.
//
// Specialization constants, besides those of matrix_backward.glsl:
//   55 KEEP_DS   dS is wanted: form 1, components e and e + 1 of an accumulator, e even, are such components of an operand

#extension GL_GOOGLE_include_directive : require
#define KV
#include "matrix_backward.glsl"

layout(constant_id = 43) const uint PARTS = 3;
const bool MAKE_DK = (PARTS & 1u) != 0u, MAKE_DV = (PARTS & 2u) != 0u;
VIEWS(Y, y, 7, )

layout(constant_id = 55) const bool KEEP_DS = false;
layout(binding = 14) writeonly buffer DS_ { uvec4 ds4[]; };

const uint STAT_EACH = (PART + WG - 1) / WG;
float lr[STAT_EACH], dr[STAT_EACH];   // lse and delta on their way

float lse_at(uint row, uint col, uint r, uint e) { return stats[tile * BC + col].x; }
float delta_at(uint row, uint col, uint r, uint e) { return stats[tile * BC + col].y; }
// What is made of lse waits for it, so that it comes with the store.
void fetch_statistics(uint member, uint from) {
  EACH(PART, STAT_EACH, u, x) {
    const uint query = from + x, s = statistics_row(bh + member) + min(query, last_query());
    lr[u] = LOADED_IF(lse, 4, query < query_count(), lse[lse_off() + s]);
    dr[u] = LOADED_IF(delta, 4, query < query_count(), delta[delta_off() + s]);
  }
}
void store_statistics(uint at, uint from) {
  EACH(PART, STAT_EACH, u, x) {
    const float l = from + x < query_count() ? log2_units(lr[u]) : infinity(), d = WITHOUT_SCALE(dr[u]);
    stats[at + x] = BITS ? vec2(l + 1.0, 2.0 * d) : vec2(l, d);
  }
}

// Form 1: P without what dropout drops, from accumulator components to operand components.
void weights_to_operand(uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2)
    if (BITS) {
      const uint factors = factors_of(c, r, n, e);
      KEPT_HALVES(S[r * NS + n][e], S[r * NS + n][e + 1], factors, COMPONENT(P, r, n, e), COMPONENT(P, r, n, e + 1))
    } else HALVES(kept_part(S[r * NS + n][e]), kept_part(S[r * NS + n][e + 1]), COMPONENT(P, r, n, e), COMPONENT(P, r, n, e + 1))
}
ACC dK[MAKE_DK ? RM * DN : 1], dV[MAKE_DV ? RM * EN : 1];   // dK / scale
// dV += P^T dO for chunk c.
void add_dv(uint c) {
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint d = 0; d < EN; ++d) {
    FRAG_B g; coopMatLoad(g, T, tile_at + B_AT + (c * CK + n * FK) * B_PITCH + d * FN / 8, B_PITCH, BY_ROW);
    [[unroll]] for (uint r = 0; r < RM; ++r) dV[r * EN + d] = coopMatMulAdd(P[r * NP + n], g, dV[r * EN + d]);
  }
}
// dK += dS^T Q for chunk c.
void add_dk(uint c) {
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint d = 0; d < DN; ++d) {
    FRAG_B q; coopMatLoad(q, T, tile_at + (c * CK + n * FK) * A_PITCH + d * FN / 8, A_PITCH, BY_ROW);
    [[unroll]] for (uint r = 0; r < RM; ++r) dK[r * DN + d] = coopMatMulAdd(dS[r * NP + n], q, dK[r * DN + d]);
  }
}

// dS of chunk c into memory, as lanes hold it: nothing passes through shared memory, and a subgroup writes a fragment in one piece. It is
// converted once more, by pairs: taken out of operands it would be one number after the other, at a quarter of the pace.
const uint A_UNITS = FM * FK / SG < 8 ? 1 : FM * FK / SG / 8;   // of 16 bytes, that a lane has of an operand (KEEP_DS)
uint slab_of_ds() { return bytes >> 8 & 255u; }   // log2 of its key heads
uint whole_rows(uint keys) { return (keys + FM - 1) / FM; }
// Where the rows of a sequence begin: no sooner than those before it end. A fraction of an operand is lost for each, at most.
uint ds_row_of(uint b) { return !PACKED ? 0 : PACKED_KEYS ? (own_first_key + b * (FM - 1)) / FM : b * whole_rows(nk); }
// Of a head: of all sequences.
uint ds_rows() { return !PACKED ? whole_rows(nk) : PACKED_KEYS ? (packed_keys + batch * (FM - 1)) / FM : batch * whole_rows(nk); }
uint ds_columns() { return (nq + FK - 1) / FK; }
uint ds_at, ds_head;   // the first of the subgroup's, of the first query head; from head to head
void put_ds(uint c) {
  const uint rows = whole_rows(ROWS), columns = ds_columns(), row = row0 / FM, column = (first_query + c * CK) / FK;
  const uint at = ds_at + member_of_tile * ds_head + column;
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NP; ++n) {
    uint words[4 * A_UNITS];
    [[unroll]] for (uint f = 0; f < FK / FN; ++f) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2)
      words[A_OF(f, e) / 2] = HALVES_OF(dP[r * NS + n * FK / FN + f][e], dP[r * NS + n * FK / FN + f][e + 1]);
    if (row + r < rows && column + n < columns) [[unroll]] for (uint u = 0; u < A_UNITS; ++u)
      STORED(scores, 16, ds4[((at + r * columns + n) * A_UNITS + u) * SG + lane] =
        uvec4(words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3]));
  }
}

// Chunk c of the staged tile of queries: what the inner loop of algorithm 2 does for dV and dK, transposed.
void chunk(uint c, bool masked) {
  scores(c);                            // S = K Q^T
  if (FORM == 1) {                      // P is done with its sum before dP begins: S and dP are never both whole
    weights(c, masked);                 // P = exp(scale S - lse)
    if (MAKE_DV) { weights_to_operand(c); add_dv(c); }
    if (MAKE_DK) {
      minus_delta(c);                   // dP - delta = V dO^T - delta
      weight_gradients(c);
      score_gradients(c);               // dS = P o (dP - delta)
      gradients_to_operand();
      if (KEEP_DS) put_ds(c);
      add_dk(c);
    }
  } else {
    zero_gradients();
    if (MAKE_DK) weight_gradients(c);
    weights_through_shared(c, masked);  // P, dS
    if (MAKE_DV) add_dv(c);
    if (MAKE_DK) add_dk(c);
  }
}

// The second gradient, DV columns wide, as store_x in matrix_backward.glsl.
uint y_base;
void store_y(uint r, uint d, float factor) {
  [[unroll]] for (uint u = 0; u < PATCH_EACH; ++u) {
    Piece p = from_patch(r, d, u, factor);
    const uint to = y_base + p.c + p.row * y_sn;
    if (p.mine) {
      if (ALIGNED) {
        if (WHOLE_DV || p.c < DV) {
          if (ACCUMULATE) p = added(p, LOADED(y, 16, y4[to / 8]));
          STORED(y, 16, y4[to / 8] = packed(p));
        }
      } else [[unroll]] for (uint e = 0; e < 8; ++e) if (p.c + e < DV) {
        float z = e < 4 ? p.lo[e % 4] : p.hi[e % 4];
        if (ACCUMULATE) z += UNPAIR(uint(LOADED(y, 2, y16[to + e]))).x;
        STORED(y, 2, y16[to + e] = ELEMENT_BITS(z));
      }
    }
  }
}
void store_dk() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < DN; ++d) {
    TO_PATCH(dK[r * DN + d], r * DN + d)
    store_x(r, d, scale * keep_scale * P_UNIT); FROM_PATCH
  }
}
void store_dv() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < EN; ++d) {
    TO_PATCH(dV[r * EN + d], (MAKE_DK ? RM * DN : 0) + r * EN + d)
    store_y(r, d, keep_scale * P_UNIT); FROM_PATCH
  }
}

// Packed sequences: the workgroup's number among those of its slab, the slab's first key head, and how many it has.
uint slab_index, slab_head, slab_heads;
void take_slab() {
  slab_index = workgroup_index(); slab_head = 0; slab_heads = key_heads();
  if (KEEP_DS && PACKED) {
    const uint most = min(1u << slab_of_ds(), key_heads()), each = total / key_heads() * most;
    slab_head = slab_index / each * most;
    slab_index %= each;
    slab_heads = min(most, key_heads() - slab_head);
  }
}

void main() {
  if (workgroup_index() >= total) return;
  take_slab();
  if (!is_work(slab_index, slab_heads)) return;
  take_place();
  if (PACKED) {
    const Place place = place_of_items(slab_index, slab_heads, HEADS_TOGETHER);
    matrix = place.matrix / slab_heads * key_heads() + slab_head + place.matrix % slab_heads; i = place.block;
  } else find_block((nk + BR - 1) / BR);
  const uint b = matrix / key_heads(), h = matrix % key_heads();
  bh = b * heads() + h * group();
  take_lengths(b);
  row0 = i * BR + sub0; first_key = first_row = i * BR;
  a_rows = k_off() + key_origin(b, k_sb, k_sn) + h * k_sh; b_rows = v_off() + key_origin(b, v_sb, v_sn) + h * v_sh;
  a_columns = q_off() + query_origin(b, q_sb, q_sn) + h * group() * q_sh; a_member = q_sh;
  b_columns = g_off() + query_origin(b, g_sb, g_sn) + h * group() * g_sh; b_member = g_sh;
  x_base = x_off() + key_origin(b, x_sb, x_sn) + h * x_sh; y_base = y_off() + key_origin(b, y_sb, y_sn) + h * y_sh;

  // A slab begins at a multiple of so many heads, and has whole groups.
  if (KEEP_DS) {
    const uint first_head = PACKED ? (h - slab_head) * group() : bh % (group() << slab_of_ds());
    ds_head = ds_rows() * ds_columns();
    ds_at = first_head * ds_head + (ds_row_of(b) + row0 / FM) * ds_columns();
  }
  // Queries beyond the last need no mask: their lse is +inf.
  Walk queries = query_tiles(first_key, first_key + BR - 1, BC, 0, (query_count() + BC - 1) / BC * BC);
  if (queries.begin < queries.end) ask_first(queries.begin);
  load_rows(MAKE_DK);      // K, V
  [[unroll]] for (uint x = 0; x < dK.length(); ++x) dK[x] = ACC(0.0);
  [[unroll]] for (uint x = 0; x < dV.length(); ++x) dV[x] = ACC(0.0);
  barrier();
  zero_edges();

  if (BLOCK_CLASSES) walk_classes(queries);
  else if (BLOCKS_OF_TILES || !BLOCK_MASK) {
    if (!MASKS) queries.whole_begin = queries.begin;
    walk_all(queries, MASKS, LOWER_BOUND);
  } else walk(queries.begin, queries.end - queries.begin, true);

  barrier();
  if (MAKE_DK) store_dk();
  if (MAKE_DV) store_dv();
}
