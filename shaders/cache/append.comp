#version 460
// Rows of keys and values on their way into a cache, and rows that are turned by their positions (rotary embedding).
//
//   X[b, h, place] = turned K[b, h, i],  Y[b, h, place] = V[b, h, i]        place = at_b + i, modulo the cache's rows if CIRCULAR
//   Z[b, h, i] = turned Q[b, h, i]                                          at the positions of the keys
//
// Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34: pair j of the first R columns of a row at
// position p, (2j, 2j+1) if INTERLEAVED, else (j, j + R/2), is turned by an angle:
//
//   y_a = cos x_a - sin x_b,  y_b = sin x_a + cos x_b        INVERSE: by its negative, which is the gradient of the other
//
// Without SCATTER row i goes to row i: rotation alone, in place too, for an invocation reads what it writes and nothing else does, as of Q.
// What is not turned is copied, bit by bit. A place outside the cache is not written.
//
// PACKED rows are tokens one after the other, [1, H, n, .]: token i is of batch entry at_i, none if that is not one, and its place is
// position i. COUNTS: entry b has only the first counts_b rows.
//
// PAGES: X and Y are pools of pages of 2^PAGE_SHIFT rows. Place p of entry b is row p mod 2^PAGE_SHIFT of the page that stands at p >>
// PAGE_SHIFT in row b of the table (1), or from starts_b up to starts_{b+1} in it (2: Ye et al., "FlashInfer", 2025). A number that is no
// page's is not followed.
//
// TURN says where cos and sin come from: 0 nothing is turned; 1 tables of angles by position; 2 tables of a row for each token; 3 angles
// p times a frequency for each pair. Products of positions and frequencies in fp32 would be off by 2^-24 of an angle of thousands, and
// devices need not know the sine of it: frequencies are fractions of a turn in 64 bits fixed point, so that p times one, modulo a turn, is
// integer arithmetic, exact to 2^-32 of a turn, and polynomials (Moshier, Cephes, sinf and cosf) take an eighth of a turn from there.
//
// A workgroup has one row of all heads, for which it makes the first KEPT cosines and sines once, or one of PARTS parts of it. What it does
// goes in steps of WG invocations, keys first, then values, then queries; step s is part s mod PARTS's. In a step of plain rows an
// invocation has two columns, of keys and queries a pair that is turned. QUANTISED builds (quantise.glsl) can have steps of quantised rows
// besides. WIDE, a build for rows of whole vectors, has a step of keys, values and queries together for each of PARTS workgroups, in which
// an invocation has sixteen columns of each (append_wide.glsl), if their tensors lie so, which the host finds.
//
// Bindings: 0 K [B,H,n,D], 1 V [B,H,n,DV], 2 X [B,H,N,D], 3 Y [B,H,N,DV] (strided, last stride 1), 4 at [B] int32, or of each packed token,
// 5 positions [B,n] int32, 6 cos (TURN 3: frequencies, two words each, upper first), 7 sin, fp32, 8 Q [B,HEADS,n,D], 9 Z, 10 table, 11
// starts [B+1], 12 counts [B] int32, 13, 14 scales of keys and values [B,H] fp32. Push constants: below. `total` counts workgroups.
//
//   0 WG   1 D   2 DV (0: no values)   3 SCATTER   4 CIRCULAR   5 TURN   6 R   7 INTERLEAVED   8 INVERSE   9 POSITIONS  from binding 5,
//   else at_b + first + i   10 KEY_HEADS   11 HEADS (0: no queries)   12 PARTS   13 KEPT   14 PACKED   15 COUNTS   16 PAGES   17 PAGE_SHIFT
//   18 TABLE  rows of tables of angles: positions from 0 to below this, others are taken to the nearest   19 WIDE   20, 21 quantise.glsl

