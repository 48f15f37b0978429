// What the two scalar backward kernels share: scalar_backward_kv.comp (rows are keys) and scalar_backward_q.comp (rows are queries).
// One walks over what the other owns, so up to their element-wise part and their results they are the same kernel with Q, dO and K, V
// exchanged:
//
//   S = R C^T,  X = R' C'^T     R, R' rows of the workgroup (K, V or Q, dO), C, C' columns, a tile of BC at a time (Q, dO or K, V)
//   P = exp(scale S - lse),  dS = P o (X - delta)
//   sums of P C' and dS C over the tiles
//
// Products are done as in scalar_forward.comp: an invocation owns MR x MC of S and X and MR rows of a piece of each sum; operands of S and
// X are staged DK columns at a time, P and dS pass through shared memory PC columns at a time, and VC rows of C' or C are staged beside
// them.
//
//   invocation (tx, ty), TX = BC/MC, TY = BR/MR, WG = TX TY
//   its rows:                       ty + TY i,  i < MR
//   its columns of S, X, P and dS:  4 (tx + TX jj) + c,  jj < MC/4, c < 4
//   its columns of the sums:        4 (tx + TX jd) + c
//
// S - lse is at most 0 up to rounding, so nothing overflows, and no running maximum is needed. A masked S is -inf. A row of
// nothing (lse = -inf) and a query that does not exist count as lse = +inf: their P is 0.
//
// Built with TANGENTS, for scalar_jvp.comp, rows are queries, and what moves stands in the place of what gradients are made of: R' and C'
// are the tangents of Q and K, X = R' C^T + R C'^T is the tangent of S but for the scale, and the sums are over V and its tangent.
//
// Specialization constants of both kernels (v4: 16 bytes; odd(x): x | 1; DK4 = DK/4 and so on):
//
//   0 WG          workgroup size = (BR/MR)(BC/MC)
//   1 BR          rows of a workgroup (kv: keys; q: queries), a multiple of MR
//   2 BC          columns of a tile (kv: queries; q: keys), a multiple of MC
//   3 D, 4 DV     columns of Q and K, of V and dO: 1..576
//   5, 58..62, 72, 81  include/mask.glsl: binding 11 is the block mask    63..66 include/score.glsl: bindings from 8 on
//   90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 12 and 13
//   110 WITHIN     include/dropout.glsl: at the binding of further arguments
//   6 ALIGNED     1: every row of q, k, v, dO begins 16-byte aligned, every row of the gradients is aligned to four elements, and D and DV
//                 are multiples of 16 bytes
//   7 ACCUMULATE  1: gradients are added to what is there
//   8 MR, 9 MC    piece of S of an invocation; MC a multiple of 4; TX even where ALIGNED and the type has 16 bits
//  10 DK          columns of the operands of S and X staged at a time, a multiple of 4 (of 8 for 16-bit types)
//  11 VC          tile rows of C' or C staged at a time for the sums, a multiple of 4 that divides PC
//  12 PC          columns of P or dS in shared memory at a time, a multiple of 4 TX that divides BC
//  13 C_AT        where the columns' operand begins in shared memory, in v4, >= BR odd(DK4); the rows' begins at 0
//  14 V_AT, 15 P_AT   where C' or C, and P or dS begin; they may not overlap each other, but may lie over the operands (V_AT = 0 is usual)
//  16 SHARED_V4   length of shared memory in v4
//  17 DROPOUT     0: none, drop_k and the rest are ignored
//
//   sizes in v4:  rows BR odd(DK4)   columns BC odd(DK4)   P BR odd(PC4)   V VC TX ceil(W/TX), W = ceil(max(D, DV)/4) (kv), ceil(D/4) (q)
//   registers of an invocation: 2 MR MC for S and X, 4 MR (ceil(D4/TX) [+ ceil(DV4/TX) for kv]) for the sums; the rest is small.
//
// Needs ROW_A, ROW_B, COL_A, COL_B: the tensors R, R', C, C', defined before inclusion, and KV where rows are keys.

