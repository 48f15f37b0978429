// The block mask of the forward kernels built with BLOCK_MASK: which blocks of BLOCK_ROWS queries by BLOCK_KEYS keys take part in
// attention, a bit each. Bit c % 32 of word (head * block rows + r) * words + c / 32 is block (r, c), with words = ceil(block columns /
// 32), and head 0 for all unless BLOCK_PER_HEAD (flash/blockmask.go writes it). Bits beyond the last column are 0.
//
// The loop over tiles walks from one tile that holds some of the mask to the next: what lies between is neither read nor computed. Where
// blocks are whole tiles (BLOCKS_OF_TILES) that is all there is to do; else each score of a tile looks its bit up.
//
// Needs BR, BC (tile) and args.glsl.

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

// The first tile from t on, below end, that holds a key of a block that one of the queries attends to; end if there is none, whatever t is.
// The loop is entered at least once: see docs/notes.md on loops that no invocation enters.
uint next_tile(uint t, uint end) {
  uint found = end, word = min(t * BC / BLOCK_KEYS / 32, block_words - 1);
  uint from = ~0u << (t * BC / BLOCK_KEYS % 32);
  do {
    uint bits = 0;
    for (uint r = 0; r < block_rows; ++r) bits |= block_bits[block_head + (block_row0 + r) * block_words + word];
    bits &= from;
    from = ~0u;
    if (bits != 0) { found = min(end, max(t, (word * 32 + findLSB(bits)) * BLOCK_KEYS / BC)); break; }
  } while (++word < block_words);
  return found;
}

// Whether the block of a score is attended to. Beyond the last query or key it is that of the last.
bool block_allows(uint query, uint key) {
  const uint c = min(key, nk - 1) / BLOCK_KEYS;
  return (block_bits[block_head + min(query, nq - 1) / BLOCK_ROWS * block_words + c / 32] >> (c % 32) & 1u) != 0;
}
