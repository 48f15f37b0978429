// Package scalar is the kernels for any Vulkan 1.1 device, in fp32 arithmetic: FlashAttention-2 forward, backward and in forward mode
// (JVP), the same for few queries (Decode), with a block mask (BlockSparse), and the first FlashAttention (Flash1). Their shaders are
// shaders/scalar.
package scalar
