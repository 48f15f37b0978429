package ref

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/plainjson"
)

// Vector is a golden test case: a problem, what goes into backward, and all answers, computed in
// float64 by independent programs (PyTorch's automatic differentiation; tangents by testdata/vectors/tangents.py).
type Vector struct {
	Name    string
	DType   DType
	Problem Problem
	DO      Tensor
	// Tangents are what goes into forward mode, where a file has any: o_tangent and lse_tangent are among the answers then.
	Tangents Tangents
	// Answers by name: o lse dq dk dv, and dbias, dsinks, o_tangent, lse_tangent, max_logit where used; stored in fp32.
	Answers map[string][]float32
	// PlainError is that program's own max|plain − ref| by output.
	PlainError map[string]float64
}

// ReadVector reads a golden file: safetensors, with the options as JSON under the metadata key case.
func ReadVector(path string) (*Vector, error) {
	tensors, metadata, err := ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	v, err := newVector(tensors, metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// ParseVector is ReadVector of a file's bytes.
func ParseVector(file []byte) (*Vector, error) {
	tensors, metadata, err := ParseSafetensors(file)
	if err != nil {
		return nil, err
	}
	return newVector(tensors, metadata)
}

func newVector(tensors map[string]Stored, metadata map[string]string) (*Vector, error) {
	var c struct {
		Name    string
		DType   string
		Causal  bool
		Align   string
		Scale   float64
		Softcap float64
		Window  []int
		Block   []int
		Plain   map[string]float64 `json:"plain_max_abs_error"`
	}
	if err := plainjson.Unmarshal([]byte(metadata["case"]), &c); err != nil {
		return nil, fmt.Errorf("metadata case: %w", err)
	}
	t, err := ParseDType(c.DType)
	if err != nil {
		return nil, err
	}
	v := &Vector{Name: c.Name, DType: t, Answers: map[string][]float32{}, PlainError: c.Plain}
	p := &v.Problem
	p.Scale, p.Softcap = c.Scale, c.Softcap
	if c.Causal {
		p.Causal = BottomRight
		if c.Align == "top_left" {
			p.Causal = TopLeft
		}
	}
	if len(c.Window) == 2 {
		p.Window = &Window{c.Window[0], c.Window[1]}
	}
	for name, stored := range tensors {
		data, err := stored.Floats()
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		// Every tensor here is read as four-dimensional, with ones in front.
		shape := [4]int{1, 1, 1, 1}
		if len(stored.Shape) > 4 {
			return nil, fmt.Errorf("tensor %s: shape %v", name, stored.Shape)
		}
		copy(shape[4-len(stored.Shape):], stored.Shape)
		tensor := Tensor{shape[0], shape[1], shape[2], shape[3], data}
		switch name {
		case "q":
			p.Q = tensor
		case "k":
			p.K = tensor
		case "v":
			p.V = tensor
		case "do":
			v.DO = tensor
		case "q_tangent":
			v.Tangents.Q = &tensor
		case "k_tangent":
			v.Tangents.K = &tensor
		case "v_tangent":
			v.Tangents.V = &tensor
		case "bias_tangent":
			v.Tangents.Bias = &tensor
		case "bias":
			p.Bias = &tensor
		case "alibi_slopes":
			p.Slopes = data
		case "sinks":
			p.Sinks = data
		case "lists":
			l := &Lists{H: shape[1], K: shape[3]}
			for _, x := range data {
				l.Data = append(l.Data, int32(x))
			}
			p.Lists = l
		case "mask":
			p.Mask = &Mask{shape[0], shape[1], shape[2], shape[3], booleans(data)}
		case "block_mask":
			if len(c.Block) != 2 {
				return nil, fmt.Errorf("block mask without the size of a block")
			}
			p.Blocks = &BlockMask{shape[0], shape[1], shape[2], shape[3], c.Block[0], c.Block[1], booleans(data)}
		default:
			v.Answers[name] = data
		}
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return v, p.checkTangents(&v.Tangents)
}

func booleans(x []float32) []bool {
	out := make([]bool, len(x))
	for i, x := range x {
		out[i] = x != 0
	}
	return out
}
