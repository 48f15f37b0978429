// Adds P V over 4 `count` keys to this invocation's piece of O. Needs acc[MR * MD4], MR, MD4, TX, TY, P_PITCH, V_WIDTH and tile[].
// p_at and v_at: where this invocation's first row of P and its first vec4 of the first key's V lie, in vec4s.

void add_product(uint p_at, uint v_at, uint count) {
  for (uint c = 0; c < count; ++c) {
    vec4 p[MR];
    [[unroll]] for (uint i = 0; i < MR; ++i) p[i] = tile[p_at + i * TY * P_PITCH + c];
    [[unroll]] for (uint e = 0; e < 4; ++e)
      [[unroll]] for (uint j = 0; j < MD4; ++j) {
        const vec4 x = tile[v_at + (4 * c + e) * V_WIDTH + TX * j];
        [[unroll]] for (uint i = 0; i < MR; ++i) acc[i * MD4 + j] += p[i][e] * x;
      }
  }
}
