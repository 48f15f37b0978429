package kernel

import (
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
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

// Flash1Access binds the tensors and the scratch of a flash1 kernel.
func Flash1Access(r *Recorder, k *pipeline.Kernel, p *attn.Problem, f *Operands) []pipeline.Access {
	r.Access[0] = pipeline.Access{Binding: f.Q.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: f.K.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: f.V.Binding, Mode: pipeline.Read}
	r.Access[3] = pipeline.Access{Binding: f.O.Binding, Mode: pipeline.Write}
	if p.DType == attn.F32 { // is its own scratch
		r.Access[3].Mode = pipeline.ReadWrite
	}
	r.Access[4] = f.LSEAccess()
	for i := 5; i < forwardScores; i++ {
		r.Access[i] = pipeline.Access{Binding: f.Q.Binding, Mode: pipeline.Unused}
	}
	for i, b := range r.Scratch {
		r.Access[5+i] = pipeline.Access{Binding: b, Mode: pipeline.ReadWrite}
	}
	r.BindScores(forwardScores, k, p, &f.Scores, f.Q.Binding)
	r.BindLengths(12, p, &f.Scores, f.Q.Binding) // behind those of scores
	return r.Accesses(k)
}
