// Rows of whole vectors on their way: part of cache/append.comp, taken where every row is of 64s of columns and lies so that four
// elements, and words of quantised rows, can be read and written at once (append.comp: wide_rows).
//
// An invocation has sixteen columns: two times four of a run of 32 columns, at 4 l and 16 + 4 l for number l of the four invocations that
// share the run, and the same of a second run. Pairs of a rotation by halves lie R/2 apart, so the second run is the one R/2 behind the
// first: both of a pair are in one invocation. A run is a block of q8_0 and q4_0, and the two quads of an invocation are what a word of
// q4_0 is made of. It has these columns of keys, of values and of queries, as far as there are so many: what is reckoned of places serves
// all of them, and all that comes from memory is asked for before the first barrier, so that a workgroup waits once.
//
// Quantised blocks: the largest number of each quad goes through shared memory to one invocation a block, which makes the scale: four
// invocations have two blocks of keys and two of values. Scales and numbers then lie in shared memory in the order of the cache, from
// where the workgroup writes words side by side: parts of rows, as invocations have them, would be written to each sector of memory
// several times. Two blocks are 17 or 9 words: the first begins with a word whose lower half is its scale, so that each of its words has
// the upper half of the word of numbers before; the second has whole words of numbers.

#if DTYPE == F32
#define RAW uvec4 // four elements
vec4 decode_raw(RAW u) { return uintBitsToFloat(u); }
#else
#define RAW uvec2
vec4 decode_raw(RAW u) {
#if DTYPE == F16
  return vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
#else
  return decode4(u);
#endif
}
#endif

layout(set = 0, binding = 0, std430) readonly buffer KRaw_ { RAW k_raw[]; };
layout(set = 0, binding = 1, std430) readonly buffer VRaw_ { RAW v_raw[]; };
layout(set = 0, binding = 2, std430) writeonly buffer XRaw_ { RAW x_raw[]; };
layout(set = 0, binding = 3, std430) writeonly buffer YRaw_ { RAW y_raw[]; };
layout(set = 0, binding = 8, std430) readonly buffer QRaw_ { RAW q_raw[]; };
layout(set = 0, binding = 2, std430) writeonly buffer XQuads_ { QUAD x4[]; };
layout(set = 0, binding = 9, std430) writeonly buffer ZRaw_ { RAW z_raw[]; };
layout(set = 0, binding = 9, std430) writeonly buffer ZQuads_ { QUAD z4[]; };

const uint KEY_LANES = KEY_HEADS * (D / 16), VALUE_LANES = KEY_HEADS * (DV / 16), QUERY_LANES = HEADS * (D / 16);

// What an invocation has of rows: of which head, number l of four invocations, and the first columns of its runs.
struct Share { uint head, l, first, second; };

// Of rows of `columns` columns. Of the first `halves` of them, c and c + halves / 2 are a pair.
Share share_of(uint unit, uint columns, uint halves) {
  Share s;
  const uint lanes = max(columns / 16, 1), run = unit % lanes / 4;
  const bool among = run < halves / 64;
  s.head = unit / lanes;
  s.l = unit % 4;
  s.first = among ? 32 * run : halves + 32 * (run - halves / 64);
  s.second = s.first + (among ? halves : columns - halves) / 2;
  return s;
}

// Quad i of an invocation's four: its first column.
uint quad_of(Share s, uint i) { return (i < 2 ? s.first : s.second) + 16 * (i & 1u) + 4 * s.l; }

// What is read before the first barrier, and where it belongs.
struct Fetched { Share keys, values; RAW k[4], v[4], q[4]; };

void fetch(uint unit, out Fetched f) {
  f.keys = share_of(unit, D, TURN == 0 || INTERLEAVED ? D : R);
  f.values = share_of(unit, DV, DV);
  const uint k = (offsets & 255u) + from_entry * k_sb + f.keys.head * k_sh + from_row * k_sn;
  const uint v = (offsets >> 8 & 255u) + from_entry * v_sb + f.values.head * v_sh + from_row * v_sn;
  const uint q = (page_offsets & 255u) + from_entry * q_sb + f.keys.head * q_sh + from_row * q_sn;
  for (uint i = 0; i < 4; i++) {
    f.k[i] = RAW(0);
    f.v[i] = RAW(0);
    f.q[i] = RAW(0);
  }
  if (unit < KEY_LANES) for (uint i = 0; i < 4; i++) f.k[i] = k_raw[(k + quad_of(f.keys, i)) / 4];
  if (unit < VALUE_LANES) for (uint i = 0; i < 4; i++) f.v[i] = v_raw[(v + quad_of(f.values, i)) / 4];
  if (unit < QUERY_LANES) for (uint i = 0; i < 4; i++) f.q[i] = q_raw[(q + quad_of(f.keys, i)) / 4];
}

