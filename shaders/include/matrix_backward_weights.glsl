// P and dS into memory: matrix_backward_q.comp built with TO_MEMORY, which then makes no sum. What is multiplied by them follows as plain
// products (standard_product_matrix.comp, standard_backward_product_matrix.comp): five products in all, where kernels of wide heads, whose
// sums do not fit into registers beside their operands, make eight.
//
// Both are matrices of nq rows, pitch elements from row to row, a multiple of 8; a dispatch makes those of a slab, of some heads. dS has
// the factor scale in it. Behind the last key of a row of dS, zeros go on as far as the product dS K reads.
//
// Bindings: 6 P, 7 dS, both [head - first][row][pitch].
// Push constants: x_sb is the slab's first head, batch included, x_sh the elements from head to head, and x_sn the pitch.
//
// Specialization constants, besides those of matrix_backward.glsl, where H_LEN is W 2 FM odd(CK/8) in form 1:
//   53 ZERO   columns behind the last key that any query of the block sees, up to pitch, that are written

layout(constant_id = 53) const uint ZERO = 64;
VIEWS(Y, y, 7, )

FRAG_A P[RM * NP];
uint slab_at;   // where this head begins in P and dS

// 8 elements of both.
void put(uint row, uint key, uvec4 p, uvec4 ds) {
  if (row < ROWS && key < x_sn) {
    const uint to = (slab_at + row * x_sn + key) / 8;
    STORED(x, 16, x4[to] = p);
    STORED(y, 16, y4[to] = ds);
  }
}

// Form 1: P and dS as operands, which lie in shared memory by rows on their way out.
const uint H_PITCH = CK / 8 | 1u, H_PIECES = FM * CK / 8;
void to_operands() {
  const float unit = scale * P_UNIT;
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) [[unroll]] for (uint e = 0; e < S[0].length(); e += 2) {
    const uint x = r * NS + n;
    HALVES(S[x][e] * P_UNIT, S[x][e + 1] * P_UNIT, COMPONENT(P, r, n, e), COMPONENT(P, r, n, e + 1))
    HALVES(dP[x][e] * unit, dP[x][e + 1] * unit, COMPONENT(dS, r, n, e), COMPONENT(dS, r, n, e + 1))
  }
}
void put_operands(uint c) {
  const uint at = gl_SubgroupID * 2 * FM * H_PITCH;
  [[unroll]] for (uint r = 0; r < RM; ++r) {
    [[unroll]] for (uint n = 0; n < NP; ++n) {
      coopMatStore(P[r * NP + n], H, at + n * FK / 8, H_PITCH, BY_ROW);
      coopMatStore(dS[r * NP + n], H, at + FM * H_PITCH + n * FK / 8, H_PITCH, BY_ROW);
    }
    MEET
    [[unroll]] for (uint u = 0, x = lane; u < (H_PIECES + SG - 1) / SG; ++u, x += SG) if (H_PIECES % SG == 0 || x < H_PIECES) {
      const uint from = at + x / (CK / 8) * H_PITCH + x % (CK / 8);
      put(row0 + r * FM + x / (CK / 8), first_key + c * CK + x % (CK / 8) * 8, H[from], H[from + FM * H_PITCH]);
    }
    MEET
  }
}

// Chunk c of the staged tile of keys.
void chunk(uint c, bool masked) {
  scores(c);               // S = Q K^T
  if (FORM == 1) {
    weights(c, masked);    // P = exp(scale S - lse)
    minus_delta(c);
    weight_gradients(c);   // dP - delta = dO V^T - delta
    score_gradients(c);    // dS = P o (dP - delta)
    to_operands();
    put_operands(c);
  } else {
    zero_gradients();
    weight_gradients(c);
    weights_through_shared(c, masked);
  }
}

// Zeros of the workgroup's rows from tile `end` on.
void put_zeros(uint end) {
  const uint first = end * BC, last = min(end_of(keys_of(min((i + 1) * BR, ROWS) - 1)) + ZERO, x_sn);
  const uint pieces = last > first ? (last - first + 7) / 8 : 0;
  for (uint x = tid; x < BR * pieces; x += WG) put(i * BR + x / pieces, first + x % pieces * 8, uvec4(0), uvec4(0));
}
