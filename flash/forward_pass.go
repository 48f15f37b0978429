package flash

import "github.com/vkattn/vkattn/pipeline"

// forward records a fused forward kernel and, where keys are in parts, their combination.
func (r *recorder) forward(k *pipeline.Kernel, p *Problem, f *operands, g grid, label string, c *combiner) error {
	access, at := r.forwardAccess(k, p, f), r.push.forward(p, f)
	if c == nil {
		return r.dispatch(k, access, at, g, g.total, label)
	}
	c.bind(r)
	if err := r.dispatch(k, access, at, g, g.total, label); err != nil {
		return err
	}
	return c.record(r, f)
}

// forwardAccess binds the tensors of a fused forward kernel: q, k, v, o, lse and, where it can do with one, the block mask, or q in its
// place, untouched, where the problem has none.
func (r *recorder) forwardAccess(k *pipeline.Kernel, p *Problem, f *operands) []pipeline.Access {
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[3] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	r.access[4] = f.lseAccess()
	r.access[5] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Unused}
	if !p.Blocks.none() {
		r.access[5] = pipeline.Access{Binding: f.blocks, Mode: pipeline.Read}
	}
	n := k.Bindings()
	if r.count != nil {
		n-- // bound by dispatch
	}
	return r.access[:n]
}

// forwardConstants are what every fused forward kernel is told of the problem and of its tensors.
func forwardConstants(p *Problem, v variant) constants {
	return constants{"D": p.HeadDim, "DV": p.ValueDim, "CAUSAL": boolInt(p.Causal != CausalNone), "ALIGNED": boolInt(v.aligned),
		"WRITE_LSE": boolInt(v.lse)}
}

// partsOrBlocks are the constants of the builds for keys in parts, or of the block mask, which the others can do with.
func partsOrBlocks(p *Problem, c *combiner, parts int) constants {
	if c != nil {
		return constants{"PARTS": parts}
	}
	return blockConstants(p.Blocks)
}

// lseAccess binds lse, or o in its place, untouched, when there is none.
func (f *operands) lseAccess() pipeline.Access {
	if !f.hasLSE {
		return pipeline.Access{Binding: f.o.binding, Mode: pipeline.Unused}
	}
	return pipeline.Access{Binding: f.lse.binding, Mode: pipeline.Write}
}
