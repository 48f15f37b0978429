package tune

import (
	"maps"
	"slices"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

// Parameters are the names that [flash.WithTuning] takes of one kernel or another, sorted: a name that is not among them is wrong
// whatever the device and the problem.
func Parameters() []string { return parameterNames(catalogue.Forward) }

// BackwardParameters are the names that [flash.WithBackwardTuning] takes of one kernel or another, sorted.
func BackwardParameters() []string { return parameterNames(catalogue.Backward) }

func parameterNames[K kernel.AnyKernel](list []K) []string {
	names := map[string]bool{}
	for _, k := range list {
		for name := range k.Offered().Parameters {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Split divides tuning parameters: a name that kernels of the backward pass alone have, such as kv_bc, is theirs, and any other the
// forward pass's.
func Split(values map[string]int) (forward, backward map[string]int) {
	forward, backward = map[string]int{}, map[string]int{}
	ofForward, ofBackward := Parameters(), BackwardParameters()
	for name, v := range values {
		if slices.Contains(ofBackward, name) && !slices.Contains(ofForward, name) {
			backward[name] = v
		} else {
			forward[name] = v
		}
	}
	return forward, backward
}
