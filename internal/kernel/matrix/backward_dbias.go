package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// dBiasParameter is the tuning parameter that turns the gradient with respect to the bias in matrix_backward_q off (0), so that
// matrix_backward_bias makes it, or insists on it (1).
const dBiasParameter = "q_dbias"

// BackwardVariant says what pipelines of a backward pass are built for: rows of 16 bytes, and whether the gradient with respect to the bias
// is wanted, gradients are added to what is there, and that by the bias is in rows of 16 bytes.
type BackwardVariant struct{ Aligned, DBias, Accumulate, AlignedBias bool }

// BackwardVariants is the number of them.
const BackwardVariants = 16

// Index counts them.
func (v BackwardVariant) Index() int {
	return kernel.BoolInt(v.Aligned) + 2*kernel.BoolInt(v.DBias) + 4*kernel.BoolInt(v.Accumulate) + 8*kernel.BoolInt(v.AlignedBias)
}

// of is what a part of the pass has of it: the kernel of keys makes no gradient with respect to the bias.
func (v BackwardVariant) of(part *BackwardPart) BackwardVariant {
	if part.Keys {
		v.DBias, v.AlignedBias = false, false
	}
	return v
}

// ofBias are the specialization constants of a kernel that writes the gradient with respect to the bias on its way:
// shaders/include/matrix_backward_dbias.glsl.
func (v BackwardVariant) ofBias() kernel.Constants {
	return kernel.Constants{"DBIAS": kernel.BoolInt(v.DBias), "ALIGNED_BIAS": kernel.BoolInt(v.AlignedBias)}
}

// variants are those that the kernels of a problem may be asked for; usual says whether tensors are dense and gradients overwritten.
func (s *BackwardProgram) variants(each func(v BackwardVariant, usual bool)) {
	p := &s.Problem
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	alignedBias := s.Q.Tile.DBias && p.KeyLen*p.Bias.DType.Size()%16 == 0
	for i := range BackwardVariants {
		v := BackwardVariant{i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0}
		if v.Aligned && !aligned || v.DBias && !s.Q.Tile.DBias || v.AlignedBias && !(v.DBias && alignedBias) {
			continue
		}
		each(v, v == BackwardVariant{aligned, v.DBias, false, v.DBias && alignedBias})
	}
}

// variant is that of a set of tensors: whether rows of all lie so that they can be moved by the pipelines that move many bytes at a time.
func (s *BackwardProgram) variant(g *kernel.Gradients) BackwardVariant {
	v := BackwardVariant{Aligned: g.Aligned() && s.Layout.BiasLies(&s.Problem, s.Q.Tile.Form, &g.Scores), Accumulate: g.Accumulate}
	v.DBias = s.Q.Tile.DBias && g.DBias.Given()
	v.AlignedBias = v.DBias && g.DBias.Aligned
	return v
}

// MakesBias says that the kernel of queries writes the gradient with respect to the bias on its way.
func (s *BackwardProgram) MakesBias(of kernel.Bias) bool {
	return of.Of(&s.Problem) == &s.Problem.Bias && s.Q.Tile.DBias
}

// takeBias has it do so wherever it can, unless tuning says otherwise.
func (s *BackwardProgram) takeBias(t *kernel.Tuning) error {
	why := s.Q.Tile.lacksBias(&s.Problem, &s.env.Caps)
	s.Q.Tile.DBias = t.Get(dBiasParameter, kernel.BoolInt(why == "")) != 0
	if s.Q.Tile.DBias && why != "" {
		return t.Bad(dBiasParameter, "cannot be: %s", why)
	}
	return nil
}

// lacksBias says why the kernel of queries cannot write the gradient with respect to the bias on its way, "" where it can.
func (t *BackwardTile) lacksBias(p *attn.Problem, c *kernel.Capabilities) string {
	switch {
	case p.Bias.None():
		return "there is no bias"
	case ownOf(p) != allOwn:
		return "scores share elements of it"
	case !p.Blocks.None(): // a tile without a block would have to be written too
		return "there is a block mask"
	case !p.Packed.None(): // every element is written, whatever queries sequences have
		return "sequences are packed"
	case t.Form != kernel.FormRegisters:
		return fmt.Sprintf("form %d has it in shared memory piece by piece", t.Form)
	}
	with := *t
	with.DBias = true
	return kernel.CheckSubgroups(t.W, t.Fragment.Lanes, with.Shared(p).bytes(), c)
}
