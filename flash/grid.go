package flash

// maxGroupsX is the number of workgroups that every Vulkan device allows in one dimension of a dispatch.
const maxGroupsX = 65535

// maxGroups bounds a flattened grid so that base + index never wraps in 32 bits.
const maxGroups = 1<<32 - 1<<18

// grid is a flattened grid of workgroups, split into dispatches. A workgroup's index is
//
//	base + x + y·(groups in x), and it returns at once when that is not below total
//
// so that a grid of any size needs no third dimension, and base starts the next dispatch where the last one ended.
type grid struct {
	total uint32 // workgroups in all
	step  uint32 // workgroups in one dispatch
}

// newGrid splits total workgroups into dispatches of at most limit (0: no limit). Dispatches of several rows are whole
// rectangles except for the last, so that none reaches into the next one's workgroups.
func newGrid(total, limit uint64) (grid, error) {
	if total > maxGroups {
		return grid{}, badArgument("Problem", total, "needs more than %d workgroups", maxGroups)
	}
	step := total
	if limit > 0 && limit < step {
		step = limit
	}
	if step < total && step > maxGroupsX {
		step -= step % maxGroupsX
	}
	return grid{uint32(total), uint32(step)}, nil
}

// dispatches is the number of dispatches.
func (g grid) dispatches() int { return int((uint64(g.total) + uint64(g.step) - 1) / uint64(g.step)) }

// size gives the groups of the dispatch that starts at base.
func (g grid) size(base uint32) [3]uint32 {
	n := min(g.step, g.total-base)
	x := min(n, maxGroupsX)
	return [3]uint32{x, (n + x - 1) / x, 1}
}
