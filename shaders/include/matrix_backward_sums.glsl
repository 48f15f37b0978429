// dQ on its way in fp32: the sums that matrix_backward_kv.comp with ATOMIC_DQ adds to and matrix_backward_sum.comp takes.
//
// They are stored as subgroups hold them and not by rows: for each fragment of FM queries and FN columns component e of lane x is number
// e SG + x. So whatever the layout of accumulators is, the lanes of a subgroup add to neighbouring numbers, 4 SG bytes an instruction, and
// nothing goes through shared memory. Both kernels hold the same type in subgroups of one size, of which a device has one layout.
//
// Fragments of a row of them follow one another, then rows of fragments, then heads. Of packed sequences rows of fragments begin anew with
// each sequence: the fragment in which the slot's first row would be, plus one for each sequence before it, is behind all of the one
// before.

layout(binding = 14) buffer Sums_ { float sums[]; };

// The first number of fragment d of the row of fragments in which a query is, of a head, batch included.
uint sums_at(uint head, uint query, uint d) {
  const uint row = PACKED_QUERIES
    ? head % heads() * (packed_queries / FM + batch) + own_first_query / FM + head / heads() + query / FM
    : head * ((nq + FM - 1) / FM) + query / FM;
  return (row * DN + d) * FM * FN;
}
