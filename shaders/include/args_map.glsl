// Push constants of the kernels that make maps of attention weights: the 32 words that every device has. The host writes them by these
// names (internal/kernel/map.go). Tensors are strided as in args.glsl; out is o here.

layout(push_constant) uniform Args {
  uint nq, nk;             // queries, keys
  uint heads_large;        // args_common.glsl
  uint offsets;            // of q | k << 8 | out << 16 | distance << 24
  uint bytes;              // offset of lse << 8 | smaller of two numbers of heads << 16
  uint q_sb, q_sh, q_sn;   // strides of batch, head, row
  uint k_sb, k_sh, k_sn;
  uint o_sb, o_sh, o_sn;
  float score_scale;       // scale * log2(e): scores are kept in units of log 2
  int first_shift, last_shift;   // include/mask.glsl
  uint base;               // first workgroup of this dispatch
  uint total;              // workgroups of the whole map, over all dispatches
  uint first_query, queries;     // the rectangle
  uint first_key, keys;
  uint map_rows, map_columns;    // cells that it is divided into
  uint cut;                // pieces of a cell down | pieces across << 16: include/map_cells.glsl
  uint first_batch, first_head, map_heads;   // of the map's first picture, and how many heads of a batch entry have one
  uint group_rows;         // rows of pieces that a group of invocations owns
  uint bands;              // that the columns of pieces are divided into
  uint wanted;             // bits: 1 means of cells, not sums; 2 entropy, 4 distance
};

uint q_off() { return offsets & 255u; }
uint k_off() { return offsets >> 8 & 255u; }
uint o_off() { return offsets >> 16 & 255u; }
uint distance_off() { return offsets >> 24; }
uint lse_off() { return bytes >> 8 & 255u; }

#include "args_common.glsl"
