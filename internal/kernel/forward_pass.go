package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Forward records a fused forward kernel and, where keys are in parts, their combination.
func (r *Recorder) Forward(k *pipeline.Kernel, p *attn.Problem, f *Operands, g Grid, label string, c *Combiner) error {
	access, at := r.forwardAccess(k, p, f), r.Push.Forward(p, f)
	if c == nil {
		return r.DispatchBlocks(k, p, access, at, g, label)
	}
	c.bind(r)
	if err := r.DispatchBlocks(k, p, access, at, g, label); err != nil {
		return err
	}
	return c.Record(r, f)
}

// forwardAccess binds the tensors of a fused forward kernel: q, k, v, o, lse and, where it can do with one, the block mask, or q in its
// place, untouched, where the problem has none.
func (r *Recorder) forwardAccess(k *pipeline.Kernel, p *attn.Problem, f *Operands) []pipeline.Access {
	r.Access[0] = pipeline.Access{Binding: f.Q.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: f.K.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: f.V.Binding, Mode: pipeline.Read}
	r.Access[3] = pipeline.Access{Binding: f.O.Binding, Mode: pipeline.Write}
	r.Access[4] = f.LSEAccess()
	r.Access[5] = pipeline.Access{Binding: f.Q.Binding, Mode: pipeline.Unused}
	if !p.Blocks.None() {
		r.Access[5] = pipeline.Access{Binding: f.Blocks, Mode: pipeline.Read}
	}
	r.BindLengths(6, p, &f.Scores, f.Q.Binding)
	r.BindScores(forwardScores, k, p, &f.Scores, f.Q.Binding)
	r.bindCache(p, &f.Cache)
	return r.Accesses(k)
}

// forwardScores is where the bindings of score.glsl begin in fused forward kernels.
const forwardScores = 8

// ForwardConstants are what every fused forward kernel is told of the problem and of its tensors.
func ForwardConstants(p *attn.Problem, v Variant) Constants {
	return Constants{"D": p.HeadDim, "DV": p.ValueDim, "ALIGNED": BoolInt(v.Aligned),
		"WRITE_LSE": BoolInt(v.LSE)}.And(MaskConstants(p), ScoreConstants(p), SinkConstants(p), CacheConstants(p))
}

// PartsOrBlocks are the constants of the builds for keys in parts, or of the block mask, which the others can do with but for those for caches, and
// of lengths.
func PartsOrBlocks(p *attn.Problem, c *Combiner, parts int) Constants {
	if c != nil {
		return Constants{"PARTS": parts}.And(LengthConstants(p))
	}
	if p.Cached() {
		return LengthConstants(p)
	}
	return BlockConstants(p.Blocks).And(LengthConstants(p))
}

// LSEAccess binds lse, or o in its place, untouched, when there is none.
func (f *Operands) LSEAccess() pipeline.Access {
	if !f.HasLSE {
		return pipeline.Access{Binding: f.O.Binding, Mode: pipeline.Unused}
	}
	return pipeline.Access{Binding: f.LSE.Binding, Mode: pipeline.Write}
}
