package flash

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// subgroups is how a kernel is built that needs whole subgroups of the device's own size, or does not.
func (e *environment) subgroups(needed bool) pipeline.KernelInfo {
	if !needed {
		return pipeline.KernelInfo{}
	}
	return pipeline.KernelInfo{SubgroupSize: e.caps.facts.Subgroup.Size, FullSubgroups: true}
}

// variant is the one for these tensors of a fused forward kernel. Where keys are in parts, o and lse are the combiner's business.
func (f *operands) variant(c *combiner) variant {
	if c != nil {
		return variant{aligned: f.alignedInputs(), lse: true}
	}
	return variant{aligned: f.alignedInputs() && f.o.aligned, lse: f.hasLSE}
}

// variant says which pipeline of a program the tensors at hand need.
type variant struct{ aligned, lse bool }

const variants = 4

func (v variant) index() int { return boolInt(v.aligned) + 2*boolInt(v.lse) }

// variant gives the kernel that p holds, building it at the first call. Concurrent first calls build it once.
func (e *environment) variant(p *atomic.Pointer[pipeline.Kernel], module string, describe func() (constants, pipeline.KernelInfo)) (*pipeline.Kernel, error) {
	if k := p.Load(); k != nil {
		return k, nil
	}
	c, info := describe()
	k, err := e.build(module, c, info)
	if err != nil {
		return nil, err
	}
	p.Store(k)
	return k, nil
}
