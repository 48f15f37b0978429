// Package attn is one attention problem in numbers, without a device: which keys each query may attend to, and what follows from it: pairs
// to compute, tiles to visit. Kernels' plans, the byte model and the self-check ask here, so that a new mask is a change in one place; the
// shaders' side of the same rule stands in shaders/include.
package attn
