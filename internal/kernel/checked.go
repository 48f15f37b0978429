package kernel

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// CheckedKernels are the pipelines of a kernel fitted to a problem, by variant. Each is run on a small problem before its first use on a
// device and driver (see SelfCheck).
type CheckedKernels struct {
	Env    *Env
	For    *attn.Problem
	Module string
	Named  string // the tile, for people

	// Describe gives the specialization constants of a variant, and what else its pipeline is made with.
	Describe func(v Variant) (Constants, pipeline.KernelInfo)
	// Try runs a variant's pipeline on a small problem and says what is wrong with the output, "" for nothing.
	Try func(k *pipeline.Kernel, v Variant) (wrong string, err error)

	Kernels [Variants]atomic.Pointer[pipeline.Kernel]
}

func (m *CheckedKernels) Tile() string { return m.Named }

// Usual builds the variants that a plan looks at: dense tensors with lse. On a device of the caller's, whose queue recording
// must leave alone, the other variant of alignment is looked at now too.
func (m *CheckedKernels) Usual(p *attn.Problem) error {
	usual := Variant{Aligned: p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0, LSE: true}
	_, err := m.Kernel(usual)
	if err == nil && usual.Aligned && m.Env.Attached {
		_, err = m.Kernel(Variant{LSE: true})
	}
	return err
}

// Kernel gives the pipeline of a variant, built and checked at the first call.
func (m *CheckedKernels) Kernel(v Variant) (*pipeline.Kernel, error) {
	if k := m.Kernels[v.Index()].Load(); k != nil {
		return k, nil
	}
	c, info := m.Describe(v)
	k, err := m.Env.Build(m.Module, c, info, m.For.Code())
	if err != nil {
		return nil, err
	}
	if err := m.Env.Prove(m.Module+" "+m.Named, m.compiled(c), func() (string, error) { return m.Try(k, v) }); err != nil {
		return nil, err
	}
	m.Kernels[v.Index()].Store(k)
	return k, nil
}

// Compiled is what the driver compiles for a variant.
func (m *CheckedKernels) Compiled(v Variant) []Compiled {
	c, _ := m.Describe(v)
	return m.compiled(c)
}

func (m *CheckedKernels) compiled(c Constants) []Compiled {
	return []Compiled{{m.Module, c, m.For.Code()}}
}
