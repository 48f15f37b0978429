package flash

import "github.com/vkattn/vkattn/pipeline"

// forward records a fused forward kernel and, where keys are in parts, their combination.
func (r *recorder) forward(k *pipeline.Kernel, p *Problem, f *operands, g grid, label string, c *combiner) error {
	access, at := r.forwardAccess(p, f), r.push.forward(p, f)
	if c == nil {
		return r.dispatch(k, access, at, g, g.total, label)
	}
	c.bind(r)
	if err := r.dispatch(k, access, at, g, g.total, label); err != nil {
		return err
	}
	return c.record(r, f)
}

// forwardBindings is the number of tensors of a fused forward kernel: q, k, v, o, lse and, if the problem has one, the block mask.
func forwardBindings(p *Problem) int { return 5 + boolInt(!p.Blocks.none()) }

// forwardAccess binds them.
func (r *recorder) forwardAccess(p *Problem, f *operands) []pipeline.Access {
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[3] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	r.access[4] = f.lseAccess()
	r.access[5] = pipeline.Access{Binding: f.blocks, Mode: pipeline.Read}
	return r.access[:forwardBindings(p)]
}

// forwardConstants are what every fused forward kernel is told of the problem and of its tensors.
func forwardConstants(p *Problem, v variant) constants {
	return constants{"D": p.HeadDim, "DV": p.ValueDim, "CAUSAL": boolInt(p.Causal != CausalNone), "ALIGNED": boolInt(v.aligned),
		"WRITE_LSE": boolInt(v.lse)}
}

// maskConstants appends the constants of the block mask, if the problem has one.
func maskConstants(p *Problem, c constants) constants {
	if p.Blocks.none() {
		return c
	}
	return c.and(blockConstants(p.Blocks))
}

// lseAccess binds lse, or o in its place, untouched, when there is none.
func (f *operands) lseAccess() pipeline.Access {
	if !f.hasLSE {
		return pipeline.Access{Binding: f.o.binding, Mode: pipeline.Unused}
	}
	return pipeline.Access{Binding: f.lse.binding, Mode: pipeline.Write}
}
