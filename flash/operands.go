package flash

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// mostHeld is the most tensors that a pass has, a block mask, captured ones and, before these, the gradients with respect to them among
// them.
const mostHeld = max(len(attn.ForwardOperands), len(attn.BackwardOperands), len(attn.JVPOperands)) + 1 + 2*MaxCaptured

// place checks what a caller gave for the operands of a pass, in the order of the table, and puts it where kernels find it, in the same
// order. It does not allocate unless it fails.
func place(d *Device, pass string, table []attn.Operand, p *attn.Problem, given []*Tensor, to []*kernel.Operand) error {
	for i := range table {
		o, t := &table[i], given[i]
		*to[i] = kernel.Operand{}
		if t == nil && (o.Optional || !o.In(p)) {
			continue
		}
		if err := t.suits(pass, o, d, p); err != nil {
			return err
		}
		*to[i] = t.placed(o)
	}
	for i := range table {
		if table[i].Output && given[i] != nil {
			if err := writable(pass, table, given, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// placed is a tensor as kernels see it in an operand's place.
func (t *Tensor) placed(o *attn.Operand) kernel.Operand {
	to := t.bound
	if !o.Statistics && o.When != nil {
		to.ScoreStrides(t.layout.Shape)
	}
	return to
}

// suits checks one tensor against what the problem wants in its place.
func (t *Tensor) suits(pass string, o *attn.Operand, d *Device, p *attn.Problem) error {
	switch {
	case t == nil || t.mem == nil || t.mem.closed.Load() || t.dev.usable() != nil:
		return t.usable(pass + "." + o.Name)
	case !o.In(p):
		return badArgument(pass+"."+o.Name, t, "must be nil: the problem has none")
	case t.dev != d:
		return badArgument(pass+"."+o.Name, t, "must be a tensor of the plan's device")
	case attn.DType(t.dtype) != o.DType(p):
		return badArgument(pass+"."+o.Name, t, "must be of type %v", o.DType(p))
	case t.layout.Shape != o.Shape(p):
		return badArgument(pass+"."+o.Name, t, "must have shape %v", o.Shape(p))
	case o.Statistics && !t.layout.Dense():
		return badArgument(pass+"."+o.Name, t, "must be in row-major order")
	}
	return nil
}

// writable checks that the output in the place of an operand shares memory with no other tensor of the pass, nor with itself.
func writable(pass string, table []attn.Operand, given []*Tensor, at int) error {
	t, name := given[at], table[at].Name
	if t.folded {
		return badArgument(pass+"."+name, t, "elements of an output must not share memory")
	}
	handle := t.mem.buf.Handle()
	for i, other := range given {
		if other == nil || i == at || !table[at].Optional && table[i].Output && table[i].Optional { // which names itself
			continue
		}
		if other == t { // one tensor in two places
			return badArgument(pass+"."+name, t, "an output must not overlap another tensor of the pass: it is %s too", table[i].Name)
		}
		if other.mem.buf.Handle() == handle && t.layout.Overlaps(&other.layout) {
			return badArgument(pass+"."+name, t, "an output must not overlap another tensor of the pass: %s is %v", table[i].Name, other)
		}
	}
	return nil
}
