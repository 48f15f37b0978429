// Rows of whole vectors on their way: part of cache/append.comp, taken where every row is of 64s of columns and lies so that four
// elements, and words of quantised rows, can be read and written at once (append.comp: wide_rows).
//
// An invocation has sixteen columns: two times four of a run of 32 columns, at 4 l and 16 + 4 l for number l of the four invocations that
// share the run, and the same of a second run. Pairs of a rotation by halves lie R/2 apart, so the second run is the one R/2 behind the
// first: both of a pair are in one invocation. A run is a block, and the two quads of an invocation are what a word of numbers of half a
// byte is made of. It has these columns of keys, of values and of queries, as far as there are so many: what is reckoned of places serves
// all of them, and all that comes from memory is asked for before the first barrier, so that a workgroup waits once.
//
// Quantised blocks: the largest number of each quad goes through shared memory to one invocation a block, which makes the scale: four
// invocations have two blocks of keys and two of values. Scales and numbers then lie in shared memory in the order of the cache, from
// where the workgroup writes words side by side: parts of rows, as invocations have them, would be written to each sector of memory
// several times. Two blocks of q8_0, q4_0 or q5_0 are 17, 9 or 11 words: the first begins with a word whose lower half is its scale, so
// that each of its words has the upper half of the word before; the second has whole words. A word of fifth bits is one of those. Blocks
// of q4_1 and q5_1 are whole words.

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
// At most 10.5 KiB with `ends`, beside 5 KiB of append.comp and quantise.glsl: every device has 16. Of iq4_nl, whose sums take the numbers
// one after the other, rows are not wide.
// Blocks of the workgroup: of keys, the first run of each four invocations, then the second of each; then of values. Scales are in
// block_scale.
const uint BLOCKS = WIDE ? gl_WorkGroupSize.x : 1, FOURS = (BLOCKS + 3) / 4;
// Two blocks after the other of keys, then of values: d << 16, numbers, d, numbers; or of whole words, as they lie in the cache.
const uint MOST_WORDS = 18;
shared uint blocks_of_rows[2 * FOURS * MOST_WORDS];

bool in_blocks(uint type) { return IS_BLOCKS(type); }

// Of q8_0 the sign does not matter.
float largest_of(uint type, vec4 x) {
  if (type == Q8_0) return max(max(abs(x.x), abs(x.y)), max(abs(x.z), abs(x.w)));
  return larger(larger(x.x, x.y), larger(x.z, x.w));
}
float least_of(vec4 x) { return smaller(smaller(x.x, x.y), smaller(x.z, x.w)); }
float most_of(vec4 x) { return max(max(x.x, x.y), max(x.z, x.w)); }

// The numbers of four columns in the bytes of a word.
uint quad_numbers(uint type, vec4 x, float least, float inverse) {
  return number_of(type, x.x, least, inverse) | number_of(type, x.y, least, inverse) << 8 | number_of(type, x.z, least, inverse) << 16 |
    number_of(type, x.w, least, inverse) << 24;
}
// The highest bits of four numbers of five bits, in the lowest of a word.
uint quad_fifths(uint numbers) {
  const uint x = numbers >> 4 & 0x01010101u;
  return (x | x >> 7 | x >> 14 | x >> 21) & 15u;
}

void put_word(bool value, uint at, uint bits) {
  if (value) y_words[at] = bits;
  else x_words[at] = bits;
}

// Largest numbers of an invocation's quads, for those who make scales: of the quads at 4 l, then of those at 16 + 4 l. Or least numbers,
// and then the largest of both.
void share_largest(uint type, uint block, uint l, vec4 x[4]) {
  for (uint i = 0; i < 4; i++)
    ends[(i & 1u) * BLOCKS + block + i / 2 * FOURS][l] = HAS_LEAST(type) ? least_of(x[i]) : largest_of(type, x[i]);
  if (HAS_LEAST(type))
    for (uint k = 0; k < 2; k++) ends[2 * BLOCKS + block + k * FOURS][l] = max(most_of(x[2 * k]), most_of(x[2 * k + 1]));
}

void make_scale(uint type, uint block) {
  if (!in_blocks(type)) return;
  const vec4 a = ends[block], b = ends[BLOCKS + block];
  if (HAS_LEAST(type)) {
    const float least = smaller(least_of(a), least_of(b));
    block_scale[block] = scale_of(type, least, most_of(ends[2 * BLOCKS + block]));
    ends[block].x = least;   // which nothing else is read of any more
    return;
  }
  const float m = largest_of(type, a), n = largest_of(type, b);
  // Of zeros that are all negative, a positive one: larger(0, -0) is 0.
  block_scale[block] = scale_of(type, type == Q8_0 ? max(m, n) : larger(0, larger(m, n)), 0);
}

