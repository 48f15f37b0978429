#version 460
// Standard attention, first of three kernels: S = scale Q K^T for a slab of rows, written to memory in the inputs' type.
//
// Dao, Fu, Ermon, Rudra, Re, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022, algorithm 0: what
// attention is without FlashAttention. The matrix S is stored (line 1, this kernel), read and overwritten by the softmax (line 2,
// standard_softmax.comp), and read again by the product with V (line 3, standard_product.comp). The baseline that `vkattn bench`
// compares with, so it is not slower than it must be: a register-tiled product, MR x MC scores an invocation, operands read 16 bytes at
// a time along d from shared memory, just as in scalar_forward.comp, where the layout of a tile is described; with a causal mask, tiles
// of S that no query may see are not computed (their memory keeps what it held). Rows and columns beyond the lengths of a batch entry may
// hold anything: the kernels after this one look at none of them.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D] (strided, last stride 1), 2 S [bh - bh0][row - row0][pitch], pitch a multiple of 8.
// Push constants: include/args.glsl with SLABS.
// The slab holds the rows row0 .. row0 + rows - 1 of the matrices (batch and head flattened) bh0, bh0 + 1, ...  Columns
// nk .. pitch - 1 of S may be overwritten with anything.
// Workgroups: ceil(nk/BC) ceil(rows/BR) matrices, columns fastest.
//
// Specialization constants (v4: 16 bytes; odd(x): x | 1; DK4 = DK/4):
//
//   0 WG  workgroup size = (BR/MR)(BC/MC)     1 BR  rows of a tile      2 BC  columns of a tile     3 D  1..256     4 ALIGNED
//                every row of q and k begins 16-byte aligned and D is a multiple of 16 bytes     5 and 58  include/mask.glsl
//   6 MR, 7 MC  scores of an invocation, MC a multiple of 4
//   8 DK  columns of Q and K staged at a time, a multiple of 4 (8 for 16-bit types)
//   9 SHARED_V4  length of shared memory in v4 = (BR + BC) odd(DK4)
//  90..92, 100, 101  include/lengths.glsl: bindings 3 and 4, further arguments at 5

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint BR = 128;
layout(constant_id = 2) const uint BC = 64;
layout(constant_id = 3) const uint D = 64;
layout(constant_id = 4) const bool ALIGNED = false;
layout(constant_id = 6) const uint MR = 8;
layout(constant_id = 7) const uint MC = 8;
layout(constant_id = 8) const uint DK = 32;
layout(constant_id = 9) const uint SHARED_V4 = 1728;

#define SLABS
#include "args.glsl"

#define LENGTHS 3
#define SCORE_AT 5
#include "walk.glsl"

const uint TX = BC / MC;
const uint TY = BR / MR;
const uint MC4 = MC / 4;
const uint DK4 = DK / 4;
const uint Q_PITCH = DK4 | 1;
const uint K_PITCH = DK4 | 1;
const uint K_AT = BR * Q_PITCH;

INPUT(q, 0)
INPUT(k, 1)
layout(set = 0, binding = 2, std430) writeonly buffer Scores { QUAD s4[]; };

shared vec4 tile[SHARED_V4];
uint lid, tx, ty;

uint same(uint r) { return r; }
// Column 4 (tx + TX jj) + c goes to slot tx + TX (4 jj + c).
uint k_slot(uint r) { return r / 4 % TX + TX * (4 * (r / (4 * TX)) + r % 4); }

#define STAGE stage_q
#define STAGE_T q
#define STAGE_ROWS BR
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH Q_PITCH
#define STAGE_SLOT same
#define STAGE_SCALE score_scale
#include "stage.glsl"

#define STAGE stage_k
#define STAGE_T k
#define STAGE_ROWS BC
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH K_PITCH
#define STAGE_SLOT k_slot
#define STAGE_SCALE 1.0
#include "stage.glsl"

vec4 S[MR * MC4];
#include "micro_scores.glsl"

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;
  const uint across = (nk + BC - 1) / BC, down = (rows + BR - 1) / BR;
  const uint col0 = id % across * BC;
  const uint r0 = id / across % down * BR;  // in the slab
  const uint slab = id / (across * down);   // matrix of the slab
  const uint bh = bh0 + slab, b = bh / heads(), h = bh % heads();
  take_lengths(b);
  const Walk keys = key_tiles(row0 + r0, row0 + min(r0 + BR, rows) - 1, BC);
  if (id % across < keys.begin || id % across >= keys.end) return;

  const uint q_origin = q_off() + b * q_sb + h * q_sh + row0 * q_sn;
  const uint k_origin = k_off() + b * k_sb + (h / group()) * k_sh;
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] = vec4(0);
  uint d0 = 0;
  do {
    barrier();
    stage_q(0, q_origin, q_sn, r0, rows, d0, true);
    stage_k(K_AT, k_origin, k_sn, col0, nk, d0, true);
    barrier();
    add_scores(ty * Q_PITCH, K_AT + tx * K_PITCH);
    d0 += DK;
  } while (d0 < D);

  // One flat loop of few instructions, which every compiler unrolls: an S indexed by a variable would live in memory.
  const uint at = ((slab * rows + r0 + ty) * pitch + col0) / 4 + tx;
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) {
    const uint row = TY * (i / MC4), col = TX * (i % MC4);
    if (r0 + ty + row < rows && col0 + 4 * (tx + col) < nk) STORED(scores, 4 * BYTES, s4[at + row * (pitch / 4) + col] = encode4(S[i]));
  }
}
