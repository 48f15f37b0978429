#version 450
// y[i] = FACTOR * x[i] + add for i < n: the kernel of package vk's tests.
// tools/glslc.sh or: glslc --target-env=vulkan1.1 -O affine.comp -o affine.spv
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FACTOR = 1;
layout(push_constant) uniform Args { uint n, add; };
layout(set = 0, binding = 0) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { uint y[]; };

void main() {
	uint i = gl_GlobalInvocationID.x;
	if (i < n)
		y[i] = FACTOR * x[i] + add;
}
