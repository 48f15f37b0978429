#version 460
// What a loop over blocks of keys keeps between them, in fp32: copies x to y, adds it, or joins attention over further keys to it.
//
//   COPY   y = x
//   ADD    y = y + x: gradients of parts, which add up
//   JOIN   lse = log(exp(lse_y) + exp(lse_x)),   y = exp(lse_y - lse) y + exp(lse_x - lse) x
//
// JOIN is the running form of merge.comp (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers", 2023, section 3, after the
// online softmax of Milakov and Gimelshein, 2018): one part at a time, the sum normalised after each, so that memory does not grow with
// their number. lse_x is -inf where a part has no key for a row: its row of x is then not used whatever it holds, and likewise y.
//
// An invocation owns 16 bytes of a row of x's type where every row of both tensors is aligned to that, else one element. Invocations of a
// row all read its two logarithms, and one writes the new one elsewhere. Bound by memory: each element is read and written once.
//
// Bindings: 0 x and 1 y, [B,H,n,D] (strided, last stride 1); with JOIN 2 lse_x [B,H,n] fp32 (strided, last stride 1), 3 lse_y and 4 the new
// one, dense. Push constants: below. `total` counts invocations, B H n ceil(D / those elements); workgroups: ceil(total / WG); `base`
// counts workgroups.
//
//   0 WG   1 DV (columns)
//   2 ALIGNED   every row of both tensors begins at a multiple of 16 bytes and is a multiple of 16 bytes long
//   3 RULE      0 COPY, 1 ADD, 2 JOIN
//   4 X_F32     x is fp32, whatever DTYPE
//   5 Y_F32     y is; always with ADD and JOIN

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "dtype.glsl"
#include "common.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint DV = 64;
layout(constant_id = 2) const bool ALIGNED = false;
layout(constant_id = 3) const uint RULE = 0;
layout(constant_id = 4) const bool X_F32 = false;
layout(constant_id = 5) const bool Y_F32 = false;
const uint COPY = 0, ADD = 1, JOIN = 2;

layout(push_constant) uniform Args {
  uint nq, row_heads;
  uint offsets;             // of x | y << 8 | lse_x << 16, in elements
  uint more_offsets;        // of lse_y | the new one << 8
  uint x_sb, x_sh, x_sn;    // strides of batch, head, row, in elements
  uint y_sb, y_sh, y_sn;
  uint lse_sb, lse_sh;      // of lse_x, whose rows stand one behind the other
  uint base;                // first workgroup of this dispatch
  uint total;               // invocations of the whole problem, over all dispatches
};

INPUT(x, 0)
layout(set = 0, binding = 0, std430) readonly buffer xFloat1 { float x_float1[]; };
OUTPUT(y, 1)
layout(set = 0, binding = 1, std430) buffer yFloat4 { vec4 y_float4[]; };
layout(set = 0, binding = 1, std430) buffer yFloat1 { float y_float1[]; };
layout(set = 0, binding = 2, std430) readonly buffer LseX { float lse_x[]; };
layout(set = 0, binding = 3, std430) readonly buffer LseY { float lse_y[]; };
layout(set = 0, binding = 4, std430) writeonly buffer LseOut { float lse_out[]; };

const uint FOURS = ALIGNED ? UNIT4 : 1;   // vectors that an invocation owns; one element stands in the first of one
const uint OWN = ALIGNED ? UNIT : 1;      // elements
const uint ITEMS = (DV + OWN - 1) / OWN;  // invocations of a row

void main() {
  const uint group = base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  if (group > (total - 1) / gl_WorkGroupSize.x) return;  // before the next line could pass 32 bits
  const uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
  if (id >= total) return;
  const uint item = id % ITEMS, row = id / ITEMS, column = item * OWN;
  const uint i = row % nq, h = row / nq % row_heads, b = row / nq / row_heads;
  const uint from = (offsets & 255u) + b * x_sb + h * x_sh + i * x_sn + column;
  const uint to = (offsets >> 8 & 255u) + b * y_sb + h * y_sh + i * y_sn + column;

  vec4 x[UNIT4];
  [[unroll]] for (uint f = 0; f < UNIT4; ++f) x[f] = vec4(0);
  if (X_F32) {
    if (!ALIGNED) x[0].x = x_float1[from];
    else [[unroll]] for (uint f = 0; f < UNIT4; ++f) x[f] = uintBitsToFloat(x16[from / 4 + f]);
  } else if (ALIGNED) decode16(x16[from / UNIT], x);
  else x[0].x = decode(x1[from]);

  vec2 weights = vec2(1, RULE == COPY ? 0 : 1);  // of x and y
  if (RULE == JOIN) {
    const float lx = lse_x[(offsets >> 16 & 255u) + b * lse_sb + h * lse_sh + i], ly = lse_y[(more_offsets & 255u) + row];
    const uint nothing = floatBitsToUint(NEG_INFINITY);
    const bool has_x = floatBitsToUint(lx) != nothing, has_y = floatBitsToUint(ly) != nothing;
    const float top = has_x && has_y ? max(lx, ly) : has_x ? lx : ly;
    weights = vec2(has_x ? exp(lx - top) : 0, has_y ? exp(ly - top) : 0);
    const float sum = weights.x + weights.y;
    if (item == 0) lse_out[(more_offsets >> 8 & 255u) + row] = sum == 0 ? NEG_INFINITY : top + log(sum);
    if (sum != 0) weights /= sum;
  }
  [[unroll]] for (uint f = 0; f < FOURS; ++f) {
    vec4 z = RULE == JOIN && weights.x == 0 ? vec4(0) : weights.x * x[f];
    if (RULE != COPY) {
      vec4 y = vec4(0);
      if (!ALIGNED) y.x = y_float1[to];
      else y = y_float4[to / 4 + f];
      if (RULE == ADD || weights.y != 0) z += weights.y * y;
    }
    if (Y_F32 || RULE != COPY) {
      if (!ALIGNED) y_float1[to] = z.x;
      else y_float4[to / 4 + f] = z;
    } else {
      if (!ALIGNED) y1[to] = encode(z.x);
      else y4[to / 4 + f] = encode4(z);
    }
  }
}
