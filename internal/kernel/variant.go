package kernel

import (
	"github.com/vkattn/vkattn/pipeline"
)

// Subgroups is how a kernel is built that needs whole subgroups of the device's own size, or does not.
func (e *Env) Subgroups(needed bool) pipeline.KernelInfo {
	if !needed {
		return pipeline.KernelInfo{}
	}
	return pipeline.KernelInfo{SubgroupSize: e.Caps.Facts.Subgroup.Size, FullSubgroups: e.Caps.FullSubgroups()}
}

// Variant says which pipeline of a program the tensors at hand need.
type Variant struct {
	Aligned, LSE bool
	InKeys       bool // v is the first columns of k, where it lies
}
