#version 460
// Standard attention's backward pass on cooperative matrices, sums over queries:  dV = P^T dO  and  dK = dS^T Q, for a slab of rows of P
// or dS.
//
// Dao et al., "FlashAttention", 2022, algorithm 3. What standard_backward_product.comp does, with the same bindings, push constants and
// slabs; include/standard_matrix.glsl has how the product is tiled, and standard_product_matrix.comp is its sister. A workgroup makes BR
// keys and all D columns, so that W is read once, or, of wide heads, ACROSS workgroups side by side make BC columns each. The matrix is
// staged as it lies in memory, queries by keys, and turned over by the fragments' loads: column by column. What lies beyond a row's last
// key is replaced by 0 on the way into shared memory.
//
// The matrix may be turned (TURNED): dS^T, keys by queries, as matrix_backward_kv.comp writes it: left operands, without scale, which
// hold anything where no query sees a key. Then this is dQ = scale dS K, head by head: in all that is said here, and among the
// arguments, keys and queries have changed places, but for heads, which share K; the blocks that see most are the last. Not in bindings 3
// to 5: lengths, the table and further arguments are those of the problem itself.
//
// With lengths (include/lengths.glsl; slabs are of whole heads then) queries beyond the last are not read, and keys beyond the last get 0.
// Of packed sequences (include/rows.glsl) a slab has whole key heads of all of them, a matrix rows for those of the queries' tensor, and
// columns count from the first key of the row's sequence; blocks are those of the table.
//
// Bindings: 0 W (P or dS) [bh - bh0][row - row0][pitch], pitch a multiple of 8; 1 G (dO or Q), 2 Y (dV or dK), 3 and 4 lengths, 5 further
// arguments.
// Push constants: include/args.glsl with SLABS; v is G, and o is Y.
// Workgroups: those of standard_backward_product.comp, ACROSS side by side for each. BR = WR FR M, BC = WC FC N, and ACROSS BC is at least
// D.
//
// Specialization constants: those of include/standard_matrix.glsl; odd(x) is x | 1.
//
//   8 D  columns of G and Y, 1..576     9 BK  queries staged at a time, a multiple of K     15 ACROSS  workgroups side by side
//   11 ALIGNED  every row of g and y begins 16-byte aligned and D is a multiple of 8
//   16 PLAIN_EDGES   a row of W is 0 from BR + BK columns before its first key on, and up to as many behind its last, but for the weights:
//                    slices of which queries see some of the block's keys need no look at positions then
//   17 TURNED    sums are multiplied by score_scale, and by what dropout multiplies by; M divides BK and K divides BR, and a lane has
//                M K/SG elements of an operand, a multiple of 8
//   18 TOGETHER  TURNED: heads whose blocks of one place follow one another, where queries see a part of the keys; of packed sequences
//                include/items.glsl
//   12 SHARED  the larger of BK odd(BR/8) + BK odd(BC/8) and WR WC STRIP
//   90..92, 100, 101  include/lengths.glsl, rows.glsl

#extension GL_GOOGLE_include_directive : require
#include "standard_matrix.glsl"

layout(constant_id = 8) const uint D = 64;
layout(constant_id = 9) const uint BK = 64;
layout(constant_id = 15) const uint ACROSS = 1;
layout(constant_id = 16) const bool PLAIN_EDGES = false;
layout(constant_id = 17) const bool TURNED = false;
layout(constant_id = 18) const uint TOGETHER = 1;

#define SLABS
#include "args.glsl"
#include "dropout.glsl"

#define LENGTHS 3
#define SCORE_AT 5
#include "walk.glsl"
#include "items.glsl"

layout(set = 0, binding = 0, std430) readonly buffer WUnits { uvec4 w8[]; };
layout(set = 0, binding = 1, std430) readonly buffer GUnits { uvec4 g8[]; };
layout(set = 0, binding = 1, std430) readonly buffer GElements { uint16_t g1[]; };
layout(set = 0, binding = 2, std430) buffer YUnits { uvec4 y8[]; };
layout(set = 0, binding = 2, std430) buffer YElements { uint16_t y1[]; };

const uint WU = BR / UNIT, GU = BC / UNIT;  // units in a row
const uint W_PITCH = WU | 1, G_PITCH = GU | 1;
const uint G_AT = BK * W_PITCH;
const uint W_TURNS = (BK * WU + WG - 1) / WG;
const uint G_TURNS = (BK * GU + WG - 1) / WG;
const bool ALL_COLUMNS = D == ACROSS * BC;  // no column is beyond the last

uint col0;   // the workgroup's first column

// Rows of a matrix that are read.
uint row_count() { return PADDED ? min(max(query_count(), row0) - row0, rows) : rows; }
uint last_row() { return PADDED ? max(row_count(), 1) - 1 : rows - 1; }

