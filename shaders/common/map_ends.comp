#version 460
// Makes the cells of a map of attention weights of the pieces that they were cut into (include/map_cells.glsl): their sum, that over the
// number of a cell's pairs, or with LARGEST the largest. A workgroup makes a cell: there are few, or they would not have been cut.
// Invocation t takes pieces t, t + WG, ...; the first one takes what all have. The order of sums is fixed.
//
// Bindings: 0 pieces [b,h,rows,columns] fp32, 1 the picture (strided). Push constants: include/args_map.glsl. Workgroups: cells.
// Specialization constants: 0 WG   14 LARGEST

#extension GL_GOOGLE_include_directive : require
#include "args_map.glsl"

layout(local_size_x = 64, local_size_x_id = 0) in;
const uint WG = gl_WorkGroupSize.x;
layout(constant_id = 14) const bool LARGEST = false;

layout(set = 0, binding = 0, std430) readonly buffer Pieces { float pieces[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Cells { float cells[]; };

shared float meet[WG];

// As of map_cells.glsl.
float joined(float a, float b) { return LARGEST ? uintBitsToFloat(max(floatBitsToUint(a), floatBitsToUint(b))) : a + b; }
uint part_begin(uint n, uint length, uint parts) { return n * (length / parts) + n * (length % parts) / parts; }
float part_of(uint n, uint length, uint parts) { return float(part_begin(n + 1, length, parts) - part_begin(n, length, parts)); }

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  const uint t = gl_LocalInvocationIndex;
  const uint down = cut & 0xffffu, across = cut >> 16;
  const uint x = id % map_columns, y = id / map_columns % map_rows, matrix = id / map_columns / map_rows;
  const uint from = (matrix * map_rows + y) * down * map_columns * across + x * across;
  float value = 0;
  for (uint i = t; i < down * across; i += WG) value = joined(value, pieces[from + i / across * (map_columns * across) + i % across]);
  meet[t] = value;
  barrier();
  if (t != 0) return;
  for (uint i = 1; i < WG; ++i) value = joined(value, meet[i]);
  if ((wanted & 1u) != 0u) value /= part_of(y, queries, map_rows) * part_of(x, keys, map_columns);
  cells[o_off() + matrix / map_heads * o_sb + matrix % map_heads * o_sh + y * o_sn + x] = value;
}
