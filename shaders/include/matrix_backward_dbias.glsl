// 8 columns of a row of the gradient with respect to the bias, from `key` on, of the bias's type, added with ACCUMULATE to what is there.
// What lies beyond the last row or key is not written. (Counted as gradients.) And zeros of it, where no query of a block sees a key.
//
// Needs matrix_backward.glsl, ALIGNED_BIAS (rows begin at multiples of 16 bytes, and nk elements are one), and of who includes it
//
//   DBIAS_VIEW           letter of the views of dbias: by pieces of 16 bytes, by 16 and by 32 bits
//   DBIAS_AT(row, key)   the element at which it lies
//   DBIAS_ROWS           rows that there are

void put_bias(uint row, uint key, vec4 lo, vec4 hi) {
  if (row >= DBIAS_ROWS || key >= nk) return;
  const uint to = DBIAS_AT(row, key);
  if (SCORE_BIAS == 2) {
    if (ALIGNED_BIAS) {
      [[unroll]] for (uint e = 0; e < 8; e += 4) if (key + e < nk) {
        vec4 y = e == 0 ? lo : hi;
        if (ACCUMULATE) y += uintBitsToFloat(LOADED(gradients, 16, PASTE(DBIAS_VIEW, 4)[(to + e) / 4]));
        STORED(gradients, 16, PASTE(DBIAS_VIEW, 4)[(to + e) / 4] = floatBitsToUint(y));
      }
    } else [[unroll]] for (uint e = 0; e < 8; ++e) if (key + e < nk) {
      float y = e < 4 ? lo[e % 4] : hi[e % 4];
      if (ACCUMULATE) y += LOADED(gradients, 4, PASTE(DBIAS_VIEW, 32)[to + e]);
      STORED(gradients, 4, PASTE(DBIAS_VIEW, 32)[to + e] = y);
    }
  } else if (ALIGNED_BIAS) {
    Piece y = Piece(row, key, true, lo, hi);
    if (ACCUMULATE) y = added(y, LOADED(gradients, 16, PASTE(DBIAS_VIEW, 4)[to / 8]));
    STORED(gradients, 16, PASTE(DBIAS_VIEW, 4)[to / 8] = packed(y));
  } else [[unroll]] for (uint e = 0; e < 8; ++e) if (key + e < nk) {
    float y = e < 4 ? lo[e % 4] : hi[e % 4];
    if (ACCUMULATE) y += UNPAIR(uint(LOADED(gradients, 2, PASTE(DBIAS_VIEW, 16)[to + e]))).x;
    STORED(gradients, 2, PASTE(DBIAS_VIEW, 16)[to + e] = ELEMENT_BITS(y));
  }
}

// Zeros in the rows of the workgroup's block, from column `first` up to `last`, a multiple of 8 or nk.
void put_zero_bias(uint first, uint last) {
  const uint pieces = last > first ? (last - first + 7) / 8 : 0;
  for (uint x = tid; x < BR * pieces; x += WG) put_bias(i * BR + x / pieces, first + x % pieces * 8, vec4(0), vec4(0));
}
// In the tiles before `begin` and from `end` on, which the block does not walk over; there is nothing to add to.
void put_unseen_bias(uint begin, uint end) {
  if (!MASKS || ACCUMULATE) return;
  if (LOWER_BOUND) put_zero_bias(0, min(begin * BC, nk));
  put_zero_bias(end * BC, nk);
}
