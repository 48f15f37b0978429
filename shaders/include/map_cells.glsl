// How attention weights become the cells of a picture, for the kernels that make maps: scalar_map.comp and matrix_map.comp.
//
// A map divides a rectangle of queries and keys into map_rows x map_columns cells. Cell row y holds the queries from first_query + floor(y
// queries / map_rows) up to where row y + 1 begins; columns likewise. A cell's value is the sum of P over its pairs, the mean, which is
// that sum over the number of its pairs, seen or not (`wanted` says which), or with LARGEST the largest. Where there are too few cells to
// fill a device, each is cut into pieces in the same way, of which the host has map_ends.comp make cells; without a cut a piece is a cell.
//
// A group of LANES invocations owns group_rows rows of pieces, and takes their queries ROWS at a time. It walks over the keys of its band
// of columns in order, and each invocation adds weights of some of the rows up in registers. Where a column ends, which is at the same key
// for all, sums go to shared memory; once PENDING columns have ended, the group adds up the rows of each piece. No two groups share a
// piece, and every sum has a fixed order: the same inputs give the same bits. A long row of weights is added up tile by tile and then the
// tiles', so that many small ones are not lost beside a large sum.
//
// Where blocks of queries lie in one row of pieces, one after the other, later ones add to what the first has written.
//
// With STATISTICS there is no picture: for each query of the rectangle out gets the entropy of its weights, -sum of p log p, and distance
// the mean distance of its keys, sum of p |i + Nk - Nq - j| over the sum of p; 0 where it sees no key; `wanted` says which.
// map_rows is queries then, map_columns and bands are 1.
//
// A kernel defines LANES, ROWS, TILE_KEYS (at most 32, a bit each of a word), GROUPS of a workgroup, GROUP_BARRIER (all of a group have
// reached it, and see what it wrote to shared memory), `lane` and `map_group`, and of the rows of which an invocation adds up weights, all
// or some, ROWS_EACH:
//   row_of_sum(x)     the x-th of them, among ROWS
//   whole_sum(s)      the sum of a row of which invocations have the sums s
//   HAS_SUMS          whether the invocation is the one of these that hands it on
//   add_keys(own)     adds weights of keys of the tile to tile_keys: those whose bits are set, or all where `own` is ~0
//   add_statistics()  hands all of the tile to take_pair()

layout(constant_id = 14) const bool LARGEST = false;
layout(constant_id = 15) const bool STATISTICS = false;

const uint PENDING = LANES < 16 ? LANES : 16;
const uint ENDED_PITCH = PENDING + 1, ENDED_ROWS = ROWS < LANES ? LANES : ROWS;

