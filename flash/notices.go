package flash

import (
	"fmt"
)

// Notices says that Open found no GPU and took a CPU, where it did, and what was wrong with the files that a device keeps between runs:
// compiled kernels, verdicts of self-checks and the user's tuning file. None of it keeps attention from being computed; a file that is
// damaged, or cannot be written, costs the work that it would have saved. Each is said once. Close may add to the list, and leaves it.
func (d *Device) Notices() []string {
	if d == nil || d.env == nil {
		return nil
	}
	out := d.env.Notices.All()
	c := d.env.Ctx.DiskCache()
	if c.Err != nil && c.Path != "" {
		out = append(out, fmt.Sprintf("compiled kernels on disk cannot be used (%v): they are compiled again", c.Err))
	} else if c.Err != nil {
		out = append(out, fmt.Sprintf("compiled kernels are not kept: %v", c.Err))
	}
	if c.StoreErr != nil {
		out = append(out, fmt.Sprintf("compiled kernels could not be stored (%v): the next run compiles them again", c.StoreErr))
	}
	if d.fallback {
		out = append(out, fmt.Sprintf("no GPU was found, so attention is computed on the CPU, by %s", d.info.Name))
	}
	return out
}
