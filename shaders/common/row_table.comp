#version 460
// The table of packed sequences (include/rows.glsl): where each one's rows lie, and which blocks of rows a kernel has to do, those with
// most to do first. No paper's algorithm: a counting sort.
//
// What is read here is given by the caller and trusted with nothing: a start is taken to the nearest of 0 to the rows that there are, and
// to the largest start before it, so that slots do not overlap and there are no more blocks than the host reckons with; lengths are taken
// to those of slots, and to nq and nk.
//
// What a block costs is the number of tiles that its walk visits, as walk.glsl has it for the kernel itself. One workgroup does it all, for
// the whole device waits: sequences are taken by 16 lanes each, so that neither many short ones nor a few long ones leave lanes idle.
// Blocks of one cost come in any order, and kernels must not care.
//
// With PARTS it also counts the workgroups of the kernel that the table is for. Behind the last item that there is room for lie the three
// numbers that vkCmdDispatchIndirect takes, for each of the kernel's dispatches. One workgroup that is started for nothing costs little,
// but where sequences fill a few of the rows that there are, nearly all would be.
//
// Bindings: 0 starts of queries, 1 starts of keys [B+1], 2 lengths of keys, 3 lengths of queries [B], int32, anything where the constants
// say that there are none; 4 further arguments (include/more.glsl), 5 the table. Push constants: include/args.glsl, where total is the most
// workgroups that the kernel of this table can have. Workgroups: 1.
//
//   0 WG         workgroup size, a power of two from 16 to 1024
//   1 ROWS       rows of a block     2 COLUMNS   rows of a tile that it walks over
//   3 MEMBERS    query heads that share a block: its rows are ROWS of slots times MEMBERS
//   4 OWN_KEYS   1: blocks are of keys, tiles of queries
//   6 USED_KEYS, 7 USED_QUERIES   lengths are given
//   8 PARTS      workgroups of a block and head of that kernel, one for each part of the keys; 0: nothing is counted
//   9 STEP       workgroups of one of its dispatches; 0: there is one
//  10 MOST_GROUPS   of a row of a dispatch
//   5 and 58 include/mask.glsl     90..92, 100, 101 include/lengths.glsl, rows.glsl

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint ROWS = 64;
layout(constant_id = 2) const uint COLUMNS = 64;
layout(constant_id = 3) const uint MEMBERS = 1;
layout(constant_id = 4) const bool OWN_KEYS = false;
layout(constant_id = 6) const bool USED_KEYS = false;
layout(constant_id = 7) const bool USED_QUERIES = false;
layout(constant_id = 8) const uint PARTS = 0;
layout(constant_id = 9) const uint STEP = 0;
layout(constant_id = 10) const uint MOST_GROUPS = 1;

layout(set = 0, binding = 0, std430) readonly buffer QueryStarts { int query_starts[]; };
layout(set = 0, binding = 1, std430) readonly buffer KeyStarts { int key_starts[]; };
layout(set = 0, binding = 5, std430) coherent buffer Table { uint table[]; };
#define SCORE_AT 4
#define LENGTHS 2
#include "walk.glsl"

const uint SHARE = 16;       // lanes of a sequence
const uint BUCKETS = 1024;   // of costs
shared uint buckets[BUCKETS];
shared uvec2 scan[WG];

uint lid;

// Each lane's is what those before it and itself have: the largest, or with `add` the sum.
uvec2 scanned(uvec2 x, bool add) {
  for (uint step = 1; step < WG; step <<= 1) {
    barrier();
    scan[lid] = x;
    barrier();
    if (lid >= step) x = add ? x + scan[lid - step] : max(x, scan[lid - step]);
  }
  return x;
}
uvec2 last_of(uvec2 x) {
  barrier();
  if (lid == WG - 1) scan[0] = x;
  barrier();
  return scan[0];
}

// Slots begin where the largest start so far says.
void take_starts() {
  uvec2 reached = uvec2(0);
  for (uint b0 = 0; b0 <= batch; b0 += WG) {
    const uint b = b0 + lid;
    uvec2 start = uvec2(0);
    if (b <= batch) {
      if (PACKED_QUERIES) start.x = uint(clamp(query_starts[query_starts_off + b], 0, int(packed_queries)));
      if (PACKED_KEYS) start.y = uint(clamp(key_starts[key_starts_off + b], 0, int(packed_keys)));
    }
    start = max(scanned(start, false), reached);
    reached = last_of(start);
    if (b <= batch) {
      table[ROW_HEAD + ROW_WORDS * b + QUERY_START] = start.x;
      table[ROW_HEAD + ROW_WORDS * b + KEY_START] = start.y;
    }
  }
}

