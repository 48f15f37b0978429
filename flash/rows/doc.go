// Package rows moves rows beside attention: it writes new keys and values into caches, padded ones or pools of [flash.Pages], quantised on
// the way where they are, and turns rows by their positions (rotary position embedding).
//
// [PlanAppend] writes new keys and values where each entry's length says, with the rotation of keys and of queries, in one dispatch;
// [PlanRotate] turns rows by themselves, also back, as the gradients of rows that were turned need it. A plan runs and waits by
// [Plan.Append] and [Plan.Rotate], or makes recordings, which programs submit among attention's.
package rows

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
