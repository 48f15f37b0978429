// What becomes of a score s = scale q.k, in natural units, before the softmax. In this order:
//
//   SCORE_FUNCTIONS       s = f(s, batch, head, query, key), the score functions of the user's
//   SCORE_BIAS            s += bias[batch, head, query, key], of the storage type (1) or fp32 (2)
//   MASK_FUNCTIONS  s = -inf unless the mask functions see the key
//   SCORE_MASK            s = -inf unless mask[batch, head, query, key], a byte (1) or a bit (2) each, is set
//
// What positions and block masks hide comes after, from mask.glsl. SCORED says that there is any of it; it is no code where it is off.
//
// A kernel that defines ASKS_APART asks mask functions by itself where blocks are classed by them (BLOCK_CLASSES of mask.glsl): ASKED then,
// and of no pair of a whole block. SCORED is about the others.
//
// Functions become code on the host (flash/score): each refract below is an instruction that no kernel needs otherwise, kept by glslc with
// its operands, and straight-line SPIR-V is put in its place. Its last operand says what is asked for: 1 s', 2 s' and its derivative by s,
// 3 whether the pair is seen, 4 the coefficient and the index of a gradient by a captured tensor, 5 s' in units of log 2, 6 that and the
// derivative by s.
//
// Needs nq, nk and heads() of the arguments, lengths.glsl, and
//   SCORE_AT         a binding: there lie further arguments (more.glsl), then bias, mask and sinks; captured tensors follow
//   BIAS_ELEMENT(i)  element i of bias16[], whose type is BIAS_TYPE, as a float; not defined in builds for fp32
//   common.glsl

layout(constant_id = 63) const uint SCORE_BIAS = 0;
layout(constant_id = 64) const uint SCORE_MASK = 0;
layout(constant_id = 65) const bool SCORE_FUNCTIONS = false;
layout(constant_id = 66) const bool MASK_FUNCTIONS = false;
#ifdef ASKS_APART
const bool ASKED = MASK_FUNCTIONS && BLOCK_CLASSES, ASKED_HERE = MASK_FUNCTIONS && !BLOCK_CLASSES;
#else
const bool ASKED = false;
#define ASKED_HERE MASK_FUNCTIONS
#endif
bool asked;   // ASKED: whether they are in the tile that is computed
const bool SCORED = SCORE_BIAS != 0 || SCORE_MASK != 0 || SCORE_FUNCTIONS || ASKED_HERE;

#include "more.glsl"
layout(set = 0, binding = SCORE_AT + 1, std430) readonly buffer Bias32_ { float bias32[]; };
#ifdef BIAS_ELEMENT
layout(set = 0, binding = SCORE_AT + 1, std430) readonly buffer Bias16_ { BIAS_TYPE bias16[]; };
#endif
layout(set = 0, binding = SCORE_AT + 2, std430) readonly buffer Mask_ { uint mask_words[]; };

uint score_b, score_head;   // batch entry and query head of the scores that follow
uint bias_base, mask_base;

void scores_of(uint b, uint head) {
  score_b = b; score_head = head;
  if (SCORE_BIAS != 0) bias_base = bias_off + b * bias_sb + head * bias_sh;
  if (SCORE_MASK != 0) mask_base = mask_off + b * mask_sb + head * mask_sh;
}
void scores_of(uint bh) { if (SCORED || ASKED) scores_of(bh / heads(), bh % heads()); }

float bias_of(uint query, uint key) {
  const uint at = bias_base + min(query, last_query()) * bias_sn + min(key, last_key()) * bias_sk;
#ifdef BIAS_ELEMENT
  if (SCORE_BIAS == 1) return BIAS_ELEMENT(at);
#endif
  return bias32[at];
}
bool mask_allows(uint query, uint key) {
  const uint at = mask_base + min(query, last_query()) * mask_sn + min(key, last_key()) * mask_sk;
  if (SCORE_MASK == 1) return (mask_words[at / 4] >> at % 4 * 8 & 255u) != 0u;
  return (mask_words[at / 32] >> at % 32 & 1u) != 0u;
}

