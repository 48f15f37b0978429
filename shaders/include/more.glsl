// Arguments for which push constants have no room, in a small buffer at binding SCORE_AT. The host writes them by these names
// (internal/kernel/scores.go). Element (b, h, i, j) of a tensor lies at off + b*sb + h*sh + i*sn + j*sk; a stride is 0 where the tensor has
// one element for all. Only kernels whose constants say that there is such a tensor read any of it.

#ifndef MORE_GLSL
#define MORE_GLSL
layout(set = 0, binding = SCORE_AT, std430) readonly buffer More {
  uint bias_off, bias_sb, bias_sh, bias_sn, bias_sk;   // in elements
  uint mask_off, mask_sb, mask_sh, mask_sn, mask_sk;   // in bytes, or bits
  uint sinks_off;
  uint batch;                                          // entries
  uint key_lengths_off, query_lengths_off;
  uint query_starts_off, key_starts_off;               // of packed sequences
  uint packed_queries, packed_keys;                    // rows of all of them
#ifdef CACHE
  uint page_table_off, page_row;                       // page numbers of a row of the table, or of all of a compressed one
  uint page_count;                                     // of a pool
  uint page_starts_off, last_pages_off;
  uint key_scales_off, value_scales_off;
#endif
};
#endif
