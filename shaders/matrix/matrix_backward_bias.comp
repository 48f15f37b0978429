#version 460
// The gradient of attention's bias on matrix hardware, after delta:
//
//   P = exp(s' - lse),  dP = dO V^T,  dbias = sum of dS = P o (dP - delta)     over all scores that an element of the bias was added to
//
// Dao, "FlashAttention-2", 2023, algorithm 2, for dS; the paper has no bias. S and dP are made again, as matrix_backward_q.comp makes them:
// two products, and then dS goes to memory instead of into a third. Where every score has an element of its own, that kernel writes dS on
// its way, in form 1, if shared memory has room for that too; the rest comes here, and so do packed sequences. With dropout Z (0 or
// 256/(256 - k) by place): dS = P o (dP o Z - delta).
//
// A workgroup owns BR queries. Where every score has an element of its own (WALKS), it holds their Q and dO and walks over the tiles of
// keys, writing dS chunk by chunk; where no query of the block sees a key, 0 is written. Else it owns one tile of keys besides, whose sums
// are kept in registers while all that the tile stands for goes by: batch entries, heads, and blocks of queries where a bias has one row
// for all; Q and dO are loaded again for each. In the end rows meet in shared memory where there is one for all. Every element is
// summed in a fixed order, in fp32, and rounded once.
//
// dS leaves through shared memory (E), a row fragment of a chunk at a time, so that lanes write 8 neighbours of a row at once: form 1 puts
// it there, forms 2 and 3 find S and dP there anyhow.
//
// Tiling, forms and specialization constants: include/matrix_backward.glsl, with MASKS 0 allowed if there is no causal order or window,
// SLOPES 0, and in form 1 X_LEN = W FM (CK + 8). Unless WALKS, BC = CK and PREFETCH = 0.
//  69 OWN_BATCH, 70 OWN_HEADS, 71 OWN_QUERIES   the bias has an element for each batch entry, head, query; else one for all
//  77 ALIGNED_BIAS   every row of dbias begins at a multiple of 16 bytes, and nk elements are a multiple of that
//
// Bindings: 0 Q, 1 K, 2 V, 3 dO, 4 lse, 5 delta (backward_delta.comp), 6 dbias. Push constants: include/args_backward.glsl (x is dbias).
// Workgroups: WALKS: as in matrix_backward_q.comp. Else ceil(nk/BC) tiles of keys, then blocks of queries (one that stands for all without
// OWN_QUERIES), then heads, then batch entries, of the bias.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.

#extension GL_GOOGLE_include_directive : require
#include "matrix_backward.glsl"
#include "matrix_backward_queries.glsl"

layout(constant_id = 69) const bool OWN_BATCH = true;
layout(constant_id = 70) const bool OWN_HEADS = true;
layout(constant_id = 71) const bool OWN_QUERIES = true;
layout(constant_id = 77) const bool ALIGNED_BIAS = true;
const bool WALKS = OWN_BATCH && OWN_HEADS && OWN_QUERIES;

layout(binding = 6) buffer X32_ { float x32[]; };

// Pieces of 8 columns of a row fragment and chunk, of which a lane has every SG-th; form 1 leaves a gap between rows for the banks' sake.
const uint PIECES = FM * CK / 8, PIECE_EACH = (PIECES + SG - 1) / SG;
const uint E_PITCH = FORM == 1 ? CK + 8 : CK, E_SIZE = FORM == 1 ? FM * E_PITCH : 2 * FM * CK;

// Unless WALKS: the sums, in form 1 as accumulators, else piece by piece.
ACC sums[WALKS || FORM != 1 ? 1 : RM * NS];
float piece_sums[WALKS || FORM == 1 ? 1 : RM * PIECE_EACH * 8];

