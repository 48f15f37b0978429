// Package matrix is the kernels on cooperative matrices, VK_KHR_cooperative_matrix: FlashAttention-2 forward, backward and in forward
// mode (JVP), with a block mask (BlockSparse), and the first FlashAttention (Flash1). Their shaders are shaders/matrix.
package matrix
