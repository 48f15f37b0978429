// Which keys a query may attend to. No other file knows, but for walk.glsl, which makes tiles of it; on the host it is internal/attn.Mask.
//
// By position, the allowed keys of a query are a span, and so are the queries of a key; both ends of a span only ever move on from row to
// row. Two bounds make them: key j is allowed for query i iff i + first_shift <= j (LOWER_BOUND: a window) and j <= i + last_shift
// (UPPER_BOUND: causal order, or a window).
//
// A kernel that defines BLOCKS as a binding can do with a block mask besides, where BLOCK_MASK is true: which blocks of BLOCK_ROWS queries
// by BLOCK_KEYS keys take part is given then, a bit each, in that binding, which is there with BLOCK_MASK false too. A mask is a row of
// words for each row of blocks, bit c % 32 of word c / 32 for column c, and behind them one for each column of blocks, bit r % 32 of word
// r / 32 for row r: the same bits again, for kernels that own keys and walk over queries (internal/kernel/blocks.go writes both). Bits
// beyond the last are 0. There is a mask for each batch entry with BLOCK_PER_BATCH, for each query head of it with BLOCK_PER_HEAD, else one
// for all. Where blocks are whole tiles (BLOCKS_OF_TILES) tiles without a bit are left out, and that is all there is to do; else each score
// of a tile looks its bit up.
//
// With BLOCK_CLASSES the bits are what mask functions make of the blocks (common/mask_classes.comp): a block without a bit has no pair that
// bounds and functions allow. Behind the words of each mask lie as many again, in the same order, with a bit for each block of which the
// functions allow every pair that the bounds do: it is whole. In the others with a bit, the edges, functions are asked of each pair.
//
// With lengths (lengths.glsl) queries and keys beyond those of the batch entry are neither seen nor see anything. Blocks count from the
// entry's first query and key whatever its lengths are, and so do those of packed sequences: each has the top left corner of a mask that is
// as large as the longest needs. Classes are then those of all pairs, without bounds, whose place depends on lengths.
//
// Needs nq, nk, first_shift and last_shift among the push constants; with BLOCKS also heads(), and BR and BC, queries and keys of a tile,
// or keys and queries where KV is defined, which says that rows are keys.

#include "lengths.glsl"

layout(constant_id = 5) const bool UPPER_BOUND = false;
layout(constant_id = 58) const bool LOWER_BOUND = false;

// Whether later queries may attend to more keys than earlier ones, so that blocks of queries, and of keys, differ in what there is to do.
const bool UNEVEN = UPPER_BOUND && !LOWER_BOUND;

// Positions first to last, both included; none where last < first.
struct Span { int first, last; };

// The keys that a query may attend to, and the queries that may attend to a key. Neither looks whether the other exists: beyond the last
// query or key it goes on as before, except that a query beyond the length of its batch entry sees nothing.
Span keys_of(uint query) {
  const int last = query_exists(query) ? int(key_count()) - 1 : -1;
  return Span(LOWER_BOUND ? max(int(query) + low_shift(), 0) : 0, UPPER_BOUND ? min(last, int(query) + high_shift()) : last);
}
Span queries_of(uint key) {
  const int last = int(query_count()) - 1;
  return Span(UPPER_BOUND ? max(int(key) - high_shift(), 0) : 0, LOWER_BOUND ? min(last, int(key) - low_shift()) : last);
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
  return UPPER_BOUND && int(key) > int(query) + high_shift() || LOWER_BOUND && int(key) < int(query) + low_shift();
}

