// What matrix_backward_kv.comp (rows are keys) and matrix_backward_q.comp (rows are queries) share. One walks over what the other owns, so
// up to their results they are the same kernel with Q, dO and K, V exchanged:
//
//   S = A a^T,  dP = B b^T     A, B rows of the workgroup (K, V or Q, dO); a, b columns, a tile of BC at a time (Q, dO or K, V)
//   P = exp(scale S - lse),  dS = P o (dP - delta),  sums: P b (kv only) and dS a
//
// A subgroup owns RM fragments of FM rows: A and B as operands (A_REG and B_REG slices in registers, the rest in shared memory), the
// sums as accumulators. It takes the tile in chunks of CK columns: S and dP, weights, sums. The rows of a and b in shared memory, staged
// 16 bytes at a time at an odd pitch, serve as right operands of both kinds, by column for S and dP, by row for the sums. P and dS become
// left operands in one of two ways:
//   FORM 1       accumulator and operand A agree (include/matrix_layout.glsl, probed): component by component, in registers
//   FORM 2 or 3  through shared memory: S and dP are stored, lanes work on rows of 8, and P and dS are loaded: right for any layout
//
// lse and delta belong to queries. In kv these are columns: both sit in shared memory beside the tile. In q they are rows: in registers
// (form 1) or in shared memory. S - lse is at most 0 up to rounding, so no maximum is needed; a query of nothing (lse = -inf) or
// beyond the last counts as lse = +inf, which makes its P 0. Rows beyond the last are zero when read and never written; columns
// beyond the last are read as the last, and have P = 0. With a causal mask, tiles that cross the diagonal have a loop of their own with
// masks.
//
// With DROPOUT, which weights of a tile are kept is drawn once for the workgroup while the tile is staged (each draw serves 16 keys),
// and waits in shared memory, as the words of the draw or as the 16 bits that are asked of it (BY_LANE 2); or a lane draws for itself.
//
// The steps are functions on globals (include/matrix_attention.glsl says what that costs: nothing). A kernel
//   defines KV before it includes this, if its rows are keys
//   defines after it the functions that are only declared here, above all chunk(): algorithm 2 for a chunk of a staged tile
//
// Built with TANGENTS, for matrix_jvp.comp, rows are queries, and what moves stands in the place of what gradients are made of: B is the
// tangent of Q, and a tile has K, its tangent, V and its tangent, the first two A_PITCH and the others B_PITCH apart: TILE_LEN is twice
// that of a backward kernel, ROWS_LEN has DF for EF, and STATS_LEN is BR.
//
// Specialization constants of both kernels (odd(x) = x | 1; DF = ceil(D/FK), DN = ceil(D/FN), EF = ceil(DV/FK), EN = ceil(DV/FN)):
//   0 WG = W SG   1 BR = W RM FM rows (kv: keys; q: queries)
//   2 BC columns of a tile (kv: queries; q: keys)   3 D   4 DV
//   5, 58..62, 72, 81  include/mask.glsl: binding 11 is the block mask; where blocks are no whole tiles, or classes, MASKS is 1
//   90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 12 and 13; with lengths, MASKS is 1 where rows are queries
//   110 WITHIN     include/dropout.glsl: at the binding of further arguments
//   6 ALIGNED     every row of q, k, v, dO and of the gradients begins at a multiple of 16 bytes and D, DV are multiples of 8
//   7 ACCUMULATE  gradients are added to what is there
//   8 FM  9 FN  10 FK  fragment: FM x FK times FK x FN (FN and FK multiples of 8)     11 SG subgroup size    12 FORM
//  13 RM row fragments of a subgroup    14 CK columns of a chunk: a multiple of FN and FK that divides BC
//  15 PREFETCH    0 none; 1 the next tile waits in registers; 2 two tiles in shared memory and one barrier a tile: while a chunk is
//                 computed, CK columns of the next tile are on their way
//  16 A_REG, 17 B_REG   slices of A and of B, FK wide, that stay in registers (>= 1; DF and EF keep all)
//  18 DROPOUT     19 HEADS_TOGETHER    heads (kv: key heads) whose blocks of one place follow one another; 1: a head after the other; of
//                 packed sequences include/items.glsl
//  20 A_PITCH >= odd(max(DF FK, DN FN)/8), 21 B_PITCH >= odd(max(EF FK, EN FN)/8)   of the rows of a and b in shared memory, in 16 bytes
//  22 TILE_LEN    >= BC (A_PITCH + B_PITCH), twice that with PREFETCH 2, and >= W FM odd(PATCH), in 16 bytes
//  23 MASKS       0: no tile needs the loop with masks, which is left out. kv: 0 allowed if not causal. q: 0 allowed if not causal and
//                 nk is a multiple of BC
//  24 STATS_LEN   pairs of floats: kv BC, 2 BC with PREFETCH 2; q: form 1: 1, else BR
//  25 ROWS_LEN    16 bytes: BR (pitch(DF - A_REG) + pitch(EF - B_REG)), pitch(n) = n > 0 ? odd(n FK/8) : 0; at least 1
//  26 X_LEN       floats of exchange: form 1: 1; else W 2 FM CK
//  40 H_LEN       16 bytes of exchange: form 1: 1; else W 2 FM CK/8
//  41 PATCH       16-byte units a row of the patch through which rows enter and gradients leave: a multiple of FK/8 and FN/4
//  42 DROP_LEN    words: at least 64, as include/matrix_attention.glsl says; with DROPOUT 16 KEY_GROUPS times 8 more than the queries of
//                 a tile (kv: BC; q: BR), where KEY_GROUPS counts the groups of 64 keys that the keys of a tile (n = kv: BR; q: BC) may
//                 touch: n/64 where 64 divides n, 1 where n divides 64, else floor(n/64) + 2; BY_LANE 2: kv: a quarter of that; q: 64
//  43 PARTS       kv: 3 dK and dV; 1 only dK, 2 only dV: two dispatches with half the accumulators each, for wide heads, whose sums do
//                 not fit into registers together (5 products instead of 4). q: ignored
//  44 BY_LANE     how weights find what is drawn for them. 0: each its word. 1: one word does for what a lane holds of a query and 16
//                 keys: form 1; kv: lanes hold rows q and q + 8 of every 16, q < 8, and FM is a multiple of 16; q: columns 2 q, 2 q + 1,
//                 2 q + 8, 2 q + 9, q < 4, and CK is a multiple of 16; keys of a tile divide 64, or 64 divides them. 2: bits for words.
//                 kv: the same, FM is 16, RM 1, 2 or 4, and components e and e + 1, e even, are columns 2 n and 2 n + 1 of a row. q: form
//                 1, lanes hold all of these columns or one and that 8 further on; keys of a tile are 16, 32 or a multiple of 64
//  27..39         include/matrix_layout.glsl     63..66 include/score.glsl: bindings from 8 on
//  68 SLOPES      the score functions' derivative is not 1 everywhere: it is kept beside the weights (SCORE_FUNCTIONS)

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
const bool KEYS_ARE_ROWS = true;
#define ROWS key_slots()
#define ROW_COUNT key_count()   // of the rows that there are, those to be read
#else
const bool KEYS_ARE_ROWS = false;
#define ROWS query_slots()
#define ROW_COUNT query_count()
#endif