layout(set = 0, binding = 3, std430) coherent buffer Cells { float cells[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Distances { float distances[]; };

shared float ended[GROUPS * ENDED_ROWS * ENDED_PITCH];

// Where the n-th of so many parts of `length` begins, and the same of pieces. n parts is below 2^32.
uint part_begin(uint n, uint length, uint parts) { return n * (length / parts) + n * (length % parts) / parts; }
uint piece_begin(uint n, uint length, uint parts, uint pieces) {
  const uint cell = n / pieces, first = part_begin(cell, length, parts);
  return pieces == 1 ? first : first + part_begin(n % pieces, part_begin(cell + 1, length, parts) - first, pieces);
}
uint row_begin(uint y) { return first_query + piece_begin(y, queries, map_rows, cut & 0xffffu); }
uint column_begin(uint x) { return first_key + piece_begin(x, keys, map_columns, cut >> 16); }

// Weights are not negative: their bits are in the order of their numbers, and those of NaN above all, which max(a, b) might drop.
float joined(float a, float b) { return LARGEST ? uintBitsToFloat(max(floatBitsToUint(a), floatBitsToUint(b))) : a + b; }

uint y0, y1;                  // rows of pieces of the group
uint x1;                      // the end of the band
uint map_row0, map_rows_end;  // first query of the block, and the end of those that the group owns
uint picture;                 // element of out at which the picture of this head begins
uint column, column_end;      // which column is added up, and the key at which it ends
uint pending;                 // columns that have ended
float all_keys[ROWS_EACH], tile_keys[ROWS_EACH];               // of the column: of tiles before, and of this one
vec3 row_sums[ROWS_EACH], tile_sums[ROWS_EACH], lost[ROWS_EACH];   // STATISTICS: of p, p log2 p and p times the distance

uint row_of_sum(uint x);
float whole_sum(float s);
void add_keys(uint own);
void add_statistics();

uint query_of_sum(uint x) { return map_row0 + row_of_sum(x); }

void put_piece(uint y, uint x, float value) {
  const uint to = picture + y * o_sn + x;
  if ((wanted & 1u) != 0u) value /= float(row_begin(y + 1) - row_begin(y)) * float(column_begin(x + 1) - column_begin(x));
  if (row_begin(y) >= map_row0) cells[to] = value; else cells[to] = joined(cells[to], value);
}

#define ONE_ROW (group_rows == 1)   // all queries of the group are of one row of pieces, and of each group beside it

// Columns that have ended become pieces.
void add_rows() {
  GROUP_BARRIER
  if (ONE_ROW) {   // whatever of a row each invocation has
    if (lane < pending && map_row0 < map_rows_end) {
      const uint at = map_group * ENDED_ROWS * ENDED_PITCH + lane;
      float value = ended[at];
      [[unroll]] for (uint i = 1; i < LANES; ++i) value = joined(value, ended[at + i * ENDED_PITCH]);
      put_piece(y0, column - pending + lane, value);
    }
    pending = 0;
    GROUP_BARRIER
    return;
  }
  const uint end = min(map_row0 + ROWS, map_rows_end);
  for (uint i = lane; i < (y1 - y0) * pending; i += LANES) {
    const uint y = y0 + i / pending, c = i % pending;
    const uint from = max(row_begin(y), map_row0), to = min(row_begin(y + 1), end);
    if (from >= to) continue;
    uint at = (map_group * ENDED_ROWS + from - map_row0) * ENDED_PITCH + c;
    float value = ended[at];
    for (uint q = from + 1; q < to; ++q) value = joined(value, ended[at += ENDED_PITCH]);
    put_piece(y, column - pending + c, value);
  }
  pending = 0;
  GROUP_BARRIER
}
// Where the column ends; NEVER where there is none. The next one's end is column_begin(column + 1) without a division: of
// keys (column + 1) / map_columns, what the division leaves over grows by the same number, and gives a key more where it is a whole one.
const uint NEVER = 0xffffffffu;
uint left_over;
void find_column() {
  column_end = column < x1 ? column_begin(column + 1) : NEVER;
  left_over = (column + 1) * (keys % map_columns) % map_columns;
}
void next_column() {
  if (column >= x1) column_end = NEVER;
  else if (cut >> 16 == 1u) {
    column_end += keys / map_columns;
    left_over += keys % map_columns;
    if (left_over >= map_columns) { left_over -= map_columns; ++column_end; }
  } else find_column();
}

// The column has ended; add_rows() must follow where PENDING have.
void close_column() {
  if (ONE_ROW) {
    float sum = joined(all_keys[0], tile_keys[0]);
    [[unroll]] for (uint x = 1; x < ROWS_EACH; ++x) sum = joined(sum, joined(all_keys[x], tile_keys[x]));
    ended[(map_group * ENDED_ROWS + lane) * ENDED_PITCH + pending] = sum;
  } else [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) {
    const float sum = whole_sum(joined(all_keys[x], tile_keys[x]));
    if (HAS_SUMS) ended[(map_group * ENDED_ROWS + row_of_sum(x)) * ENDED_PITCH + pending] = sum;
  }
  [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) all_keys[x] = tile_keys[x] = 0;
  ++pending;
  ++column;
  next_column();
}

// Nobody sees a key of the columns from this one up to that which ends after `key`, or the last: none of them was begun.
void skip_columns(uint key) {
  if (STATISTICS || column_end > key) return;
  uint low = column, high = x1;
  while (low < high) {
    const uint middle = (low + high) / 2;
    if (column_begin(middle + 1) <= key) low = middle + 1; else high = middle;
  }
  const uint none = low - column, end = min(map_row0 + ROWS, map_rows_end);
  for (uint i = lane; i < (y1 - y0) * none; i += LANES) {
    const uint y = y0 + i / none;
    if (row_begin(y) >= map_row0 && row_begin(y) < end) cells[picture + y * o_sn + column + i % none] = 0;
  }
  column = low;
  find_column();
}

// STATISTICS: a weight, -log2 of it, anything where it is 0, and its key.
void take_pair(uint x, float p, float bits, uint key) {
  if (p == 0) return;
  tile_sums[x] += p * vec3(1, bits, abs(int(query_of_sum(x) + key_count()) - int(query_count() + key)));
}

// The tile of keys from key0 on, of which those from `end` on are not the band's, once its weights are made.
void add_tile(uint key0, uint end) {
  if (STATISTICS) {
    add_statistics();
    // Tiles are added up with what is lost by rounding kept aside (Kahan, 1965): of a million keys each may be far below the sum.
    [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) {
      precise const vec3 term = tile_sums[x] - lost[x], sum = row_sums[x] + term;
      precise const vec3 gained = sum - row_sums[x];
      lost[x] = gained - term;
      row_sums[x] = sum;
      tile_sums[x] = vec3(0);
    }
    return;
  }
  // Keys of one column at a time, from the `done`-th on; most often they are one column's all.
  uint done = 0;
  do {
    const uint to = min(column_end - key0, TILE_KEYS);
    add_keys(to - done == TILE_KEYS ? ~0u : (to == 32 ? ~0u : (1u << to) - 1u) & ~0u << done);
    if (column_end - key0 == to) {
      close_column();
      if (pending == PENDING) add_rows();
    }
    done = to;
  } while (done < TILE_KEYS);
  [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) { all_keys[x] = joined(all_keys[x], tile_keys[x]); tile_keys[x] = 0; }
}

// A block of queries from `row` on, before its first key, which is that of column x.
void begin_block(uint row, uint x) {
  map_row0 = row;
  column = x;
  find_column();
  pending = 0;
  [[unroll]] for (uint i = 0; i < ROWS_EACH; ++i) { all_keys[i] = tile_keys[i] = 0; row_sums[i] = tile_sums[i] = lost[i] = vec3(0); }
}
// After the last tile; `end` is the end of the band's keys.
void end_block(uint end) {
  if (!STATISTICS) {
    if (column < x1) close_column();
    add_rows();
    skip_columns(end);
    return;
  }
  [[unroll]] for (uint x = 0; x < ROWS_EACH; ++x) {
    const uint row = query_of_sum(x), to = row - first_query;
    const float sum = whole_sum(row_sums[x].x), entropy = whole_sum(row_sums[x].y), distance = whole_sum(row_sums[x].z);
    if (HAS_SUMS && row < map_rows_end) {
      if ((wanted & 2u) != 0u) cells[picture + to] = entropy * LN2;
      if ((wanted & 4u) != 0u) distances[picture - o_off() + distance_off() + to] = sum == 0 ? 0 : distance / sum;
    }
  }
}
