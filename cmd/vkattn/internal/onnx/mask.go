package onnx

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/ref"
)

// mask reads attn_mask: numbers that are added to the scores, or booleans, true for what may be seen. It broadcasts to [B, Hq, Nq, Nk] from
// its last dimension on, except that a last dimension shorter than Nk is padded: with −∞, or false.
func (c *Case) mask(a *Attention) error {
	m, ok := c.in["attn_mask"]
	if !ok {
		return nil
	}
	p := &a.Problem
	if m.Type != "BOOL" && !m.real() {
		a.Lacks = append(a.Lacks, "attn_mask of type "+m.Type)
		return nil
	}
	full := [4]int{p.Q.B, p.Q.H, p.Q.N, p.K.N}
	shape := [4]int{1, 1, 1, 1}
	if len(m.Shape) < 1 || len(m.Shape) > 4 {
		return fmt.Errorf("onnx: attn_mask %v: it must have 1 to 4 dimensions", m.Shape)
	}
	copy(shape[4-len(m.Shape):], m.Shape)
	for i, n := range shape[:3] {
		if n != 1 && n != full[i] {
			return fmt.Errorf("onnx: attn_mask %v does not broadcast to %v", m.Shape, full)
		}
	}
	width := shape[3]
	if width > p.K.N {
		return fmt.Errorf("onnx: attn_mask %v has more columns than there are keys, %d", m.Shape, p.K.N)
	}
	padding := float32(math.Inf(-1))
	if m.Type == "BOOL" {
		padding = 0 // false
	}
	padded := ref.NewTensor(shape[0], shape[1], shape[2], p.K.N)
	for i := range padded.Data {
		row, column := i/p.K.N, i%p.K.N
		padded.Data[i] = padding
		if column < width {
			padded.Data[i] = m.Floats[row*width+column]
		}
	}
	if m.Type != "BOOL" {
		p.Bias = &padded
		return nil
	}
	p.Mask = &ref.Mask{B: padded.B, H: padded.H, N: padded.N, M: padded.D, Data: make([]bool, len(padded.Data))}
	for i, x := range padded.Data {
		p.Mask.Data[i] = x != 0
	}
	return nil
}
