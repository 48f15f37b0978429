package kernel

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Subgroups is how a kernel is built that needs whole subgroups of the device's own size, or does not.
func (e *Env) Subgroups(needed bool) pipeline.KernelInfo {
	if !needed {
		return pipeline.KernelInfo{}
	}
	return pipeline.KernelInfo{SubgroupSize: e.Caps.Facts.Subgroup.Size, FullSubgroups: true}
}

// Variant says which pipeline of a program the tensors at hand need.
type Variant struct{ Aligned, LSE bool }

// Variant gives the kernel that p holds, building it at the first call, with the functions of the problem. Concurrent first calls build it
// once.
func (e *Env) Variant(p *atomic.Pointer[pipeline.Kernel], module string, problem *attn.Problem,
	describe func() (Constants, pipeline.KernelInfo)) (*pipeline.Kernel, error) {
	if k := p.Load(); k != nil {
		return k, nil
	}
	c, info := describe()
	k, err := e.Build(module, c, info, problem.Code())
	if err != nil {
		return nil, err
	}
	p.Store(k)
	return k, nil
}
