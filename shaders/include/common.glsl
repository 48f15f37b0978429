// Constants and units of the softmax, and token pasting.
#ifndef COMMON_GLSL
#define COMMON_GLSL

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

#define LOWEST -3.4028234663852886e38  // the most negative finite number
#define NEG_INFINITY uintBitsToFloat(0xff800000u)
#define LN2 0.6931471805599453
#define LOG2E 1.4426950408889634

// Scores in units of log 2. Their products with log2 e would pass fp32 at both ends, where numbers are so far apart that weights are 0 or
// equal: from 1.8e38 on a slope of 1/2 takes the place of log2 e. So every finite score stays finite, above LOWEST and in order.
// Infinities and NaNs stay what they are. Out there neighbours of fp32 may become one, and an lse is the score that its bits are of, or
// less by a place or two: weights that are taken from it are 1 then, not 0. (FAR is 2^127 - 2^121 + 2^104, with which 2 (t + FAR) is exact
// and finite; precise, for 2 t alone is not.)
#define FAR uintBitsToFloat(0x7efc0002u)
#define FAR_PLACE uintBitsToFloat(0x73800000u)   // 2^104, of numbers from 2^127 on
float bits_of_score(float s) { return min(max(s * float(LOG2E), s * 0.5 - FAR), s * 0.5 + FAR); }
float score_of_bits(float t) {
  precise const float low = 2.0 * (t + FAR) - FAR_PLACE, high = 2.0 * (t - FAR) - FAR_PLACE;
  return max(min(t * float(LN2), low), high);
}
// The weight of a score that is so many units of log 2 above its row's lse. What is above 0 is lse's rounding, which is much where lse is
// large: from 2^23 on it says nothing of how many keys there are. NaN stays: what one among the inputs reaches must not look like a result.
// So min() will not do, nor a comparison that a compiler may make a minimum of: the power is taken first.
float weight_of(float above) { return above > 0.0 ? 1.0 : exp2(above); }
// x, or 0 where it is above, likewise: of numbers above 0 the bits are 1 to infinity's.
float at_most_zero(float x) { return floatBitsToUint(x) - 1u < 0x7f800000u ? 0.0 : x; }
#endif
