#version 460
// Which blocks of scores mask functions leave out, and of which they leave every pair: the bits of a block mask and those of whole blocks,
// as include/mask.glsl has them with BLOCK_CLASSES.
//
// Of the pairs of a block that exist and that the bounds allow, a bit says whether functions allow any, and a second one whether there are
// any and functions allow all. A workgroup asks of one block. Each bit is set by one workgroup alone, in a word that it shares with others:
// atomic, and of no order.
//
// Binding 0: the words of all masks, 0 before. Push constants: include/args.glsl, of which it needs nq, nk, heads and the bounds.
// Workgroups: rows of blocks by columns of blocks by masks.
//
// Specialization constants: 5, 58, 60..62 as in include/mask.glsl     66 as in include/score.glsl; captured tensors follow binding 0

#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 128) in;
#include "args.glsl"
#include "common.glsl"
#include "mask.glsl"
#define SCORE_AT 1
#include "score.glsl"

layout(constant_id = 60) const uint BLOCK_ROWS = 64;
layout(constant_id = 61) const uint BLOCK_KEYS = 64;
layout(constant_id = 62) const bool BLOCK_PER_HEAD = false;
layout(set = 0, binding = 0, std430) buffer Classes_ { uint classes[]; };

const uint SEEN = 1, HIDDEN = 2;
shared uint found;

void main() {
  const uint id = workgroup_index();
  if (id >= total) return;
  const uint rows = (nq + BLOCK_ROWS - 1) / BLOCK_ROWS, columns = (nk + BLOCK_KEYS - 1) / BLOCK_KEYS;
  const uint row = id / columns % rows, column = id % columns, mask = id / columns / rows;
  uint masks = 1;   // of a batch entry
  if (BLOCK_PER_HEAD) masks = heads();
  scores_of(mask / masks, mask % masks);   // what the functions do not depend on is 0
  if (gl_LocalInvocationIndex == 0) found = 0;
  barrier();

  uint mine = 0;
  const uint last_query = min((row + 1) * BLOCK_ROWS, nq), last_key = min((column + 1) * BLOCK_KEYS, nk);
  for (uint query = row * BLOCK_ROWS + gl_LocalInvocationIndex / 32; query < last_query; query += 4) {
    const Span keys = keys_of(query);
    for (uint key = column * BLOCK_KEYS + gl_LocalInvocationIndex % 32; key < last_key; key += 32) {
      if (has(keys, key)) {
        if (MASK_FUNCTIONS) { if (sees(query, key)) mine |= SEEN; else mine |= HIDDEN; }
      }
    }
  }
  atomicOr(found, mine);
  barrier();

  if (gl_LocalInvocationIndex == 0 && (found & SEEN) != 0) {
    const uint across = (columns + 31) / 32, down = (rows + 31) / 32, words = rows * across + columns * down;
    const uint first = mask * 2 * words, of_row = first + row * across + column / 32;
    const uint of_column = first + rows * across + column * down + row / 32;
    atomicOr(classes[of_row], 1u << column % 32);
    atomicOr(classes[of_column], 1u << row % 32);
    if ((found & HIDDEN) == 0) {
      atomicOr(classes[of_row + words], 1u << column % 32);
      atomicOr(classes[of_column + words], 1u << row % 32);
    }
  }
}
