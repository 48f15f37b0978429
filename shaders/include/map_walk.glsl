// Which queries and keys a workgroup of a kernel that makes maps visits: those of rows of pieces for each of its groups, side by side, by
// the keys of a band of columns, block of queries by block. Tiles begin at the first key of the band, so that columns that divide a tile
// end where tiles do; tiles that no query of the blocks sees are left out, but for those that a block mask alone leaves out.
//
// Bands of a row of groups lie side by side; where later queries see more keys their groups go first, those of all heads together.
//
// Needs map_cells.glsl and walk.glsl. A kernel defines BC, the keys of a tile, and
//   take_head()             the head map_h of batch entry map_b is what is worked on
//   take_rows()             the group's block of queries is that from map_row0 on
//   key_tile(key0, edge)    adds the weights of a tile; edge: not all of its pairs are seen, or the band's;
//                           a constant with THREE_LOOPS

uint map_b, map_h;
uint band_end;   // the end of the band's keys

void take_head();
void take_rows();
void key_tile(uint key0, bool edge);

void make_map(uint id) {
  const uint rows = map_rows * (cut & 0xffffu), columns = map_columns * (cut >> 16), own = group_rows * GROUPS;
  const uint blocks = (rows + own - 1) / own, band = id % bands, matrices = total / bands / blocks;
  const uint matrix = UNEVEN ? id / bands % matrices : id / bands / blocks;
  const uint first_y = longest_first(UNEVEN ? id / bands / matrices : id / bands % blocks, blocks) * own, end_y = min(first_y + own, rows);
  map_b = first_batch + matrix / map_heads;
  map_h = first_head + matrix % map_heads;
  take_lengths(map_b);
  scores_of(map_b, map_h);
  take_head();

  picture = o_off() + matrix / map_heads * o_sb + matrix % map_heads * o_sh;
  y0 = min(first_y + map_group * group_rows, rows);
  y1 = min(y0 + group_rows, rows);
  map_rows_end = row_begin(y1);
  const uint x0 = part_begin(band, columns, bands);
  x1 = part_begin(band + 1, columns, bands);
  const uint first = column_begin(x0);
  band_end = column_begin(x1);

  // The most queries of a group, and where the last one begins.
  uint most = 0, last = first_y;
  for (uint y = first_y; y < end_y; y += group_rows) {
    most = max(most, row_begin(min(y + group_rows, end_y)) - row_begin(y));
    last = y;
  }
  for (uint from = 0; from < most; from += ROWS) {
    if (from > 0) { memoryBarrierBuffer(); barrier(); }   // cells that blocks share
    begin_block(row_begin(y0) + from, x0);
    take_rows();
    const uint row = row_begin(first_y) + from;
    const Walk seen = key_tiles(row, max(row, min(row_begin(last) + from + ROWS, row_begin(end_y)) - 1), 1);   // key by key
    const uint begin = clamp(seen.begin, first, band_end), end = clamp(seen.end, begin, band_end);
    uint key = first + (min(begin, band_end - 1) - first) / BC * BC;
    skip_columns(key);
#ifdef THREE_LOOPS
    // The driver merges phases of one loop, which puts the mask code into the main loop; loops it leaves alone. A tile at least is masked
    // where there is none.
    const uint whole_end = BLOCK_MASK ? 0 : min(seen.whole_end, band_end), last_key = max(end, key + 1);
    if (LOWER_BOUND || QUERY_LENGTHS) [[dont_unroll]] for (; key < min(seen.whole_begin, last_key); key += BC) key_tile(key, true);
    [[dont_unroll]] for (; key + BC <= whole_end; key += BC) key_tile(key, false);
    [[dont_unroll]] for (; key < last_key; key += BC) key_tile(key, true);
#else
    do {   // one tile at least, if only to mask it: see docs/notes.md on loops that no invocation enters
      key_tile(key, BLOCK_MASK || key < seen.whole_begin || key + BC > min(seen.whole_end, band_end));
      key += BC;
    } while (key < end);
#endif
    end_block(band_end);
  }
}
