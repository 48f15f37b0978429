package score

import "fmt"

// Gradient tells how scores depend on a captured tensor of which each pair reads one element: with t the tensor and s′ the last function's
// result,
//
//	dt[index(b, h, i, j)] += ds′(b, h, i, j) · coefficient(s, b, h, i, j),   coefficient = ∂s′/∂t[index]
//
// summed over all pairs. The zero value has coefficient 0.
type Gradient struct{ f *gradient }

type gradient struct {
	of          *function
	slot        int
	g           *graph // the function's values, the same refs, and more
	coefficient ref
	index       ref
}

// Gradient is the derivative with respect to the fp32 tensor that was captured under a name. It is an error where there is none of that
// name, it holds integers, or a pair reads it at more than one index.
func (f Function) Gradient(name string) (Gradient, error) {
	d := f.get()
	if d.err != nil {
		return Gradient{}, d.err
	}
	for i, t := range d.tensors {
		if name != "" && t.Name == name {
			return d.gradient(i)
		}
	}
	return Gradient{}, fmt.Errorf("score: no tensor is captured under the name %q", name)
}

func (f *function) gradient(slot int) (Gradient, error) {
	t := f.tensors[slot]
	if t.Type != Float32 {
		return Gradient{}, fmt.Errorf("score: %s, holds integers: it has no gradient", t.describe())
	}
	read := ref(-1)
	for r, used := range f.g.reachable(f.value) {
		if v := &f.g.values[r]; !used || v.op != opLoad || v.bits != uint64(slot) {
			continue
		}
		if read >= 0 {
			return Gradient{}, fmt.Errorf("score: %s, is read at more than one index: its gradient would need several terms for a pair",
				t.describe())
		}
		read = ref(r)
	}
	g := f.g.clone()
	out := &gradient{of: f, slot: slot, g: g}
	if read < 0 { // an identity removed what read it
		out.coefficient, out.index = g.float(0), g.int(0)
		return Gradient{out}, nil
	}
	out.coefficient, out.index = g.derivative(f.value, read), g.values[read].args[0]
	return Gradient{out}, nil
}

var nothing = func() *gradient {
	g := newGraph(false)
	return &gradient{of: identity, slot: -1, g: g, coefficient: g.float(0), index: g.int(0)}
}()

func (g Gradient) get() *gradient {
	if g.f == nil {
		return nothing
	}
	return g.f
}

// Tensor describes the tensor that the gradient is by.
func (g Gradient) Tensor() Tensor {
	d := g.get()
	if d.slot < 0 {
		return Tensor{}
	}
	return d.of.tensors[d.slot].Tensor
}

// CacheKey identifies the code that coefficient and index become, as Function.CacheKey does.
func (g Gradient) CacheKey() string {
	d := g.get()
	return cacheKey(d.g, d.of.tensors, d.coefficient, d.index)
}
