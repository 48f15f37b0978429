package onnx

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/ref"
)

// Compute is every output of the case, by the operator's names and in its order of elements, in float64.
func (c *Case) Compute() (map[string][]float64, error) {
	switch c.Op {
	case "Attention":
		return c.computeAttention()
	case "RotaryEmbedding":
		r, err := c.Rotary()
		if err != nil {
			return nil, err
		}
		y, err := ref.Rotary(r.X, r.Cos, r.Sin, r.Interleaved)
		if err != nil {
			return nil, err
		}
		if r.Flat {
			y.Data = flat(y)
		}
		return map[string][]float64{"Y": y.Data}, nil
	case "TensorScatter":
		s, err := c.Scatter()
		if err != nil {
			return nil, err
		}
		out, err := ref.Scatter(s.Cache, s.Update, s.At, s.Circular)
		return map[string][]float64{"present_cache": out.Data}, err
	}
	return nil, fmt.Errorf("onnx: there is no operator %s here", c.Op)
}

func (c *Case) computeAttention() (map[string][]float64, error) {
	a, err := c.Attention()
	if err != nil {
		return nil, err
	}
	o, _, err := ref.Forward(a.Problem)
	if err != nil {
		return nil, err
	}
	m, err := ref.Matrix(a.Problem, a.Stage)
	if err != nil {
		return nil, err
	}
	out := map[string][]float64{"Y": a.Output(o), "qk_matmul_output": m.Data, "present_key": ref.Widen(a.Problem.K.Data),
		"present_value": ref.Widen(a.Problem.V.Data)}
	for name := range out {
		if _, ok := c.out[name]; !ok {
			delete(out, name)
		}
	}
	return out, nil
}

// Output puts the elements of o [B, Hq, Nq, Dv] in the order of Y.
func (a *Attention) Output(o ref.Array) []float64 {
	if a.Flat {
		return flat(o)
	}
	return o.Data
}