// Words of a block that begins with a whole word, and of one that does not without d.
uint words_of(uint type) { return (type == Q8_0 ? 8 : 4) + HEAD_OF(type) / 2; }
bool in_words(uint type) { return HEAD_OF(type) % 2 == 0; }
// Where the first word of a block of an invocation's lies among blocks_of_rows. `columns` are those of a row.
uint block_at(bool value, uint type, uint columns, Share s, uint k) {
  const uint row = gl_LocalInvocationIndex / max(columns / 16, 1), words = words_of(type) + (in_words(type) ? 0 : 1);
  return (value ? FOURS * MOST_WORDS : 0) + (row * (columns / 32) + (k == 0 ? s.first : s.second) / 32) * words;
}
// Fifth bits are put together in a word that is to be 0 before.
void clear_fifths(bool value, uint type, uint columns, Share s) {
  if (HAS_FIFTHS(type) && s.l == 0) for (uint k = 0; k < 2; k++) blocks_of_rows[block_at(value, type, columns, s, k) + 1] = 0;
}

// An invocation's numbers, and scales, to where they are written from.
void share_numbers(bool value, uint type, uint columns, uint block, Share s, vec4 x[4]) {
  for (uint k = 0; k < 2; k++) {
    const uvec2 scale = block_scale[block + k * FOURS];
    const float inverse = uintBitsToFloat(scale.y), least = HAS_LEAST(type) ? ends[block + k * FOURS].x : 0;
    const uint odd = (k == 0 ? s.first : s.second) / 32 & 1u, at = block_at(value, type, columns, s, k);
    const uint numbers = at + (HEAD_OF(type) + 1) / 2;
    uint a = quad_numbers(type, x[2 * k], least, inverse);
    const uint b = quad_numbers(type, x[2 * k + 1], least, inverse);
    if (type == Q8_0) blocks_of_rows[numbers + 4 + s.l] = b;
    else {
      if (HAS_FIFTHS(type)) atomicOr(blocks_of_rows[at + 1], (quad_fifths(a) | quad_fifths(b) << 16) << 4 * s.l);
      a = a & 0x0f0f0f0fu | (b & 0x0f0f0f0fu) << 4;
    }
    blocks_of_rows[numbers + s.l] = a;
    if (s.l == 0) blocks_of_rows[at] = odd == 0 && !in_words(type) ? scale.x << 16 : scale.x;
  }
}

// Write the workgroup's rows of blocks, from unit `first` of `units` on.
void put_blocks(bool value, uint type, uint columns, uint first, uint units) {
  const uint words = words_of(type), pair = 2 * words + (in_words(type) ? 0 : 1), row_words = columns / 64 * pair;
  const uint from = value ? FOURS * MOST_WORDS : 0, end = min(gl_WorkGroupSize.x, units - min(first, units)) / 4 * pair;
  // Of the first row, and what lies between the rows of two heads: all are multiples of 64.
  const uint to = offset_to(value) / 2 + row_to(value, first / (columns / 16)) / 64 * pair;
  const uint between = (value ? y_sh : x_sh) / 64 * pair - row_words;
  for (uint w = gl_LocalInvocationIndex; w < end; w += gl_WorkGroupSize.x) {
    uint word;
    if (in_words(type)) word = blocks_of_rows[from + w];
    else {
      const uint two = w / pair, at = from + w + two;
      word = blocks_of_rows[at + 1];
      if (w - two * pair <= words) word = blocks_of_rows[at] >> 16 | word << 16;
    }
    put_word(value, to + w + w / row_words * between, word);
  }
}

void put_bytes(bool value, uint type, Share s, vec4 x[4]) {
  const float scale = scale_by(value, s.head);
  const uint row = offset_to(value) + row_to(value, s.head);
  for (uint i = 0; i < 4; i++) {
    uint word = 0;
    for (uint e = 0; e < 4; e++) word |= float8_bits(type, quotient(x[i][e], scale)) << 8 * e;
    put_word(value, (row + quad_of(s, i)) / 4, word);
  }
}

// All invocations of the workgroup come here together.
void put_quantised(uint unit, Fetched f, vec4 k[4], vec4 v[4]) {
  const uint lane = gl_LocalInvocationIndex, keys = lane / 4, values = keys + 2 * FOURS, l = lane % 4;
  const bool key_blocks = in_blocks(KEY_TYPE), value_blocks = DV > 0 && in_blocks(VALUE_TYPE);
  if (key_blocks || value_blocks) {
    if (key_blocks) clear_fifths(false, KEY_TYPE, D, f.keys);
    if (value_blocks) clear_fifths(true, VALUE_TYPE, DV, f.values);
    if (key_blocks) share_largest(KEY_TYPE, keys, l, k);
    if (value_blocks) share_largest(VALUE_TYPE, values, l, v);
    barrier();
    if (KEY_TYPE == VALUE_TYPE || lane < 2 * FOURS) make_scale(KEY_TYPE, lane);   // types that are constants rule the others out
    else make_scale(VALUE_TYPE, lane);
    barrier();
    if (key_blocks) share_numbers(false, KEY_TYPE, D, keys, f.keys, k);
    if (value_blocks) share_numbers(true, VALUE_TYPE, DV, values, f.values, v);
    barrier();
  }
  if (key_blocks) put_blocks(false, KEY_TYPE, D, unit - lane, KEY_LANES);
  if (value_blocks) put_blocks(true, VALUE_TYPE, DV, unit - lane, VALUE_LANES);
  if (IS_FLOAT8(KEY_TYPE) && unit < KEY_LANES) put_bytes(false, KEY_TYPE, f.keys, k);
  if (IS_FLOAT8(VALUE_TYPE) && unit < VALUE_LANES) put_bytes(true, VALUE_TYPE, f.values, v);
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
