#version 460
// Standard attention, third of three kernels: O = P V for a slab of rows, P read from memory.
//
// Dao et al., "FlashAttention", 2022, algorithm 0, line 3; with dS and K for P and V a step of its algorithm 3, dQ = dS K.
//
// A register-tiled product: BR rows and all D columns a workgroup, so that P is read once, MR rows and D/TX columns an invocation, BC
// keys of P and V staged in shared memory at a time, as in scalar_forward.comp. With a causal mask, keys that no query of the block may
// see are skipped. standard_softmax.comp has made P zero behind each row's last key as far as this kernel reads (its constant ZERO).
//
// Bindings: 0 P [bh - bh0][row - row0][pitch], pitch a multiple of 8; 1 V [B,Hk,Nk,D], 2 O [B,Hq,Nq,D] (strided, last stride 1).
// Push constants: include/args.glsl with SLABS.
// Workgroups: ceil(rows/BR) matrices, rows fastest; with a causal mask the longest blocks first.
//
// Specialization constants (v4: 16 bytes; odd(x): x | 1; TY = BR/MR, TX = WG/TY):
//
//   0 WG  workgroup size, a multiple of TY; TX even where ALIGNED and the type has 16 bits
//   1 BR  rows of a block      2 BC  keys staged at a time, a multiple of 8
//   3 D  1..256     5 and 58  include/mask.glsl
//   4 ALIGNED  every row of v begins 16-byte aligned, every row of o aligned to four elements, D is a multiple of 16 bytes
//   6 MR  rows of an invocation, divides BR
//   7 SHARED_V4  length of shared memory in v4 = BR odd(BC/4) + BC TX ceil(ceil(D/4)/TX)
//   8 ACCUMULATE  1: O is added to what is there (the backward pass's dQ = dS K)
//   9 DROPOUT  weights with their sign bits set are dropped (standard_softmax.comp), and O is multiplied by drop_scale()
//  90..92, 100, 101  include/lengths.glsl: bindings 3 and 4, further arguments at 5

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint BR = 128;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 64;
layout(constant_id = 4) const bool ALIGNED = false;
layout(constant_id = 6) const uint MR = 8;
layout(constant_id = 7) const uint SHARED_V4 = 1664;
layout(constant_id = 8) const bool ACCUMULATE = false;
layout(constant_id = 9) const bool DROPOUT = false;

#define SLABS
#include "args.glsl"
#include "dropout.glsl"

#define LENGTHS 3
#define SCORE_AT 5
#include "walk.glsl"

const uint TY = BR / MR;
const uint TX = WG / TY;
const uint BC4 = BC / 4;
const uint P_PITCH = BC4 | 1;
const uint MD4 = ((D + 3) / 4 + TX - 1) / TX;  // vec4s of a row of O that an invocation owns
const uint V_WIDTH = MD4 * TX;
const uint V_AT = BR * P_PITCH;

layout(set = 0, binding = 0, std430) readonly buffer Weights { uvec4 p16[]; };
INPUT(v, 1)
GRADIENT(o, 2)

shared vec4 tile[SHARED_V4];
uint lid, tx, ty;

uint same(uint r) { return r; }
#define STAGE stage_v
#define STAGE_T v
#define STAGE_ROWS BC
#define STAGE_WIDTH V_WIDTH
#define STAGE_COLS D
#define STAGE_PITCH V_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

vec4 acc[MR * MD4];
#define PRODUCT add_product
#define PRODUCT_SUM acc
#define PRODUCT_M4 MD4
#define PRODUCT_PITCH V_WIDTH
#include "micro_product.glsl"

// Rows of a matrix of the slab that the batch entry has.
uint row_count() { return PADDED ? min(max(query_count(), row0) - row0, rows) : rows; }

// BR rows and BC columns of P; zeros beyond the slab's rows and beyond pitch.
void stage_p(uint matrix, uint r0, uint key0) {
  const uint W = BC / UNIT;  // 16-byte units in a row
  const uint N = BR * W;
  const uint LOADS = (N + WG - 1) / WG;
  const uint BATCH = LOADS < 8 ? LOADS : 8;
  [[dont_unroll]] for (uint t0 = 0; t0 < LOADS; t0 += BATCH) {
    uvec4 u[8];
    [[unroll]] for (uint b = 0; b < BATCH; ++b) {
      const uint i = (t0 + b) * WG + lid, r = r0 + min(i / W, BR - 1), col = key0 + i % W * UNIT;
      u[b] = LOADED_IF(scores, 16, i < N && r < row_count() && col < pitch,
        p16[(matrix * rows + min(r, rows - 1)) * (pitch / UNIT) + min(col, pitch - UNIT) / UNIT]);
      if (r >= row_count() || col >= pitch) u[b] = uvec4(0);
    }
    [[unroll]] for (uint b = 0; b < BATCH; ++b) {
      const uint i = (t0 + b) * WG + lid;
      if (N % (WG * BATCH) == 0 || i < N) {
        vec4 x[UNIT4];
        decode16(u[b], x);
        if (DROPOUT) [[unroll]] for (uint e = 0; e < UNIT4; ++e) x[e] = mix(x[e], vec4(0), lessThan(x[e], vec4(0)));
        [[unroll]] for (uint e = 0; e < UNIT4; ++e) tile[i / W * P_PITCH + i % W * UNIT4 + e] = x[e];
      }
    }
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;
  const uint blocks = (rows + BR - 1) / BR;
  const uint matrices = total / blocks;
  const Place place = place_of_queries(id, blocks, matrices);
  const uint matrix = place.matrix, r0 = place.block * BR;
  const uint bh = bh0 + matrix, b = bh / heads(), h = bh % heads();
  take_lengths(b);
  const uint v_origin = v_off() + b * v_sb + (h / group()) * v_sh;

  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) acc[i] = vec4(0);
  const Walk keys = key_tiles(row0 + r0, row0 + min(r0 + BR, rows) - 1, BC);
  uint key0 = keys.begin * BC;  // one tile at least
  do {
    barrier();
    stage_p(matrix, r0, key0);
    stage_v(V_AT, v_origin, v_sn, key0, key_count(), 0, true);
    barrier();
    add_product(ty * P_PITCH, V_AT + tx, BC4);
    key0 += BC;
  } while (key0 < keys.end * BC);

  const uint o_origin = o_off() + b * o_sb + h * o_sh;
  const uint at = o_origin + (row0 + r0 + ty) * o_sn + 4 * tx;
  // Flat loops of few instructions, which every compiler unrolls: an acc indexed by a variable would live in memory.
  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) {
    const uint row = TY * (i / MD4), col = 4 * TX * (i % MD4);
    if (DROPOUT) acc[i] *= drop_scale();
    if (ALIGNED) {
      if (r0 + ty + row < rows && 4 * tx + col < D) {
        if (ACCUMULATE) acc[i] += decode4(LOADED(o, 4 * BYTES, o4[(at + row * o_sn + col) / 4]));
        STORED(o, 4 * BYTES, o4[(at + row * o_sn + col) / 4] = encode4(acc[i]));
      }
    } else {
      [[unroll]] for (uint e = 0; e < 4; ++e)
        if (r0 + ty + row < rows && 4 * tx + col + e < D) {
          if (ACCUMULATE) acc[i][e] += decode(LOADED(o, BYTES, o1[at + row * o_sn + col + e]));
          STORED(o, BYTES, o1[at + row * o_sn + col + e] = encode(acc[i][e]));
        }
    }
  }
}
