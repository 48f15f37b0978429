package flash

import "github.com/vkattn/vkattn/vk"

// secondsPerDispatch bounds a dispatch: watchdogs reset a GPU that does not answer for about two.
const secondsPerDispatch = 0.5

// pace is the operations per second to reckon with on a slow device, by kind: well below what such devices reach, because
// splitting half a second of work costs nothing that can be measured, and a reset costs everything.
type pace struct{ discrete, other float64 }

var scalarPace = pace{discrete: 1e12, other: 50e9}

// groupsPerDispatch says how many workgroups may go into one dispatch so that it stays under secondsPerDispatch, when all of
// them together do flops operations; 0 for no limit.
func (c *capabilities) groupsPerDispatch(groups uint64, flops float64, at pace) uint64 {
	rate := at.other
	switch c.facts.Type {
	case vk.DeviceDiscrete:
		rate = at.discrete
	case vk.DeviceCPU:
		return 0 // no watchdog
	}
	if seconds := flops / rate; seconds > secondsPerDispatch {
		return max(1, uint64(float64(groups)*secondsPerDispatch/seconds))
	}
	return 0
}

// gridFor makes a grid whose dispatches stay short. max_groups lowers the bound further, for tests.
func gridFor(e *environment, groups uint64, flops float64, at pace, t *tuning) (grid, error) {
	limit := e.caps.groupsPerDispatch(groups, flops, at)
	n := t.get("max_groups", 0)
	if n == 0 || limit > 0 && limit <= uint64(n) {
		return newGrid(groups, limit)
	}
	g, err := newGrid(groups, uint64(n))
	if err == nil && g.dispatches() > mostDispatches {
		err = t.bad("max_groups", "cuts %d workgroups into %d dispatches, more than %d", groups, g.dispatches(), mostDispatches)
	}
	return g, err
}

// mostDispatches is the most that a caller may cut a kernel's work into: a recording holds descriptors for each.
const mostDispatches = 1 << 14

// matrixPace is reckoned with head dimensions of 64 and more, see paddedFLOPs. A small discrete GPU with matrices reaches some
// 10 TFLOP/s, an H200 more than 300: there a dispatch is 30 ms long, still long enough for its end not to matter.
var matrixPace = pace{discrete: 20e12, other: 1e12}

// paddedFLOPs is what a dispatch costs, in operations at the rate of head dimensions of 64: below, the softmax weighs as much
// as the products.
func paddedFLOPs(p *Problem) float64 {
	d := p.HeadDim + p.ValueDim
	return p.ForwardFLOPs() * float64(max(d, 128)) / float64(d)
}