const uint DF = (D + FK - 1) / FK, DN = (D + FN - 1) / FN;      // slices of A and a; fragments of a sum over D columns
#ifdef TANGENTS
const uint EF = DF, EN = (DV + FN - 1) / FN;                    // slices of B, whose rows are as long as A's; fragments of the sum
const uint AU = (D + 7) / 8, BU = AU, VU = (DV + 7) / 8;        // 16-byte units of a row
#else
const uint EF = (DV + FK - 1) / FK, EN = (DV + FN - 1) / FN;    // the same for DV
const uint AU = (D + 7) / 8, BU = (DV + 7) / 8;                 // 16-byte units of a row
#endif
const uint A_WIDTH = (DF * FK > DN * FN ? DF * FK : DN * FN) / 8, B_WIDTH = (EF * FK > EN * FN ? EF * FK : EN * FN) / 8;
const uint NS = CK / FN, NP = CK / FK;                          // accumulators of S and operands P across a chunk
const uint CHUNKS = BC / CK;
const uint B_AT = BC * A_PITCH;                                 // b behind a
#ifdef TANGENTS
const uint V_AT = 2 * BC * A_PITCH, VT_AT = V_AT + BC * B_PITCH;    // V and its tangent behind those of K
const uint TILE = 2 * BC * (A_PITCH + B_PITCH), TILES = PREFETCH == 2 ? 2 : 1;
#else
const uint TILE = BC * (A_PITCH + B_PITCH), TILES = PREFETCH == 2 ? 2 : 1;  // length of a tile, tiles in shared memory
#endif
const uint AR = A_REG < DF ? A_REG : DF, BRG = B_REG < EF ? B_REG : EF;
const bool WHOLE_D = D % FN == 0, WHOLE_DV = DV % FN == 0;      // no fragment passes the last column
const uint RA_PITCH = AR < DF ? (DF - AR) * FK / 8 | 1u : 0, RB_PITCH = BRG < EF ? (EF - BRG) * FK / 8 | 1u : 0;
const uint PATCH_PITCH = PATCH | 1u;
const uint A_PASSES = (DF * FK / 8 + PATCH - 1) / PATCH, B_PASSES = (EF * FK / 8 + PATCH - 1) / PATCH;
const uint ROW_EACH = (FM * PATCH + SG - 1) / SG;               // pieces a lane and pass

