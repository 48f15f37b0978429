package kernel

import (
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
)

// AllKeyBlocks stands for every block of keys in one part, however many there are: pipelines are specialized with the number,
// and lengths of keys that differ are to share one.
const AllKeyBlocks = 1 << 24

// Flash1Grid cuts the work, flops operations, into dispatches. A workgroup is a head, and workgroup part·heads + head takes the
// part-th range of keyBlocks blocks of keys. There are enough parts that no dispatch takes too long, however few heads there are
// to fill the device with. max_key_blocks and max_groups lower the bounds further, for tests.
func Flash1Grid(c *Capabilities, p *attn.Problem, bc int, flops float64, at Pace, t *Tuning) (g Grid, keyBlocks int, err error) {
	const full = 64 // workgroups that a device reaches its pace with
	heads, blocks := uint64(p.Batch)*uint64(p.Heads), attn.CeilDiv(p.KeyLen, bc)
	keyBlocks = AllKeyBlocks
	used := float64(min(heads, full)) / full
	if limit := c.GroupsPerDispatch(uint64(blocks), flops, Pace{at.Discrete * used, at.Other * used}); limit > 0 {
		keyBlocks = 1 << (bits.Len64(limit) - 1) // a power of two, so that there are few pipelines
	}
	cut := t.Get("max_key_blocks", 0)
	if cut > 0 {
		keyBlocks = min(keyBlocks, cut)
	}
	if keyBlocks >= blocks {
		keyBlocks = AllKeyBlocks
	}
	limit := heads // a head's parts must not run at the same time
	groups := t.Get("max_groups", 0)
	if groups > 0 {
		limit = min(limit, uint64(groups))
	}
	g, err = NewGrid(heads*uint64(attn.CeilDiv(blocks, keyBlocks)), limit)
	if err == nil && g.Dispatches() > MostDispatches && (cut > 0 || groups > 0) {
		name := "max_key_blocks"
		if cut == 0 {
			name = "max_groups"
		}
		err = t.Bad(name, "cuts %d blocks of keys of %d heads into %d dispatches, more than %d", blocks, heads, g.Dispatches(),
			MostDispatches)
	}
	return g, keyBlocks, err
}
