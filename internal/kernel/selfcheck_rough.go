package kernel

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Functions of the user's may make much of little: 100 s makes of scores that are off by a rounding weights that are off by a hundred. How
// much a self-check's functions do is measured on attention that is plainly right: what it computes in fp32 and in the storage type, which
// standard attention rounds its scores to, against float64. Of numbers that functions leave as they are that is less than the tolerances.
const (
	roughOfType = 4  // times the distance of plain attention in the storage type
	roughOfF32  = 32 // of that in fp32, whose sums may be in any order
)

// roughTypes are the types that plain attention is computed in.
func roughTypes(p *attn.Problem) map[ref.DType]float64 {
	types := map[ref.DType]float64{ref.F32: roughOfF32}
	switch p.DType {
	case attn.F16:
		types[ref.F16] = roughOfType
	case attn.BF16:
		types[ref.BF16] = roughOfType
	}
	return types
}

// roughForward is how far o and lse of a self-check may be off besides the tolerances: nothing without functions.
func roughForward(p *attn.Problem, in *ref.Problem, o, lse ref.Array) (offO, offLSE float64, err error) {
	if !HasFunctions(p) {
		return 0, 0, nil
	}
	for t, times := range roughTypes(p) {
		plainO, plainLSE, err := ref.PlainForward(*in, t)
		if err != nil {
			return 0, 0, err
		}
		offO, offLSE = offO+times*furthest(plainO.Data, o.Data), offLSE+times*furthest(plainLSE.Data, lse.Data)
	}
	return offO, offLSE, nil
}

// roughGradients is the same of gradients, by the names of operands and of captured tensors.
func roughGradients(p *attn.Problem, in *ref.Problem, do ref.Tensor, dlse []float32, want *ref.Gradients) (map[string]float64, error) {
	if !HasFunctions(p) {
		return nil, nil
	}
	off := map[string]float64{}
	for t, times := range roughTypes(p) {
		plain, err := ref.PlainBackward(*in, t, do, dlse)
		if err != nil {
			return nil, err
		}
		ours := gradientsByName(plain)
		for name, x := range gradientsByName(want) {
			off[name] += times * furthest(ours[name].Data, x.Data)
		}
		for name := range want.DCaptured {
			off[name] += times * furthest(plain.DCaptured[name], want.DCaptured[name])
		}
	}
	return off, nil
}

// furthest is the largest difference between numbers; what is none on either side does not count.
func furthest(a, b []float64) (most float64) {
	for i := range b {
		if d := math.Abs(a[i] - b[i]); !math.IsNaN(d) && !math.IsInf(d, 0) {
			most = max(most, d)
		}
	}
	return most
}

// gradientsByName are the oracle's by the names of operands.
func gradientsByName(g *ref.Gradients) map[string]ref.Array {
	out := map[string]ref.Array{"DQ": g.DQ, "DK": g.DK, "DV": g.DV}
	for i, x := range g.AllBiases() {
		out["D"+ref.BiasNames[i]] = *x
	}
	return out
}
