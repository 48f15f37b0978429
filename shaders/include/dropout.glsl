// Which weights dropout keeps: a function of the seed, an offset and the weight's place (b, h, i, j) alone, so that forward and backward,
// every tier and every tile agree.
//
// Philox4x32 with 7 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011), key = seed, counter =
// (4 floor(j/64) + floor(j/2) mod 4, i, b Hq + h, offset). The 16 bytes drawn serve 16 columns of row i: byte
// (j mod 2) + 2 (floor(j/8) mod 2) + 4 (floor(j/16) mod 4) is column j's. A weight is kept iff its byte >= drop_k = round(256 p), and
// kept weights are scaled by 256 / (256 - drop_k): drop_scale().
//
// Needs seed_lo, seed_hi, drop_offset and drop_k() of the push constants. (DROPOUT 0 leaves all of this out at specialization.)

// What one draw serves: columns with the same draw_group.
uint draw_group(uint j) { return 4 * (j / 64) + (j / 2) % 4; }

// A kernel that defines PARTS_OF_WHOLES, where it has SCORE_AT (more.glsl), can do with a problem that is part of a longer one (WITHIN):
// draws are those of the whole. Its places stand behind the further arguments.
#ifdef PARTS_OF_WHOLES
layout(constant_id = 110) const bool WITHIN = false;
layout(set = 0, binding = SCORE_AT, std430) readonly buffer Within {
  uint further[28];
  uint first_query, first_draw;   // of the part: queries before it, and draw_group of the first key, a multiple of 64
  uint first_head, all_heads;     // query heads before its own, and how many a batch entry of the whole has
} within;
#endif

uvec4 draw(uint group_of_columns, uint i, uint bh) {
#ifdef PARTS_OF_WHOLES
  if (WITHIN) {
    group_of_columns += within.first_draw;
    i += within.first_query;
    bh = bh / heads() * within.all_heads + bh % heads() + within.first_head;
  }
#endif
  uvec4 x = uvec4(group_of_columns, i, bh, drop_offset);
  uvec2 key = uvec2(seed_lo, seed_hi);
  [[unroll]] for (uint round = 0; round < 7; ++round) {
    uint hi0, lo0, hi1, lo1;
    umulExtended(0xD2511F53u, x.x, hi0, lo0);
    umulExtended(0xCD9E8D57u, x.z, hi1, lo1);
    x = uvec4(hi1 ^ x.y ^ key.x, lo1, hi0 ^ x.w ^ key.y, lo0);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return x;
}

// Whether column j is kept, given the draw of its group.
bool kept(uvec4 drawn, uint j) {
  const uint low = (j & 16u) != 0u ? drawn.y : drawn.x, high = (j & 16u) != 0u ? drawn.w : drawn.z;
  const uint word = (j & 32u) != 0u ? high : low;
  return (word >> (8 * (j & 1u) + 2 * (j & 8u)) & 255u) >= drop_k();
}

float drop_scale() { return 256.0 / float(256 - drop_k()); }

// The same, given the word of the draw that has column j, drawn[j / 16 % 4], and the place of j's byte in it.
bool kept(uint word, uint byte) { return word << 24 - 8 * byte >= drop_k() << 24; }
uint byte_of(uint j) { return j % 2 + 2 * (j / 8 % 2); }
