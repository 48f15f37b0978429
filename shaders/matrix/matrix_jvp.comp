#version 460
// Forward mode (the product of attention's Jacobian and tangents) on matrix hardware: how O and lse move with Q, K, V and a bias.
//
//   P = exp(S - lse),  S' = s'(scale Q K^T) scale (Q' K^T + Q K'^T) + bias',  lse' = rowsum(P o S'),  O' = (P o S') V + P V' - lse' O
//
// where a prime is a tangent, and s' the derivative of score functions: scalar/scalar_jvp.comp says more. The walk is that of
// matrix_backward_q.comp (Dao, "FlashAttention-2", 2023, algorithm 2): a workgroup owns BR queries, with Q and Q' as operands, and walks
// over the keys in tiles of BC, of which K, K', V and V' are staged together. There are five products where the forward pass has two;
// fragments of Q and of K serve two of them each. With dropout Z (0 or 256/(256 - k) by place) O' is made of P o Z; lse' is not.
//
// Tiling, forms and specialization constants: include/matrix_backward.glsl, built with TANGENTS. Of its own:
//  111 Q_MOVES, 112 K_MOVES, 113 V_MOVES, 114 BIAS_MOVES   0: there is no such tangent, and no work for it
//  116 SINKS_MOVE  the same of sinks     115 WRITE_LSE   1: lse' is written
//
// Bindings: 0 Q, 1 K, 2 V, 3 O, 4 lse, 5 lse', 6 O', 7 Q', 8.. scores, 11 block mask, 12 and 13 lengths, 14 K', 15 V', 16 bias', 17 sinks,
// 18 sinks'.
// Push constants: include/args_backward.glsl (g is O, x is O', delta lse'); where tangents lie: include/tangents.glsl.
// Workgroups: ceil(nq/BR) B Hq; with a causal mask the longest query blocks first, HEADS_TOGETHER heads at a time.
// Variants: fp16; DTYPE_BF16. Full subgroups of SG required.

#extension GL_GOOGLE_include_directive : require
#define TANGENTS
#include "matrix_backward.glsl"
#include "matrix_backward_queries.glsl"

layout(constant_id = 115) const bool WRITE_LSE = true;
const bool SCORES_MOVE = Q_MOVES || K_MOVES || BIAS_MOVES;   // else lse and its tangent stay, and O' is P V'

ACC sum[RM * EN];              // of O', but for lse' O
FRAG_A P[RM * NP];             // weights as operands; dS is P o S'
float moved[RM * SLOTS];       // form 1: this lane's part of lse', of its rows; else it is in stats, behind lse

// S = Q K^T, and dP = Q' K^T + Q K'^T, for chunk c.
void products(uint c) {
  [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = ACC(0.0);
  if (SCORES_MOVE) [[unroll]] for (uint x = 0; x < RM * NS; ++x) dP[x] = ACC(0.0);
  [[unroll]] for (uint d = 0; d < DF; ++d) {
    FRAG_A a[RM], moves[RM];
    [[unroll]] for (uint r = 0; r < RM; ++r) {
      if (d < A_REG) a[r] = Am[r * AR + min(d, AR - 1)];
      else coopMatLoad(a[r], Rows, ra_at + r * FM * RA_PITCH + (d - AR) * FK / 8, RA_PITCH, BY_ROW);
      if (Q_MOVES) {
        if (d < B_REG) moves[r] = Bm[r * BRG + min(d, BRG - 1)];
        else coopMatLoad(moves[r], Rows, rb_at + r * FM * RB_PITCH + (d - BRG) * FK / 8, RB_PITCH, BY_ROW);
      }
    }
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      const uint at = (c * CK + n * FN) * A_PITCH + d * FK / 8;
      FRAG_B k; coopMatLoad(k, T, tile_at + at, A_PITCH, BY_COLUMN);
      [[unroll]] for (uint r = 0; r < RM; ++r) S[r * NS + n] = coopMatMulAdd(a[r], k, S[r * NS + n]);
      if (Q_MOVES) [[unroll]] for (uint r = 0; r < RM; ++r) dP[r * NS + n] = coopMatMulAdd(moves[r], k, dP[r * NS + n]);
      if (K_MOVES) {
        coopMatLoad(k, T, tile_at + B_AT + at, A_PITCH, BY_COLUMN);
        [[unroll]] for (uint r = 0; r < RM; ++r) dP[r * NS + n] = coopMatMulAdd(a[r], k, dP[r * NS + n]);
      }
    }
  }
}

// P S' of a pair, given its weight, the tangent of q.k, and the slope of its function. What is hidden may have any tangent.
float weight_moves(float p, float x, float slope, uint query, uint key) {
  x *= scale;
  if (SLOPES) x *= slope;
  if (BIAS_MOVES) x += bias_tangent_of(query, key);
  return (SLOPES || BIAS_MOVES) && p == 0 ? 0 : p * x;
}

