package flash

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// checkedKernels are the pipelines of a matrix kernel fitted to a problem, by variant. What they compute rests on more than
// Vulkan promises, so each is run on a small problem before its first use on a device and driver (see SelfCheck).
type checkedKernels struct {
	dev    *Device
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
	if err == nil && usual.aligned && m.dev.info.Attached {
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
	k, err := m.dev.variant(&built, m.module, func() (constants, pipeline.KernelInfo) { return m.describe(v) })
	if err != nil {
		return nil, err
	}
	if err := m.verify(k, v); err != nil {
		return nil, err
	}
	m.kernels[v.index()].Store(k)
	return k, nil
}

// verify lets a pipeline that was never run on this device and driver prove itself on a small problem, and refuses one that
// failed.
func (m *checkedKernels) verify(k *pipeline.Kernel, v variant) error {
	key, err := m.verdictKey(v)
	if err != nil {
		return err
	}
	verdict, err := m.dev.verdict(key, func() (string, error) { return m.try(k, v) })
	if err != nil {
		return fmt.Errorf("self-check of %s: %w", m.module, err)
	}
	if verdict != passed {
		where := "this process"
		if path := m.dev.knownPath(); path != "" {
			where = path
		}
		return &denied{&declined{fmt.Sprintf("%s %s is on the deny-list of this device and driver (%s), because its self-check failed: %s", m.module, m.named, where, verdict)}}
	}
	return nil
}

// verdictKey names what a driver compiles: a module and its specialization constants.
func (m *checkedKernels) verdictKey(v variant) (string, error) {
	hash, err := m.dev.moduleHash(m.module)
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("check %s %.16s", m.module, hash)
	constants, _ := m.describe(v)
	for _, c := range constants {
		key += fmt.Sprintf(" %x", c.value)
	}
	return key, nil
}

// refused makes the error of a variant that the plan did not need, and that failed its self-check: there is no other kernel
// to turn to any more.
func refused(err error, p *Problem) error {
	var no *declined
	if errors.As(err, &no) {
		return &UnsupportedError{What: fmt.Sprintf("%v with tensors of this alignment, tier %s", *p, TierMatrix), Reasons: []string{no.why}, Denied: isDenied(err)}
	}
	return err
}