#define DBIAS_VIEW x
#define DBIAS_AT(row, key) (x_base + (row) * x_sn + (key))
#define DBIAS_ROWS nq
#include "matrix_backward_dbias.glsl"
// Piece `piece` of row fragment r and chunk c.
void put_piece(uint r, uint c, uint piece, float y[8]) {
  put_bias(row0 + r * FM + piece * 8 / CK, first_key + c * CK + piece * 8 % CK, vec4(y[0], y[1], y[2], y[3]), vec4(y[4], y[5], y[6], y[7]));
}
#define EACH_PIECE(u, piece) \
  [[unroll]] for (uint u = 0, piece = lane; u < PIECE_EACH; ++u, piece += SG) if (PIECES % SG == 0 || piece < PIECES)

// Row fragment r of chunk c, from the accumulators x[...] (a macro, since it is one of two).
#define PUT_FRAGMENTS(x, r, c)                                                                                            \
  {                                                                                                                       \
    [[unroll]] for (uint n = 0; n < NS; ++n) coopMatStore(x[(r) * NS + n], E, e_at + n * FN, E_PITCH, BY_ROW);            \
    MEET                                                                                                                  \
    EACH_PIECE(u, piece) {                                                                                                \
      float y[8];                                                                                                         \
      [[unroll]] for (uint k = 0; k < 8; ++k) y[k] = E[e_at + piece * 8 / CK * E_PITCH + piece * 8 % CK + k] * keep_scale; \
      put_piece(r, c, piece, y);                                                                                          \
    }                                                                                                                     \
    MEET                                                                                                                  \
  }

// Chunk c of the staged tile of keys.
void chunk(uint c, bool masked) {
  if (BIAS_PAIRS) ask_bias(first_key + c * CK + col_lane);
  scores(c);                            // S = Q K^T
  if (FORM == 1) {
    weights(c, masked);                 // P = exp(s' - lse)
    minus_delta(c);                     // dP - delta = dO V^T - delta
    weight_gradients(c);
    score_gradients(c);                 // dS = P o (dP - delta)
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      if (WALKS) PUT_FRAGMENTS(dP, r, c)
      else [[unroll]] for (uint n = 0; n < NS; ++n) sums[r * NS + n] += dP[r * NS + n];
    }
    return;
  }
  zero_gradients();
  weight_gradients(c);
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      coopMatStore(S[r * NS + n], E, e_at + n * FN, CK, BY_ROW);
      coopMatStore(dP[r * NS + n], E, e_at + FM * CK + n * FN, CK, BY_ROW);
    }
    MEET
    EACH_PIECE(u, piece) {
      const uint row = sub0 + r * FM + piece * 8 / CK;
      float y[8];
      [[unroll]] for (uint k = 0; k < 8; ++k) {
        const uint col = c * CK + piece * 8 % CK + k, query = query_of(row, col), key = key_of(row, col);
        float slope;
        float w = weight(E[e_at + piece * 8 + k], lse_at(row, col, 0, 0), query, key, masked, slope);
        if (DROPOUT) w = kept(drawn_word(query, key, key / 2 % 4), byte_of(key)) ? w : -w;
        y[k] = score_gradient(w, E[e_at + FM * CK + piece * 8 + k], delta_at(row, col, 0, 0)) * keep_scale;
        if (!WALKS) piece_sums[(r * PIECE_EACH + u) * 8 + k] += y[k];
      }
      if (WALKS) put_piece(r, c, piece, y);
    }
    MEET
  }
}

// What is worked on: a block of queries of a head, whose rows are loaded.
void take_queries(uint b, uint h, uint block) {
  bh = b * heads() + h;
  row0 = block * BR + sub0; first_query = block * BR;
  a_rows = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh; b_rows = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh;
  a_columns = k_off() + key_origin(b, k_sb, k_sn) + h / group() * k_sh; a_member = 0;
  b_columns = v_off() + key_origin(b, v_sb, v_sn) + h / group() * v_sh; b_member = 0;
  load_rows(true);   // Q, dO
  load_statistics();
  barrier();
  zero_edges();
}

