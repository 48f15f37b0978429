// Adds P V over 4 `count` keys to this invocation's piece of O. Included once per product, with these defined
// (they cannot be arguments: GLSL copies arrays in and out, sums differ in length, and lengths and pitches must stay constants):
//
//   PRODUCT        name of the function
//   PRODUCT_SUM    vec4s of the sum: MR times PRODUCT_M4
//   PRODUCT_M4     vec4s of a row that an invocation owns
//   PRODUCT_PITCH  vec4s from one staged row of V to the next
//
// Needs MR, TX, TY, P_PITCH and tile[]. p_at and v_at: where this invocation's first row of P and its first vec4 of the first key's V
// lie, in vec4s.

void PRODUCT(uint p_at, uint v_at, uint count) {
  for (uint c = 0; c < count; ++c) {
    vec4 p[MR];
    [[unroll]] for (uint i = 0; i < MR; ++i) p[i] = tile[p_at + i * TY * P_PITCH + c];
    [[unroll]] for (uint e = 0; e < 4; ++e)
      [[unroll]] for (uint j = 0; j < PRODUCT_M4; ++j) {
        const vec4 x = tile[v_at + (4 * c + e) * PRODUCT_PITCH + TX * j];
        [[unroll]] for (uint i = 0; i < MR; ++i) PRODUCT_SUM[i * PRODUCT_M4 + j] += p[i][e] * x;
      }
  }
}

#undef PRODUCT
#undef PRODUCT_SUM
#undef PRODUCT_M4
#undef PRODUCT_PITCH