uint b, sequence_row;   // batch entry or sequence, of packed ones; the first row of a matrix that is the sequence's
// The row of the slab with which that of a query head begins, and the same in G.
uint row_of(uint head) { return PACKED ? (head - bh0) * rows + sequence_row : (head - bh0) * rows; }
uint g_row_of(uint head) {
  const uint sharing = TURNED ? group() : 1;
  return PACKED ? query_origin(b, v_sb, v_sn) + head / sharing * v_sh : head / heads() * v_sb + head % heads() / sharing * v_sh;
}
// TURNED: take_lengths, of lengths and of a table in which keys and queries have not changed places. The bound that causal order from the
// top left has is the first.
void take_turned_lengths() {
  own_keys = nk; own_queries = nq;
  if (PACKED) {
    const uint at = ROW_HEAD + ROW_WORDS * b;
    own_first_key = row_table[at]; own_key_slots = row_table[at + 1]; own_keys = used_queries(b);
    own_first_query = row_table[at + 3]; own_query_slots = row_table[at + 4]; own_queries = used_keys(b);
  } else {
    if (KEY_LENGTHS) own_keys = uint(clamp(query_lengths[query_lengths_off + b], 0, int(nk)));
    if (QUERY_LENGTHS) own_queries = uint(clamp(key_lengths[key_lengths_off + b], 0, int(nq)));
  }
  const int moved = int(own_keys) - int(nk) - int(own_queries) + int(nq);
  own_first_shift = first_shift + moved;
  own_last_shift = last_shift + moved;
  if (TOP_LEFT) own_first_shift = max(own_first_shift, 0);
  own_first_shift = min(own_first_shift, own_last_shift + 1);
}

// Which elements of a unit of row r count.
uvec4 seen(uint r, uint key) {
  Span keys = keys_of(row0 + r);
  if (r >= row_count()) keys.last = -1;
  return mix(uvec4(0), uvec4(0xffffu), has(keys, key + uvec4(0, 2, 4, 6))) |
    mix(uvec4(0), uvec4(0xffff0000u), has(keys, key + uvec4(1, 3, 5, 7)));
}
// A unit of row r behind row `first` of the slab, zeros beyond the row's last key and beyond the last row.
uvec4 load_w(uint first, uint r, uint key) {
  const uvec4 x = LOADED_IF(scores, 16, r < row_count() && key < pitch,
    w8[((first + min(r, last_row())) * pitch + min(key, pitch - UNIT)) / UNIT]);
  return x & seen(r, key);
}
// A unit of a row of G; zeros beyond the last and from column D on.
uvec4 load_g(uint origin, uint r, uint c) {
  const uint at = origin + min(r, last_row()) * v_sn;
  uvec4 x;
  if (ALIGNED) x = LOADED_IF(g, 16, r < row_count() && c < D, g8[(at + (ALL_COLUMNS ? c : min(c, D - UNIT))) / UNIT]);
  else x = GATHER(g, at, c, D, r < row_count());
  return r < row_count() && (ALL_COLUMNS || c < D) ? x : uvec4(0);
}

uint key0;                          // the block's first key
uint head, r0;                      // of the slice: query head, and first row of the slab
Walk queries;                       // slices of BK queries of the slab that see one of its keys
uint w_at[W_TURNS], g_at[G_TURNS];  // places of the slab's first slice's, in units
uvec4 w_next[W_TURNS], g_next[G_TURNS];
// TURNED: operands of a slice, which subgroups share out; of the slab, how many there are down and across, and the first of this head;
// whether the slice that was fetched last is taken as it is.
const uint UNITS_OF_LANE = M * K / SG / UNIT, ACROSS_SLICE = BR / K, OPERANDS = BK / M * ACROSS_SLICE;
const uint SUBGROUPS = WR * WC, OPERAND_TURNS = (OPERANDS + SUBGROUPS - 1) / SUBGROUPS;
uvec4 operands[TURNED ? OPERAND_TURNS * UNITS_OF_LANE : 1];
uint operands_down, operands_across, first_operand, operand_at[TURNED ? OPERAND_TURNS : 1];
bool plain;
#define EACH_OPERAND(t, x) \
  [[unroll]] for (uint t = 0, x = gl_SubgroupID; t < OPERAND_TURNS; ++t, x += SUBGROUPS) if (OPERANDS % SUBGROUPS == 0 || x < OPERANDS)