#extension GL_GOOGLE_include_directive : require
#ifdef QUANTISED
#extension GL_EXT_shader_16bit_storage : require
#endif
#include "dtype.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint D = 64;
layout(constant_id = 2) const uint DV = 64;
layout(constant_id = 3) const bool SCATTER = true;
layout(constant_id = 4) const bool CIRCULAR = false;
layout(constant_id = 5) const uint TURN = 0;
layout(constant_id = 6) const uint R = 0;
layout(constant_id = 7) const bool INTERLEAVED = false;
layout(constant_id = 8) const bool INVERSE = false;
layout(constant_id = 9) const bool POSITIONS = false;
layout(constant_id = 10) const uint KEY_HEADS = 1;
layout(constant_id = 11) const uint HEADS = 0;
layout(constant_id = 12) const uint PARTS = 1;
layout(constant_id = 13) const uint KEPT = 1;
layout(constant_id = 14) const bool PACKED = false;
layout(constant_id = 15) const bool COUNTS = false;
layout(constant_id = 16) const uint PAGES = 0;
layout(constant_id = 17) const uint PAGE_SHIFT = 0;
layout(constant_id = 18) const uint TABLE = 1;
layout(constant_id = 19) const bool WIDE = false;

layout(push_constant) uniform Args {
  uint rows, batch;                   // n, B
  uint cache_rows;                    // N, or pages of a pool; without SCATTER the position of row 0
  uint table_columns;                 // of the table of pages for each entry, or all of them
  uint offsets;                       // of k | v << 8 | x << 16 | y << 24
  uint more_offsets;                  // of at | positions << 8 | cos << 16 | sin << 24
  uint page_offsets;                  // of q | z << 8 | table << 16 | starts << 24
  uint scale_offsets;                 // of counts | scales of keys << 8 | of values << 16; 1 << 24: rows are aligned
  uint k_sb, k_sh, k_sn;              // strides of batch, head, row, in elements
  uint v_sb, v_sh, v_sn;
  uint x_sb, x_sh, x_sn;              // of page, head, row in it
  uint y_sb, y_sh, y_sn;
  uint q_sb, q_sh, q_sn;
  uint z_sb, z_sh, z_sn;
  uint cos_sb, cos_sn, sin_sb, sin_sn;
  uint base;                          // first workgroup of this dispatch
  uint total;                         // workgroups of the whole problem, over all dispatches
};

