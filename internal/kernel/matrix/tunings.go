package matrix

import (
	"slices"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// tunings are a kernel's candidates, each of them once.
type tunings []map[string]int

// add adds the tuning of a tile of w subgroups with rm row fragments each, except on a CPU, whose driver would compile a large one for
// minutes.
func (all *tunings) add(c *kernel.Capabilities, w, rm int, m map[string]int) {
	const mostOnCPU = 4
	if c.Facts.Type == vk.DeviceCPU && w*rm > mostOnCPU {
		return
	}
	if !slices.ContainsFunc(*all, func(o map[string]int) bool { return kernel.SameTuning(o, m) }) {
		*all = append(*all, m)
	}
}

// rowTunings are the rows of a kernel that suit the device, whatever problem they are for. work is the subgroups of a tile and the row
// fragments of each.
func rowTunings[T any](c *kernel.Capabilities, name string, fields kernel.Fields[T], work func(*T) (w, rm int)) []map[string]int {
	var out tunings
	f, lanes := c.Family(), int(c.Facts.Subgroup.Size)
	for _, row := range slices.Concat(f.Rows(name), f.Candidates(name)) {
		if row.SuitsLanes(lanes) {
			var t T
			fields.Read(&t, row)
			w, rm := work(&t)
			out.add(c, w, rm, fields.Values(&t))
		}
	}
	return out
}
