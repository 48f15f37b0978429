#version 460
// Rows of keys and values on their way into a cache, and rows that are turned by their positions (rotary embedding).
//
//   X[b, h, place] = turned K[b, h, i],  Y[b, h, place] = V[b, h, i]        place = at_b + i, modulo the cache's rows if CIRCULAR
//
// Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34: pair j of the first R columns of a row at
// position p, (2j, 2j+1) if INTERLEAVED, else (j, j + R/2), is turned by an angle:
//
//   y_a = cos x_a - sin x_b,  y_b = sin x_a + cos x_b        INVERSE: by its negative, which is the gradient of the other
//
// Without SCATTER row i goes to row i: rotation alone, in place too, for an invocation reads what it writes and nothing else does. What
// is not turned is copied, bit by bit. A place outside the cache is not written.
//
// TURN says where cos and sin come from: 0 nothing is turned; 1 tables of angles by position; 2 tables of a row for each token; 3 angles
// p times a frequency for each pair. Products of positions and frequencies in fp32 would be off by 2^-24 of an angle of thousands, and
// devices need not know the sine of it: frequencies are fractions of a turn in 64 bits fixed point, so that p times one, modulo a turn, is
// integer arithmetic, exact to 2^-32 of a turn, and polynomials (Moshier, Cephes, sinf and cosf) take an eighth of a turn from there.
//
// An invocation has two columns of a row, keys first, then values: there is nothing to do but to move bytes.
//
// Bindings: 0 K [B,H,n,D], 1 V [B,H,n,DV], 2 X [B,H,N,D], 3 Y [B,H,N,DV] (strided, last stride 1), 4 at [B] int32, 5 positions [B,n] int32,
// 6 cos (TURN 3: frequencies, two words each, upper first), 7 sin, fp32. Push constants: below. `total` counts pairs of columns;
// workgroups: ceil(total / WG); `base` counts workgroups.
//
//   0 WG   1 D   2 DV   3 SCATTER   4 CIRCULAR   5 TURN   6 R   7 INTERLEAVED   8 INVERSE
//   9 POSITIONS  from binding 5; else at_b + first + i

#extension GL_GOOGLE_include_directive : require
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

layout(push_constant) uniform Args {
  uint row_heads, rows, cache_rows;   // heads of a batch entry, n, N
  uint offsets;                       // of k | v << 8 | x << 16 | y << 24
  uint more_offsets;                  // of at | positions << 8 | cos << 16 | sin << 24
  uint k_sb, k_sh, k_sn;              // strides of batch, head, row, in elements
  uint v_sb, v_sh, v_sn;
  uint x_sb, x_sh, x_sn;
  uint y_sb, y_sh, y_sn;
  uint cos_sb, cos_sn, sin_sb, sin_sn;
  uint table_rows;                    // TURN 1: positions from 0 to below this; others are taken to the nearest
  uint position_sb;
  int first_position;
  uint key_pairs;                     // pairs of columns of keys, which come before those of values
  uint base;                          // first workgroup of this dispatch
  uint total;                         // pairs of the whole problem, over all dispatches
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

// cos and sin of a fraction of a turn, in units of 2^-32: of what is left of the nearest quarter, and the quarters after that.
vec2 cos_sin(uint phase) {
  const uint quarter = (phase >> 29) + 1 >> 1;
  const float x = float(int(phase - (quarter << 30))) * 1.46291807926715968e-9, z = x * x;
  const float s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
  const float c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1;
  vec2 y = (quarter & 1u) != 0u ? vec2(-s, c) : vec2(c, s);
  return (quarter & 2u) != 0u ? -y : y;
}

// Position times frequency, modulo a turn.
uint phase_of(int position, uvec2 frequency) {
  uint upper, lower;
  const uint p = uint(abs(position));
  umulExtended(p, frequency.y, upper, lower);
  const uint phase = p * frequency.x + upper;
  return position < 0 ? -phase : phase;
}

// Row `first + i` of a ring of n.
uint in_ring(int first, uint i, uint n) {
  const uint from = first < 0 ? n - 1 - uint(-(first + 1)) % n : uint(first) % n;
  return (from + i) % n;
}

void main() {
  const uint id = (base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  if (id >= total) return;
  const bool value = id >= key_pairs;
  const uint columns = value ? DV : D, pairs = (columns + 1) / 2, own = value ? id - key_pairs : id;
  const uint j = own % pairs, row = own / pairs, i = row % rows, h = row / rows % row_heads, b = row / rows / row_heads;

  int first = 0;
  uint place = i;
  if (SCATTER) {
    first = write_at[(more_offsets & 255u) + b];
    if (CIRCULAR) place = in_ring(first, i, cache_rows);
    else {
      if (first < -int(i) || first >= int(cache_rows) - int(i)) return;
      place = uint(first + int(i));
    }
  }
  uint a = 2 * j, c = 2 * j + 1;
  if (value) {
    const uint from = (offsets >> 8 & 255u) + b * v_sb + h * v_sh + i * v_sn, to = (offsets >> 24) + b * y_sb + h * y_sh + place * y_sn;
    y1[to + a] = v1[from + a];
    if (c < DV) y1[to + c] = v1[from + c];
    return;
  }
  const uint from = (offsets & 255u) + b * k_sb + h * k_sh + i * k_sn, to = (offsets >> 16 & 255u) + b * x_sb + h * x_sh + place * x_sn;
  if (TURN == 0 || j >= R / 2) {
    x1[to + a] = k1[from + a];
    if (c < D) x1[to + c] = k1[from + c];
    return;
  }
  if (!INTERLEAVED) { a = j; c = j + R / 2; }
  int position = first + first_position + int(i);
  if (POSITIONS) position = positions[(more_offsets >> 8 & 255u) + b * position_sb + i];
  vec2 turn;
  if (TURN == 3) turn = cos_sin(phase_of(position, frequencies[j]));
  else {
    uint cos_at = more_offsets >> 16 & 255u, sin_at = more_offsets >> 24;
    if (TURN == 1) {
      const uint at = uint(clamp(position, 0, int(table_rows) - 1));
      cos_at += at * cos_sn; sin_at += at * sin_sn;
    } else {
      cos_at += b * cos_sb + i * cos_sn; sin_at += b * sin_sb + i * sin_sn;
    }
    turn = vec2(cosines[cos_at + j], sines[sin_at + j]);
  }
  if (INVERSE) turn.y = -turn.y;
  const float xa = decode(k1[from + a]), xc = decode(k1[from + c]);
  x1[to + a] = encode(turn.x * xa - turn.y * xc);
  x1[to + c] = encode(turn.y * xa + turn.x * xc);
}
