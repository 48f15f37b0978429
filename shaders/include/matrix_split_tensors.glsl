// Tensors of the builds with SPLIT (matrix_split.glsl): as matrix_attention.glsl has them, of fp32.

layout(binding = 0) readonly buffer Q4_ { vec4 q4[]; };
layout(binding = 0) readonly buffer Q1_ { float q1[]; };
layout(binding = 1) readonly buffer K4_ { vec4 k4[]; };
layout(binding = 1) readonly buffer K1_ { float k1[]; };
layout(binding = 2) readonly buffer V4_ { vec4 v4[]; };
layout(binding = 2) readonly buffer V1_ { float v1[]; };
#ifndef KEY_PARTS
layout(binding = 3) writeonly buffer O4_ { vec4 o4[]; };
layout(binding = 3) writeonly buffer O1_ { float o1[]; };
layout(binding = 4) writeonly buffer LSE_ { float lse[]; };
#endif
