// Package access is how flash/tune reaches what package flash keeps to itself: the kernels' environment of a device, the kernels of a plan.
// Tuning and measuring need them, and no program that computes does; so flash exports nothing for it, hands these functions over when it
// is initialised, and knows nothing of who calls them.
package access

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Flash holds functions of package flash. Its types come as parameters, since this package lies below it.
type Flash[Device, Plan, Problem any] struct {
	// Env is what kernels of a device are built and run with. The error is of a device that is none, closed or lost.
	Env func(Device) (*kernel.Env, error)
	// Problem gives a problem as kernels take it, with its defaults filled in.
	Problem func(Problem) (attn.Problem, error)
	// Forward is the kernel of a plan and what it made of the problem; nil of a plan that Device.Plan did not make.
	Forward func(Plan) (*kernel.Kernel, kernel.Program)
	// Backward is the same of the plan's backward pass, which is chosen at the first call.
	Backward func(Plan) (*kernel.BackwardKernel, kernel.BackwardProgram, error)
	// Recorded is the device of one of flash's own recordings; nil of others, and of those that say themselves what is wrong with them.
	Recorded func(recording any) Device
	// Fail makes an error of the layers below one of flash's.
	Fail func(Device, error) error
	// During puts the name of an operation into an error of the driver or of memory.
	During func(operation string, err *error)
}

var flash any

// Give is called by package flash, once.
func Give[Device, Plan, Problem any](f Flash[Device, Plan, Problem]) { flash = f }

// Get gives what flash gave. The caller imports flash for the types, so that flash is initialised before.
func Get[Device, Plan, Problem any]() Flash[Device, Plan, Problem] {
	return flash.(Flash[Device, Plan, Problem])
}