void fetch_operands() {
  EACH_OPERAND(t, x) {
    const uint down = r0 / M + x / ACROSS_SLICE, across = key0 / K + x % ACROSS_SLICE;
    const uint at = first_operand + min(down, operands_down - 1) * operands_across + min(across, operands_across - 1);
    [[unroll]] for (uint u = 0; u < UNITS_OF_LANE; ++u)
      operands[t * UNITS_OF_LANE + u] = LOADED_IF(scores, 16, down < operands_down && across < operands_across,
        w8[(at * UNITS_OF_LANE + u) * SG + gl_SubgroupInvocationID]);
  }
}
void store_operands() {
  EACH_OPERAND(t, x) {
    LEFT w;
    [[unroll]] for (uint e = 0; e < UNITS_OF_LANE * UNIT; ++e)
      w[e] = ELEMENT_OF(uint16_t(operands[t * UNITS_OF_LANE + e / UNIT][e % UNIT / 2] >> e % 2 * 16));
    coopMatStore(w, tile, x / ACROSS_SLICE * M * W_PITCH + x % ACROSS_SLICE * K / UNIT, W_PITCH, ROW_MAJOR);
  }
}
// In shared memory: what no query of the block sees becomes 0.
void leave_out(uint slice) {
  EACH(W_TURNS, BK * WU, u, x) tile[x / WU * W_PITCH + x % WU] &= seen(slice + x / WU, key0 + x % WU * UNIT);
}

// Whether W of the slice that begins at r0 is taken as it is: every query of it sees all keys of the block, or W is 0 where not.
bool is_plain() {
  if (PLAIN_EDGES) return queries.begin < queries.end && r0 + BK <= row_count();
  return is_whole(queries, r0 / BK);
}

// The slice that begins at r0. Columns from D on are not written: it does not matter
// what is there.
void fetch() {
  const uint g_origin = v_off() + g_row_of(head) + row0 * v_sn;
  plain = is_plain() && key0 + BR <= key_count();
  if (ALIGNED && plain) {
    const uint w_step = (row_of(head) + r0) * (pitch / UNIT), g_step = (g_origin + r0 * v_sn) / UNIT;
    if (TURNED) {
      const uint step = r0 / M * operands_across * UNITS_OF_LANE * SG;
      EACH_OPERAND(t, x) [[unroll]] for (uint u = 0; u < UNITS_OF_LANE; ++u)
        operands[t * UNITS_OF_LANE + u] = LOADED(scores, 16, w8[operand_at[t] + u * SG + step]);
    } else EACH(W_TURNS, BK * WU, u, x) w_next[u] = LOADED(scores, 16, w8[w_at[u] + w_step]);
    EACH(G_TURNS, BK * GU, u, x) g_next[u] = LOADED_IF(g, 16, ALL_COLUMNS || col0 + x % GU * UNIT < D, g8[g_at[u] + g_step]);
  } else {
    if (TURNED) fetch_operands();
    else EACH(W_TURNS, BK * WU, u, x) w_next[u] = load_w(row_of(head), r0 + x / WU, key0 + x % WU * UNIT);
    EACH(G_TURNS, BK * GU, u, x) g_next[u] = load_g(g_origin, r0 + x / GU, col0 + x % GU * UNIT);
  }
}

uint y_origin, keys_left;  // of the block: its first element in Y, keys from there on,
uint keys_made;            // and those of them that there are
bool add;

void put(uint key, uint col, uvec4 x) {
  if (key >= keys_left) return;
  if (PADDED) { if (key >= keys_made) x = uvec4(0); }
  col += col0;
  const uint at = y_origin + key * o_sn + col;
  if (ALIGNED) {
    if (col >= D) return;
    if (add) x = add8(x, LOADED(y, 16, y8[at / UNIT]));
    STORED(y, 16, y8[at / UNIT] = x);
  } else {
    if (add) x = add8(x, GATHER(y, y_origin + key * o_sn, col, D, true));
    [[unroll]] for (uint e = 0; e < UNIT; ++e)
      if (col + e < D) STORED(y, 2, y1[at + e] = uint16_t(x[e / 2] >> 16 * (e % 2)));
  }
}

uint my_col;
#include "standard_strips.glsl"