// Form 1: weights, in S, and what of them is dropped, as weights() leaves it, become operands in registers.
void moves_to_operands(uint c) {
  if (SCORES_MOVE) EACH_SCORE {
    const uint row = row_of(r, e), col = column_of(c, n, e);
    const float p = S[r * NS + n][e];
    const float x = weight_moves(DROPOUT ? abs(p) : p, dP[r * NS + n][e], SLOPES ? slopes[SLOPES ? r * NS + n : 0][e] : 1,
      query_of(row, col), key_of(row, col));
    moved[r * SLOTS + SLOT_OF(e)] += x;
    dP[r * NS + n][e] = DROPOUT && p < 0 ? 0 : x;
  }
  if (SCORES_MOVE) gradients_to_operand();
  if (V_MOVES) {
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2)
      HALVES(kept_part(S[r * NS + n][e]), kept_part(S[r * NS + n][e + 1]), COMPONENT(P, r, n, e), COMPONENT(P, r, n, e + 1))
  }
}

// Forms 2 and 3: through shared memory, where a lane takes 8 columns of a row, and then the sums of a row together.
void moves_through_shared(uint c, bool masked) {
  const uint PIECES = FM * CK / 8;
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint n = 0; n < NS; ++n) {
      coopMatStore(S[r * NS + n], E, e_at + n * FN, CK, BY_ROW);
      if (SCORES_MOVE) coopMatStore(dP[r * NS + n], E, e_at + FM * CK + n * FN, CK, BY_ROW);
    }
    MEET
    [[unroll]] for (uint u = 0; u < (PIECES + SG - 1) / SG; ++u) {
      const uint piece = u * SG + lane, at = e_at + piece * 8;
      if (PIECES % SG == 0 || piece < PIECES) {
        const uint row = sub0 + r * FM + piece * 8 / CK;
        float p[8], ds[8], all = 0;
        [[unroll]] for (uint e = 0; e < 8; ++e) {
          const uint col = c * CK + piece * 8 % CK + e, query = query_of(row, col), key = key_of(row, col);
          float slope;
          float w = weight(E[at + e], lse_at(row, col, 0, 0), query, key, masked, slope);
          if (ASKED && masked) { if (asked) { if (!sees(query, key)) w = 0; } }
          const float x = SCORES_MOVE ? weight_moves(w, E[at + FM * CK + e], slope, query, key) : 0;
          const bool stays = DROPOUT ? kept(drawn_word(query, key, key / 2 % 4), byte_of(key)) : true;
          all += x;
          p[e] = stays ? w : 0; ds[e] = stays ? x : 0;
        }
        E[at] = all;
        H[h_at + piece] = uvec4(PAIR(p[0], p[1]), PAIR(p[2], p[3]), PAIR(p[4], p[5]), PAIR(p[6], p[7]));
        H[h_at + PIECES + piece] = uvec4(PAIR(ds[0], ds[1]), PAIR(ds[2], ds[3]), PAIR(ds[4], ds[5]), PAIR(ds[6], ds[7]));
      }
    }
    MEET
    [[unroll]] for (uint u = 0; u < (FM + SG - 1) / SG; ++u) {
      const uint row = u * SG + lane;
      if (FM % SG == 0 || row < FM) {
        float all = 0;
        [[unroll]] for (uint k = 0; k < CK / 8; ++k) all += E[e_at + row * CK + k * 8];
        stats[sub0 + r * FM + row].y += all;
      }
    }
    [[unroll]] for (uint n = 0; n < NP; ++n) {
      coopMatLoad(P[r * NP + n], H, h_at + n * FK / 8, CK / 8, BY_ROW);
      if (SCORES_MOVE) coopMatLoad(dS[r * NP + n], H, h_at + PIECES + n * FK / 8, CK / 8, BY_ROW);
    }
    MEET
  }
}

// O' += (P o S') V + P V' for chunk c.
void add_sums(uint c) {
  [[unroll]] for (uint n = 0; n < NP; ++n) [[unroll]] for (uint d = 0; d < EN; ++d) {
    const uint at = (c * CK + n * FK) * B_PITCH + d * FN / 8;
    FRAG_B v;
    if (SCORES_MOVE) {
      coopMatLoad(v, T, tile_at + V_AT + at, B_PITCH, BY_ROW);
      [[unroll]] for (uint r = 0; r < RM; ++r) sum[r * EN + d] = coopMatMulAdd(dS[r * NP + n], v, sum[r * EN + d]);
    }
    if (V_MOVES) {
      coopMatLoad(v, T, tile_at + VT_AT + at, B_PITCH, BY_ROW);
      [[unroll]] for (uint r = 0; r < RM; ++r) sum[r * EN + d] = coopMatMulAdd(P[r * NP + n], v, sum[r * EN + d]);
    }
  }
}

