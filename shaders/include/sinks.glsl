// Attention sinks: a logit for each query head that joins a row's softmax and has no value. Where the last key of a row has been seen, the
// sum l over weights 2^(s - m) gets the sink's as well. Needs SCORE_AT and common.glsl.

#include "more.glsl"

layout(constant_id = 67) const bool SINKS = false;
layout(set = 0, binding = SCORE_AT + 3, std430) readonly buffer Sinks_ { float sinks[]; };

// The reference m and the sum l with the sink of a head, and what O is to be multiplied by. m stays finite, and -inf is no sink.
float join_sink(uint head, inout float m, inout float l) {
  const float sink = bits_of_score(sinks[sinks_off + head]), top = max(m, sink), factor = exp2(m - top);
  l = l * factor + exp2(sink - top);
  m = top;
  return factor;
}
