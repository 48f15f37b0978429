#version 460
// FlashAttention-2 backward on matrix hardware, second of two kernels: dQ.
//
//   P = exp(scale Q K^T - lse),  dP = dO V^T,  dS = P o (dP - delta),  dQ = scale dS K
//
// Dao, "FlashAttention-2", 2023, algorithm 2, turned inside out: a workgroup owns BR queries and walks over the keys in tiles of BC, so
// that dQ is summed in registers in a fixed order instead of by atomic additions; matrix_backward_kv.comp says why there are two kernels.
// With dropout Z (0 or 256/(256 - k) by place): dS = P o (dP o Z - delta).
//
// Where every score has an element of the bias of its own, dS, before score functions, is the gradient with respect to the bias (DBIAS):
// it is written on the way, rounded once, and zeros where no query of the block sees a key. A kernel that makes S and dP again for it
// (matrix_backward_bias.comp) took a quarter of the pass.
//
// Tiling, forms and specialization constants: include/matrix_backward.glsl; built with TO_MEMORY, P and dS go to memory, and nothing is
// summed: include/matrix_backward_weights.glsl, with SLICED for wide heads: include/matrix_backward_slices.glsl.
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dQ, 7 dbias, 8.. scores, 11 block mask, 12 and 13 lengths.
// Push constants: include/args_backward.glsl (x is dQ, y dbias).
// Specialization constants of its own, without TO_MEMORY; with DBIAS, H_LEN in form 1 is W FM (CK/4 + 2):
//   54 DBIAS          form 1, no block mask, queries not packed: the gradient with respect to the bias is wanted, of its type
//   77 ALIGNED_BIAS   every row of dbias begins at a multiple of 16 bytes, and nk elements are a multiple of that
// Workgroups: ceil(nq/BR) B Hq; with a causal mask the longest query blocks first, HEADS_TOGETHER heads at a time.
// Variants: fp16; DTYPE_BF16; TO_MEMORY and SLICED of both. Full subgroups of SG required.

#extension GL_GOOGLE_include_directive : require
#define DRAWS_KEPT
#include "matrix_backward.glsl"
#include "matrix_backward_queries.glsl"

#ifdef TO_MEMORY
#include "matrix_backward_weights.glsl"
#else
ACC dQ[RM * DN];

layout(constant_id = 54) const bool DBIAS = false;
layout(constant_id = 77) const bool ALIGNED_BIAS = true;
VIEWS(Y, y, 7, )
layout(binding = 7) buffer Y32_ { float y32[]; };
uint y_base;   // where this head begins in dbias
#define DBIAS_VIEW y
#define DBIAS_AT(row, key) (y_base + (row) * y_sn + (key))
#define DBIAS_ROWS nq
#include "matrix_backward_dbias.glsl"

// dS of chunk c as the gradient with respect to the bias. In shared memory it lies by rows and in fp32, a row fragment at a time, of which
// lanes take 8 neighbours at once.
const uint DS_PITCH = CK / 4 + 2, DS_PIECES = FM * CK / 8;
void put_gradients(uint c) {
  const uint at = gl_SubgroupID * FM * DS_PITCH;
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint n = 0; n < NS; ++n) coopMatStore(dP[r * NS + n], H, at + n * FN / 4, DS_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0, x = lane; u < (DS_PIECES + SG - 1) / SG; ++u, x += SG) if (DS_PIECES % SG == 0 || x < DS_PIECES) {
      const uint in_row = x / (CK / 8), k = x % (CK / 8), from = at + in_row * DS_PITCH + 2 * k;
      const vec4 lo = uintBitsToFloat(H[from]), hi = uintBitsToFloat(H[from + 1]);
      put_bias(row0 + r * FM + in_row, first_key + c * CK + k * 8, lo * keep_scale, hi * keep_scale);
    }
    MEET
  }
}

// dQ += dS K for chunk c.
void add_dq(uint c) {
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint d = 0; d < DN; ++d) {
    FRAG_B k; coopMatLoad(k, T, tile_at + (c * CK + n * FK) * A_PITCH + d * FN / 8, A_PITCH, BY_ROW);
    [[unroll]] for (uint r = 0; r < RM; ++r) dQ[r * DN + d] = coopMatMulAdd(dS[r * NP + n], k, dQ[r * DN + d]);
  }
}

