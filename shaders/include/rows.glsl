// Where rows lie: which elements of q, k, v, o and their gradients, and which row statistics, are a batch entry's. Kernels ask here, after
// take_lengths() (lengths.glsl), and know themselves only what lies between heads and between rows.
//
// Needs nq, nk and heads() of the arguments.

#ifndef ROWS_GLSL
#define ROWS_GLSL

// Elements from a tensor's first to row 0 of a batch entry, of strides sb from entry to entry and sn from row to row.
uint query_origin(uint b, uint sb, uint sn) { return b * sb; }
uint key_origin(uint b, uint sb, uint sn) { return b * sb; }
// The place of row 0 of a query head, batch included, among numbers for each row: lse and delta.
uint statistics_row(uint bh) { return bh * nq; }
// Rows that a batch entry has memory for. Those from query_count() or key_count() on are written, as 0, and never read.
uint query_slots() { return nq; }
uint key_slots() { return nk; }
#endif
