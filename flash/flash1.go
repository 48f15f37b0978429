package flash

import (
	"math/bits"

	"github.com/vkattn/vkattn/pipeline"
)

// allKeyBlocks stands for every block of keys in one part, however many there are: pipelines are specialized with the number,
// and lengths of keys that differ are to share one.
const allKeyBlocks = 1 << 24

// flash1Grid cuts the work, flops operations, into dispatches. A workgroup is a head, and workgroup part·heads + head takes the
// part-th range of keyBlocks blocks of keys. There are enough parts that no dispatch takes too long, however few heads there are
// to fill the device with. max_key_blocks and max_groups lower the bounds further, for tests.
func flash1Grid(c *capabilities, p *Problem, bc int, flops float64, at pace, t *tuning) (g grid, keyBlocks int, err error) {
	const full = 64 // workgroups that a device reaches its pace with
	heads, blocks := uint64(p.Batch)*uint64(p.Heads), ceilDiv(p.KeyLen, bc)
	keyBlocks = allKeyBlocks
	used := float64(min(heads, full)) / full
	if limit := c.groupsPerDispatch(uint64(blocks), flops, pace{at.discrete * used, at.other * used}); limit > 0 {
		keyBlocks = 1 << (bits.Len64(limit) - 1) // a power of two, so that there are few pipelines
	}
	cut := t.get("max_key_blocks", 0)
	if cut > 0 {
		keyBlocks = min(keyBlocks, cut)
	}
	if keyBlocks >= blocks {
		keyBlocks = allKeyBlocks
	}
	limit := heads // a head's parts must not run at the same time
	groups := t.get("max_groups", 0)
	if groups > 0 {
		limit = min(limit, uint64(groups))
	}
	g, err = newGrid(heads*uint64(ceilDiv(blocks, keyBlocks)), limit)
	if err == nil && g.dispatches() > mostDispatches && (cut > 0 || groups > 0) {
		name := "max_key_blocks"
		if cut == 0 {
			name = "max_groups"
		}
		err = t.bad(name, "cuts %d blocks of keys of %d heads into %d dispatches, more than %d", blocks, heads, g.dispatches(), mostDispatches)
	}
	return g, keyBlocks, err
}

// flash1Access binds the tensors and the scratch of a flash1 kernel and says how many bindings that makes.
func flash1Access(r *recorder, f *operands, t DType) int {
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[3] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	if t == F32 { // is its own scratch
		r.access[3].Mode = pipeline.ReadWrite
	}
	r.access[4] = f.lseAccess()
	n := 5
	for _, b := range r.scratch {
		r.access[n] = pipeline.Access{Binding: b, Mode: pipeline.ReadWrite}
		n++
	}
	return n
}
