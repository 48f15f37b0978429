// The bias eight elements of a row at a time, asked for a chunk ahead (builds of matrix_forward.comp with BIAS_AHEAD). Two at a time, as
// accumulators have them, a load of a subgroup touches 8 rows and takes 16 bytes of each, and it was asked for when the scores that wait
// for it were begun.
//
// Which key a column of scores is of is a matter of names, as long as the rows of K and V lie in shared memory in the same order. So of
// every 32 keys the lanes of a row, each of which has two columns of every 8, have 8 neighbours each: key 8 q + 2 k + e (q which of the
// four lanes, e < 2) is column 2 q + e of the 8 columns number k, and its row of K and V is number 8 k + 2 q + e.
//
//   BIAS_EIGHTS   BIAS_PAIRS could be on; lanes hold columns 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of every 16, q < 4; 32 divides BC, and CK or
//                 CK 32; MAX_FIRST, no dropout; WG/SG is a power of two
//
// Needs BIAS_EIGHTS, bias_row(r, e) and next_tile_of_keys(). Rows of K and V: place_of (include/matrix_staging.glsl).

layout(set = 0, binding = SCORE_AT + 1, std430) readonly buffer BiasEights_ { uvec4 bias_eights[]; };

const uint EIGHTS_KEYS = CK > 32 ? CK : 32;   // that are asked for at a time
const uint EIGHTS_GROUPS = EIGHTS_KEYS / 32;
uvec4 bias_ahead[BIAS_EIGHTS ? RM * SLOTS * EIGHTS_GROUPS : 1];

// Where column x of a tile's scores has its key, beside that of the lane's first column.
#define KEY_OF_COLUMN(x) ((x) / 32 * 32 + (x) % 32 / 8 * 2 + (x) % 2)
#define TILE_KEY(c) (j * BC + (BIAS_EIGHTS ? 4 * col_lane : (c) * CK + col_lane))
#define KEY_FROM(c, n, e) (BIAS_EIGHTS ? KEY_OF_COLUMN((c) * CK + (n) * FN + COL_OF(e)) : (n) * FN + COL_OF(e))
#define KEY_BESIDE(key0, c, n, e) key0 + KEY_FROM(c, n, e)

uint next_tile_of_keys();
// The bias of the keys from chunk c of a tile on.
void ask_eights(uint tile, uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint e = 0; e < S[0].length(); ++e)
    if (COL_OF(e) == 0) {   // once a row
      const uint row = bias_row(r, e);
      [[unroll]] for (uint g = 0; g < EIGHTS_GROUPS; ++g)
        bias_ahead[BIAS_EIGHTS ? (r * SLOTS + SLOT_OF(e)) * EIGHTS_GROUPS + g : 0] =
          bias_eights[(row + min(tile * BC + c * CK + 32 * g + 4 * col_lane, nk - 8)) / 8];
    }
}
// After chunk c has had what was asked for: what follows.
void ask_ahead(uint c) {
  if ((c + 1) * CK % 32 != 0) return;
  if (c + 1 < CHUNKS) ask_eights(j, c + 1); else ask_eights(next_tile_of_keys(), 0);
}
float bias_of_eights(uint r, uint c, uint n, uint e) {
  const uint x = (c * CK + n * FN + COL_OF(e)) % EIGHTS_KEYS;
  return UNPAIR(bias_ahead[(r * SLOTS + SLOT_OF(e)) * EIGHTS_GROUPS + x / 32][x % 32 / 8])[e % 2];
}
#define BIAS_AT(r, c, n, e, query, key) (BIAS_EIGHTS ? bias_of_eights(r, c, n, e) : bias_at(r, n, e, query, key))
#define KEY_OF_MASK(c, n, e) TILE_KEY(c) + KEY_FROM(c, n, e)
