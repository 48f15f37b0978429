package traffic

import "github.com/vkattn/vkattn/internal/attn"

// LeastForward is the bytes that a forward pass cannot do without, were the caches endless: inputs read and outputs written once, lse among
// them. matrix says that the matrix of scores stands in memory between kernels of their own, as in standard attention: four times more,
// written, read, written as weights, read.
func LeastForward(p attn.Problem, matrix bool) float64 {
	return operands(attn.ForwardOperands[:], p) + one(matrix)*4*scores(p)
}

// LeastBackward is the same of the backward pass: q, k, v, o, do and lse read, dq, dk and dv written; with the matrices in memory those
// of weights, dP and dS as well: P read twice, dP and dS written and read.
func LeastBackward(p attn.Problem, matrix bool) float64 {
	return operands(attn.BackwardOperands[:], p) + one(matrix)*6*scores(p)
}

// operands is the bytes of the operands of a pass, without a gradient that it may do without. Of pools it is those of KeyLen keys of each
// batch entry, however large the pools are; with lists, keys and values are counted as if no two lists had a key in common.
func operands(table []attn.Operand, p attn.Problem) (n float64) {
	used := p
	used.Pages = attn.Pages{}
	for i := range table {
		switch o := &table[i]; {
		case o.Optional && o.Of != "":
		case o.Cache:
			n += o.Bytes(&p)
		case !p.Lists.None() && !o.Output && (o.Name == "K" || o.Name == "V"):
			n += o.Bytes(&used) * min(1, p.PaperPairs()/float64(p.KeyLen))
		default:
			n += o.Bytes(&used)
		}
	}
	return n
}

// scores is the bytes of the scores that are computed.
func scores(p attn.Problem) float64 { return p.AllHeads() * p.PaperPairs() * float64(p.DType.Size()) }