// An empty slot at the end begins at the last row all the same: kernels clamp rows to those that there are, and may read row 0.
void make_entries() {
  for (uint b = lid; b < batch; b += WG) {
    const uint at = ROW_HEAD + ROW_WORDS * b, next = at + ROW_WORDS;
    const uint queries = PACKED_QUERIES ? table[next + QUERY_START] - table[at + QUERY_START] : nq;
    const uint keys = PACKED_KEYS ? table[next + KEY_START] - table[at + KEY_START] : nk;
    table[at] = PACKED_QUERIES ? min(table[at + QUERY_START], packed_queries - 1) : 0;
    table[at + 1] = queries;
    table[at + 2] = min(queries, USED_QUERIES ? given_queries(b) : nq);
    table[at + 3] = PACKED_KEYS ? min(table[at + KEY_START], packed_keys - 1) : 0;
    table[at + 4] = keys;
    table[at + 5] = min(keys, USED_KEYS ? given_keys(b) : nk);
  }
}

uint own_rows;   // of the sequence that is taken, cut into blocks
void take_sequence(uint b) {
  const uint at = ROW_HEAD + ROW_WORDS * b;
  own_rows = OWN_KEYS ? table[at + 4] : table[at + 1] * MEMBERS;
  own_queries = table[at + 2]; own_keys = table[at + 5];
  move_shifts();
}
uint blocks_of_sequence() { return (own_rows + ROWS - 1) / ROWS; }

// The costliest blocks are in the first bucket.
uint bucket_of(uint block) {
  const uint first = block * ROWS, last = min(first + ROWS, own_rows) - 1;
  Walk tiles;
  if (OWN_KEYS) tiles = query_tiles(first, last, COLUMNS, 0, query_count());
  else tiles = key_tiles(first / MEMBERS, last / MEMBERS, COLUMNS);
  const uint most = ((OWN_KEYS ? nq : nk) + COLUMNS - 1) / COLUMNS;
  const uint shift = uint(max(findMSB(most) - findMSB(BUCKETS - 1), 0));
  return BUCKETS - 1 - min(tiles.end - min(tiles.begin, tiles.end) >> shift, BUCKETS - 1);
}

// How many blocks each bucket has.
void count_blocks() {
  for (uint x = lid; x < BUCKETS; x += WG) buckets[x] = 0;
  barrier();
  for (uint b = lid / SHARE; b < batch; b += WG / SHARE) {
    take_sequence(b);
    for (uint block = lid % SHARE; block < blocks_of_sequence(); block += SHARE) atomicAdd(buckets[bucket_of(block)], 1);
  }
  barrier();
}
// Where each bucket begins, in place; the number of all.
uint place_buckets() {
  const uint own = BUCKETS / WG;
  uint sum = 0;
  for (uint x = 0; x < own; ++x) sum += buckets[lid * own + x];
  const uvec2 all = scanned(uvec2(sum, 0), true);
  uint at = all.x - sum;
  for (uint x = 0; x < own; ++x) {
    const uint n = buckets[lid * own + x];
    buckets[lid * own + x] = at;
    at += n;
  }
  return last_of(all).x;
}
void put_blocks() {
  for (uint b = lid / SHARE; b < batch; b += WG / SHARE) {
    take_sequence(b);
    for (uint block = lid % SHARE; block < blocks_of_sequence(); block += SHARE) {
      const uint at = ROW_HEAD + ROW_WORDS * (batch + 1) + 2 * atomicAdd(buckets[bucket_of(block)], 1);
      table[at] = b; table[at + 1] = block;
    }
  }
}

// The groups of each dispatch, split as Grid.Size of internal/kernel/grid.go has it: what is rounded up is not work, and ends at once.
void put_counts(uint blocks) {
  const uint of_block = (OWN_KEYS ? key_heads() : heads() / MEMBERS) * PARTS;
  const uint at = ROW_HEAD + ROW_WORDS * (batch + 1) + 2 * (total / of_block);
  const uint groups = blocks * of_block, step = STEP == 0 ? total : STEP;
  for (uint i = lid; i <= (total - 1) / step; i += WG) {
    const uint n = min(max(groups, i * step) - i * step, step), y = max((n + MOST_GROUPS - 1) / MOST_GROUPS, 1);
    table[at + 3 * i] = (n + y - 1) / y; table[at + 3 * i + 1] = y; table[at + 3 * i + 2] = 1;
  }
}

void main() {
  lid = gl_LocalInvocationIndex;
  take_starts();
  memoryBarrierBuffer(); barrier();
  make_entries();
  memoryBarrierBuffer(); barrier();
  count_blocks();
  const uint all = place_buckets();
  if (lid == 0) table[0] = all;
  put_blocks();
  if (PARTS > 0) put_counts(all);
}
