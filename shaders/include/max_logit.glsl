// The largest score of each head, an output of forward passes (MAX_LOGIT): of all pairs of a batch entry and query head that are seen, in
// natural units. Workgroups find their own and add it to one number in device memory, which the host has made -inf before.
//
// A maximum does not depend on the order in which it is taken, so atomics are exact and give the same bits every time. They work on floats
// where these lie: as integers the bits of floats from 0 on are in order, those of floats below in reverse, and all of the latter are
// negative. Within kernels numbers are keys, integers in the order of floats: shuffles and max() would lose a NaN, which has to show. It is
// the largest key, one positive NaN.
//
// The maximum is that of the scores themselves, not the reference m, which kernels on matrices leave behind it.
//
// Needs common.glsl, and SCORE_AT and MAX_LOGIT_AT, bindings: the offset stands behind the further arguments (internal/kernel/scores.go).

layout(constant_id = 112) const bool MAX_LOGIT = false;
layout(set = 0, binding = MAX_LOGIT_AT, std430) buffer MaxLogit_ { int max_logit[]; };
layout(set = 0, binding = MAX_LOGIT_AT, std430) buffer MaxLogitBelow_ { uint max_logit_below[]; };   // the same numbers
layout(set = 0, binding = SCORE_AT, std430) readonly buffer MaxLogitPlace_ { uint more_before[27]; uint max_logit_off; };

const int NO_LOGIT = int(0x807fffffu);   // -inf
const int NAN_LOGIT = 0x7fc00000;

int logit_key(float x) { const int bits = floatBitsToInt(x); return bits ^ (bits >> 31 & 0x7fffffff); }
float logit_of_key(int key) { return intBitsToFloat(key ^ (key >> 31 & 0x7fffffff)); }

// The key of the largest score of a row, or of some of its keys, from that in units of log 2, -inf where there is none, and the sum of
// their weights, which is a number unless a score is NaN or +inf: max() may have passed a NaN over.
int logit_of(float most, float weights) {
  if ((floatBitsToUint(weights) & 0x7f800000u) == 0x7f800000u) return NAN_LOGIT;
  return logit_key(score_of_bits(most));
}

// Adds a key to that of a head, batch entry included.
void add_logit(uint bh, int key) {
  if (key >= 0) atomicMax(max_logit[max_logit_off + bh], key);
  else if (key > NO_LOGIT) atomicMin(max_logit_below[max_logit_off + bh], uint(key ^ 0x7fffffff));
}
