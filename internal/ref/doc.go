// Package ref is attention on the CPU in float64: the oracle that every kernel is compared with.
//
// With q [B, Hq, Nq, D], k [B, Hk, Nk, D], v [B, Hk, Nk, Dv] and query head h reading key head
// h / (Hq/Hk):
//
//	s   = scale · q·kᵀ                       scale defaults to 1/√D
//	s   = softcap · tanh(s / softcap)        with a softcap
//	s  += −slope[h] · |i + Nk − Nq − j|      with ALiBi
//	s  += bias                               broadcast
//	s_ij = −∞                                where i may not attend to j
//	lse_i = log Σ_j exp(s_ij)                with a sink, exp(sink[h]) is one more term of the sum
//	p   = exp(s − lse)
//	o   = dropout(p) · v
//
// A row with nothing to attend to gives o = 0, lse = −∞, zero gradients and zero tangents.
//
// The package also holds "plain" (the same computed in the inputs' own dtype, as an unfused program
// would) and the bounds that say how close to the oracle is right.
package ref
