// Which keys a query may attend to. No other file knows, but for walk.glsl, which makes tiles of it; on the host it is internal/attn.Mask.
//
// By position, the allowed keys of a query are a span, and so are the queries of a key; both ends of a span only ever move on from row to
// row. Two bounds make them: key j is allowed for query i iff i + first_shift <= j (LOWER_BOUND: a window) and j <= i + last_shift
// (UPPER_BOUND: causal order, or a window).
//
// A kernel that defines BLOCKS can do with a block mask besides, where BLOCK_MASK is true: which blocks of BLOCK_ROWS queries by BLOCK_KEYS
// keys take part is given then, a bit each, in binding 5, which is there with BLOCK_MASK false too. Bit c % 32 of word
// (head * block rows + r) * words + c / 32 is block (r, c), with words = ceil(block columns / 32), and head 0 for all unless
// BLOCK_PER_HEAD (flash/blockmask.go writes it). Bits beyond the last column are 0. Where blocks are whole tiles (BLOCKS_OF_TILES) tiles
// without a bit are left out, and that is all there is to do; else each score of a tile looks its bit up.
//
// Needs nq, nk, first_shift and last_shift among the push constants; with BLOCKS also BR and BC, queries and keys of a tile.

layout(constant_id = 5) const bool UPPER_BOUND = false;
layout(constant_id = 58) const bool LOWER_BOUND = false;

// Whether later queries may attend to more keys than earlier ones, so that blocks of queries, and of keys, differ in what there is to do.
const bool UNEVEN = UPPER_BOUND && !LOWER_BOUND;

// Positions first to last, both included; none where last < first.
struct Span { int first, last; };

// The keys that a query may attend to, and the queries that may attend to a key. Neither looks whether the other exists: beyond the last
// query or key it goes on as before.
Span keys_of(uint query) {
  const int last = int(nk) - 1;
  return Span(LOWER_BOUND ? max(int(query) + first_shift, 0) : 0, UPPER_BOUND ? min(last, int(query) + last_shift) : last);
}
Span queries_of(uint key) {
  const int last = int(nq) - 1;
  return Span(UPPER_BOUND ? max(int(key) - last_shift, 0) : 0, LOWER_BOUND ? min(last, int(key) - first_shift) : last);
}

bool has(Span span, uint at) { return (!LOWER_BOUND || int(at) >= span.first) && int(at) <= span.last; }
bvec4 has(Span span, uvec4 at) {
  const bvec4 below = lessThanEqual(ivec4(at), ivec4(span.last));
  if (LOWER_BOUND) return bvec4(uvec4(below) & uvec4(greaterThanEqual(ivec4(at), ivec4(span.first))));
  return below;
}
// The end of a span, exclusive, as a number of positions: 0 if it lies before them all.
uint end_of(Span span) { return uint(max(span.last + 1, 0)); }

// Whether the bounds leave a key out for a query, whether or not there is such a key.
bool out_of_band(uint query, uint key) {
  return UPPER_BOUND && int(key) > int(query) + last_shift || LOWER_BOUND && int(key) < int(query) + first_shift;
}

#ifdef BLOCKS
layout(constant_id = 59) const bool BLOCK_MASK = false;
layout(constant_id = 60) const uint BLOCK_ROWS = 64;
layout(constant_id = 61) const uint BLOCK_KEYS = 64;
layout(constant_id = 62) const bool BLOCK_PER_HEAD = false;
const bool BLOCKS_OF_TILES = BLOCK_ROWS % BR + BLOCK_KEYS % BC == 0;

layout(set = 0, binding = 5, std430) readonly buffer Blocks_ { uint block_bits[]; };

uint block_words;              // of a row of blocks
uint block_head;               // word at which the head's mask begins
uint block_row0, block_rows;   // rows of blocks that the workgroup's queries touch: the first, and how many

// For the BR queries from query0 on of a query head.
void take_blocks(uint head, uint query0) {
  block_words = ((nk + BLOCK_KEYS - 1) / BLOCK_KEYS + 31) / 32;
  block_head = BLOCK_PER_HEAD ? head * ((nq + BLOCK_ROWS - 1) / BLOCK_ROWS) * block_words : 0;
  block_row0 = query0 / BLOCK_ROWS;
  block_rows = BLOCKS_OF_TILES ? 1 : (min(query0 + BR, nq) - 1) / BLOCK_ROWS - block_row0 + 1;
}

// Whether the block of a score is attended to. Beyond the last query or key it is that of the last.
bool block_allows(uint query, uint key) {
  const uint c = min(key, nk - 1) / BLOCK_KEYS;
  return (block_bits[block_head + min(query, nq - 1) / BLOCK_ROWS * block_words + c / 32] >> (c % 32) & 1u) != 0;
}
#else
const bool BLOCK_MASK = false, BLOCKS_OF_TILES = true;
void take_blocks(uint head, uint query0) {}
bool block_allows(uint query, uint key) { return true; }
#endif

// Whether a query attends to a key, in a tile that it visits; keys is what keys_of says of the query.
bool allowed(Span keys, uint query, uint key) {
  if (BLOCK_MASK) return all(bvec2(has(keys, key), BLOCKS_OF_TILES || block_allows(query, key)));
  return has(keys, key);
}
