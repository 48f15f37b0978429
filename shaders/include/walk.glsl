// Which tiles a workgroup visits: of keys for a block of queries, of queries for a block of keys; on the host internal/attn.Walk. Tiles
// from begin up to end hold something that some row of the block may attend to. In those from whole_begin up to whole_end every row may
// attend to all, so that they need no mask. Kernels have a loop without mask code for these, another for the edges.
//
// Needs what mask.glsl needs.

#include "mask.glsl"

struct Walk { uint begin, whole_begin, whole_end, end; };

bool is_whole(Walk walk, uint tile) { return tile >= walk.whole_begin && tile < walk.whole_end; }

// Tiles of `size` keys for queries first to last.
Walk key_tiles(uint first, uint last, uint size) {
  const Span a = keys_of(first), b = keys_of(QUERY_LENGTHS ? min(last, max(first, last_query())) : last);
  Walk w = Walk(0, 0, end_of(a) / size, (end_of(b) + size - 1) / size);
  if (LOWER_BOUND) {
    w.begin = min(uint(a.first) / size, w.end);
    w.whole_begin = min((uint(b.first) + size - 1) / size, w.end);
    w.whole_end = max(w.whole_end, w.whole_begin);
  }
  if (QUERY_LENGTHS) { if (!query_exists(last)) w.whole_begin = w.whole_end = w.begin; }   // it sees nothing
  return w;
}

// Tiles of `size` queries for keys first to last; there are `queries` of them from query `origin` on. A kernel that takes queries beyond
// the last for what they are in every tile gives a multiple of size.
Walk query_tiles(uint first, uint last, uint size, uint origin, uint queries) {
  const Span a = queries_of(first), b = queries_of(last);
  const uint end = (queries + size - 1) / size;
  const uint a_begin = uint(clamp(a.first - int(origin), 0, int(queries))), b_begin = uint(clamp(b.first - int(origin), 0, int(queries)));
  Walk w = Walk(a_begin == queries ? end : a_begin / size, min((b_begin + size - 1) / size, end), queries / size, end);
  if (LOWER_BOUND) {
    w.whole_end = min(w.whole_end, uint(max(a.last + 1 - int(origin), 0)) / size);
    w.end = max(w.begin, min(end, (uint(max(b.last + 1 - int(origin), 0)) + size - 1) / size));
    w.whole_begin = min(w.whole_begin, w.end);
  }
  w.whole_end = max(w.whole_end, w.whole_begin);
  if (KEY_LENGTHS) { if (first >= key_count()) w = Walk(end, end, end, end); }
  return w;
}

// The tiles of part `part` of `parts`. Parts differ by one tile at most, and the first ones have more.
Walk part_of(Walk walk, uint part, uint parts) {
  const uint tiles = walk.end - walk.begin, least = tiles / parts, more = tiles % parts;
  walk.begin += part * least + min(part, more);
  walk.end = walk.begin + least + (part < more ? 1 : 0);
  return walk;
}

// Which block of which matrix (head, batch included) a workgroup takes. Where they differ (UNEVEN), the
// blocks with most to do go first, those of all matrices together: a long block that begins late is waited for by the whole device. Of
// packed sequences the table of rows.glsl knows the blocks, which differ as sequences do, and is_work() is false for workgroups beyond
// them; there are so many heads, of queries or of keys, for each.
struct Place { uint matrix, block; };
bool is_work(uint id, uint of_heads) { return !PACKED || id / of_heads < items(); }
Place place_of_item(uint id, uint of_heads) {
  const uvec2 at = item(id / of_heads);
  return Place(at.x * of_heads + id % of_heads, at.y);
}
Place place_of_queries(uint id, uint blocks, uint matrices) {
  if (PACKED) return place_of_item(id, heads());
  return Place(UNEVEN ? id % matrices : id / blocks, UNEVEN ? blocks - 1 - id / matrices : id % blocks);
}
Place place_of_keys(uint id, uint blocks, uint matrices) {
  if (PACKED) return place_of_item(id, key_heads());
  return Place(UNEVEN ? id % matrices : id / blocks, UNEVEN ? id / matrices : id % blocks);
}
// The same for kernels that have an order of matrices of their own: the block of queries that is the i-th to go. (The i-th block of keys
// is block i.)
uint longest_first(uint i, uint blocks) { return UNEVEN ? blocks - 1 - i : i; }

// With BLOCK_MASK, after take_blocks: the first tile from t on, below end, that holds a key of a block that one of the queries attends to,
// or where rows are keys a query of a block that attends to one of the keys; end if there is none, whatever t is. What lies between two
// such tiles is neither read nor computed. The loop is entered at least once: see docs/notes.md on loops that no invocation enters.
// With BLOCK_CLASSES, and BLOCKS_OF_TILES, it may be a tile of edges alone that is looked for, or of a whole block.
const uint ANY = 0, EDGE = 1, WHOLE = 2;
uint next_tile(uint t, uint end, uint of) {
#ifdef BLOCKS
  uint found = end, word = min(t * BC / BLOCK_WALKED / 32, block_words - 1);
  uint from = ~0u << (t * BC / BLOCK_WALKED % 32);
  do {
    uint bits = 0;
    for (uint r = 0; r < block_rows; ++r) bits |= block_bits[block_head + (block_row0 + r) * block_words + word];
    if (BLOCK_CLASSES && of != ANY) {
      const uint whole = block_bits[block_head + block_whole + block_row0 * block_words + word];
      bits = of == EDGE ? bits & ~whole : whole;
    }
    bits &= from;
    from = ~0u;
    if (bits != 0) { found = min(end, max(t, (word * 32 + findLSB(bits)) * BLOCK_WALKED / BC)); break; }
  } while (++word < block_words && word * 32 * BLOCK_WALKED < end * BC);
  return found;
#else
  return t;
#endif
}
uint next_tile(uint t, uint end) { return next_tile(t, end, ANY); }

// With BLOCK_CLASSES, and BLOCKS_OF_TILES: next_tile of tiles that are not whole, by bounds or by functions; its end is the walk's.
uint next_edge(uint t, Walk walk) {
  uint found, stop;
  do {
    const bool inside = is_whole(walk, t);
    stop = t < walk.whole_begin ? walk.whole_begin : inside ? walk.whole_end : walk.end;
    found = next_tile(t, stop, inside ? EDGE : ANY);
    t = stop;
  } while (found == stop && stop < walk.end);
  return found;
}
// Kernels with two loops take the edges first and the tiles that are whole after them, numbered from the walk's end on: the first number
// from n on that there is, and end_of_classes if there is none.
uint next_of_classes(uint n, Walk walk) {
  uint found = n;
  if (n < walk.end) { found = next_edge(n, walk); n = walk.end; }
  if (found >= walk.end) found = walk.end + next_tile(max(n - walk.end, walk.whole_begin), walk.whole_end, WHOLE);
  return found;
}
uint end_of_classes(Walk walk) { return walk.end + walk.whole_end; }
// The same after number n, which is one of them or beyond: within a block that is whole there is nothing to look up.
uint after_of_classes(uint n, Walk walk) {
#ifdef BLOCKS
  if (n >= walk.end && n + 1 < end_of_classes(walk) && (n + 1 - walk.end) * BC % BLOCK_WALKED != 0) return n + 1;
#endif
  return next_of_classes(n + 1, walk);
}