void decode_share(RAW raw[4], out vec4 x[4]) {
  for (uint i = 0; i < 4; i++) x[i] = decode_raw(raw[i]);
}

// Turn what of an invocation's columns is turned.
void turn_share(Share s, inout vec4 x[4]) {
  if (TURN == 0) return;
  if (INTERLEAVED) {
    for (uint i = 0; i < 4; i++) {
      const uint c = quad_of(s, i);
      if (c >= R) continue;
      const vec2 t = turn_of(c / 2), u = turn_of(c / 2 + 1);
      x[i] = vec4(first_of(t, x[i].x, x[i].y), second_of(t, x[i].x, x[i].y), first_of(u, x[i].z, x[i].w), second_of(u, x[i].z, x[i].w));
    }
  } else if (s.first < R) {
    for (uint i = 0; i < 2; i++) {
      const uint c = quad_of(s, i);
      for (uint e = 0; e < 4; e++) {
        const vec2 t = turn_of(c + e);
        const float a = x[i][e], b = x[i + 2][e];
        x[i][e] = first_of(t, a, b);
        x[i + 2][e] = second_of(t, a, b);
      }
    }
  }
}

#ifdef QUANTISED
// At most 9.5 KiB, beside 6 KiB of append.comp and quantise.glsl: every device has 16.
// Blocks of the workgroup: of keys, the first run of each four invocations, then the second of each; then of values.
const uint BLOCKS = WIDE ? gl_WorkGroupSize.x : 1, FOURS = (BLOCKS + 3) / 4;
shared vec4 quad_largest[2][BLOCKS]; // of the quads at 4 l, and of those at 16 + 4 l
shared uvec2 wide_scale[BLOCKS];     // d in fp16, and 1/d
// Two blocks after the other of keys, then of values: d << 16, numbers, d, numbers.
const uint MOST_WORDS = 18;
shared uint blocks_of_rows[2 * FOURS * MOST_WORDS];

bool in_blocks(uint type) { return type != 0 && type != E4M3; }

// Of q8_0 the sign does not matter.
float largest_of(uint type, vec4 x) {
  if (type == Q8) return max(max(abs(x.x), abs(x.y)), max(abs(x.z), abs(x.w)));
  return larger(larger(x.x, x.y), larger(x.z, x.w));
}

// The numbers of four columns in the bytes of a word.
uint quad_numbers(uint type, vec4 x, float inverse) {
  if (type == Q8) return q8(x.x, inverse) | q8(x.y, inverse) << 8 | q8(x.z, inverse) << 16 | q8(x.w, inverse) << 24;
  return q4(x.x, inverse) | q4(x.y, inverse) << 8 | q4(x.z, inverse) << 16 | q4(x.w, inverse) << 24;
}

void put_word(bool value, uint at, uint bits) {
  if (value) y_words[at] = bits;
  else x_words[at] = bits;
}

// Largest numbers of an invocation's quads, for those who make scales.
void share_largest(uint type, uint block, uint l, vec4 x[4]) {
  for (uint i = 0; i < 4; i++) quad_largest[i & 1u][block + i / 2 * FOURS][l] = largest_of(type, x[i]);
}

void make_scale(uint type, uint block) {
  if (!in_blocks(type)) return;
  const vec4 a = quad_largest[0][block], b = quad_largest[1][block];
  const float m = largest_of(type, a), n = largest_of(type, b);
  // Of zeros that are all negative, a positive one: larger(0, -0) is 0.
  wide_scale[block] = scale_of(type, type == Q8 ? max(m, n) : larger(0, larger(m, n)));
}

// Words of numbers of a block.
uint words_of(uint type) { return type == Q8 ? 8 : 4; }

// An invocation's numbers, and scales, to where they are written from. `columns` are those of a row.
void share_numbers(bool value, uint type, uint columns, uint block, Share s, vec4 x[4]) {
  const uint words = words_of(type), row = gl_LocalInvocationIndex / max(columns / 16, 1), l = s.l;
  for (uint k = 0; k < 2; k++) {
    const uvec2 scale = wide_scale[block + k * FOURS];
    const float inverse = uintBitsToFloat(scale.y);
    const uint number = (k == 0 ? s.first : s.second) / 32, odd = number & 1u;
    const uint at = (value ? FOURS * MOST_WORDS : 0) + (row * (columns / 64) + number / 2) * (2 * words + 2) + odd * (words + 1);
    uint a = quad_numbers(type, x[2 * k], inverse);
    const uint b = quad_numbers(type, x[2 * k + 1], inverse);
    if (type == Q8) blocks_of_rows[at + 1 + 4 + l] = b;
    else a |= b << 4;
    blocks_of_rows[at + 1 + l] = a;
    if (l == 0) blocks_of_rows[at] = odd == 0 ? scale.x << 16 : scale.x;
  }
}

