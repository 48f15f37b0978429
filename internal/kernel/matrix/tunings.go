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