layout(local_size_x = 64, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint BR = 32;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 64;
layout(constant_id = 4) const uint DV = 64;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 7) const bool ACCUMULATE = false;
layout(constant_id = 8) const uint MR = 4;
layout(constant_id = 9) const uint MC = 4;
layout(constant_id = 10) const uint DK = 32;
layout(constant_id = 11) const uint VC = 16;
layout(constant_id = 12) const uint PC = 32;
layout(constant_id = 13) const uint C_AT = 288;
layout(constant_id = 14) const uint V_AT = 0;
layout(constant_id = 15) const uint P_AT = 256;
layout(constant_id = 16) const uint SHARED_V4 = 576;
layout(constant_id = 17) const bool DROPOUT = false;

const uint TX = BC / MC;
const uint TY = BR / MR;
const uint MC4 = MC / 4;
const uint DK4 = DK / 4;
const uint Q_PITCH = DK4 | 1;                    // of the rows' operand
const uint K_PITCH = DK4 | 1;                    // of the columns'
const uint P_PITCH = (PC / 4) | 1;
const uint MD4 = ((D + 3) / 4 + TX - 1) / TX;    // vec4s of a row of the sum over D columns that an invocation owns
const uint MV4 = ((DV + 3) / 4 + TX - 1) / TX;   // over DV columns
const uint D_WIDTH = MD4 * TX;
const uint V_WIDTH = MV4 * TX;

INPUT(q, 0)
INPUT(k, 1)
INPUT(v, 2)
INPUT(g, 3)
layout(set = 0, binding = 4, std430) readonly buffer Lse { float lse[]; };
#ifdef TANGENTS
layout(constant_id = 111) const bool Q_MOVES = true;
layout(constant_id = 112) const bool K_MOVES = true;
#define B_COLUMNS D
#else
layout(set = 0, binding = 5, std430) readonly buffer Delta { float delta[]; };
#define B_COLUMNS DV
#endif

#define BLOCKS 11
#define LENGTHS 12
#include "walk.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"

shared vec4 tile[SHARED_V4];

uint lid, tx, ty;
vec4 S[MR * MC4], X[MR * MC4];

uint same(uint r) { return r; }
// Column 4 (tx + TX jj) + c goes to slot tx + TX (4 jj + c).
uint column_slot(uint r) { return r / 4 % TX + TX * (4 * (r / (4 * TX)) + r % 4); }

#define STAGE stage_row_a
#define STAGE_T ROW_A
#define STAGE_ROWS BR
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH Q_PITCH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

#define STAGE stage_row_b
#define STAGE_T ROW_B
#define STAGE_ROWS BR
#define STAGE_WIDTH DK4
#define STAGE_COLS B_COLUMNS
#define STAGE_PITCH Q_PITCH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

#define STAGE stage_col_a
#define STAGE_T COL_A
#define STAGE_ROWS BC
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH K_PITCH
#define STAGE_SLOT column_slot
#define STAGE_SCALE 1.0
#include "stage.glsl"

#define STAGE stage_col_b
#define STAGE_T COL_B
#define STAGE_ROWS BC
#define STAGE_WIDTH DK4
#define STAGE_COLS B_COLUMNS
#define STAGE_PITCH K_PITCH
#define STAGE_SLOT column_slot
#define STAGE_SCALE 1.0
#include "stage.glsl"

#ifndef TANGENTS
// C as an operand of the sum over D columns
#define STAGE stage_sum_a
#define STAGE_T COL_A
#define STAGE_ROWS VC
#define STAGE_WIDTH D_WIDTH
#define STAGE_COLS D
#define STAGE_PITCH D_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"
#endif

#include "micro_scores.glsl"

uint row0, rows, cols;                                   // the workgroup's first row; rows and columns that there are to be read
uint all_rows;                                           // rows of the gradients, 0 beyond `rows`
uint row_a_origin, row_b_origin, col_a_origin, col_b_origin;
uint row_a_sn, row_b_sn, col_a_sn, col_b_sn;

