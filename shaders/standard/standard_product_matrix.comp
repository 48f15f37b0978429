#version 460
// Standard attention on cooperative matrices, third of three kernels: O = P V for a slab of rows, P read from memory.
//
// Dao et al., "FlashAttention", 2022, algorithm 0, line 3. What standard_product.comp does, with the same bindings, push constants and
// slabs; include/standard_matrix.glsl has how the product is tiled. A workgroup makes BR rows and all D columns, so that P is read once,
// which is what the kernel costs, or, of wide heads, ACROSS workgroups side by side make BC columns each; the next slice of P is on its way
// while this one is used. With a causal mask, keys that no query of the block may see are skipped; standard_softmax.comp has made P zero
// behind each row's last key as far as this kernel reads (its constant ZERO, here BR + BK).
//
// With lengths (include/lengths.glsl) rows beyond the last query are not read, and their O is 0; nor is
// what P has beyond the last key. Of packed sequences (include/rows.glsl) a slab has heads of all of them, a matrix rows for those of the
// queries' tensor, and columns count from the first key of the row's sequence; blocks are those of the table.
//
// Bindings: 0 P [bh - bh0][row - row0][pitch], pitch a multiple of 8; 1 V, 2 O, 3 and 4 lengths, 5 further arguments.
// Workgroups: ACROSS ceil(rows/BR) matrices, those side by side first, then rows; with a causal mask the longest blocks first.
// BR = WR FR M, BC = WC FC N, and ACROSS BC is at least D.
//
// The backward pass computes dQ = dS K by it (a step of algorithm 3).
//
// Specialization constants: those of include/standard_matrix.glsl; odd(x) is x | 1.
//
//   8 D  1..576     9 BK  keys staged at a time, a multiple of K     15 ACROSS  workgroups side by side
//   11 ALIGNED  every row of v and o begins 16-byte aligned and D is a multiple of 8
//   12 SHARED  the larger of BR odd(BK/8) + BK odd(BC/8) and WR WC STRIP
//   90..92, 100, 101  include/lengths.glsl, rows.glsl

#extension GL_GOOGLE_include_directive : require
#include "standard_matrix.glsl"

layout(constant_id = 8) const uint D = 64;
layout(constant_id = 9) const uint BK = 64;
layout(constant_id = 15) const uint ACROSS = 1;

#define SLABS
#include "args.glsl"
#include "dropout.glsl"

#define LENGTHS 3
#define SCORE_AT 5
#include "walk.glsl"

layout(set = 0, binding = 0, std430) readonly buffer PUnits { uvec4 p8[]; };
layout(set = 0, binding = 1, std430) readonly buffer VUnits { uvec4 v8[]; };
layout(set = 0, binding = 1, std430) readonly buffer VElements { uint16_t v1[]; };
layout(set = 0, binding = 2, std430) buffer OUnits { uvec4 o8[]; };
layout(set = 0, binding = 2, std430) buffer OElements { uint16_t o1[]; };

const uint PU = BK / UNIT, VU = BC / UNIT;  // units in a row
const uint P_PITCH = PU | 1, V_PITCH = VU | 1;
const uint V_AT = BR * P_PITCH;
const uint P_TURNS = (BR * PU + WG - 1) / WG;
const uint V_TURNS = (BK * VU + WG - 1) / WG;
const bool ALL_COLUMNS = D == ACROSS * BC;  // no column is beyond the last

uint col0;   // the workgroup's first column

// Rows of a matrix that are read, and columns, a multiple of 8.
uint row_count() { return PADDED ? min(max(query_count(), row0) - row0, rows) : rows; }
uint last_row() { return PADDED ? max(row_count(), 1) - 1 : rows - 1; }
uint width() { return PADDED ? (key_count() + UNIT - 1) / UNIT * UNIT : pitch; }

// A unit of row r behind row `first` of the slab; zeros beyond width(). Rows beyond the last repeat it, and their O is not made of it.
uvec4 load_p(uint first, uint r, uint key) {
  const uvec4 x = LOADED_IF(scores, 16, r < row_count() && key < width(),
    p8[((first + min(r, last_row())) * pitch + min(key, pitch - UNIT)) / UNIT]);
  return key < width() ? x : uvec4(0);
}
// A unit of a row of V; zeros beyond the last key and from column D on.
uvec4 load_v(uint origin, uint key, uint c) {
  const uint at = origin + min(key, last_key()) * v_sn;
  uvec4 x;
  if (ALIGNED) x = LOADED_IF(v, 16, key < key_count() && c < D, v8[(at + (ALL_COLUMNS ? c : min(c, D - UNIT))) / UNIT]);
  else x = GATHER(v, at, c, D, key < key_count());
  return key < key_count() && (ALL_COLUMNS || c < D) ? x : uvec4(0);
}

uint first_row, r0;                 // row of the slab with which the matrix, or its sequence, begins, and the block's first row of it
uint v_origin;                      // element at which row 0 of its V lies
uint key0;                          // first key of the slice
uint p_at[P_TURNS], v_at[V_TURNS];  // places of the first slice's, in units
uvec4 p_next[P_TURNS], v_next[V_TURNS];

