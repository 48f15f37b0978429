package score

import (
	"fmt"
	"slices"
)

// Hook is what a kernel asks for at a place: the last operand of its refract.
type Hook int

// The hooks. Each gives a vec4 whose other components are 0.
const (
	HookValue     Hook = 1 // s′ in x
	HookSlope     Hook = 2 // s′ in x and ∂s′/∂s in y
	HookMask      Hook = 3 // 1 in x where the query sees the key, else 0; s is not used
	HookGradient  Hook = 4 // the gradient's coefficient in x and the bits of the flat index, int32, in y
	HookBits      Hook = 5 // s′·log₂e in x
	HookBitsSlope Hook = 6 // s′·log₂e in x and ∂s′/∂s in y
)

// Code is what is put in place of a module's hooks. Zero functions are the identity, with slope 1; a zero mask lets all pairs take part; a
// zero gradient has coefficient 0 and index 0.
type Code struct {
	Score    Function
	Mask     MaskFunction
	Gradient Gradient // of Score, by one captured tensor
	// FirstBinding is the binding, in descriptor set 0, of the first captured tensor; the others follow it in the order of Captures.
	FirstBinding int
}

// MaxBinding is the largest binding of a captured tensor.
const MaxBinding = 1 << 16

// Captures lists what the code captures in the order of its bindings: what Score does, then what Mask does beyond that. It is an error if
// one name stands for different tensors, or a function is wrong.
func (c Code) Captures() ([]Tensor, error) {
	list, err := c.tensors()
	return describe(list), err
}

func (c Code) tensors() ([]*tensor, error) {
	if err := c.Score.Err(); err != nil {
		return nil, err
	}
	if err := c.Mask.Err(); err != nil {
		return nil, err
	}
	list := slices.Clone(c.Score.get().tensors)
	for _, t := range c.Mask.get().tensors {
		if _, err := slotOf(&list, t); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// CacheKey identifies what the code becomes, as Function.CacheKey does, and which captured tensors Score and the others share.
func (c Code) CacheKey() string {
	list, slots := slices.Clone(c.Score.get().tensors), []int{}
	for _, t := range slices.Concat(c.Mask.get().tensors, c.Gradient.get().of.tensors) {
		slot, err := slotOf(&list, t)
		if err != nil { // which Splice will say
			slot = -1
		}
		slots = append(slots, slot)
	}
	return fmt.Sprintf("%s-%s-%s-%d-%v", c.Score.CacheKey(), c.Mask.CacheKey(), c.Gradient.CacheKey(), c.FirstBinding, slots)
}

// Hooks counts the hooks of a module.
func Hooks(module []uint32) (map[Hook]int, error) {
	p, err := parse(module)
	if err != nil {
		return nil, err
	}
	n := map[Hook]int{}
	for _, h := range p.hooks {
		hook, err := h.hook()
		if err != nil {
			return nil, err
		}
		n[hook]++
	}
	return n, nil
}

// hook is what a place asks for.
func (h *hookSite) hook() (Hook, error) {
	for _, k := range []Hook{HookValue, HookSlope, HookMask, HookGradient, HookBits, HookBitsSlope} {
		if h.eta == float32(k) {
			return k, nil
		}
	}
	return 0, fmt.Errorf("score: the hook at word %d asks for %v, which is none of the hooks", h.at, h.eta)
}

// Splice returns a module with code in place of its hooks; one without hooks is returned as it is. It is an error if the module is none, is
// older than SPIR-V 1.3, has a hook that is not known, or a function is wrong.
//
// What does not depend on s goes to where the last of its operands is made, so that a load by head leaves the loops over keys. A captured
// tensor is declared where code in the module reads it: as an array in a storage buffer, decorated NonWritable and Restrict.
func Splice(module []uint32, c Code) ([]uint32, error) {
	tensors, err := c.tensors()
	if err != nil {
		return nil, err
	}
	if c.FirstBinding < 0 || c.FirstBinding+len(tensors) > MaxBinding {
		return nil, fmt.Errorf("score: FirstBinding is %d: bindings must be from 0 to %d", c.FirstBinding, MaxBinding)
	}
	var made [HookBitsSlope + 1]*fragment
	return splice(module, c.FirstBinding, tensors, func(h *hookSite) (*fragment, error) {
		hook, err := h.hook()
		if err != nil {
			return nil, err
		}
		if made[hook] == nil {
			made[hook] = c.fragment(hook)
		}
		return made[hook], made[hook].bind(tensors)
	})
}

// fragment is the code of a hook: what its result's components are.
type fragment struct {
	g       *graph // in the operations of devices
	results []ref
	tensors []*tensor
	slots   []int // of each tensor, its number among those of the module
}

func newFragment(g *graph, tensors []*tensor, roots ...ref) *fragment {
	low, out := lower(g, roots...)
	return &fragment{g: low, results: out, tensors: tensors}
}

// bind finds the fragment's tensors in the module's list.
func (f *fragment) bind(list []*tensor) error {
	f.slots = f.slots[:0]
	n := len(list)
	for _, t := range f.tensors {
		i, err := slotOf(&list, t)
		if err != nil {
			return err
		}
		if i >= n {
			return fmt.Errorf("score: the gradient is of another function: it captures %s", t.describe())
		}
		f.slots = append(f.slots, i)
	}
	return nil
}

func (c *Code) fragment(h Hook) *fragment {
	switch h {
	case HookMask:
		m := c.Mask.get()
		return newFragment(m.g, m.tensors, m.value)
	case HookGradient:
		g := c.Gradient.get()
		return newFragment(g.g, g.of.tensors, g.coefficient, g.index)
	case HookSlope:
		f := c.Score.get()
		return newFragment(f.g, f.tensors, f.value, f.slope)
	case HookBits, HookBitsSlope:
		f := c.Score.get()
		roots := []ref{f.value, f.slope}
		if h == HookBits {
			roots = roots[:1]
		}
		out := newFragment(f.g, f.tensors, roots...)
		out.results[0] = inBits(out.g, out.results[0])
		return out
	}
	f := c.Score.get()
	return newFragment(f.g, f.tensors, f.value)
}

// splice puts what a function chooses in place of each hook.
func splice(module []uint32, firstBinding int, tensors []*tensor, choose func(*hookSite) (*fragment, error)) ([]uint32, error) {
	p, err := parse(module)
	if err != nil {
		return nil, err
	}
	if len(p.hooks) == 0 {
		return slices.Clone(module), nil
	}
	if p.words[versionWord] < version13 {
		return nil, fmt.Errorf("score: the module is SPIR-V %#x, must be 1.3 or newer", p.words[versionWord])
	}
	e := newEmitter(p, firstBinding, tensors)
	for i := range p.hooks {
		f, err := choose(&p.hooks[i])
		if err != nil {
			return nil, err
		}
		e.hook(&p.hooks[i], f)
	}
	return e.module()
}
