// Package kvcache keeps the keys and values of sequences in pages of device memory, for programs that generate with a model and have no
// cache of their own: which page holds which tokens, and what kernels have to be told of it. A program that has a cache needs none of it:
// its pools and tables are tensors ([flash.Problem].Pages, [rows.PlanAppend]).
//
// A [Cache] owns pages and the sequences in them, which are added, forked, truncated and freed; a [Batch] has the tensors that tell plans
// of them. Plans and recordings are made once, whatever the lengths become.
package kvcache

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
)

// within is what flash keeps to itself.
var within = access.Get[*flash.Device, *flash.Plan, flash.Problem, *flash.Tensor, *flash.Recording]()

func init() {
	within.Recordings(func(recording any) *flash.Device {
		if b, ok := recording.(*Batch); ok && b.made() == nil {
			return b.cache.dev
		}
		return nil
	})
}

func badArgument(name string, value any, rule string, a ...any) error {
	return &flash.ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}