#include "matrix_types.glsl"
// Two operands in a word, as HALVES makes them.
#ifdef DTYPE_BF16
#define HALVES_OF(a, b) (floatBitsToUint(a) >> 16 | floatBitsToUint(b) & 0xffff0000u)
#else
#define HALVES_OF PAIR
#endif
#define P_UNIT (FORM == 1 ? CUT : 1.0)   // how much smaller operands P and dS are than what they stand for, on average
#include "count.glsl"

VIEWS(Q, q, 0, readonly)
VIEWS(K, k, 1, readonly)
VIEWS(V, v, 2, readonly)
VIEWS(G, g, 3, readonly)
layout(binding = 4) readonly buffer Lse_ { float lse[]; };
#ifdef TANGENTS
VIEWS(QT, qt, 7, readonly)
VIEWS(KT, kt, 14, readonly)
VIEWS(VT, vt, 15, readonly)
layout(binding = 5) writeonly buffer LseTangent { float lse_tangent[]; };
layout(constant_id = 111) const bool Q_MOVES = true;
layout(constant_id = 112) const bool K_MOVES = true;
layout(constant_id = 113) const bool V_MOVES = true;
#else
layout(binding = 5) readonly buffer Delta_ { float delta[]; };
#endif
VIEWS(X, x, 6, )
#include "args_backward.glsl"
#define BLOCKS 11
#define LENGTHS 12
#define SCORE_AT 8
#include "walk.glsl"
#include "items.glsl"
#include "common.glsl"
#define ASKS_APART
#define BIAS_TYPE uint16_t
#define BIAS_ELEMENT(i) UNPAIR(uint(bias16[i])).x
#include "score.glsl"
#ifdef TANGENTS
#define TANGENTS_AT 16
#define BIAS_TANGENT_ELEMENT(i) UNPAIR(uint(bias_tangent16[i])).x
#include "tangents.glsl"
#endif
layout(constant_id = 68) const bool SLOPES = false;   // the score functions' derivative is not 1 everywhere
#define PARTS_OF_WHOLES
#include "dropout.glsl"
#include "dropout_bits.glsl"
#include "matrix_layout.glsl"
#include "matrix_gather.glsl"

shared uvec4 T[TILE_LEN];        // staged tiles: a, then b at B_AT; before and after the loops, one fragment's patch per subgroup
shared uvec4 Rows[ROWS_LEN];     // slices of A and B that are not in registers
shared vec2 stats[STATS_LEN];    // lse in units of log 2, delta
shared float E[X_LEN];           // exchange of forms 2 and 3: S, then dP, of a row fragment and chunk
shared uvec4 H[H_LEN];           // P, then dS
shared uint drawn[DROP_LEN];     // what dropout drew for the tile: include/matrix_backward_dropout.glsl

// Who this is: invocation of the workgroup and of the subgroup, its part of rows and columns of a fragment, and the subgroup's places in
// shared memory.
uint tid, lane, row_lane, col_lane;
uint patch_at, e_at, h_at, ra_at, rb_at;
// What is worked on: block i of head `matrix` (kv: key head), batch included, and the first row of the subgroup in the block and in all.
uint matrix, i, sub0, row0;
uint bh, first_query, first_key;         // head of queries; first of the workgroup or of the tile
#ifdef KV
uint member_of_tile;                     // the query head of the group
#endif
uint tile, tile_at;                      // which of the tiles in shared memory, and where it begins in T
uint a_rows, b_rows, x_base;             // where A, B and the first gradient begin for this head
uint a_columns, b_columns, a_member, b_member;   // where a and b begin for the first head of the group; from head to head
float keep_scale;                        // of dropout, 1/(1-p): sums take dP and delta without it, gradients are multiplied in the end
// What the subgroup holds: A and B; of a chunk S, which becomes P in place, dP, which becomes dS in place, and these two as operands.
FRAG_A Am[RM * AR], Bm[RM * BRG], dS[RM * NP];
ACC S[RM * NS], dP[RM * NS];
ACC slopes[SLOPES ? RM * NS : 1];   // of the score functions, from weights() to score_gradients()
#ifdef KV
FRAG_A P[RM * NP];
#endif

// What a kernel defines.
void chunk(uint c, bool masked);                      // what becomes of chunk c of the staged tile
void fetch_statistics(uint member, uint from);        // lse and delta of PART columns, as fetch() and store() move a and b,
void store_statistics(uint at, uint from);            // where columns are queries
float lse_at(uint row, uint col, uint r, uint e);     // in units of log 2, of the query of a score: element e of row fragment r, in form 1
float delta_at(uint row, uint col, uint r, uint e);