// Chunk c of the staged tile of keys.
void chunk(uint c, bool masked) {
  if (BIAS_PAIRS) ask_bias(first_key + c * CK + col_lane);
  products(c);
  if (FORM == 1) {
    weights(c, masked);
    moves_to_operands(c);
  } else moves_through_shared(c, masked);
  add_sums(c);
}

// lse' of the workgroup's rows, whole, behind their lse in shared memory.
void sum_over_rows() {
  if (FORM == 1) [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x)
    stats[sub0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS)].y = row_sum(moved[x]);
}

void move_sinks(uint head) {
  for (uint x = tid; x < BR; x += WG) stats[x].y += sink_moves(head, load_lse(first_query + x));
  barrier();
}

void store_lse() {
  for (uint x = tid; x < BR; x += WG) {
    const uint row = first_query + x;
    if (row < query_slots())
      STORED(lse_tangent, 4, lse_tangent[delta_off() + statistics_row(bh) + row] = row < query_count() ? stats[x].y : 0);
  }
}

uint o_rows;   // where O begins for this head
// O' leaves through the patch, as gradients do, less lse' O.
void store_o() {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < EN; ++d) {
    TO_PATCH(sum[r * EN + d], r * EN + d)
    [[unroll]] for (uint u = 0; u < PATCH_EACH; ++u) {
      Piece p = from_patch(r, d, u, keep_scale * P_UNIT);
      if (p.mine && (WHOLE_DV || p.c < DV)) {
        const uint to = x_base + p.c + p.row * x_sn;
        if (p.row < ROW_COUNT) {
          const float by = stats[p.row - first_query].y;
          const uvec4 o = piece_g(o_rows + p.row * g_sn, p.c / 8, true);
          p.lo -= by * vec4(UNPAIR(o.x), UNPAIR(o.y)); p.hi -= by * vec4(UNPAIR(o.z), UNPAIR(o.w));
        }
        if (ALIGNED) STORED(x, 16, x4[to / 8] = packed(p));
        else [[unroll]] for (uint e = 0; e < 8; ++e)
          if (p.c + e < DV) STORED(x, 2, x16[to + e] = ELEMENT_BITS(e < 4 ? p.lo[e % 4] : p.hi[e % 4]));
      }
    }
    FROM_PATCH
  }
}

void main() {
  if (workgroup_index() >= total || !is_work(workgroup_index(), heads())) return;
  take_place();
  const uint blocks = (nq + BR - 1) / BR;
  if (PACKED) take_item(heads());
  else {
    find_block(blocks);
    i = longest_first(i, blocks);
  }
  const uint b = matrix / heads(), h = matrix % heads();
  bh = matrix;
  take_lengths(b);
  row0 = i * BR + sub0; first_query = i * BR; first_row = first_query;
  a_rows = q_off() + query_origin(b, q_sb, q_sn) + h * q_sh; b_rows = qt_off + query_origin(b, qt_sb, qt_sn) + h * qt_sh;
  a_columns = k_off() + key_origin(b, k_sb, k_sn) + h / group() * k_sh; a_member = 0;
  b_columns = kt_off + key_origin(b, kt_sb, kt_sn) + h / group() * kt_sh; b_member = 0;
  v_columns = v_off() + key_origin(b, v_sb, v_sn) + h / group() * v_sh;
  vt_columns = vt_off + key_origin(b, vt_sb, vt_sn) + h / group() * vt_sh;
  o_rows = g_off() + query_origin(b, g_sb, g_sn) + h * g_sh;
  x_base = x_off() + query_origin(b, x_sb, x_sn) + h * x_sh;
  bias_tangent_of_head(b, h);

  load_rows(Q_MOVES);   // Q, Q'
  [[unroll]] for (uint x = 0; x < sum.length(); ++x) sum[x] = ACC(0.0);
  [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) moved[x] = 0;
  load_statistics();
  barrier();
  zero_edges();

  Walk keys = key_tiles(i * BR, min((i + 1) * BR, query_slots()) - 1, BC);
  if (BLOCK_CLASSES) walk_classes(Walk(keys.begin, min(keys.whole_begin, keys.end), min(keys.whole_end, keys.end), keys.end));
  else if (BLOCKS_OF_TILES || !BLOCK_MASK) {
    if (!MASKS) keys.whole_end = keys.end;
    walk_all(keys, LOWER_BOUND, MASKS);
  } else walk(keys.begin, keys.end - keys.begin, true);

  barrier();
  sum_over_rows();
  barrier();
  if (SINKS_MOVE) move_sinks(h);
  if (WRITE_LSE) store_lse();
  store_o();
}
