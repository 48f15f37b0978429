// Tangents of q, k, v, a bias and sinks, for kernels of forward mode: where they lie, behind the further arguments (more.glsl) and the
// places of dropout.glsl. The host writes the words in this order (internal/kernel/tangents.go). Strides as in more.glsl.
//
// Needs SCORE_AT, score.glsl, and TANGENTS_AT: a binding, of the tangent of the bias; behind it those of sinks and of their tangent.

layout(constant_id = 114) const bool BIAS_MOVES = false;
layout(constant_id = 116) const bool SINKS_MOVE = false;
layout(set = 0, binding = SCORE_AT, std430) readonly buffer Tangents {
  uint before_tangents[32];
  uint qt_off, qt_sb, qt_sh, qt_sn;   // in elements
  uint kt_off, kt_sb, kt_sh, kt_sn;
  uint vt_off, vt_sb, vt_sh, vt_sn;
  uint bias_tangent_off, bias_tangent_sb, bias_tangent_sh, bias_tangent_sn, bias_tangent_sk;
  uint sinks_tangent_off;
};
layout(set = 0, binding = TANGENTS_AT, std430) readonly buffer BiasTangent32_ { float bias_tangent32[]; };
#ifdef BIAS_ELEMENT
layout(set = 0, binding = TANGENTS_AT, std430) readonly buffer BiasTangent16_ { BIAS_TYPE bias_tangent16[]; };
#endif

uint bias_tangent_base;
void bias_tangent_of_head(uint b, uint head) {
  if (BIAS_MOVES) bias_tangent_base = bias_tangent_off + b * bias_tangent_sb + head * bias_tangent_sh;
}
float bias_tangent_of(uint query, uint key) {
  const uint at = bias_tangent_base + min(query, last_query()) * bias_tangent_sn + min(key, last_key()) * bias_tangent_sk;
#ifdef BIAS_ELEMENT
  if (SCORE_BIAS == 1) return BIAS_TANGENT_ELEMENT(at);
#endif
  return bias_tangent32[at];
}

layout(set = 0, binding = TANGENTS_AT + 1, std430) readonly buffer Sinks_ { float sinks[]; };
layout(set = 0, binding = TANGENTS_AT + 2, std430) readonly buffer SinksTangent_ { float sinks_tangent[]; };
// What the tangent of a head's sink adds to that of lse of a row, lse in units of log 2: the sink's part of the row's sum times it.
float sink_moves(uint head, float lse) {
  return weight_of(bits_of_score(sinks[sinks_off + head]) - lse) * sinks_tangent[sinks_tangent_off + head];
}
