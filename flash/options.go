package flash

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

// Implementation is an algorithm.
type Implementation uint8

const (
	// Flash is FlashAttention-2: queries outside, keys inside, nothing of size Nq×Nk stored. With Problem.Blocks it is block-sparse
	// attention: blocks that Forward.Blocks and Backward.Blocks leave out cost nothing. The same holds for Problem.MaskBlocks.
	Flash Implementation = iota
	// Standard is scores, softmax and product as three kernels with the Nq×Nk matrix in device memory: the baseline.
	Standard
	// Flash1 is the first FlashAttention: keys outside, queries inside, so that the output of every query passes through device
	// memory once for each block of keys. Forward only; it is there to be measured beside Flash.
	Flash1

	implementations
)

// String gives the name used in result files.
func (i Implementation) String() string {
	switch i {
	case Flash:
		return "flash2"
	case Standard:
		return "standard"
	case Flash1:
		return "flash1"
	}
	return "unknown implementation"
}

// ParseImplementation reads flash, flash2, flash1, standard.
func ParseImplementation(s string) (Implementation, error) {
	switch s {
	case "flash", "flash2":
		return Flash, nil
	case "standard":
		return Standard, nil
	case "flash1":
		return Flash1, nil
	}
	return 0, badArgument("implementation", fmt.Sprintf("%q", s), "must be flash (flash2), flash1 or standard")
}

// Tier is a class of kernels by the hardware they need.
type Tier string

const (
	TierScalar Tier = "scalar" // any Vulkan 1.1 device: fp32 arithmetic, tiles in workgroup shared memory
	TierMatrix Tier = "matrix" // VK_KHR_cooperative_matrix
)

// A PlanOption narrows what Device.Plan may choose.
type PlanOption func(*planOptions) error

type planOptions struct {
	implementation Implementation
	tier           Tier // "" means the fastest that can
	tuning         map[string]int
	backwardTuning map[string]int
	noStored       bool // the user's tuning file is not looked at
}

// WithImplementation chooses the algorithm; the default is Flash.
func WithImplementation(i Implementation) PlanOption {
	return func(o *planOptions) error {
		if i >= implementations {
			return badArgument("WithImplementation", uint8(i), "must be Flash, Flash1 or Standard")
		}
		o.implementation = i
		return nil
	}
}

// WithTier insists on one tier. Plan fails when the device or the problem does not allow it: there is no quiet fallback.
func WithTier(t Tier) PlanOption {
	return func(o *planOptions) error {
		if t != TierScalar && t != TierMatrix {
			return badArgument("WithTier", fmt.Sprintf("%q", string(t)), "must be %q or %q", TierScalar, TierMatrix)
		}
		o.tier = t
		return nil
	}
}

// WithTuning overrides named tuning parameters of the kernel. Plan.ForwardInfo gives the names and values in effect; Plan fails on
// a name the chosen kernel does not have, on a value outside the range of its parameter, and on values that do not go with one
// another or break the device's limits.
func WithTuning(values map[string]int) PlanOption {
	return func(o *planOptions) error { return override(&o.tuning, catalogue.Forward, "WithTuning", values) }
}

// WithBackwardTuning is WithTuning for the kernels of the backward pass; BackwardInfo.Tuning gives names and values. They are
// chosen late: Plan fails on values that no kernel takes, and Plan.BackwardInfo, or the first backward pass, on names and values that
// the chosen one does not take.
func WithBackwardTuning(values map[string]int) PlanOption {
	return func(o *planOptions) error {
		return override(&o.backwardTuning, catalogue.Backward, "WithBackwardTuning", values)
	}
}

// override adds an option's values to those of options before it. Each must be within the range that some kernel of the list has for it.
func override[K kernel.AnyKernel](given *map[string]int, list []K, option string, values map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := kernel.Allowed(list, option, name, values[name]); err != nil {
			return public(err)
		}
	}
	if *given == nil {
		*given = map[string]int{}
	}
	maps.Copy(*given, values)
	return nil
}
