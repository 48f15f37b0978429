package kernel

// Implementation is the algorithm that a kernel belongs to.
type Implementation uint8

const (
	Flash    Implementation = iota // FlashAttention-2
	Standard                       // the matrix of scores in memory
	Flash1                         // the first FlashAttention
)

// Tier is what of a device a kernel makes use of.
type Tier string

const (
	TierScalar Tier = "scalar" // any Vulkan 1.1 device
	TierMatrix Tier = "matrix" // VK_KHR_cooperative_matrix
)
