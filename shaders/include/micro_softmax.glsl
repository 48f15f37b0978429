// Softmax of a tile of scores of which each invocation owns S[MR * MC4]: masks, the row's maximum and sum over the TX invocations
// that share it, dropout. Needs BR, BC, MR, MC, MC4, TX, TY, mask.glsl, score.glsl, tx, ty, q0 and bh (first query and flattened head of
// the workgroup); with SUBGROUP rows are reduced by shuffles, else through the shared array reduce[BR * TX].

// Draws for four neighbouring keys serve those 4 TX further on as well, unless these lie in another group of 64 or elsewhere in their 8.
const uint DRAW_STEP = TX % 2 + 64 % (4 * TX) + (BC % 64) * (64 % BC) == 0 ? 64 : 1;

// max or sum over the TX invocations that share a row
#ifdef SUBGROUP
void max_over_row(inout float x[MR]) {
  [[unroll]] for (uint step = 1; step < TX; step <<= 1)
    [[unroll]] for (uint i = 0; i < MR; ++i) x[i] = max(x[i], subgroupShuffleXor(x[i], step));
}
void sum_over_row(inout float x[MR]) {
  [[unroll]] for (uint step = 1; step < TX; step <<= 1)
    [[unroll]] for (uint i = 0; i < MR; ++i) x[i] += subgroupShuffleXor(x[i], step);
}
#else
void exchange(float x[MR]) {
  barrier();
  [[unroll]] for (uint i = 0; i < MR; ++i) reduce[tx * BR + ty + TY * i] = x[i];
  barrier();
}
void max_over_row(inout float x[MR]) {
  exchange(x);
  for (uint t = 0; t < TX; ++t)
    [[unroll]] for (uint i = 0; i < MR; ++i) x[i] = max(x[i], reduce[t * BR + ty + TY * i]);
}
void sum_over_row(inout float x[MR]) {
  exchange(x);
  [[unroll]] for (uint i = 0; i < MR; ++i) x[i] = 0;
  for (uint t = 0; t < TX; ++t)
    [[unroll]] for (uint i = 0; i < MR; ++i) x[i] += reduce[t * BR + ty + TY * i];
}
#endif

// Scores of the pairs of a tile, which are in units of log 2, as functions, bias and masks make them.
void score_pairs(uint key0) {
  [[unroll]] for (uint i = 0; i < MR; ++i)
    [[unroll]] for (uint j = 0; j < MC; ++j) {
      const uint query = q0 + ty + TY * i, key = key0 + 4 * (tx + TX * (j / 4)) + j % 4;
      S[i * MC4 + j / 4][j % 4] = bits_of_score(scored(S[i * MC4 + j / 4][j % 4] * LN2, query, key));
    }
}

// Scores that may not be used become -inf.
void mask_scores(uint key0) {
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    const Span keys = keys_of(q0 + ty + TY * i);
    [[unroll]] for (uint j = 0; j < MC; ++j)
      if (!has(keys, key0 + 4 * (tx + TX * (j / 4)) + j % 4)) S[i * MC4 + j / 4][j % 4] = NEG_INFINITY;
  }
}

// top = max(from, the row's scores)
void row_maximum(float from[MR], out float top[MR]) {
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    top[i] = from[i];
    [[unroll]] for (uint j = 0; j < MC4; ++j) {
      const vec4 s = S[i * MC4 + j];
      top[i] = max(top[i], max(max(s.x, s.y), max(s.z, s.w)));
    }
  }
  max_over_row(top);
}

// Row i of S becomes P = exp2(S - top); the sum of this invocation's part of it.
float weigh(uint i, float top) {
  vec4 sum = vec4(0);
  [[unroll]] for (uint j = 0; j < MC4; ++j) {
    const vec4 p = exp2(S[i * MC4 + j] - top);
    S[i * MC4 + j] = p;
    sum += p;
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// Weights that dropout drops become 0.
void drop_weights(uint key0) {
  [[unroll]] for (uint i = 0; i < MR; ++i) {
    uvec4 drawn[2];
    [[unroll]] for (uint j = 0; j < MC; ++j) {
      const uint key = key0 + 4 * (tx + TX * (j / 4)) + j % 4;
      if (j % 2 == 0 && 4 * TX * (j / 4) % DRAW_STEP == 0) drawn[j / 2 % 2] = draw(draw_group(key), q0 + ty + TY * i, bh);
      if (!kept(drawn[j / 2 % 2], key)) S[i * MC4 + j / 4][j % 4] = 0;
    }
  }
}
