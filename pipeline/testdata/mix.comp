#version 450
// dst[i] = src[n-1-i]·MUL + add, modulo 2³². Reading from the other end makes every workgroup depend on another one of the
// dispatch before, so that a missing barrier shows; spin makes a dispatch slow.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint MUL = 1;
layout(set = 0, binding = 0) readonly buffer Src { uint src[]; };
layout(set = 0, binding = 1) buffer Dst { uint dst[]; };
layout(push_constant) uniform Args { uint n, add, src_off, dst_off, spin; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= n) return;
    uint v = src[src_off + n - 1 - i];
    for (uint s = 0; s < spin; s++) v = v * 1664525u + 1013904223u;
    dst[dst_off + i] = v * MUL + add;
}