// float_key and ahead are the key and how far the query's position is ahead of it as floats, where a kernel has them cheaper than a
// conversion for each pair, which takes the place of an exponential; the constant 0 where it has not. In the tiles of matrices many pairs
// are equally far apart: what depends on ahead alone is then computed once for them.
#define HOOK_WITH(s, query, key, what, float_key, ahead)                                                 \
  refract(vec4(s, uintBitsToFloat(score_b), uintBitsToFloat(score_head), uintBitsToFloat(query)),        \
    vec4(uintBitsToFloat(key), intBitsToFloat(int(query) + int(key_count()) - int(query_count())), float_key, ahead), what)
#define HOOK(s, query, key, what) HOOK_WITH(s, query, key, what, 0, 0)

bool sees(uint query, uint key) { return HOOK(0.0, query, key, 3.0).x != 0.0; }
float unseen(float s, uint query, uint key) {
  if (ASKED_HERE) { if (!sees(query, key)) s = NEG_INFINITY; }
  if (SCORE_MASK != 0) { if (!mask_allows(query, key)) s = NEG_INFINITY; }
  return s;
}
// Pairs beyond the lengths of a batch entry are taken for its last: what captured tensors hold for others is no business of anybody's.
#define WITHIN_LENGTHS if (KEY_LENGTHS) key = min(key, last_key()); if (QUERY_LENGTHS) query = min(query, last_query());

// s' of a score, and with it the derivative by s.
float scored(float s, uint query, uint key) {
  WITHIN_LENGTHS
  if (SCORE_FUNCTIONS) s = HOOK(s, query, key, 1.0).x;
  if (SCORE_BIAS != 0) s += bias_of(query, key);
  return unseen(s, query, key);
}
vec2 scored_with_slope(float s, uint query, uint key) {
  WITHIN_LENGTHS
  vec2 x = vec2(s, 1);
  if (SCORE_FUNCTIONS) x = HOOK(s, query, key, 2.0).xy;
  if (SCORE_BIAS != 0) x.x += bias_of(query, key);
  x.x = unseen(x.x, query, key);
  return x;
}

// The same in units of log 2 for kernels that have s as a product, raw * factor: the factors then become one. bias is what bias_of says, or
// anything without SCORE_BIAS.
#if defined(BIAS_ELEMENT) && !defined(DTYPE_BF16)
const bool WIDE_BIAS = SCORE_BIAS == 2;   // it may be so large that bits_of_score is asked; fp16 has no such number
#else
const bool WIDE_BIAS = SCORE_BIAS != 0;
#endif
float bits_of(float s, uint query, uint key, float bias) {
  if (WIDE_BIAS && SCORE_FUNCTIONS) s += bits_of_score(bias);
  else if (WIDE_BIAS) s = min(max(fma(bias, LOG2E, s), bias * 0.5 - FAR), bias * 0.5 + FAR);
  else if (SCORE_BIAS != 0) s = fma(bias, LOG2E, s);
  return unseen(s, query, key);
}
float score_bits(float raw, float factor, uint query, uint key, float float_key, float ahead, float bias) {
  WITHIN_LENGTHS
  float x = raw * (factor * LOG2E);
  if (SCORE_FUNCTIONS) x = HOOK_WITH(raw * factor, query, key, 5.0, float_key, ahead).x;
  return bits_of(x, query, key, bias);
}
vec2 score_bits_with_slope(float raw, float factor, uint query, uint key, float float_key, float ahead, float bias) {
  WITHIN_LENGTHS
  vec2 x = vec2(raw * (factor * LOG2E), 1);
  if (SCORE_FUNCTIONS) x = HOOK_WITH(raw * factor, query, key, 6.0, float_key, ahead).xy;
  return vec2(bits_of(x.x, query, key, bias), x.y);
}
