package flash

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// constants are the specialization constants of a pipeline by the names that its shader declares. Their order is that of the key under
// which a verdict is remembered, and means nothing else.
type constants []constant

type constant struct {
	name  string
	value int
}

// number gives each constant the number that the module declares for its name. Every constant of the module must be set, once, and
// nothing else: a default left in place is a wrong tile on some device, and a name that the module lost is a setting without effect.
func (c constants) number(module string, in *shaders.Interface) ([]vk.SpecConstant, error) {
	unset := maps.Clone(in.Constants)
	out := make([]vk.SpecConstant, len(c))
	for i, v := range c {
		id, ok := unset[v.name]
		if _, declared := in.Constants[v.name]; !declared {
			return nil, fmt.Errorf("flash: %s declares no constant %s; it declares %s", module, v.name, strings.Join(slices.Sorted(maps.Keys(in.Constants)), ", "))
		} else if !ok {
			return nil, fmt.Errorf("flash: constant %s of %s is set twice", v.name, module)
		}
		delete(unset, v.name)
		out[i] = vk.SpecConstant{ID: id, Value: uint32(v.value)}
	}
	if len(unset) > 0 {
		return nil, fmt.Errorf("flash: constants of %s are not set: %s", module, strings.Join(slices.Sorted(maps.Keys(unset)), ", "))
	}
	// In the order of numbers: the validation layer (1.4.309) takes a matrix's dimensions from the map by position.
	slices.SortFunc(out, func(a, b vk.SpecConstant) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// build makes the pipeline of a module. info says what else it is made with; bindings and push constants are as the module declares.
func (d *Device) build(module string, c constants, info pipeline.KernelInfo) (*pipeline.Kernel, error) {
	code, err := d.module(module)
	if err != nil {
		return nil, err
	}
	declared, err := d.shaders(module).Describe(module)
	if err != nil {
		return nil, err
	}
	in := &declared.Interface
	if err := checkLayout(module, in.Push); err != nil {
		return nil, err
	}
	if info.Spec, err = c.number(module, in); err != nil {
		return nil, err
	}
	info.Name, info.Code, info.Bindings, info.PushBytes = module, code, in.BindingCount(), in.PushBytes()
	return d.ctx.Kernel(info)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
