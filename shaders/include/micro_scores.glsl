// Adds one chunk of Q K^T to this invocation's piece of S. Needs S[MR * MC4], MR, MC, MC4, TX, TY, DK4, Q_PITCH, K_PITCH and tile[].
// q_at and k_at: where this invocation's first row of Q and first slot of K begin, in vec4s.

void add_scores(uint q_at, uint k_at) {
  for (uint d = 0; d < DK4; ++d) {
    vec4 a[MR];
    [[unroll]] for (uint i = 0; i < MR; ++i) a[i] = tile[q_at + i * TY * Q_PITCH + d];
    [[unroll]] for (uint j = 0; j < MC; ++j) {
      const vec4 b = tile[k_at + j * TX * K_PITCH + d];
      [[unroll]] for (uint i = 0; i < MR; ++i) {
        float s = S[i * MC4 + j / 4][j % 4];
        s += a[i].x * b.x;
        s += a[i].y * b.y;
        s += a[i].z * b.z;
        s += a[i].w * b.w;
        S[i * MC4 + j / 4][j % 4] = s;
      }
    }
  }
}