#define WITHOUT_SCALE(x) (DROPOUT ? (x) / keep_scale : (x))
float log2_units(float l) { return l == -infinity() ? infinity() : bits_of_score(l); }

void take_place() {
  tid = gl_LocalInvocationID.x; lane = gl_SubgroupInvocationID;
  row_lane = lane_part(ROW_LANE, lane); col_lane = lane_part(COL_LANE, lane);
  patch_at = gl_SubgroupID * FM * PATCH_PITCH;
  e_at = gl_SubgroupID * 2 * FM * CK; h_at = gl_SubgroupID * 2 * FM * CK / 8;
  sub0 = gl_SubgroupID * RM * FM;
  ra_at = sub0 * (RA_PITCH + RB_PITCH); rb_at = ra_at + RM * FM * RA_PITCH;
  keep_scale = DROPOUT ? drop_scale() : 1.0;
}
// Packed sequences: the block that is a workgroup's, of one of so many heads for each.
void take_item(uint of_heads) {
  const Place place = place_of_items(workgroup_index(), of_heads, HEADS_TOGETHER);
  matrix = place.matrix; i = place.block;
}
// Which of the blocks of which head.
void find_block(uint blocks) {
  const uint id = workgroup_index();
  if (HEADS_TOGETHER > 1) {
    const uint span = HEADS_TOGETHER * blocks, first_head = id / span * HEADS_TOGETHER, rest = id % span;
    const uint members = min(HEADS_TOGETHER, total / blocks - first_head);
    i = rest / members; matrix = first_head + rest % members;
  } else { matrix = id / blocks; i = id % blocks; }
}

// Query and key of a score, given its row in the workgroup and its column in the tile.
uint query_of(uint row, uint col) { return first_query + (KEYS_ARE_ROWS ? col : row); }
uint key_of(uint row, uint col) { return first_key + (KEYS_ARE_ROWS ? row : col); }

