#version 460
// Standard attention's backward pass, sums over queries:  dV = P^T dO  and  dK = dS^T Q, for a slab of rows of P or dS.
//
//   Y_j = sum_i W_ij G_i    W is P or dS, G is dO or Q, Y is dV or dK; summed over the query heads of a key head
//
// Dao et al., "FlashAttention", 2022, algorithm 3.
//
// A register-tiled product like standard_product.comp: BR keys and all D columns a workgroup, so that W is read once, MR keys and D/TX
// columns an invocation, BC queries of W and G staged at a time, W turned over on its way into shared memory. With a causal mask,
// queries that see no key of the block are skipped, and what lies beyond a row's last key counts as 0, whatever the memory holds.
//
// Slabs. A slab holds the rows row0 .. row0 + rows - 1 of the matrices bh0 .. bh0 + count - 1 (batch and head flattened). A key head whose
// queries lie in several slabs is summed slab by slab, in the order of their dispatches: Y is added to when an earlier slab wrote it.
//
// Bindings: 0 W [bh - bh0][row - row0][pitch], pitch a multiple of 8; 1 G [B,Hq,Nq,D], 2 Y [B,Hk,Nk,D] (strided, last stride 1).
// Push constants: include/args.glsl with SLABS; v is G, and o is Y.
// Workgroups: ceil(nk/BR) times the key heads (batch and head flattened) that the slab touches: (bh0 + count - 1)/group - bh0/group + 1,
// blocks of a head together; with a causal mask the blocks that most queries see first.
//
// Specialization constants (v4: 16 bytes; odd(x): x | 1; TY = BR/MR, TX = WG/TY):
//
//   0 WG  workgroup size, a multiple of TY; TX even where ALIGNED and the type has 16 bits       1 BR  keys of a block, a multiple of 8
//   2 BC  queries staged at a time, a multiple of 4     3 D  columns of G and Y, 1..256     5 and 58  include/mask.glsl
//   4 ALIGNED  every row of g begins 16-byte aligned, every row of y aligned to four elements, D is a multiple of 16 bytes
//   6 MR  keys of an invocation, divides BR
//   7 SHARED_V4  length of shared memory in v4 = BR odd(BC/4) + BC TX ceil(ceil(D/4)/TX)
//   8 ACCUMULATE  1: Y is added to what is there
//   9 DROPOUT  weights with their sign bits set are dropped (standard_softmax.comp), and Y is multiplied by drop_scale()
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
const uint P_PITCH = BC / 4 | 1;
const uint MD4 = ((D + 3) / 4 + TX - 1) / TX;  // vec4s of a row of Y that an invocation owns
const uint G_WIDTH = MD4 * TX;
const uint G_AT = BR * P_PITCH;

layout(set = 0, binding = 0, std430) readonly buffer Weights { uvec4 w16[]; };
INPUT(g, 1)
GRADIENT(y, 2)

shared vec4 tile[SHARED_V4];
uint lid, tx, ty;

uint same(uint r) { return r; }
#define STAGE stage_g
#define STAGE_T g
#define STAGE_ROWS BC
#define STAGE_WIDTH G_WIDTH
#define STAGE_COLS D
#define STAGE_PITCH G_WIDTH
#define STAGE_SLOT same
#define STAGE_SCALE 1.0
#include "stage.glsl"

vec4 acc[MR * MD4];
#define PRODUCT add_product
#define PRODUCT_SUM acc
#define PRODUCT_M4 MD4
#define PRODUCT_PITCH G_WIDTH
#include "micro_product.glsl"

// Rows of a matrix of the slab that the batch entry has.
uint row_count() { return PADDED ? min(max(query_count(), row0) - row0, rows) : rows; }

// BC rows (queries, from r0 of the slab) and BR columns (keys) of W, turned over; zeros beyond the slab's rows and a row's last key.
void stage_w(uint matrix, uint r0, uint key0) {
  const uint W = BR / UNIT;  // 16-byte units in a row
  const uint N = BC * W;
  for (uint t = 0; t < (N + WG - 1) / WG; ++t) {
    const uint i = min(t * WG + lid, N - 1), r = r0 + i / W, col = key0 + i % W * UNIT;
    const Span keys = keys_of(row0 + r);
    vec4 x[UNIT4];
    decode16(LOADED_IF(scores, 16, t * WG + lid < N && r < row_count() && col < pitch,
      w16[(matrix * rows + min(r, rows - 1)) * (pitch / UNIT) + min(col, pitch - UNIT) / UNIT]), x);
    [[unroll]] for (uint e = 0; e < UNIT; ++e)
      tile[(i % W * UNIT + e) * P_PITCH + i / W / 4][i / W % 4] =
        r < row_count() && has(keys, col + e) && !(DROPOUT && x[e / 4][e % 4] < 0) ? x[e / 4][e % 4] : 0;
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;
  const uint blocks = (nk + BR - 1) / BR, matrices = total / blocks;
  const Place place = place_of_keys(id, blocks, matrices);
  const uint key_head = bh0 / group() + place.matrix, key0 = place.block * BR;  // batch included
  const uint first = max(key_head * group(), bh0), end = min((key_head + 1) * group(), bh0 + slab_heads);  // its heads in the slab

  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) acc[i] = vec4(0);
  take_lengths(key_head / key_heads());
  const Walk queries = query_tiles(key0, key0 + BR - 1, BC, row0, row_count());
  const uint start = min(queries.begin, queries.end - 1) * BC;  // one tile at least
  for (uint bh = first; bh < end; ++bh) {
    const uint g_origin = v_off() + bh / heads() * v_sb + bh % heads() * v_sh + row0 * v_sn;
    uint r0 = start;
    do {
      barrier();
      stage_w(bh - bh0, r0, key0);
      stage_g(G_AT, g_origin, v_sn, r0, row_count(), 0, true);
      barrier();
      add_product(ty * P_PITCH, G_AT + tx, BC / 4);
      r0 += BC;
    } while (r0 < queries.end * BC);
  }

  const bool add = ACCUMULATE || row0 > 0 || first > key_head * group();
  const uint at = o_off() + key_head / key_heads() * o_sb + key_head % key_heads() * o_sh + (key0 + ty) * o_sn + 4 * tx;
  // A flat loop of few instructions, which every compiler unrolls: an acc indexed by a variable would live in memory.
  [[unroll]] for (uint i = 0; i < MR * MD4; ++i) {
    const uint row = TY * (i / MD4), col = 4 * TX * (i % MD4), to = at + row * o_sn + col;
    if (DROPOUT) acc[i] *= drop_scale();
    if (ALIGNED) {
      if (key0 + ty + row < nk && 4 * tx + col < D) {
        if (add) acc[i] += decode4(LOADED(y, 4 * BYTES, y4[to / 4]));
        STORED(y, 4 * BYTES, y4[to / 4] = encode4(acc[i]));
      }
    } else {
      [[unroll]] for (uint e = 0; e < 4; ++e)
        if (key0 + ty + row < nk && 4 * tx + col + e < D) {
          if (add) acc[i][e] += decode(LOADED(y, BYTES, y1[to + e]));
          STORED(y, BYTES, y1[to + e] = encode(acc[i][e]));
        }
    }
  }
}
