package kernel

import "github.com/vkattn/vkattn/internal/attn"

// MaxGroupsX is the number of workgroups that every Vulkan device allows in one dimension of a dispatch.
const MaxGroupsX = 65535

// MaxGroups bounds a flattened grid so that base + index never wraps in 32 bits.
const MaxGroups = 1<<32 - 1<<18

// Grid is a flattened grid of workgroups, split into dispatches. A workgroup's index is
//
//	base + x + y·(groups in x), and it returns at once when that is not below total
//
// so that a grid of any size needs no third dimension, and base starts the next dispatch where the last one ended. Size splits a dispatch;
// where workgroups are counted on the device, put_counts of shaders/common/row_table.comp does it, the same way.
type Grid struct {
	Total uint32 // workgroups in all
	Step  uint32 // workgroups in one dispatch
	First uint32 // the workgroup to begin with: those before it are another stage's
}

// NewGrid splits total workgroups into dispatches of at most limit (0: no limit). Dispatches of several rows are whole
// rectangles except for the last, so that none reaches into the next one's workgroups.
func NewGrid(total, limit uint64) (Grid, error) {
	if total > MaxGroups {
		return Grid{}, attn.BadArgument("Problem", total, "needs more than %d workgroups", MaxGroups)
	}
	step := total
	if limit > 0 && limit < step {
		step = limit
	}
	if step < total && step > MaxGroupsX {
		step -= step % MaxGroupsX
	}
	return Grid{Total: uint32(total), Step: uint32(step)}, nil
}

// Dispatches is the number of dispatches.
func (g Grid) Dispatches() int {
	return int((uint64(g.Total-g.First) + uint64(g.Step) - 1) / uint64(g.Step))
}

// Size gives the groups of the dispatch that starts at base: in as few rows as there must be, and as long as each other, so that fewer
// groups than there are rows are none.
func (g Grid) Size(base uint32) [3]uint32 {
	n := min(g.Step, g.Total-base)
	y := max((n+MaxGroupsX-1)/MaxGroupsX, 1)
	return [3]uint32{(n + y - 1) / y, y, 1}
}

// Pieces are rows of numbers, cut so that an invocation has one number or, where rows lie aligned, 16 bytes of them.
type Pieces struct {
	Items uint32
	Grid  Grid
}

// PieceThreads is the number of invocations of a workgroup; every device allows it.
const PieceThreads = 128

// PiecesOf cuts rows of so many columns, unaligned and aligned, of which a number is read so many times.
func PiecesOf(e *Env, rows uint64, columns int, t attn.DType, reads int) (all [2]Pieces, err error) {
	for i, own := range [2]int{1, 16 / t.Size()} {
		items := rows * uint64(attn.CeilDiv(columns, own))
		all[i].Items = uint32(items)
		const operations = 16 // to reckon with for each number, since there is little but memory
		if all[i].Grid, err = GridFor(e, (items+PieceThreads-1)/PieceThreads, operations*float64(items)*float64(own)*float64(reads),
			ScalarPace, NewTuning(nil)); err != nil {
			return all, err
		}
	}
	return all, nil
}