// 8 elements of a row that begins at `from`, from column 8c on (real: include/count.glsl). A macro pastes the tensor's name.
#define PIECE(T, width) \
  { uvec4 y; if (ALIGNED) y = LOADED_IF(T, 16, real, T##4[from / 8 + c]); else y = GATHER(T, from, c, width, real); return y; }
uvec4 piece_q(uint from, uint c, bool real) PIECE(q, D)
uvec4 piece_k(uint from, uint c, bool real) PIECE(k, D)
uvec4 piece_v(uint from, uint c, bool real) PIECE(v, DV)
uvec4 piece_g(uint from, uint c, bool real) PIECE(g, DV)
// The same of a row of A and B, and of a column of a and b, of a head that begins at `origin`; beyond the last it is the last.
#ifdef KV
uvec4 row_a(uint row, uint c, bool real) { return piece_k(a_rows + min(row, last_key()) * k_sn, c, real); }
uvec4 row_b(uint row, uint c, bool real) { return piece_v(b_rows + min(row, last_key()) * v_sn, c, real); }
uvec4 column_a(uint origin, uint col, uint c) { return piece_q(origin + min(col, last_query()) * q_sn, c, col < query_count()); }
uvec4 column_b(uint origin, uint col, uint c) { return piece_g(origin + min(col, last_query()) * g_sn, c, col < query_count()); }
#else
uvec4 row_a(uint row, uint c, bool real) { return piece_q(a_rows + min(row, last_query()) * q_sn, c, real); }
#ifdef TANGENTS
uvec4 piece_qt(uint from, uint c, bool real) PIECE(qt, D)
uvec4 piece_kt(uint from, uint c, bool real) PIECE(kt, D)
uvec4 piece_vt(uint from, uint c, bool real) PIECE(vt, DV)
uvec4 row_b(uint row, uint c, bool real) { return piece_qt(b_rows + min(row, last_query()) * qt_sn, c, real); }
uvec4 column_a(uint origin, uint col, uint c) { return piece_k(origin + min(col, last_key()) * k_sn, c, col < key_count()); }
uvec4 column_b(uint origin, uint col, uint c) { return piece_kt(origin + min(col, last_key()) * kt_sn, c, col < key_count()); }
uint v_columns, vt_columns;   // where V and its tangent begin for this head
uvec4 column_v(uint col, uint c) { return piece_v(v_columns + min(col, last_key()) * v_sn, c, col < key_count()); }
uvec4 column_vt(uint col, uint c) { return piece_vt(vt_columns + min(col, last_key()) * vt_sn, c, col < key_count()); }
#else
uvec4 row_b(uint row, uint c, bool real) { return piece_g(b_rows + min(row, last_query()) * g_sn, c, real); }
uvec4 column_a(uint origin, uint col, uint c) { return piece_k(origin + min(col, last_key()) * k_sn, c, col < key_count()); }
uvec4 column_b(uint origin, uint col, uint c) { return piece_v(origin + min(col, last_key()) * v_sn, c, col < key_count()); }
#endif
#endif

// A workgroup moves PART columns of a tile at once; invocation tid moves pieces tid, tid + WG, ...
const uint PART = PREFETCH == 2 ? CK : BC;
const uint A_PIECES = PART * AU, B_PIECES = PART * BU;
const uint A_EACH = (A_PIECES + WG - 1) / WG, B_EACH = (B_PIECES + WG - 1) / WG;
#define EACH(pieces, each, u, x) \
  [[unroll]] for (uint u = 0, x = tid; u < each; ++u, x += WG) if (pieces % WG == 0 || x < pieces)
uvec4 ar[A_EACH], br[B_EACH];   // pieces on their way

#ifdef TANGENTS
const uint V_PIECES = PART * VU, V_EACH = (V_PIECES + WG - 1) / WG;
uvec4 vr[V_EACH], vtr[V_EACH];
// As below, of the one head.
void fetch(uint member, uint from) {
  EACH(A_PIECES, A_EACH, u, x) ar[u] = column_a(a_columns, from + x / AU, x % AU);
  if (K_MOVES) EACH(A_PIECES, A_EACH, u, x) br[u] = column_b(b_columns, from + x / AU, x % AU);
  EACH(V_PIECES, V_EACH, u, x) vr[u] = column_v(from + x / VU, x % VU);
  if (V_MOVES) EACH(V_PIECES, V_EACH, u, x) vtr[u] = column_vt(from + x / VU, x % VU);
}
void store(uint to, uint at, uint from) {
  EACH(A_PIECES, A_EACH, u, x) T[to * TILE + (at + x / AU) * A_PITCH + x % AU] = ar[u];
  if (K_MOVES) EACH(A_PIECES, A_EACH, u, x) T[to * TILE + B_AT + (at + x / AU) * A_PITCH + x % AU] = br[u];
  EACH(V_PIECES, V_EACH, u, x) T[to * TILE + V_AT + (at + x / VU) * B_PITCH + x % VU] = vr[u];
  if (V_MOVES) EACH(V_PIECES, V_EACH, u, x) T[to * TILE + VT_AT + (at + x / VU) * B_PITCH + x % VU] = vtr[u];
}
#else
// PART columns from `from` on, of a head of the group: from memory, and into shared memory, where they begin at column `at` of tile `to`.
void fetch(uint member, uint from) {
  EACH(A_PIECES, A_EACH, u, x) ar[u] = column_a(a_columns + member * a_member, from + x / AU, x % AU);
  EACH(B_PIECES, B_EACH, u, x) br[u] = column_b(b_columns + member * b_member, from + x / BU, x % BU);
  fetch_statistics(member, from);
}
void store(uint to, uint at, uint from) {
  EACH(A_PIECES, A_EACH, u, x) T[to * TILE + (at + x / AU) * A_PITCH + x % AU] = ar[u];
  EACH(B_PIECES, B_EACH, u, x) T[to * TILE + B_AT + (at + x / BU) * B_PITCH + x % BU] = br[u];
  store_statistics(to * BC + at, from);
}
#endif

// Elements of accumulators, where lanes know their places (form 1): element e of fragment n of row fragment r, its row in the workgroup
// and its column in the tile. (A macro, as three loop headers cannot be a function.)
#define EACH_SCORE \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
uint row_of(uint r, uint e) { return sub0 + r * FM + row_lane + ROW_OF(e); }
uint column_of(uint c, uint n, uint e) { return c * CK + n * FN + col_lane + COL_OF(e); }

#include "matrix_backward_dropout.glsl"
#include "matrix_backward_chunk.glsl"

// The block mask of a member of the group, for the workgroup's rows.
uint first_row;
void take_blocks(uint member) { take_blocks((bh + member) / heads(), (bh + member) % heads(), first_row); }

// With BLOCK_MASK: the first from t on of `tiles` tiles, counted as walk() counts them, that a block which is attended to touches;
// `tiles` if there is none. With BLOCK_CLASSES edges or, not masked, whole tiles alone.
Walk bounds;
uint next_attended(uint t, uint first, uint n, uint tiles, bool masked) {
  uint found = tiles;
  while (t < tiles) {
    const uint member = KEYS_ARE_ROWS ? t / n : 0, from = first + t - member * n;
    take_blocks(member);
    uint at;
    if (!BLOCK_CLASSES) at = next_tile(from, first + n);
    else if (masked) at = next_edge(from, bounds);
    else at = next_tile(from, first + n, WHOLE);
    if (at < first + n) { found = member * n + at - first; break; }
    t = (member + 1) * n;
  }
  return found;
}

// With BLOCK_CLASSES: all tiles of a walk, edges first.
void walk(uint first, uint n, bool masked);
void walk_classes(Walk all) {
  bounds = all;
  if (!BLOCKS_OF_TILES) bounds.whole_end = bounds.whole_begin;
  walk(bounds.begin, bounds.end - bounds.begin, true);
  walk(bounds.whole_begin, bounds.whole_end - bounds.whole_begin, false);
}
// Walks follow one another, and where there is no block mask one fetches the first tile of the next, as rows are fetched beside the first
// tile of all: what waits for memory is the start of a workgroup, not of every walk.
const uint NONE = ~0u;
uint follows = NONE;     // the first tile of the walk after this one
const uint NOT_ASKED = 0, ASKED_FOR = 1, STAGED = 2;
uint start = NOT_ASKED;  // what has become of the walk's first tile; of PREFETCH 2 its first part is asked for, or all of it is staged
uint turn = 0;           // PREFETCH 2: where the next tile goes
void ask_first(uint first) {
  if (PREFETCH != 0 && !BLOCK_MASK) { fetch(0, first * BC); start = ASKED_FOR; }
}

// Whether some row of the subgroup and some column of a chunk may see each other, as far as bounds go. Where they may not, P and dS are 0;
// who writes these must be told so. Not where weights go through shared memory: lavapipe runs loops that no invocation enters
// (docs/notes/host.md).
#ifdef TO_MEMORY
const bool SKIPS = false;
#else
const bool SKIPS = (UPPER_BOUND || LOWER_BOUND) && SCORE_BIAS == 0 && SCORE_MASK == 0 && FORM == 1;
#endif
bool sees_chunk(uint c) {
  const int row = int(row0), col = int((KEYS_ARE_ROWS ? first_query : first_key) + c * CK), rows = int(RM * FM), columns = int(CK);
  const int query = KEYS_ARE_ROWS ? col : row, queries = KEYS_ARE_ROWS ? columns : rows;
  const int key = KEYS_ARE_ROWS ? row : col, keys = KEYS_ARE_ROWS ? rows : columns;
  return (!UPPER_BOUND || key <= query + queries - 1 + high_shift()) && (!LOWER_BOUND || key + keys - 1 >= query + low_shift());
}

// The tiles from `first` on, n of each query head of the group (q: of the one key head); with BLOCK_MASK those of them that some block
// which is attended to touches. masked is a constant where this is called: tiles of which every score counts have no mask code.
void walk(uint first, uint n, bool masked) {
  const uint tiles = KEYS_ARE_ROWS ? n * group() : n;
  const uint begin = BLOCK_MASK ? next_attended(0, first, n, tiles, masked) : 0;
  // PREFETCH 2: of the next tile its member, and which of the n it is; after the last tile they stay, for chunks need them.
  uint next_member = 0, next_t = 0;
  if (BLOCK_MASK && begin < tiles) { next_member = KEYS_ARE_ROWS ? begin / n : 0; next_t = begin - next_member * n; }
  if (PREFETCH == 1 && begin < tiles && start == NOT_ASKED) fetch(next_member, (first + next_t) * BC);
  if (PREFETCH == 2 && begin < tiles && start != STAGED) {
    [[dont_unroll]] for (uint at = 0; at < BC; at += PART) {
      if (at > 0 || start == NOT_ASKED) fetch(next_member, (first + next_t) * BC + at);
      store(turn, at, (first + next_t) * BC + at);
    }
    barrier();
  }
  if (begin < tiles) start = follows == NONE ? NOT_ASKED : PREFETCH == 2 ? STAGED : ASKED_FOR;
  uint after;   // the tile after t
  [[dont_unroll]] for (uint t = begin; t < tiles; t = after) {
    const uint member = PREFETCH == 2 ? next_member : KEYS_ARE_ROWS ? t / n : 0;
    const uint col0 = (first + (PREFETCH == 2 ? next_t : KEYS_ARE_ROWS ? t % n : t)) * BC;
    tile = PREFETCH == 2 ? turn : 0; tile_at = tile * TILE; turn = 1 - turn;
    after = t + 1;
    if (BLOCK_MASK) {
      after = next_attended(after, first, n, tiles, masked);
      if (BLOCKS_BY_SCORE || ASKED) take_blocks(member);   // for the scores of this tile
      if (ASKED && masked) asked = !is_whole_block(col0 / BC);
    }
    if (PREFETCH == 2) {
      if (BLOCK_MASK) {
        if (after < tiles) { next_member = KEYS_ARE_ROWS ? after / n : 0; next_t = after - next_member * n; }
      } else if (t + 1 < tiles) {
        if (++next_t == n) { next_t = 0; ++next_member; }
      } else if (follows != NONE) { next_t = follows - first; next_member = 0; }
    } else {
      barrier();
      if (PREFETCH == 0) fetch(member, col0);
      store(0, 0, col0);
    }
#ifdef KV
    member_of_tile = member;
#endif
    if (KEYS_ARE_ROWS) first_query = col0; else first_key = col0;
    scores_of(KEYS_ARE_ROWS ? bh + member : bh);
    draw_tile(KEYS_ARE_ROWS ? bh + member : bh);
    if (PREFETCH != 2 || DRAWS_SHARED) barrier();
    if (PREFETCH == 1) {
      const uint next = BLOCK_MASK ? (after < tiles ? after : t) : min(after, tiles - 1);
      const bool is_last = after == tiles && follows != NONE;
      fetch(KEYS_ARE_ROWS && !is_last ? next / n : 0, (is_last ? follows : first + (KEYS_ARE_ROWS ? next % n : next)) * BC);
    }
    // Not unrolled: what chunks have in common (operands in shared memory, addresses) would be kept in registers across them.
    [[dont_unroll]] for (uint c = 0; c < CHUNKS; ++c) {
      const uint next_col = (first + next_t) * BC + c * PART;
      if (PREFETCH == 2) fetch(next_member, next_col);
      if (!(masked && SKIPS) || sees_chunk(c)) chunk(c, masked);
      if (PREFETCH == 2) store(1 - tile, c * PART, next_col);
    }
    if (PREFETCH == 2) barrier();   // nobody reads this tile any more, and the next one is whole
  }
}
// All tiles of a walk; edges, before and behind those that every row sees whole, have masks. Both are constants where this is called.
void walk_all(Walk tiles, bool before, bool behind) {
  const bool whole = tiles.whole_begin < tiles.whole_end, rest = behind && tiles.whole_end < tiles.end;
  const uint last = !BLOCK_MASK && rest ? tiles.whole_end : NONE;
  if (before) {
    follows = !BLOCK_MASK && whole ? tiles.whole_begin : last;
    walk(tiles.begin, tiles.whole_begin - tiles.begin, true);
  }
  follows = last;
  walk(tiles.whole_begin, tiles.whole_end - tiles.whole_begin, false);
  follows = NONE;
  if (behind) walk(tiles.whole_end, tiles.end - tiles.whole_end, true);
}

// Slice d of row fragment r of A or B: in registers, or in shared memory.
void keep_a(uint r, uint d, FRAG_A x) {
  if (d < A_REG) Am[r * AR + min(d, AR - 1)] = x;
  else coopMatStore(x, Rows, ra_at + r * FM * RA_PITCH + (d - AR) * FK / 8, RA_PITCH, BY_ROW);
}
void keep_b(uint r, uint d, FRAG_A x) {
  if (d < B_REG) Bm[r * BRG + min(d, BRG - 1)] = x;
  else coopMatStore(x, Rows, rb_at + r * FM * RB_PITCH + (d - BRG) * FK / 8, RB_PITCH, BY_ROW);
}
// Rows of A, or of B if `second`, become operands: asked for, all of them before the first piece is waited for, and through the patch. Both
// need so many passes, and pieces of B lie behind those of A: constants where this is called.
uvec4 pieces[RM * (A_PASSES + B_PASSES) * ROW_EACH];
void ask_rows(uint passes, bool second) {
  const uint units = second ? BU : AU, from = second ? RM * A_PASSES * ROW_EACH : 0;
  [[unroll]] for (uint p = 0; p < RM * passes; ++p) [[unroll]] for (uint u = 0; u < ROW_EACH; ++u) {
    const uint x = min(u * SG + lane, FM * PATCH - 1), row = row0 + p / passes * FM + x / PATCH, c = p % passes * PATCH + x % PATCH;
    const uint inside = ALIGNED ? min(c, units - 1) : c;
    const bool exists = row < ROW_COUNT && c < units, real = exists && u * SG + lane < FM * PATCH;
    uvec4 y;
    if (second) y = row_b(row, inside, real); else y = row_a(row, inside, real);
    pieces[from + p * ROW_EACH + u] = exists ? y : uvec4(0);
  }
}
void put_rows(uint passes, bool second) {
  const uint slices = second ? EF : DF, from = second ? RM * A_PASSES * ROW_EACH : 0;
  [[unroll]] for (uint p = 0; p < RM * passes; ++p) {
    [[unroll]] for (uint u = 0; u < ROW_EACH; ++u) {
      const uint x = min(u * SG + lane, FM * PATCH - 1);
      T[patch_at + x / PATCH * PATCH_PITCH + x % PATCH] = pieces[from + p * ROW_EACH + u];
    }
    MEET
    [[unroll]] for (uint f = 0; f < PATCH / (FK / 8); ++f) {
      const uint r = p / passes, d = p % passes * (PATCH / (FK / 8)) + f;
      if (d < slices) {
        FRAG_A x; coopMatLoad(x, T, patch_at + f * (FK / 8), PATCH_PITCH, BY_ROW);
        if (second) keep_b(r, d, x); else keep_a(r, d, x);
      }
    }
    MEET
  }
}

// A and, where it is wanted, B.
void load_rows(bool both) {
  ask_rows(A_PASSES, false);
  if (both) ask_rows(B_PASSES, true);
  put_rows(A_PASSES, false);
  if (both) put_rows(B_PASSES, true);
}

// Columns of a and b between their last and the next fragment are zero once and for all: `units` of 16 bytes exist, of `width`.
void zero_edge(uint from, uint pitch, uint width, uint units) {
  if (width > units) for (uint x = tid; x < TILES * BC * (width - units); x += WG) {
    const uint column = x / (width - units);
    T[column / BC * TILE + from + column % BC * pitch + units + x % (width - units)] = uvec4(0);
  }
}
#ifdef TANGENTS
const uint V_WIDTH = EN * FN / 8;
void zero_edges() {
  zero_edge(0, A_PITCH, A_WIDTH, AU); zero_edge(B_AT, A_PITCH, A_WIDTH, AU);
  zero_edge(V_AT, B_PITCH, V_WIDTH, VU); zero_edge(VT_AT, B_PITCH, V_WIDTH, VU);
}
#else
void zero_edges() { zero_edge(0, A_PITCH, A_WIDTH, AU); zero_edge(B_AT, B_PITCH, B_WIDTH, BU); }
#endif

// A gradient leaves through the patch, a fragment at a time (matrix_rows.glsl says why); a lane takes pieces of 8 elements. Where the patch
// has room for two side by side, one is read while the next is put beside it.
const bool TWO_PATCHES = PATCH >= FN / 2;
uint patch_now;
#define TO_PATCH(sum, n) \
  { patch_now = patch_at + (TWO_PATCHES ? (n) % 2 * FN / 4 : 0); coopMatStore(sum, T, patch_now, PATCH_PITCH, BY_ROW); MEET }
#define FROM_PATCH { if (!TWO_PATCHES) MEET }
const uint PATCH_PIECES = FM * FN / 8, PATCH_EACH = (PATCH_PIECES + SG - 1) / SG;
struct Piece { uint row, c; bool mine; vec4 lo, hi; };   // c: its first column; mine: its row exists, and no other lane has it
Piece from_patch(uint r, uint d, uint u, float factor) {
  const uint x = u * SG + lane, y = min(x, PATCH_PIECES - 1), from = patch_now + y / (FN / 8) * PATCH_PITCH + y % (FN / 8) * 2;
  const uint row = row0 + r * FM + y / (FN / 8);
  Piece p = Piece(row, d * FN + y % (FN / 8) * 8, (PATCH_PIECES % SG == 0 || x < PATCH_PIECES) && row < ROWS,
    uintBitsToFloat(T[from]) * factor, uintBitsToFloat(T[from + 1]) * factor);
  if (PADDED) { if (row >= ROW_COUNT) p.lo = p.hi = vec4(0); }   // made of nothing
  return p;
}
Piece added(Piece p, uvec4 was) {
  p.lo += vec4(UNPAIR(was.x), UNPAIR(was.y)); p.hi += vec4(UNPAIR(was.z), UNPAIR(was.w));
  return p;
}
uvec4 packed(Piece p) { return uvec4(PAIR(p.lo.x, p.lo.y), PAIR(p.lo.z, p.lo.w), PAIR(p.hi.x, p.hi.y), PAIR(p.hi.z, p.hi.w)); }
// The first gradient, D columns wide: fragment d of row fragment r, which lies in the patch.
void store_x(uint r, uint d, float factor) {
  [[unroll]] for (uint u = 0; u < PATCH_EACH; ++u) {
    Piece p = from_patch(r, d, u, factor);
    const uint to = x_base + p.c + p.row * x_sn;
    if (p.mine) {
      if (ALIGNED) {
        if (WHOLE_D || p.c < D) {
          if (ACCUMULATE) p = added(p, LOADED(x, 16, x4[to / 8]));
          STORED(x, 16, x4[to / 8] = packed(p));
        }
      } else [[unroll]] for (uint e = 0; e < 8; ++e) if (p.c + e < D) {
        float z = e < 4 ? p.lo[e % 4] : p.hi[e % 4];
        if (ACCUMULATE) z += UNPAIR(uint(LOADED(x, 2, x16[to + e]))).x;
        STORED(x, 2, x16[to + e] = ELEMENT_BITS(z));
      }
    }
  }
}
