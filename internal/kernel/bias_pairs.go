package kernel

import "github.com/vkattn/vkattn/internal/attn"

// Kernels on matrices whose columns are keys read a bias two elements at a time (shaders/include/matrix_bias.glsl) where lanes hold
// neighbours of a row and every row of the bias begins at a multiple of 16 bytes and is one long. For what only tensors tell they have two
// pipelines, as for rows of q, k and v.

// PairsOfBias says whether they do for a problem, if the bias lies so.
func (l *FragmentLayout) PairsOfBias(p *attn.Problem, form int) bool {
	return form == FormRegisters && l.PairsOfQueries() && !p.Bias.None() && p.Bias.DType != attn.F32 && p.BiasShape()[3] > 1 &&
		wholeBiasRows(p)
}

func wholeBiasRows(p *attn.Problem) bool { return p.KeyLen%8 == 0 }

// GrowForBias makes the keys of a self-check as many as a bias that is read in pairs needs.
func GrowForBias(small, p *attn.Problem) {
	if !p.Bias.None() && wholeBiasRows(p) {
		small.KeyLen = attn.CeilDiv(small.KeyLen, 8) * 8
	}
}