// Chunk c of the staged tile of keys: what the inner loop of algorithm 2 does for dQ.
void chunk(uint c, bool masked) {
  if (BIAS_PAIRS) ask_bias(first_key + c * CK + col_lane);
  scores(c);                            // S = Q K^T
  if (FORM == 1) {
    weights(c, masked);                 // P = exp(scale S - lse)
    minus_delta(c);                     // dP - delta = dO V^T - delta
    weight_gradients(c);
    score_gradients(c, !DBIAS);         // dS = P o (dP - delta)
    if (DBIAS) {
      put_gradients(c);
      slope_gradients();
    }
    gradients_to_operand();
  } else {
    zero_gradients();
    weight_gradients(c);
    weights_through_shared(c, masked);  // dS
  }
  add_dq(c);
}
#endif

#ifndef TO_MEMORY
void store_dq() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < DN; ++d) {
    TO_PATCH(dQ[r * DN + d], r * DN + d)
    store_x(r, d, scale * keep_scale * P_UNIT); FROM_PATCH
  }
}
#endif

#ifndef TO_MEMORY
uint heads_at_once() { return heads(); }   // of which packed sequences have a workgroup for each block
#endif

void main() {
  if (workgroup_index() >= total || !is_work(workgroup_index(), heads_at_once())) return;
  take_place();
  const uint blocks = (nq + BR - 1) / BR;
  if (PACKED) {
    take_item(heads_at_once());
#ifdef TO_MEMORY
    matrix = matrix / y_sb * heads() + x_sb + matrix % y_sb;   // of a slab's heads to one of all
#endif
  } else {
    find_block(blocks);
    i = longest_first(i, blocks);
  }
  const uint b = matrix / heads(), h = matrix % heads();
  bh = matrix;
  take_lengths(b);
  row0 = i * BR + sub0; first_query = first_row = i * BR;
  a_rows = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh; b_rows = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh;
  a_columns = k_off() + key_origin(b, k_sb, k_sn) + h / group() * k_sh; a_member = 0;
  b_columns = v_off() + key_origin(b, v_sb, v_sn) + h / group() * v_sh; b_member = 0;
#ifdef TO_MEMORY
  if (PACKED) slab_at = (h - x_sb) * x_sh + query_origin(b, nq * x_sn, x_sn);
  else slab_at = x_off() + (matrix - x_sb) * x_sh;
  z_base = y_off() + b * y_sb + h * y_sh;
#else
  x_base = x_off() + query_origin(b, x_sb, x_sn) + h * x_sh;
  if (DBIAS) y_base = y_off() + b * y_sb + h * y_sh;
#endif

  Walk keys = key_tiles(i * BR, min((i + 1) * BR, query_slots()) - 1, BC);
#ifndef SLICED
  if (keys.begin < keys.end) ask_first(keys.begin);
  load_rows(true);   // Q, dO
#endif
#ifndef TO_MEMORY
  [[unroll]] for (uint x = 0; x < dQ.length(); ++x) dQ[x] = ACC(0.0);
#endif
  load_statistics();
  barrier();
#ifdef SLICED
#define WALK_ALL walk_all_sliced
#define WALK walk_sliced
#else
#define WALK_ALL walk_all
#define WALK walk
  zero_edges();
#endif

  if (BLOCK_CLASSES) walk_classes(Walk(keys.begin, min(keys.whole_begin, keys.end), min(keys.whole_end, keys.end), keys.end));
  else if (BLOCKS_OF_TILES || !BLOCK_MASK) {
    if (!MASKS) keys.whole_end = keys.end;
    WALK_ALL(keys, LOWER_BOUND, MASKS);
  } else WALK(keys.begin, keys.end - keys.begin, true);

#ifdef TO_MEMORY
  put_zeros(keys.begin, keys.end);
#else
  barrier();
  if (DBIAS) put_unseen_bias(keys.begin, keys.end);
  store_dq();
#endif
}
