#version 460
// Maps of attention weights in plain fp32 arithmetic, for any Vulkan 1.1 GPU.
//
//   P = exp(s' - lse), pooled over the cells of a picture, or for each query entropy and mean distance
//
// Nothing of size Nq x Nk is stored: P is made again from lse, as in a backward pass (Dao, "FlashAttention-2", 2023, algorithm 2), a tile
// at a time. A workgroup owns BR queries at a time and walks over the keys of its columns in tiles of BC. An invocation computes MR x MC
// scores, as in scalar_forward.comp, where the layout is described; they pass through shared memory to the invocation that owns their row,
// which makes weights of them and adds them up (include/map_cells.glsl). Tiles begin at the first key of the band, so that columns that
// divide a tile end where tiles do; tiles that no query of the block sees are left out, but for those that a block mask alone leaves out.
//
// Bindings: 0 Q [B,Hq,Nq,D], 1 K [B,Hk,Nk,D] (strided, last stride 1), 2 lse [B,Hq,Nq] fp32, 3 the picture [b,h,rows,columns] fp32
// (strided) or entropy [b,h,queries], 4 distance likewise. Push constants: include/args_map.glsl. Workgroups: rows of pieces / group_rows,
// times heads and batch entries that have a picture, times bands. Variants: DTYPE (include/dtype.glsl); CACHE: keys in pages
// (include/pages.glsl) or quantised (include/quantised.glsl), with bindings 5, 6, 12 and 13.
//
// Specialization constants (v4: 16 bytes; odd(x): x | 1; DK4 = DK/4):
//   0 WG = BR = (BR/MR)(BC/MC)   1 BR   2 BC a multiple of MC   3 D 1..576   8 MR, 9 MC, a multiple of 4
//   6 ALIGNED     every row of q and k begins 16-byte aligned and D is a multiple of 16 bytes
//  10 DK          columns of Q and K staged at a time, a multiple of 4 (8 for 16-bit types)
//  18 SHARED_V4   length of shared memory in v4, >= (BR + BC) odd(DK4) and >= BR odd(BC/4)
//  14 LARGEST, 15 STATISTICS   include/map_cells.glsl
//  5, 58..62, 72, 81  include/mask.glsl: binding 5, with CACHE 16, is the block mask     63..66 include/score.glsl: bindings from 8 on
//  90..92, 100, 101  include/lengths.glsl, rows.glsl: bindings 6 and 7
// 104 PAGE, 105 COMPRESSED, 106 K_TYPE, 107 V_TYPE   with CACHE: include/pages.glsl, quantised.glsl

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "count.glsl"
#include "args_map.glsl"
#include "common.glsl"
#define SCORE_AT 8
#define LENGTHS 6
#define PAGES 5
#include "lengths.glsl"

