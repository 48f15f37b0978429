// What the kernels for few rows share: scalar_decode.comp and matrix_decode.comp. A workgroup takes ROWS rows of a key head,
// row = query group + member, of query head (key head) group + member, and one of PARTS parts of the batches of BATCH keys that they see.
// Its subgroups take batches in turn, each with m, l and O of its own; these meet in shared memory at the end, MEET rows at a time. With
// ROWS_SHARED (matrix_latent.comp) they compute each batch together.
//
// In builds for lists (LISTS) a workgroup's rows are those of one query, and it walks over places in the query's list (lists.glsl).
//
// Needs walk.glsl, sinks.glsl, dtype.glsl with OUTPUT(o, 3), sums[] and lse[], and of the kernel: WG, SG, W, ROWS, PARTS, MEET, BATCH, DV,
// ALIGNED, WRITE_LSE and MEET_PITCH, the vec4s of a row in shared memory.

const uint FOURS = PARTS > 1 ? (DV + 7) / 8 * 2 : (DV + 3) / 4;   // vec4s of a row that are stored

#ifndef ROWS_SHARED
shared vec4 met[W * MEET * MEET_PITCH];
shared vec2 met_ml[W * ROWS];    // m and l of a subgroup's rows
#endif

uint lane, subgroup;
uint b, kh, part;                // batch entry, key head, part of the keys
uint row0, all_rows, seen;       // first row of the workgroup; the end of its rows, or of the key head's; keys that any of its rows sees
uint k_origin, v_origin;         // element at which row 0 of this head lies
Walk all, keys;                  // batches that the rows see, and those of them in the part
uint current;                    // the batch that is computed

// Of a row of the key head, the last row's beyond them.
uint query_of(uint row) { return min(row, all_rows - 1) / group(); }
uint member_of(uint row) { return min(row, all_rows - 1) % group(); }

// Blocks that the rows of a key head are cut into.
#ifdef LISTS
uint blocks_of_query() { return (group() + ROWS - 1) / ROWS; }
#define ROW_BLOCKS(rows) (nq * blocks_of_query())
#else
#define ROW_BLOCKS(rows) ((rows + ROWS - 1) / ROWS)
#endif

// Finds the workgroup's rows and keys and the subgroup's first batch; false where there is nothing to do. A subgroup without a batch
// computes one that is masked: see docs/notes.md on loops that no invocation enters.
bool take_rows() {
  const uint id = workgroup_index();
  if (id >= total || !is_work(id, PARTS * key_heads())) return false;
  lane = gl_SubgroupInvocationID;
  subgroup = gl_SubgroupID;
  const uint blocks = ROW_BLOCKS(nq * group());
  part = id / blocks % PARTS;
  Place place = Place(id / blocks / PARTS, id % blocks);
  if (PACKED) {
    const uint other = id / (PARTS * key_heads()) * key_heads() + id % key_heads();   // of as many parts
    part = id / key_heads() % PARTS;
    place = place_of_item(other, key_heads());
  }
  b = place.matrix / key_heads(); kh = place.matrix % key_heads();
  row0 = place.block * ROWS;
  take_lengths(b);
#ifdef LISTS
  const uint query = place.block / blocks_of_query();
  row0 = query * group() + place.block % blocks_of_query() * ROWS;
  all_rows = (query + 1) * group();
  take_list(b, kh, query);
#else
  all_rows = query_slots() * group();
  const uint last_row_query = query_of(row0 + ROWS - 1);
  seen = end_of(keys_of(QUERY_LENGTHS ? min(last_row_query, max(query_of(row0), last_query())) : last_row_query));
#endif
  k_origin = K_OFF + key_origin(b, k_sb, k_sn) + kh * k_sh;
  v_origin = V_OFF + key_origin(b, v_sb, v_sn) + kh * v_sh;
#ifdef LISTS
  all = Walk(0, 0, 0, list_span.last < list_span.first ? 0 : (list_keys + BATCH - 1) / BATCH);
#else
  all = key_tiles(query_of(row0), query_of(row0 + ROWS - 1), BATCH);
#endif
  keys = part_of(all, part, PARTS);
  current = keys.begin + subgroup;
  if (current >= keys.end) current = all.end;
  return true;
}

// Where row `row` of Q begins.
uint q_row(uint row) {
  const uint head = kh * group() + member_of(row);
  return q_off() + query_origin(b, q_sb, q_sn) + head * q_sh + query_of(row) * q_sn;
}

// Stores four columns of a row, of the sum l and the reference m.
void store(uint row, uint four, vec4 x, float m, float l) {
  const uint head = kh * group() + member_of(row), bh = b * heads() + head, query = query_of(row);
  if (PARTS > 1) {
    const uint at = part * statistics_rows(total / (PARTS * ROW_BLOCKS(all_rows)) * group()) + statistics_row(bh) + query;
    STORED(sums, 16, sums[at * FOURS + four] = x);
    if (four == 0) STORED(statistics, 4, lse[at] = l == 0 ? NEG_INFINITY : m + log2(l));
    return;
  }
  const uint at = o_off() + query_origin(b, o_sb, o_sn) + head * o_sh + query * o_sn + 4 * four;
  if (ALIGNED) STORED(o, 4 * BYTES, o4[at / 4] = encode4(x));
  else [[unroll]] for (uint e = 0; e < 4; ++e) if (4 * four + e < DV) STORED(o, BYTES, o1[at + e] = encode(x[e]));
  if (WRITE_LSE && four == 0)
    STORED(lse, 4, lse[lse_off() + statistics_row(bh) + query] = l == 0 ? NEG_INFINITY : score_of_bits(m + log2(l)));
}

#ifndef ROWS_SHARED
// Stores rows first_row to first_row + MEET - 1 of the workgroup, which lie in met and met_ml.
void store_met(uint first_row) {
  const uint rows = min(min(MEET, ROWS - first_row), max(all_rows - row0, first_row) - first_row);
  for (uint item = subgroup * SG + lane; item < rows * FOURS; item += WG) {
    const uint r = item / FOURS, four = item % FOURS;
    float top = LOWEST, sum = 0;
    [[unroll]] for (uint w = 0; w < W; ++w) top = max(top, met_ml[w * ROWS + first_row + r].x);
    vec4 x = vec4(0);
    [[unroll]] for (uint w = 0; w < W; ++w) {
      const vec2 ml = met_ml[w * ROWS + first_row + r];
      const float a = exp2(ml.x - top);
      sum += a * ml.y;
      x += a * met[(w * MEET + r) * MEET_PITCH + min(four, MEET_PITCH - 1)];
    }
    if (SINKS && PARTS == 1) {
      if (query_exists(query_of(row0 + first_row + r))) x *= join_sink(kh * group() + member_of(row0 + first_row + r), top, sum);
    }
#ifdef CACHE
    if (IS_FLOAT8(V_TYPE)) x *= value_scale(b, kh);
#endif
    store(row0 + first_row + r, four, sum == 0 ? vec4(0) : x / sum, top, sum);
  }
}
#endif