// The sums of a tile whose rows are the bias's own.
void put_tile() {
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    if (FORM == 1) PUT_FRAGMENTS(sums, r, 0)
    else EACH_PIECE(u, piece) {
      float y[8];
      [[unroll]] for (uint k = 0; k < 8; ++k) y[k] = piece_sums[(r * PIECE_EACH + u) * 8 + k];
      put_piece(r, 0, piece, y);
    }
  }
}
// Those of a tile of one row for all queries: rows meet, those of a subgroup's fragments first.
void put_row() {
  if (FORM == 1) {
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      [[unroll]] for (uint r = 1; r < RM; ++r) sums[n] += sums[r * NS + n];
      coopMatStore(sums[n], E, e_at + n * FN, E_PITCH, BY_ROW);
    }
  } else EACH_PIECE(u, piece) {
    [[unroll]] for (uint k = 0; k < 8; ++k) {
      float y = 0;
      [[unroll]] for (uint r = 0; r < RM; ++r) y += piece_sums[(r * PIECE_EACH + u) * 8 + k];
      E[e_at + piece * 8 + k] = y;
    }
  }
  barrier();
  for (uint col = tid; col < CK; col += WG) {
    float y = 0;
    for (uint x = 0; x < WG / SG * FM; ++x) y += E[x / FM * E_SIZE + x % FM * E_PITCH + col];
    if (FORM == 1) y *= keep_scale;
    const uint to = x_base + first_key + col;
    if (first_key + col < nk) {
      if (SCORE_BIAS == 2) x32[to] = ACCUMULATE ? x32[to] + y : y;
      else {
        if (ACCUMULATE) y += UNPAIR(uint(x16[to])).x;
        x16[to] = ELEMENT_BITS(y);
      }
    }
  }
}

void main() {
  if (workgroup_index() >= total) return;
  take_place();
  e_at = gl_SubgroupID * E_SIZE;
  const uint blocks = (nq + BR - 1) / BR, across = (nk + BC - 1) / BC;
  if (WALKS) {
    find_block(blocks);
    i = longest_first(i, blocks);
    const uint b = matrix / heads(), h = matrix % heads();
    take_lengths(b);
    x_base = x_off() + b * x_sb + h * x_sh;
    take_queries(b, h, i);
    Walk keys = key_tiles(i * BR, min((i + 1) * BR, nq) - 1, BC);
    if (!MASKS) keys.whole_end = keys.end;
    walk_all(keys, LOWER_BOUND, MASKS);
    put_unseen_bias(keys.begin, keys.end);
    return;
  }
  const uint id = workgroup_index(), down = OWN_QUERIES ? blocks : 1;
  const uint key_tile = id % across, block = id / across % down, slot = id / (across * down);
  const uint slot_h = OWN_HEADS ? slot % heads() : 0, slot_b = OWN_HEADS ? slot / heads() : slot;
  x_base = x_off() + slot_b * x_sb + slot_h * x_sh;
  if (FORM == 1) { [[unroll]] for (uint x = 0; x < RM * NS; ++x) sums[WALKS ? 0 : x] = ACC(0.0); }
  else [[unroll]] for (uint x = 0; x < RM * PIECE_EACH * 8; ++x) piece_sums[WALKS ? 0 : x] = 0;

  uint b = OWN_BATCH ? slot_b : 0;
  do {
    take_lengths(b);
    uint h = slot_h;
    do {
      uint rows = block;
      do {
        const Walk keys = key_tiles(rows * BR, min((rows + 1) * BR, nq) - 1, BC);
        if (!MASKS || key_tile >= keys.begin && key_tile < keys.end) {
          barrier();   // nobody reads the last tile any more
          take_queries(b, h, rows);
          walk(key_tile, 1, MASKS);
        }
        ++rows;
      } while (!OWN_QUERIES && rows < blocks);
      ++h;
    } while (!OWN_HEADS && h < heads());
    ++b;
  } while (!OWN_BATCH && b < batch);

  first_key = key_tile * BC;
  row0 = block * BR + sub0;
  barrier();
  if (OWN_QUERIES) put_tile(); else put_row();
}