#ifdef BLOCKS
layout(constant_id = 59) const bool BLOCK_MASK = false;
layout(constant_id = 60) const uint BLOCK_ROWS = 64;
layout(constant_id = 61) const uint BLOCK_KEYS = 64;
layout(constant_id = 62) const bool BLOCK_PER_HEAD = false;
layout(constant_id = 72) const bool BLOCK_PER_BATCH = false;
layout(constant_id = 81) const bool BLOCK_CLASSES = false;
#ifdef KV
const uint BLOCK_OWN = BLOCK_KEYS, BLOCK_WALKED = BLOCK_ROWS;   // length of a block across and along the walk
#define OWN_LENGTH nk
#define WALKED_LENGTH nq
#else
const uint BLOCK_OWN = BLOCK_ROWS, BLOCK_WALKED = BLOCK_KEYS;
#define OWN_LENGTH nq
#define WALKED_LENGTH nk
#endif
const bool BLOCKS_OF_TILES = BLOCK_OWN % BR + BLOCK_WALKED % BC == 0;
const bool BLOCKS_BY_SCORE = BLOCK_MASK && !BLOCKS_OF_TILES && !BLOCK_CLASSES;   // of classes, functions say as much

layout(set = 0, binding = BLOCKS, std430) readonly buffer Blocks_ { uint block_bits[]; };

uint block_words;              // of a row of bits, which is a row of blocks, or where rows are keys a column of them
uint block_head;               // word at which those of the head begin
uint block_whole;              // BLOCK_CLASSES: how many words further on it says which are whole
uint block_row0, block_rows;   // of bits that the workgroup's rows touch: the first, and how many

// For the BR rows from row0 on of a query head. Slots of packed sequences may have more rows than a mask has blocks for (rows.glsl), which
// see nothing: those are of the last block.
void take_blocks(uint b, uint head, uint first) {
  const uint row0 = PACKED ? min(first, OWN_LENGTH - 1) : first;
  const uint own = (OWN_LENGTH + BLOCK_OWN - 1) / BLOCK_OWN, walked = (WALKED_LENGTH + BLOCK_WALKED - 1) / BLOCK_WALKED;
  block_words = (walked + 31) / 32;
  const uint words = own * block_words, others = walked * ((own + 31) / 32);
  block_head = ((BLOCK_PER_BATCH ? b * (BLOCK_PER_HEAD ? heads() : 1) : 0) + (BLOCK_PER_HEAD ? head : 0)) * (words + others);
  if (BLOCK_CLASSES) { block_head *= 2; block_whole = words + others; }
#ifdef KV
  block_head += others;
#endif
  block_row0 = row0 / BLOCK_OWN;
  block_rows = BLOCKS_OF_TILES ? 1 : (min(row0 + BR, OWN_LENGTH) - 1) / BLOCK_OWN - block_row0 + 1;
}

// Whether the block of a score is attended to. Beyond the last query or key it is that of the last.
bool block_allows(uint query, uint key) {
#ifdef KV
  const uint own = key, walked = query;
#else
  const uint own = query, walked = key;
#endif
  const uint c = min(walked, WALKED_LENGTH - 1) / BLOCK_WALKED;
  return (block_bits[block_head + min(own, OWN_LENGTH - 1) / BLOCK_OWN * block_words + c / 32] >> (c % 32) & 1u) != 0;
}

// With BLOCK_CLASSES: whether a tile lies in a block that is whole, so that functions need not be asked.
bool is_whole_block(uint tile) {
  const uint c = tile * BC / BLOCK_WALKED;
  return BLOCKS_OF_TILES && (block_bits[block_head + block_whole + block_row0 * block_words + c / 32] >> (c % 32) & 1u) != 0;
}
#else
const bool BLOCK_MASK = false, BLOCKS_OF_TILES = true, BLOCK_CLASSES = false, BLOCKS_BY_SCORE = false;
void take_blocks(uint b, uint head, uint row0) {}
bool block_allows(uint query, uint key) { return true; }
bool is_whole_block(uint tile) { return false; }
#endif

// Whether a query attends to a key, in a tile that it visits; keys is what keys_of says of the query.
bool allowed(Span keys, uint query, uint key) {
  if (BLOCK_MASK) return all(bvec2(has(keys, key), !BLOCKS_BY_SCORE || block_allows(query, key)));
  return has(keys, key);
}
