package flash

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// checkedKernels are the pipelines of a matrix kernel fitted to a problem, by variant. What they compute rests on more than
// Vulkan promises, so each is run on a small problem before its first use on a device and driver (see SelfCheck).
type checkedKernels struct {
	env    *environment
	module string
	named  string // the tile, for people

	// describe gives the specialization constants of a variant, and what else its pipeline is made with.
	describe func(v variant) (constants, pipeline.KernelInfo)
	// try runs a variant's pipeline on a small problem and says what is wrong with the output, "" for nothing.
	try func(k *pipeline.Kernel, v variant) (wrong string, err error)

	kernels [variants]atomic.Pointer[pipeline.Kernel]
}

func (m *checkedKernels) tile() string { return m.named }

// usual builds the variants that a plan looks at: dense tensors with lse. On a device of the caller's, whose queue recording
// must leave alone, the other variant of alignment is looked at now too.
func (m *checkedKernels) usual(p *Problem) error {
	usual := variant{aligned: p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0, lse: true}
	_, err := m.kernel(usual)
	if err == nil && usual.aligned && m.env.attached {
		_, err = m.kernel(variant{lse: true})
	}
	return err
}

// kernel gives the pipeline of a variant, built and checked at the first call.
func (m *checkedKernels) kernel(v variant) (*pipeline.Kernel, error) {
	if k := m.kernels[v.index()].Load(); k != nil {
		return k, nil
	}
	var built atomic.Pointer[pipeline.Kernel]
	k, err := m.env.variant(&built, m.module, func() (constants, pipeline.KernelInfo) { return m.describe(v) })
	if err != nil {
		return nil, err
	}
	if err := m.env.prove(m.module+" "+m.named, m.compiled(v), func() (string, error) { return m.try(k, v) }); err != nil {
		return nil, err
	}
	m.kernels[v.index()].Store(k)
	return k, nil
}

// compiled is what the driver compiles for a variant.
func (m *checkedKernels) compiled(v variant) []compiled {
	c, _ := m.describe(v)
	return []compiled{{m.module, c}}
}
