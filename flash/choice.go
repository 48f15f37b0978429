package flash

import (
	"errors"
	"sync"

	"github.com/vkattn/vkattn/internal/kernel"
)

// chosen is the kernel that a plan takes for a pass that follows its forward pass.
type chosen[K kernel.AnyKernel, P any] struct {
	kernel  K
	program P
	tuning  map[string]int
	reasons []string
}

// choice is what a plan chose, once it was asked for.
type choice[K kernel.AnyKernel, P any] struct {
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
type kept[K kernel.AnyKernel, P any] struct {
	mu sync.Mutex
	by map[passKey]*chosen[K, P]
}

func (k *kept[K, P]) get(key passKey) *chosen[K, P] {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by[key]
}

func (k *kept[K, P]) put(key passKey, c *chosen[K, P]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[passKey]*chosen[K, P]{}
	}
	k.by[key] = c
}