void main() {
  const uint id = workgroup_index();
  const uint sharing = TURNED ? slab_heads : slab_heads / group();   // heads that share a block of the table
  if (id >= total || !is_work(id / ACROSS, sharing)) return;
  tid = gl_SubgroupID * SG + gl_SubgroupInvocationID;
  const uint blocks = (nk + BR - 1) / BR, matrices = total / (blocks * ACROSS);
  Place place;
  if (PACKED) place = TURNED ? place_of_items(id / ACROSS, sharing, TOGETHER) : place_of_item(id / ACROSS, sharing);
  else if (TURNED && LOWER_BOUND) {
    const uint at = id / ACROSS, span = TOGETHER * blocks, first_head = at / span * TOGETHER;
    const uint members = min(TOGETHER, matrices - first_head), rest = at - first_head * blocks;
    place = Place(first_head + rest % members, blocks - 1 - rest / members);
  } else place = place_of_keys(id / ACROSS, blocks, matrices);
  col0 = id % ACROSS * BC;
  if (PACKED) { b = place.matrix / sharing; place.matrix %= sharing; }
  const uint key_head = bh0 / group() + place.matrix;  // batch included, but of packed sequences
  key0 = place.block * BR;
  const uint first = TURNED ? bh0 + place.matrix : max(key_head * group(), bh0);  // of its heads in the slab
  const uint end = TURNED ? first + 1 : min((key_head + 1) * group(), bh0 + slab_heads);
  my_row = gl_SubgroupID / WC * FR * M;
  my_col = gl_SubgroupID % WC * FC * N;
  if (!PACKED) b = TURNED ? first / heads() : key_head / key_heads();
  if (!TURNED) take_lengths(b); else if (PADDED) take_turned_lengths();
  sequence_row = query_origin(b, nq, 1);
  queries = query_tiles(key0, key0 + BR - 1, BK, row0, row_count());
  const uint start = min(queries.begin, queries.end - 1) * BK;  // one slice at least

  EACH(W_TURNS, BK * WU, u, x) w_at[u] = (x / WU * pitch + key0) / UNIT + x % WU;
  EACH(G_TURNS, BK * GU, u, x) g_at[u] = (x / GU * v_sn + min(col0 + x % GU * UNIT, D - UNIT)) / UNIT;
  [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] = ACCUMULATOR(0.0);
  if (TURNED) {
    // Down, a head has the operands of all sequences, as ds_row_of() and ds_rows() of matrix_backward_kv.comp place them.
    const uint entry = (rows + M - 1) / M;
    const uint of_head = !PACKED ? entry : PACKED_QUERIES ? (packed_keys + batch * (M - 1)) / M : batch * entry;
    const uint before = !PACKED ? 0 : PACKED_QUERIES ? (own_first_query + b * (M - 1)) / M : b * entry;
    operands_down = PACKED ? max((row_count() + M - 1) / M, 1) : entry;
    operands_across = (nk + K - 1) / K;
    first_operand = ((first - bh0) * of_head + before) * operands_across;
    EACH_OPERAND(t, x) operand_at[t] = gl_SubgroupInvocationID +
      (first_operand + x / ACROSS_SLICE * operands_across + key0 / K + x % ACROSS_SLICE) * UNITS_OF_LANE * SG;
  }
  head = first;
  r0 = start;
  fetch();
  [[dont_unroll]] do {
    barrier();
    if (TURNED) store_operands();
    else EACH(W_TURNS, BK * WU, u, x) tile[x / WU * W_PITCH + x % WU] = kept8(w_next[u]);
    EACH(G_TURNS, BK * GU, u, x) tile[G_AT + x / GU * G_PITCH + x % GU] = g_next[u];
    barrier();
    if (TURNED && !plain) { leave_out(r0); barrier(); }
    r0 += BK;
    if (r0 >= queries.end * BK) {
      r0 = start;
      ++head;
    }
    if (head < end) fetch();
    [[unroll]] for (uint k = 0; k < BK / K; ++k) {
      LEFT w[FR];
      [[unroll]] for (uint r = 0; r < FR; ++r) coopMatLoad(w[r], tile, k * K * W_PITCH + (my_row + r * M) / UNIT, W_PITCH, COLUMN_MAJOR);
      [[unroll]] for (uint c = 0; c < FC; ++c) {
        RIGHT g;
        coopMatLoad(g, tile, G_AT + k * K * G_PITCH + (my_col + c * N) / UNIT, G_PITCH, ROW_MAJOR);
        [[unroll]] for (uint r = 0; r < FR; ++r) acc[r * FC + c] = coopMatMulAdd(w[r], g, acc[r * FC + c]);
      }
    }
  } while (head < end);

  if (DROPOUT) [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] *= drop_scale();
  if (TURNED) [[unroll]] for (uint f = 0; f < FR * FC; ++f) acc[f] *= score_scale * drop_scale();
  y_origin = o_off() + key_origin(b, o_sb, o_sn) + (TURNED ? first % heads() : key_head % key_heads()) * o_sh + key0 * o_sn;
  keys_left = key_slots() - key0;
  keys_made = max(key_count(), key0) - key0;
  add = ACCUMULATE || !TURNED && (row0 > 0 || first > key_head * group());
  barrier();  // the strips lie where the slices lay
  strip = gl_SubgroupID * STRIP;
  out_by_strips();
}
