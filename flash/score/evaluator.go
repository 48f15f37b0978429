package score

import "math"

// Evaluator computes a function in float64. It may be used by several goroutines. The zero value is the identity's.
type Evaluator struct{ value, slope *program }

// Bind makes the evaluator of a function with the values of what it captures. It is an error if some are missing, or of another type or
// number than declared. Values are not copied.
func (f Function) Bind(data Data) (Evaluator, error) {
	d := f.get()
	if d.err != nil {
		return Evaluator{}, d.err
	}
	value, err := compile(d.g, d.tensors, data, d.value)
	if err != nil {
		return Evaluator{}, err
	}
	slope, err := compile(d.g, d.tensors, data, d.value, d.slope)
	return Evaluator{value, slope}, err
}

// Value is s′ at a point.
func (e Evaluator) Value(at Point) float64 {
	if e.value == nil {
		return at.S
	}
	v, _ := e.value.two(&at)
	return math.Float64frombits(v)
}

// Slope is s′ and ∂s′/∂s at a point.
func (e Evaluator) Slope(at Point) (value, slope float64) {
	if e.slope == nil {
		return at.S, 1
	}
	v, d := e.slope.two(&at)
	return math.Float64frombits(v), math.Float64frombits(d)
}

// MaskEvaluator computes a mask function. It may be used by several goroutines. The zero value lets all pairs take part.
type MaskEvaluator struct{ p *program }

// Bind makes the evaluator of a mask with the values of what it captures, as Function.Bind does.
func (m MaskFunction) Bind(data Data) (MaskEvaluator, error) {
	d := m.get()
	if d.err != nil {
		return MaskEvaluator{}, d.err
	}
	p, err := compile(d.g, d.tensors, data, d.value)
	return MaskEvaluator{p}, err
}

// Allows says whether the query sees the key. The point's S does not matter.
func (e MaskEvaluator) Allows(at Point) bool {
	if e.p == nil {
		return true
	}
	v, _ := e.p.two(&at)
	return v != 0
}

// GradientEvaluator computes a gradient's coefficient and index in float64. It may be used by several goroutines. The zero value has
// coefficient 0.
type GradientEvaluator struct{ p *program }

// Bind makes the evaluator of a gradient with the values of what the function captures, as Function.Bind does.
func (g Gradient) Bind(data Data) (GradientEvaluator, error) {
	d := g.get()
	p, err := compile(d.g, d.of.tensors, data, d.coefficient, d.index)
	return GradientEvaluator{p}, err
}

// At is the coefficient of a pair, and which element of the tensor, row-major, it is for.
func (e GradientEvaluator) At(at Point) (coefficient float64, index int) {
	if e.p == nil {
		return 0, 0
	}
	c, i := e.p.two(&at)
	return math.Float64frombits(c), int(int32(i))
}
