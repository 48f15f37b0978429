package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/vk"
)

// SecondsPerDispatch bounds a dispatch: watchdogs reset a GPU that does not answer for about two.
const SecondsPerDispatch = 0.5

// Pace is the operations per second to reckon with on a slow device, by kind: well below what such devices reach, because
// splitting half a second of work costs nothing that can be measured, and a reset costs everything.
type Pace struct{ Discrete, Other float64 }

var ScalarPace = Pace{Discrete: 1e12, Other: 50e9}

// GroupsPerDispatch says how many workgroups may go into one dispatch so that it stays under SecondsPerDispatch, when all of
// them together do flops operations; 0 for no limit.
func (c *Capabilities) GroupsPerDispatch(groups uint64, flops float64, at Pace) uint64 {
	rate := at.Other
	switch c.Facts.Type {
	case vk.DeviceDiscrete:
		rate = at.Discrete
	case vk.DeviceCPU:
		return 0 // no watchdog
	}
	if seconds := flops / rate; seconds > SecondsPerDispatch {
		return max(1, uint64(float64(groups)*SecondsPerDispatch/seconds))
	}
	return 0
}

// GridFor makes a grid whose dispatches stay short. max_groups lowers the bound further, for tests.
func GridFor(e *Env, groups uint64, flops float64, at Pace, t *Tuning) (Grid, error) {
	limit := e.Caps.GroupsPerDispatch(groups, flops, at)
	n := t.Get("max_groups", 0)
	if n == 0 || limit > 0 && limit <= uint64(n) {
		return NewGrid(groups, limit)
	}
	g, err := NewGrid(groups, uint64(n))
	if err == nil && g.Dispatches() > MostDispatches {
		err = t.Bad("max_groups", "cuts %d workgroups into %d dispatches, more than %d", groups, g.Dispatches(), MostDispatches)
	}
	return g, err
}

// MostDispatches is the most that a caller may cut a kernel's work into: a recording holds descriptors for each.
const MostDispatches = 1 << 14

// MatrixPace is reckoned with head dimensions of 64 and more, see PaddedFLOPs. A small discrete GPU with matrices reaches some
// 10 TFLOP/s, an H200 more than 300: there a dispatch is 30 ms long, still long enough for its end not to matter.
var MatrixPace = Pace{Discrete: 20e12, Other: 1e12}

// PaddedFLOPs is what a dispatch costs, in operations at the rate of head dimensions of 64: below, the softmax weighs as much
// as the products.
func PaddedFLOPs(p *attn.Problem) float64 {
	d := p.HeadDim + p.ValueDim
	return p.ForwardFLOPs() * float64(max(d, 128)) / float64(d)
}
