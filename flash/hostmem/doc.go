// Package hostmem moves bytes between tensors and memory of the host beside the work of a device, and so between devices: for programs that
// keep on the host what a device has no room for, or that divide work among devices, as flash/ring does. [flash.Tensor.Upload] and Download
// are all that others need.
//
// A [Memory] is what devices copy from and to directly, a [Mover] copies. Copies and kernels wait for one another on the device ([Point]).
// Memory of [NewShared] is mapped by other processes of the host too ([Open]), whose devices copy from and to it as well.
package hostmem

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
)

// within is what flash keeps to itself.
var within = access.Get[*flash.Device, *flash.Plan, flash.Problem, *flash.Tensor, *flash.Recording]()

func badArgument(name string, value any, rule string, a ...any) error {
	return &flash.ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}
