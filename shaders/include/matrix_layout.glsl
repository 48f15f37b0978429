// Where the elements of a cooperative matrix sit, as the probe found it (matrix_probe.comp, internal/kernel/fragment.go).
//
// GLSL promises nothing about which invocation holds which element. The probe shows that, on the devices this form runs on, the row of
// component e of invocation `lane` is row(lane) + row(e), the column likewise, and that the lane parts are sums of bit weights:
//   ROW_LANE, COL_LANE    a nibble per bit of the lane: 0 if the bit does not move the row (column), n if it moves it by 2^(n-1)
//   ROW_OF_COMP, ...      tables by component, a nibble an entry, 16 entries in two words
// A "slot" is one of the rows of which an invocation holds components; row statistics are kept per slot. Lanes that differ only in
// bits that move no row share their rows, and reduce over them by xor shuffles.

layout(constant_id = 27) const uint SLOTS = 2;
layout(constant_id = 28) const uint ROW_LANE = 0;
layout(constant_id = 29) const uint COL_LANE = 0;
layout(constant_id = 30) const uint ROW_OF_COMP_LO = 0;
layout(constant_id = 31) const uint ROW_OF_COMP_HI = 0;
layout(constant_id = 32) const uint COL_OF_COMP_LO = 0;
layout(constant_id = 33) const uint COL_OF_COMP_HI = 0;
layout(constant_id = 34) const uint SLOT_OF_COMP_LO = 0;
layout(constant_id = 35) const uint SLOT_OF_COMP_HI = 0;
layout(constant_id = 36) const uint A_OF_COMP_LO = 0;     // component of the A fragment that holds what component e of the f-th
layout(constant_id = 37) const uint A_OF_COMP_HI = 0;     // accumulator over its columns holds: entry f * components + e
layout(constant_id = 38) const uint ROW_OF_SLOT_LO = 0;
layout(constant_id = 39) const uint ROW_OF_SLOT_HI = 0;

// Macros, not functions: after unrolling they are constants, and components must not be indexed by anything else. An array of
// cooperative matrices with one index that the driver cannot fold goes to local memory whole (five times slower on NVIDIA).
#define TABLE(t, e) ((((e) < 8 ? t##_LO : t##_HI) >> (4 * ((e) & 7))) & 15u)
#define ROW_OF(e) TABLE(ROW_OF_COMP, e)
#define COL_OF(e) TABLE(COL_OF_COMP, e)
#define SLOT_OF(e) TABLE(SLOT_OF_COMP, e)
#define A_OF(f, e) TABLE(A_OF_COMP, (f) * S[0].length() + (e))

#define WEIGHT(nibbles, b) ((((nibbles) >> (4 * (b))) & 15u) == 0u ? 0u : 1u << ((((nibbles) >> (4 * (b))) & 15u) - 1u))
uint lane_part(uint nibbles, uint lane) {
  uint x = 0;
  [[unroll]] for (uint b = 0; b < 7; ++b) x += ((lane >> b) & 1u) * WEIGHT(nibbles, b);
  return x;
}
float row_max(float x) {
  [[unroll]] for (uint b = 0; b < 7; ++b) if (WEIGHT(COL_LANE, b) != 0u) x = max(x, subgroupShuffleXor(x, 1u << b));
  return x;
}
float row_sum(float x) {
  [[unroll]] for (uint b = 0; b < 7; ++b) if (WEIGHT(COL_LANE, b) != 0u) x += subgroupShuffleXor(x, 1u << b);
  return x;
}
