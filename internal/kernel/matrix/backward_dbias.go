package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// dBiasParameter is the tuning parameter that turns the gradient with respect to the bias in matrix_backward_q off (0), so that
// matrix_backward_bias makes it, or insists on it (1).
const dBiasParameter = "q_dbias"

// ofBias are the specialization constants of a kernel that reads the bias beside its columns, and may write the gradient with respect to it
// on its way: shaders/include/matrix_bias.glsl, matrix_backward_dbias.glsl.
func (t *BackwardTile) ofBias(p *attn.Problem, l *kernel.FragmentLayout, v pass.Variant) kernel.Constants {
	return kernel.Constants{"BIAS_PAIRS": kernel.BoolInt(v.Aligned && l.PairsOfBias(p, t.Form)), "DBIAS": kernel.BoolInt(v.DBias),
		"ALIGNED_BIAS": kernel.BoolInt(v.AlignedDBias)}
}

// takeBias has the kernel of queries write it wherever it can, unless tuning says otherwise.
func (t *BackwardTile) takeBias(e *kernel.Env, p *attn.Problem, tuning *kernel.Tuning) error {
	why := t.lacksBias(p, &e.Caps)
	t.DBias = tuning.Get(dBiasParameter, kernel.BoolInt(why == "")) != 0
	if t.DBias && why != "" {
		return tuning.Bad(dBiasParameter, "cannot be: %s", why)
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