#ifdef TANGENTS
// S = Q K^T and X, its tangent but for the scale, for the tile of keys from col0
void scores(uint col0, bool edge) {
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] = vec4(0);
  for (uint d0 = 0; d0 < D; d0 += DK) {
    if (Q_MOVES) {
      barrier();  // the last reads of what is overwritten now
      stage_row_b(0, row_b_origin, row_b_sn, row0, rows, d0, true);
      stage_col_a(C_AT, col_a_origin, col_a_sn, col0, cols, d0, edge);
      barrier();
      add_scores(ty * Q_PITCH, C_AT + tx * K_PITCH);
    }
    if (K_MOVES) {
      barrier();
      stage_row_a(0, row_a_origin, row_a_sn, row0, rows, d0, true);
      stage_col_b(C_AT, col_b_origin, col_b_sn, col0, cols, d0, edge);
      barrier();
      add_scores(ty * Q_PITCH, C_AT + tx * K_PITCH);
    }
  }
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) { X[i] = S[i]; S[i] = vec4(0); }
  for (uint d0 = 0; d0 < D; d0 += DK) {
    barrier();
    stage_row_a(0, row_a_origin, row_a_sn, row0, rows, d0, true);
    stage_col_a(C_AT, col_a_origin, col_a_sn, col0, cols, d0, edge);
    barrier();
    add_scores(ty * Q_PITCH, C_AT + tx * K_PITCH);
  }
}
#else
// S = R C^T and X = R' C'^T for the tile of columns from col0
void scores(uint col0, bool edge) {
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] = vec4(0);
  for (uint d0 = 0; d0 < DV; d0 += DK) {
    barrier();  // the last reads of what is overwritten now
    stage_row_b(0, row_b_origin, row_b_sn, row0, rows, d0, true);
    stage_col_b(C_AT, col_b_origin, col_b_sn, col0, cols, d0, edge);
    barrier();
    add_scores(ty * Q_PITCH, C_AT + tx * K_PITCH);
  }
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) { X[i] = S[i]; S[i] = vec4(0); }
  for (uint d0 = 0; d0 < D; d0 += DK) {
    barrier();
    stage_row_a(0, row_a_origin, row_a_sn, row0, rows, d0, true);
    stage_col_a(C_AT, col_a_origin, col_a_sn, col0, cols, d0, edge);
    barrier();
    add_scores(ty * Q_PITCH, C_AT + tx * K_PITCH);
  }
}
#endif

const uint PJ = PC / (4 * TX);  // vec4s of P that an invocation writes for a row and chunk
// Chunk pc of this invocation's piece of dS, which is in X, or of P, in S, into shared memory. (Here and below, second is a constant where
// a function is called.)
void spill(bool second, uint pc) {
  [[unroll]] for (uint i = 0; i < MR; ++i)
    [[unroll]] for (uint j = 0; j < PJ; ++j)
      tile[P_AT + (ty + TY * i) * P_PITCH + tx + TX * j] = second ? S[i * MC4 + pc * PJ + j] : X[i * MC4 + pc * PJ + j];
}

// What a kernel defines, for its sum over dS C and, if `second`, for that over P C'.
void stage_sum(bool second, uint col, bool edge);               // VC columns from col on into shared memory, at V_AT
void add_sum(bool second, uint p_at, uint v_at, uint count);    // the product with what was spilt, as in micro_product.glsl

// The tile's part of a sum.
void sum_tile(bool second, uint col0, bool edge) {
  [[unroll]] for (uint pc = 0; pc < BC / PC; ++pc) {
    barrier();
    spill(second, pc);
    for (uint vc = 0; vc < PC / VC; ++vc) {
      if (vc > 0) barrier();
      stage_sum(second, col0 + pc * PC + vc * VC, edge);
      barrier();
      add_sum(second, P_AT + ty * P_PITCH + vc * (VC / 4), V_AT + tx, VC / 4);
    }
  }
}
