// Sums and maxima over a row that TPR neighbouring invocations share, for the kernels of standard attention that go over rows: in shared
// memory, with -DSUBGROUP by shuffles first, which needs full subgroups of size SG.
//
// Needs WG (workgroup size), TPR (a power of two) and, with SUBGROUP, SG. begin_rows() comes first; then every invocation of the
// workgroup calls the others.

shared float meet[WG];

uint lane, first;  // place among the invocations of the row; the first of them

#ifdef SUBGROUP
const uint SIDE = TPR < SG ? TPR : SG;  // invocations of a row that meet by shuffles

float max_over_row(float x) {
  [[unroll]] for (uint step = 1; step < SIDE; step <<= 1) x = max(x, subgroupShuffleXor(x, step));
  if (TPR > SIDE) {
    barrier();
    if (lane % SIDE == 0) meet[(first + lane) / SIDE] = x;
    barrier();
    [[unroll]] for (uint i = 0; i < TPR / SIDE; ++i) x = max(x, meet[first / SIDE + i]);
  }
  return x;
}
float sum_over_row(float x) {
  [[unroll]] for (uint step = 1; step < SIDE; step <<= 1) x += subgroupShuffleXor(x, step);
  if (TPR > SIDE) {
    barrier();
    if (lane % SIDE == 0) meet[(first + lane) / SIDE] = x;
    barrier();
    x = 0;
    [[unroll]] for (uint i = 0; i < TPR / SIDE; ++i) x += meet[first / SIDE + i];
  }
  return x;
}
#else
float max_over_row(float x) {
  barrier();
  meet[first + lane] = x;
  for (uint step = TPR / 2; step > 0; step >>= 1) {
    barrier();
    if (lane < step) meet[first + lane] = max(meet[first + lane], meet[first + lane + step]);
  }
  barrier();
  return meet[first];
}
float sum_over_row(float x) {
  barrier();
  meet[first + lane] = x;
  for (uint step = TPR / 2; step > 0; step >>= 1) {
    barrier();
    if (lane < step) meet[first + lane] += meet[first + lane + step];
  }
  barrier();
  return meet[first];
}
#endif

// This invocation's place; the number that it gives is that of its row in the workgroup.
uint begin_rows() {
#ifdef SUBGROUP
  const uint lid = gl_SubgroupID * SG + gl_SubgroupInvocationID;
#else
  const uint lid = gl_LocalInvocationIndex;
#endif
  lane = lid % TPR;
  first = lid - lane;
  return first / TPR;
}
