package flash

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/internal/kernel"
)

// PassInfo is how a plan runs a pass: forward and backward passes, forward mode, maps.
type PassInfo struct {
	Tier           Tier           // of the kernel, by the hardware that it needs; other passes may have another
	Kernel         string         // with its tile, for example "scalar_forward 64x32"
	KernelName     string         // without, for example "scalar_forward"
	WorkspaceBytes uint64         // device memory of each recording, beyond tensors and Weights; with what only DCaptured needs
	Tuning         map[string]int // parameters in effect by name, of a pass that takes any
	WhyNotFaster   []string       // kernels preferred over the chosen one, each with the reason it was not chosen
}

// fitted is a program of a pass.
type fitted interface {
	Tile() string
	Scratch() []uint64
}

// chosen is the kernel that a plan takes for a pass.
type chosen[K kernel.AnyKernel, P fitted] struct {
	kernel  K
	program P
	tuning  map[string]int
	reasons []string
}

func (c *chosen[K, P]) info() PassInfo {
	o := c.kernel.Offered()
	info := PassInfo{Tier: Tier(o.Tier), Kernel: o.Name + " " + c.program.Tile(), KernelName: o.Name, Tuning: maps.Clone(c.tuning),
		WhyNotFaster: slices.Clone(c.reasons)}
	for _, n := range c.program.Scratch() {
		info.WorkspaceBytes += n
	}
	return info
}

// infoOf describes what a plan chooses for a pass.
func infoOf[K kernel.AnyKernel, P fitted](p *Plan, choose func() (*chosen[K, P], error)) (PassInfo, error) {
	if err := p.usable(); err != nil {
		return PassInfo{}, err
	}
	c, err := choose()
	if err != nil {
		return PassInfo{}, err
	}
	return c.info(), nil
}

// choice is what a plan chose, once it was asked for.
type choice[K kernel.AnyKernel, P fitted] struct {
	mu   sync.Mutex
	made bool // for good: what was chosen, or that nothing can be
	is   *chosen[K, P]
	err  error
}

// once gives the choice, made at the first call; one that the driver could not make, for lack of memory say, is tried again.
func (c *choice[K, P]) once(choose func() (*chosen[K, P], error)) (*chosen[K, P], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.made {
		c.is, c.err = choose()
		c.made = c.err == nil || errors.Is(c.err, ErrArgument) || errors.Is(c.err, ErrUnsupported)
	}
	return c.is, c.err
}

// passKey is all that such a choice depends on beside the selection.
type passKey struct {
	tier   Tier
	tuning string
}

// kept are the choices that were made for plans of a selection.
type kept[K kernel.AnyKernel, P fitted] struct {
	mu sync.Mutex
	by map[passKey]*chosen[K, P]
}

// get gives the choice of a plan, made by choose unless it was made before and what it follows from still holds.
func (k *kept[K, P]) get(p *Plan, key passKey, choose func() (*chosen[K, P], error)) (*chosen[K, P], error) {
	k.mu.Lock()
	c := k.by[key]
	k.mu.Unlock()
	if c != nil && p.selection.holds(p.dev) {
		return c, nil
	}
	c, err := choose()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[passKey]*chosen[K, P]{}
	}
	k.by[key] = c
	return c, nil
}