// The slice that begins at key0. Columns from D on are not written: inside, it does not matter what is there.
void fetch() {
  if (ALIGNED && key0 + BK <= key_count()) {
    EACH(P_TURNS, BR * PU, u, x) p_next[u] = LOADED_IF(scores, 16, r0 + x / PU < row_count(), p8[p_at[u] + key0 / UNIT]);
    EACH(V_TURNS, BK * VU, u, x) v_next[u] = LOADED_IF(v, 16, ALL_COLUMNS || col0 + x % VU * UNIT < D, v8[v_at[u] + key0 * v_sn / UNIT]);
  } else {
    EACH(P_TURNS, BR * PU, u, x) p_next[u] = load_p(first_row, r0 + x / PU, key0 + x % PU * UNIT);
    EACH(V_TURNS, BK * VU, u, x) v_next[u] = load_v(v_origin, key0 + x / VU, col0 + x % VU * UNIT);
  }
}

uint o_origin, rows_left;  // of the block: its first element in O, rows of the slab from there on,
uint rows_made;            // and those of them that there are

void put(uint row, uint col, uvec4 x) {
  if (row >= rows_left) return;
  if (PADDED) { if (row >= rows_made) x = uvec4(0); }
  col += col0;
  const uint at = o_origin + row * o_sn + col;
  if (ALIGNED) {
    if (col >= D) return;
    if (ACCUMULATE) x = add8(x, LOADED(o, 16, o8[at / UNIT]));
    STORED(o, 16, o8[at / UNIT] = x);
  } else {
    if (ACCUMULATE) x = add8(x, GATHER(o, o_origin + row * o_sn, col, D, true));
    [[unroll]] for (uint e = 0; e < UNIT; ++e)
      if (col + e < D) STORED(o, 2, o1[at + e] = uint16_t(x[e / 2] >> 16 * (e % 2)));
  }
}

uint my_col;
#include "standard_strips.glsl"

void main() {
  const uint id = workgroup_index();
  if (id >= total || !is_work(id / ACROSS, slab_heads)) return;
  tid = gl_SubgroupID * SG + gl_SubgroupInvocationID;
  const uint blocks = (rows + BR - 1) / BR;
  const uint matrices = total / (blocks * ACROSS);
  Place place;
  if (PACKED) place = place_of_item(id / ACROSS, slab_heads); else place = place_of_queries(id / ACROSS, blocks, matrices);
  col0 = id % ACROSS * BC;
  r0 = place.block * BR;
  uint bh = bh0 + place.matrix, b, h;
  if (PACKED) { b = place.matrix / slab_heads; h = bh0 + place.matrix % slab_heads; } else { b = bh / heads(); h = bh % heads(); }
  take_lengths(b);
  first_row = PACKED ? (h - bh0) * rows + query_origin(b, nq, 1) : place.matrix * rows;
  const uint row_end = PACKED ? query_slots() : rows;
  v_origin = v_off() + key_origin(b, v_sb, v_sn) + (h / group()) * v_sh;
  my_row = gl_SubgroupID / WC * FR * M;
  my_col = gl_SubgroupID % WC * FC * N;

  const Walk keys = key_tiles(row0 + r0, row0 + min(r0 + BR, row_end) - 1, BK);

  EACH(P_TURNS, BR * PU, u, x) p_at[u] = (first_row + min(r0 + x / PU, last_row())) * pitch / UNIT + x % PU;
  EACH(V_TURNS, BK * VU, u, x) v_at[u] = (v_origin + x / VU * v_sn + min(col0 + x % VU * UNIT, D - UNIT)) / UNIT;
  [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] = ACCUMULATOR(0.0);
  key0 = keys.begin * BK;  // one slice at least
  fetch();
  [[dont_unroll]] do {
    barrier();
    EACH(P_TURNS, BR * PU, u, x) tile[x / PU * P_PITCH + x % PU] = kept8(p_next[u]);
    EACH(V_TURNS, BK * VU, u, x) tile[V_AT + x / VU * V_PITCH + x % VU] = v_next[u];
    barrier();
    key0 += BK;
    if (key0 < keys.end * BK) fetch();
    [[unroll]] for (uint k = 0; k < BK / K; ++k) {
      LEFT p[FR];
      [[unroll]] for (uint r = 0; r < FR; ++r) coopMatLoad(p[r], tile, (my_row + r * M) * P_PITCH + k * (K / UNIT), P_PITCH, ROW_MAJOR);
      [[unroll]] for (uint c = 0; c < FC; ++c) {
        RIGHT v;
        coopMatLoad(v, tile, V_AT + k * K * V_PITCH + (my_col + c * N) / UNIT, V_PITCH, ROW_MAJOR);
        [[unroll]] for (uint r = 0; r < FR; ++r) acc[r * FC + c] = coopMatMulAdd(p[r], v, acc[r * FC + c]);
      }
    }
  } while (key0 < keys.end * BK);

  if (DROPOUT) [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] *= drop_scale();
  o_origin = o_off() + query_origin(b, o_sb, o_sn) + h * o_sh + (row0 + r0) * o_sn;
  rows_left = row_end - r0;
  rows_made = max(row_count(), r0) - r0;
  barrier();  // the strips lie where the slices lay
  strip = gl_SubgroupID * STRIP;
  out_by_strips();
}
