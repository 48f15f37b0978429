// Where rows lie: which elements of q, k, v, o and their gradients, and which row statistics, are a batch entry's. Kernels ask here, after
// take_lengths() (lengths.glsl), and know themselves only what lies between heads and between rows.
//
// Rows are a batch, [B,H,N,D], or with PACKED_QUERIES and PACKED_KEYS those of sequences that lie one behind the other, [1,H,total,D]; the
// sequence then is what is called a batch entry elsewhere. Its rows are its slot, of which it may use the first ones alone. Where sequences
// begin is known on the device only, and so are the blocks of rows that there are to do: a table, made by common/row_table.comp in the same
// recording, has both. It stands in the place of lengths, and nothing in it leads outside a tensor.
//
//   0               number of items
//   8 + 8 b         sequence b: first row of queries, rows of its slot, those that are used; the same three numbers of keys; where the two
//                   slots begin, which is beyond the last row where they are empty. Entry B has nothing but the ends of the last slots.
//   8 + 8 (B + 1)   items: a sequence and a block of its slot each, those with most to do first
//
// Needs nq, nk and heads() of the arguments and, where LENGTHS is defined, more.glsl.

#ifndef ROWS_GLSL
#define ROWS_GLSL
#ifdef LENGTHS
layout(constant_id = 100) const bool PACKED_QUERIES = false;
layout(constant_id = 101) const bool PACKED_KEYS = false;
layout(set = 0, binding = LENGTHS, std430) readonly buffer RowTable_ { uint row_table[]; };

const uint ROW_HEAD = 8, ROW_WORDS = 8;   // of the table; words of a sequence
const uint QUERY_START = 6, KEY_START = 7;
uint own_first_query, own_query_slots, own_first_key, own_key_slots;

void take_slots(uint b) {
  const uint at = ROW_HEAD + ROW_WORDS * b;
  own_first_query = row_table[at]; own_query_slots = row_table[at + 1];
  own_first_key = row_table[at + 3]; own_key_slots = row_table[at + 4];
}
uint used_queries(uint b) { return row_table[ROW_HEAD + ROW_WORDS * b + 2]; }
uint used_keys(uint b) { return row_table[ROW_HEAD + ROW_WORDS * b + 5]; }
// Of all sequences together; entry `batch` ends the last.
uint query_start(uint b) { return row_table[ROW_HEAD + ROW_WORDS * b + QUERY_START]; }
// The sequence whose slot has a row, which is one of them: the last that begins no later.
uint sequence_of(uint row) {
  uint first = 0, end = batch;
  while (end - first > 1) {
    const uint middle = (first + end) / 2;
    if (query_start(middle) <= row) first = middle; else end = middle;
  }
  return first;
}
uint items() { return row_table[0]; }
uvec2 item(uint i) {
  const uint at = ROW_HEAD + ROW_WORDS * (batch + 1) + 2 * i;
  return uvec2(row_table[at], row_table[at + 1]);
}
uint packed_statistics(uint head) { return head * packed_queries; }
#else
const bool PACKED_QUERIES = false, PACKED_KEYS = false;
const uint PAGE = 0;
uint own_first_query, own_query_slots, own_first_key, own_key_slots;
uint items() { return 0; }
uvec2 item(uint i) { return uvec2(0); }
uint packed_statistics(uint head) { return 0; }
#endif
const bool PACKED = PACKED_QUERIES || PACKED_KEYS;

// Elements from a tensor's first to row 0 of a batch entry, of strides sb from entry to entry and sn from row to row.
uint query_origin(uint b, uint sb, uint sn) { return PACKED_QUERIES ? own_first_query * sn : b * sb; }
uint key_origin(uint b, uint sb, uint sn) { return PACKED_KEYS ? own_first_key * sn : PAGE != 0 ? 0 : b * sb; }   // pages: those of a head
// The place of row 0 of a query head, batch included, among numbers for each row: lse and delta.
uint statistics_row(uint bh) { return PACKED_QUERIES ? packed_statistics(bh % heads()) + own_first_query : bh * nq; }
// How many there are of all query heads, batch included.
uint statistics_rows(uint all_heads) { return PACKED_QUERIES ? packed_statistics(heads()) : all_heads * nq; }
// Rows that a batch entry has memory for. Those from query_count() or key_count() on are written, as 0, and never read.
uint query_slots() { return PACKED_QUERIES ? own_query_slots : nq; }
uint key_slots() { return PACKED_KEYS ? own_key_slots : nk; }
#endif