layout(set = 0, binding = 0, std430) readonly buffer K_ { ELEM k1[]; };
layout(set = 0, binding = 1, std430) readonly buffer V_ { ELEM v1[]; };
layout(set = 0, binding = 2, std430) writeonly buffer X_ { ELEM x1[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y_ { ELEM y1[]; };
layout(set = 0, binding = 4, std430) readonly buffer At_ { int write_at[]; };
layout(set = 0, binding = 5, std430) readonly buffer Positions_ { int positions[]; };
layout(set = 0, binding = 6, std430) readonly buffer Cos_ { float cosines[]; };
layout(set = 0, binding = 6, std430) readonly buffer Frequencies_ { uvec2 frequencies[]; };
layout(set = 0, binding = 7, std430) readonly buffer Sin_ { float sines[]; };
layout(set = 0, binding = 8, std430) readonly buffer Q_ { ELEM q1[]; };
layout(set = 0, binding = 9, std430) writeonly buffer Z_ { ELEM z1[]; };
layout(set = 0, binding = 10, std430) readonly buffer PageTable_ { int page_table[]; };
layout(set = 0, binding = 11, std430) readonly buffer PageStarts_ { int page_starts[]; };
layout(set = 0, binding = 12, std430) readonly buffer Counts_ { int counts[]; };

shared vec2 turns[KEPT];

// Of the workgroup's row: where it comes from, the entry whose cache it goes to, the page or entry of the cache and the row in there, its
// position.
uint from_entry, from_row, entry, to_page, to_row;
bool placed;
int position;

// cos and sin of a fraction of a turn, in units of 2^-32: of what is left of the nearest quarter, and the quarters after that.
vec2 cos_sin(uint phase) {
  const uint quarter = (phase >> 29) + 1 >> 1;
  const float x = float(int(phase - (quarter << 30))) * 1.46291807926715968e-9, z = x * x;
  precise const float s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
  precise const float c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1;
  vec2 y = (quarter & 1u) != 0u ? vec2(-s, c) : vec2(c, s);
  return (quarter & 2u) != 0u ? -y : y;
}

// Position times frequency, modulo a turn, to the nearest.
uint phase_of(int position, uvec2 frequency) {
  uint upper, lower;
  const uint p = uint(abs(position));
  umulExtended(p, frequency.y, upper, lower);
  const uint phase = p * frequency.x + upper + (lower >> 31);
  return position < 0 ? -phase : phase;
}

// cos and sin of pair j's angle.
vec2 angle(uint j) {
  vec2 turn;
  if (TURN == 3) turn = cos_sin(phase_of(position, frequencies[j]));
  else {
    uint cos_at = more_offsets >> 16 & 255u, sin_at = more_offsets >> 24;
    if (TURN == 1) {
      const uint at = uint(clamp(position, 0, int(TABLE) - 1));
      cos_at += at * cos_sn; sin_at += at * sin_sn;
    } else {
      cos_at += from_entry * cos_sb + from_row * cos_sn; sin_at += from_entry * sin_sb + from_row * sin_sn;
    }
    turn = vec2(cosines[cos_at + j], sines[sin_at + j]);
  }
  return INVERSE ? vec2(turn.x, -turn.y) : turn;
}

vec2 turn_of(uint j) { return KEPT >= R / 2 || j < KEPT ? turns[j] : angle(j); }

// A pair after its turn; what quantised rows hold is of the same products to the bit.
float first_of(vec2 turn, float a, float b) { precise const float p = turn.y * b, y = fma(turn.x, a, -p); return y; }
float second_of(vec2 turn, float a, float b) { precise const float p = turn.x * b, y = fma(turn.y, a, p); return y; }

// Row `first + i` of a ring of n.
uint in_ring(int first, uint i, uint n) {
  const uint from = first < 0 ? n - 1 - uint(-(first + 1)) % n : uint(first) % n;
  return (from + i) % n;
}

// Find where row `first + i` of the entry is to go: false if nowhere.
bool find_place(int first, uint i) {
  to_page = entry;
  if (CIRCULAR) { to_row = in_ring(first, i, cache_rows); return true; }
  if (first < 0 && i <= uint(-(first + 1))) return false;
  to_row = uint(first) + i;
  if (PAGES == 0) return to_row < cache_rows;
  uint at = to_row >> PAGE_SHIFT;
  to_row &= (1u << PAGE_SHIFT) - 1;
  if (PAGES == 1) {
    if (at >= table_columns) return false;
    at += entry * table_columns;
  } else {
    const uint starts_at = (page_offsets >> 24) + entry;
    const int start = page_starts[starts_at], end = min(page_starts[starts_at + 1], int(table_columns));
    if (start < 0 || end <= start || at >= uint(end - start)) return false;
    at += uint(start);
  }
  to_page = uint(page_table[(page_offsets >> 16 & 255u) + at]);
  return to_page < cache_rows;
}

// What an invocation has in a step: unit of the row's, keys or queries. y_a and y_b of pair j are columns a and c; of what is not turned,
// two neighbours.
#define MOVE_PAIR(from1, from, to1, to)                            \
  {                                                                \
    const uint j = unit % PAIRS;                                   \
    const bool turned = TURN != 0 && j < R / 2;                    \
    const uint a = turned && !INTERLEAVED ? j : 2 * j;             \
    const uint c = turned && !INTERLEAVED ? j + R / 2 : 2 * j + 1; \
    if (turned) {                                                  \
      const vec2 turn = turn_of(j);                                \
      const float xa = decode(from1[from + a]), xc = decode(from1[from + c]); \
      to1[to + a] = encode(first_of(turn, xa, xc));                \
      to1[to + c] = encode(second_of(turn, xa, xc));               \
    } else {                                                       \
      to1[to + a] = from1[from + a];                               \
      if (c < D) to1[to + c] = from1[from + c];                    \
    }                                                              \
  }

const uint PAIRS = (D + 1) / 2, VALUE_PAIRS = DV == 0 ? 1 : (DV + 1) / 2; // of columns of a row

void move_keys(uint unit) {
  if (unit >= KEY_HEADS * PAIRS) return;
  const uint h = unit / PAIRS;
  const uint from = (offsets & 255u) + from_entry * k_sb + h * k_sh + from_row * k_sn;
  const uint to = (offsets >> 16 & 255u) + to_page * x_sb + h * x_sh + to_row * x_sn;
  MOVE_PAIR(k1, from, x1, to)
}

void move_queries(uint unit) {
  if (unit >= HEADS * PAIRS) return;
  const uint h = unit / PAIRS;
  const uint from = (page_offsets & 255u) + from_entry * q_sb + h * q_sh + from_row * q_sn;
  const uint to = (page_offsets >> 8 & 255u) + from_entry * z_sb + h * z_sh + from_row * z_sn;
  MOVE_PAIR(q1, from, z1, to)
}

void move_values(uint unit) {
  if (unit >= KEY_HEADS * VALUE_PAIRS) return;
  const uint h = unit / VALUE_PAIRS, a = 2 * (unit % VALUE_PAIRS);
  const uint from = (offsets >> 8 & 255u) + from_entry * v_sb + h * v_sh + from_row * v_sn + a;
  const uint to = (offsets >> 24) + to_page * y_sb + h * y_sh + to_row * y_sn + a;
  y1[to] = v1[from];
  if (a + 1 < DV) y1[to + 1] = v1[from + 1];
}

#ifdef QUANTISED
#include "quantise.glsl"
#else
const uint KEY_UNITS = KEY_HEADS * PAIRS, VALUE_UNITS = KEY_HEADS * ((DV + 1) / 2);
#define write_keys move_keys
#define write_values move_values
#endif
#include "append_wide.glsl"

// Whether rows are moved many columns at once: the host says how tensors lie.
bool wide_rows() { return WIDE && scale_offsets >> 24 != 0; }

// Steps of a row.
const uint WG = gl_WorkGroupSize.x;
const uint KEY_STEPS = (KEY_UNITS + WG - 1) / WG, VALUE_STEPS = (VALUE_UNITS + WG - 1) / WG, QUERY_STEPS = (HEADS * PAIRS + WG - 1) / WG;

void main() {
  const uint group = base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  if (group >= total) return;
  const uint row = group / PARTS, part = group % PARTS, lane = gl_LocalInvocationIndex;
  from_entry = PACKED ? 0 : row / rows;
  from_row = PACKED ? row : row % rows;
  const uint unit = part * WG + lane;
  Fetched fetched;
  if (wide_rows()) fetch(unit, fetched);
  entry = from_entry;
  placed = true;
  to_page = entry;
  to_row = from_row;
  position = SCATTER ? 0 : int(cache_rows + from_row);
  if (POSITIONS) position = positions[(more_offsets >> 8 & 255u) + from_entry * rows + from_row];
  if (COUNTS) {
    const int n = counts[(scale_offsets & 255u) + entry];
    if (n <= 0 || from_row >= uint(n)) return;
  }
  if (SCATTER) {
    const int at = write_at[(more_offsets & 255u) + (PACKED ? from_row : entry)];
    if (PACKED) {
      entry = uint(at);
      if (entry >= batch) return;
      placed = find_place(position, 0);
    } else {
      if (!POSITIONS) position = at + int(from_row);
      placed = find_place(at, from_row);
    }
    if (!placed && HEADS == 0) return;
  }
  if (TURN != 0) {
    for (uint j = lane; j < KEPT; j += WG) turns[j] = angle(j);
    barrier();
  }
  if (wide_rows()) {
    put(unit, fetched);
    return;
  }
  for (uint step = part; step < KEY_STEPS + VALUE_STEPS + QUERY_STEPS; step += PARTS) {
    if (step < KEY_STEPS) {
      if (placed) write_keys(step * WG + lane);
    } else if (step < KEY_STEPS + VALUE_STEPS) {
      if (placed) write_values((step - KEY_STEPS) * WG + lane);
    } else move_queries((step - KEY_STEPS - VALUE_STEPS) * WG + lane);
  }
}