layout(local_size_x = 64, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint BR = 64;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 64;
layout(constant_id = 6) const bool ALIGNED = false;
layout(constant_id = 8) const uint MR = 8;
layout(constant_id = 9) const uint MC = 4;
layout(constant_id = 10) const uint DK = 16;
layout(constant_id = 18) const uint SHARED_V4 = 576;

const uint TX = BC / MC;
const uint TY = BR / MR;
const uint MC4 = MC / 4;
const uint DK4 = DK / 4;
const uint Q_PITCH = DK4 | 1;
const uint K_PITCH = DK4 | 1;
const uint K_AT = BR * Q_PITCH;
const uint S_PITCH = BC / 4 | 1;

INPUT(q, 0)
INPUT(k, 1)
layout(set = 0, binding = 2, std430) readonly buffer Lse { float lse[]; };
#ifdef CACHE
const uint DV = 4;   // quantised.glsl reads values as well, of which there are none here
uint v_off() { return 0; }
#include "quantised.glsl"
float score_factor;   // with the scale of keys
#else
#define score_factor score_scale
#endif

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
#define STAGE_SCALE score_factor
#include "stage.glsl"

#define STAGE stage_k
#define STAGE_T k
#define STAGE_ROWS BC
#define STAGE_WIDTH DK4
#define STAGE_COLS D
#define STAGE_PITCH K_PITCH
#define STAGE_SLOT k_slot
#define STAGE_SCALE 1.0
#ifdef CACHE
#define STAGE_TYPE K_TYPE
#endif
#include "stage.glsl"

#ifdef CACHE
#define BLOCKS 16
#else
#define BLOCKS 5
#endif
#include "walk.glsl"
#if DTYPE != F32
#define BIAS_TYPE ELEM
#define BIAS_ELEMENT(i) decode(bias16[i])
#endif
#include "score.glsl"

#define LANES WG
#define ROWS BR
#define ROWS_EACH 1
#define HAS_SUMS true
#define TILE_KEYS BC
#define GROUPS 1
#define GROUP_BARRIER barrier();
#define lane lid
#define map_group 0
#include "map_cells.glsl"

vec4 S[MR * MC4];
#include "micro_scores.glsl"

#include "map_walk.glsl"

uint q_origin, k_origin;   // element at which row 0 of this head lies
uint tile_key;             // first key of the tile
float reference;           // lse of this invocation's row in units of log 2; +inf where it has no weights
Span own_keys_of_row;

vec4 weights[BC / 4], bits[STATISTICS ? BC / 4 : 1];   // of this invocation's row and the tile

uint row_of_sum(uint x) { return lid; }
float whole_sum(float s) { return s; }
void add_keys(uint own) {
  [[unroll]] for (uint c = 0; c < BC / 4; ++c) {
    vec4 p = weights[c];
    if (own != ~0u) p = mix(vec4(0), p, notEqual(uvec4(own >> 4 * c) & uvec4(1, 2, 4, 8), uvec4(0)));
    tile_keys[0] = joined(tile_keys[0], joined(joined(p.x, p.y), joined(p.z, p.w)));
  }
}
void add_statistics() {
  [[unroll]] for (uint i = 0; i < BC; ++i) take_pair(0, weights[i / 4][i % 4], bits[STATISTICS ? i / 4 : 0][i % 4], tile_key + i);
}

// P of four keys of the row.
void weigh(uint c, bool edge) {
  vec4 s = tile[lid * S_PITCH + c];
  const uint row = query_of_sum(0), key = tile_key + 4 * c;
  if (SCORED) [[unroll]] for (uint e = 0; e < 4; ++e) s[e] = bits_of_score(scored(s[e] * LN2, row, key + e));
  if (edge) [[unroll]] for (uint e = 0; e < 4; ++e) {
    bool seen = key + e < band_end && has(own_keys_of_row, key + e);
    if (BLOCK_MASK) { if (seen) seen = block_allows(row, key + e); }
    if (!seen) s[e] = NEG_INFINITY;
  }
  vec4 above;
  [[unroll]] for (uint e = 0; e < 4; ++e) above[e] = at_most_zero(s[e] - reference);   // as weight_of
  if (SCORED) { if (reference == -NEG_INFINITY) above = vec4(NEG_INFINITY); }   // whatever functions make of a query that does not exist
  if (STATISTICS) bits[STATISTICS ? c : 0] = -above;
  weights[c] = exp2(above);
}

void take_head() {
  q_origin = q_off() + query_origin(map_b, q_sb, q_sn) + map_h * q_sh;
  k_origin = K_OFF + key_origin(map_b, k_sb, k_sn) + (map_h / group()) * k_sh;
#ifdef CACHE
  score_factor = score_scale * key_scale(map_b, map_h / group());
#endif
}

void take_rows() {
  const uint own = query_of_sum(0);
  own_keys_of_row = keys_of(own);
  reference = -NEG_INFINITY;
  if (own < map_rows_end && query_exists(own)) {
    const float x = lse[lse_off() + statistics_row(map_b * heads() + map_h) + min(own, last_query())];
    if (x != NEG_INFINITY) reference = bits_of_score(x);
  }
  take_blocks(map_b, map_h, map_row0);
}

void key_tile(uint key0, bool edge) {
  tile_key = key0;
  [[unroll]] for (uint i = 0; i < MR * MC4; ++i) S[i] = vec4(0);
  uint d0 = 0;
  do {
    barrier();   // the last reads of what is overwritten now
    stage_q(0, q_origin, q_sn, map_row0, query_count(), d0, true);
    stage_k(K_AT, k_origin, k_sn, key0, key_count(), d0, true);
    barrier();
    add_scores(ty * Q_PITCH, K_AT + tx * K_PITCH);
    d0 += DK;
  } while (d0 < D);
  barrier();
  [[unroll]] for (uint i = 0; i < MR; ++i)
    [[unroll]] for (uint j = 0; j < MC4; ++j) tile[(ty + TY * i) * S_PITCH + tx + TX * j] = S[i * MC4 + j];
  barrier();
  [[unroll]] for (uint c = 0; c < BC / 4; ++c) weigh(c, edge);
  add_tile(key0, band_end);
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lid = gl_LocalInvocationIndex;
  tx = lid % TX;
  ty = lid / TX;
  make_map(id);
}