// Write the workgroup's rows of blocks, from unit `first` of `units` on.
void put_blocks(bool value, uint type, uint columns, uint first, uint units) {
  const uint words = words_of(type), pair = 2 * words + 1, row_words = columns / 64 * pair, from = value ? FOURS * MOST_WORDS : 0;
  const uint end = min(gl_WorkGroupSize.x, units - min(first, units)) / 4 * pair;
  // Of the first row, and what lies between the rows of two heads: all are multiples of 64.
  const uint to = offset_to(value) / 2 + row_to(value, first / (columns / 16)) / 64 * pair;
  const uint between = (value ? y_sh : x_sh) / 64 * pair - row_words;
  for (uint w = gl_LocalInvocationIndex; w < end; w += gl_WorkGroupSize.x) {
    const uint two = w / pair, at = from + w + two;
    uint word = blocks_of_rows[at + 1];
    if (w - two * pair <= words) word = blocks_of_rows[at] >> 16 | word << 16;
    put_word(value, to + w + w / row_words * between, word);
  }
}

void put_bytes(bool value, Share s, vec4 x[4]) {
  const float scale = scale_by(value, s.head);
  const uint row = offset_to(value) + row_to(value, s.head);
  for (uint i = 0; i < 4; i++) {
    uint word = 0;
    for (uint e = 0; e < 4; e++) word |= e4m3_bits(quotient(x[i][e], scale)) << 8 * e;
    put_word(value, (row + quad_of(s, i)) / 4, word);
  }
}

// All invocations of the workgroup come here together.
void put_quantised(uint unit, Fetched f, vec4 k[4], vec4 v[4]) {
  const uint lane = gl_LocalInvocationIndex, keys = lane / 4, values = keys + 2 * FOURS, l = lane % 4;
  const bool key_blocks = in_blocks(KEY_TYPE), value_blocks = DV > 0 && in_blocks(VALUE_TYPE);
  if (key_blocks || value_blocks) {
    if (key_blocks) share_largest(KEY_TYPE, keys, l, k);
    if (value_blocks) share_largest(VALUE_TYPE, values, l, v);
    barrier();
    make_scale(KEY_TYPE == VALUE_TYPE || lane < 2 * FOURS ? KEY_TYPE : VALUE_TYPE, lane);
    barrier();
    if (key_blocks) share_numbers(false, KEY_TYPE, D, keys, f.keys, k);
    if (value_blocks) share_numbers(true, VALUE_TYPE, DV, values, f.values, v);
    barrier();
  }
  if (key_blocks) put_blocks(false, KEY_TYPE, D, unit - lane, KEY_LANES);
  if (value_blocks) put_blocks(true, VALUE_TYPE, DV, unit - lane, VALUE_LANES);
  if (KEY_TYPE == E4M3 && unit < KEY_LANES) put_bytes(false, f.keys, k);
  if (VALUE_TYPE == E4M3 && unit < VALUE_LANES) put_bytes(true, f.values, v);
}
#else
const uint KEY_TYPE = 0, VALUE_TYPE = 0;
#endif

// Write what fetch has read.
void put(uint unit, Fetched f) {
  if (placed) {
    vec4 k[4];
    decode_share(f.k, k);
    turn_share(f.keys, k);
#ifdef QUANTISED
    vec4 v[4];
    decode_share(f.v, v);
    put_quantised(unit, f, k, v);
#endif
    if (KEY_TYPE == 0 && unit < KEY_LANES) {
      const uint to = (offsets >> 16 & 255u) + to_page * x_sb + f.keys.head * x_sh + to_row * x_sn;
      for (uint i = 0; i < 4; i++) {
        const uint c = quad_of(f.keys, i);
        if (TURN != 0 && c < R) x4[(to + c) / 4] = encode4(k[i]);
        else x_raw[(to + c) / 4] = f.k[i];
      }
    }
    if (VALUE_TYPE == 0 && unit < VALUE_LANES) {
      const uint to = (offsets >> 24) + to_page * y_sb + f.values.head * y_sh + to_row * y_sn;
      for (uint i = 0; i < 4; i++) y_raw[(to + quad_of(f.values, i)) / 4] = f.v[i];
    }
  }
  if (unit < QUERY_LANES) {
    vec4 q[4];
    decode_share(f.q, q);
    turn_share(f.keys, q);
    const uint to = (page_offsets >> 8 & 255u) + from_entry * z_sb + f.keys.head * z_sh + from_row * z_sn;
    for (uint i = 0; i < 4; i++) {
      const uint c = quad_of(f.keys, i);
      if (TURN != 0 && c < R) z4[(to + c) / 4] = encode4(q[i]);
      else z_raw[(to + c) / 4] = f.q[i];
    }
  }
}
