// Package tune measures devices and kernels, and stores what was found to be fastest. A program that computes attention needs none of it:
// package flash chooses kernels and tiles by itself, and reads what `vkattn tune`, or a program by way of this package, has stored.
//
//   - [Candidates] and [BackwardCandidates] are the tiles that a device offers for a problem; [Store] keeps the fastest for later plans, in
//     the user's tuning file ([File], [Stored], [Remove]), and [ExportTiles] writes them for other devices like it ([flash.WithTiles]).
//   - [TimeRuns] times recordings, [MeasurePeaks] the ceilings of a device.
//   - A [Model] counts the operations and bytes of a kernel for any problem.
//   - [SelfCheck] compares each kernel with attention computed on the host; [StoredVerdicts] are those that plans remember.
package tune

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
