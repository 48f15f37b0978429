#version 460
// Lists of keys turned round, for the gradients of keys and values: which queries list each key, in the order of queries, so that sums
// over them have one order. A counting sort (Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", section 8.2) in three steps.
// Queries are cut into CHUNKS, each a workgroup's:
//
//   0  how often a chunk lists each key: counts[matrix, chunk, key]
//   1  where each key's queries begin: starts[matrix, key], nk + 1 of them; counts become where each chunk's part of them begins
//   2  the queries: entries[matrix, starts[key] ...], of nq list_keys there may be
//
// A matrix is a batch entry or, with LISTS_PER_HEAD, a key head of one. The last step takes one query after the other, with a barrier
// between, and a list has a key once: whichever invocation comes first, the order is that of queries. (What an entry that is there twice
// writes is the same number, in either order.) What a query does not see by its position is in no list, nor are numbers that are no keys.
//
// Bindings: 0 the lists, 1 counts, 2 starts, 3 entries, 4 lengths of keys and 5 of queries (include/lengths.glsl), 6 further arguments.
// Push constants: include/args.glsl. Workgroups: CHUNKS for each matrix, of step 1 one.
//
//   0 WG     workgroup size
//   1 STEP   0, 1, 2
//   2 CHUNKS of queries
//   5 and 58 include/mask.glsl   90..92, 100, 101 include/lengths.glsl   116 include/lists.glsl

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint STEP = 0;
layout(constant_id = 2) const uint CHUNKS = 1;

layout(set = 0, binding = 1, std430) coherent buffer ListCounts_ { uint counts[]; };
layout(set = 0, binding = 2, std430) buffer ListStarts_ { uint starts[]; };
layout(set = 0, binding = 3, std430) buffer ListEntries_ { uint entries[]; };
#define SCORE_AT 6
#define LENGTHS 4
#include "mask.glsl"
#define LISTS_AT 0
#include "lists.glsl"

shared uint scan[WG];

uint lid, matrix, b, kh;
uint at;                     // of the chunk's counts
uint first_query, end_query; // of the chunk

void count() {
  for (uint key = lid; key < nk; key += WG) counts[at + key] = 0;
  memoryBarrierBuffer();
  barrier();
  for (uint query = first_query; query < end_query; ++query) {
    take_list(b, kh, query);
    for (uint place = lid; place < list_keys; place += WG) {
      const uint key = listed_key(place);
      if (key != NO_KEY) atomicAdd(counts[at + key], 1);
    }
  }
}

void add_up() {
  uint before = 0;
  for (uint key0 = 0; key0 < nk; key0 += WG) {
    const uint key = key0 + lid;
    uint own = 0;
    if (key < nk) for (uint c = 0; c < CHUNKS; ++c) own += counts[(matrix * CHUNKS + c) * nk + key];
    uint sum = own;   // with those before it
    for (uint step = 1; step < WG; step <<= 1) {
      barrier();
      scan[lid] = sum;
      barrier();
      if (lid >= step) sum += scan[lid - step];
    }
    barrier();
    if (lid == WG - 1) scan[0] = sum;
    barrier();
    uint next = before + sum - own;
    before += scan[0];
    if (key < nk) {
      starts[matrix * (nk + 1) + key] = next;
      for (uint c = 0; c < CHUNKS; ++c) {
        const uint i = (matrix * CHUNKS + c) * nk + key, n = counts[i];
        counts[i] = next;
        next += n;
      }
    }
    barrier();   // scan[0] has been read
  }
  if (lid == 0) starts[matrix * (nk + 1) + nk] = before;
}

void fill() {
  for (uint query = first_query; query < end_query; ++query) {
    take_list(b, kh, query);
    for (uint place = lid; place < list_keys; place += WG) {
      const uint key = listed_key(place);
      if (key != NO_KEY) entries[matrix * nq * list_keys + atomicAdd(counts[at + key], 1)] = query;
    }
    memoryBarrierBuffer();
    barrier();
  }
}

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  lid = gl_LocalInvocationIndex;
  matrix = STEP == 1 ? id : id / CHUNKS;
  b = LISTS_PER_HEAD ? matrix / key_heads() : matrix;
  kh = LISTS_PER_HEAD ? matrix % key_heads() : 0;
  take_lengths(b);
  if (STEP == 1) { add_up(); return; }
  const uint chunk = id % CHUNKS, queries = (nq + CHUNKS - 1) / CHUNKS;
  first_query = chunk * queries;
  end_query = min(first_query + queries, nq);
  at = (matrix * CHUNKS + chunk) * nk;
  if (STEP == 0) count(); else fill();
}
