package flash

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
)

// TestTilesLeftOut: with tiles so narrow that many cross the diagonal of a block, subgroups that see none of a tile's keys leave it out,
// and rows come out as they are; with growth looked for in either place. Where weights go through shared memory none is left out.
func TestTilesLeftOut(t *testing.T) {
	d := matrixDevice(t)
	f := matrixFragment(d)
	for _, p := range []Problem{
		{QueryLen: 9*f.M + 3, KeyLen: 11*f.M + 5, Causal: CausalBottomRight},
		{QueryLen: 10 * f.M, KeyLen: 5*f.M + 1, Causal: CausalTopLeft},
	} {
		for _, x := range []struct{ late, form int }{{0, kernel.FormRegisters}, {2, kernel.FormRegisters}, {0, kernel.FormRows}} {
			p := p
			p.Batch, p.Heads, p.HeadDim, p.DType = 1, 2, 8, F16
			t.Run(fmt.Sprintf("%v late %d form %d", p, x.late, x.form), func(t *testing.T) {
				tuning := map[string]int{"w": 4, "rm": 2, "bc": 1, "ck": 1, "late": x.late, "form": x.form, "keep_masks": 0}
				plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
				c := constantsOf(plan)
				require.GreaterOrEqual(t, c["BR"], 4*c["BC"], "or none is left out")
				s := newSample(t, p)
				s.answer(t)
				in := s.tensors(t, d, plainly(t, d))
				require.NoError(t, plan.Forward(bg, in))
				s.check(t, plan, in)
				require.NoError(t, plan.Close())
			})
		}
	}
}

// TestHeadsSideBySide: of packed sequences the blocks of some heads go side by side and then those of others, the last of fewer heads. No
// output changes.
func TestHeadsSideBySide(t *testing.T) {
	d := matrixDevice(t)
	p := packedProblem
	p.Heads, p.KeyHeads, p.Causal = 5, 5, CausalBottomRight
	m := newPackedTensors(t, d)
	in := m.forward(p)
	in.QueryStarts, in.KeyStarts = m.ints(queryStarts...), m.ints(keyStarts...)
	var out [3][]float32
	for i, together := range []int{2, p.Heads, 65536} { // the last is more than there are, as many as can be asked for
		tuning := map[string]int{"w": 1, "rm": 1, "bc": 1, "ck": 1, "heads_together": together}
		plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
		require.Equal(t, together, constantsOf(plan)["HEADS_TOGETHER"])
		in.O = m.output(F16, p.OShape())
		require.NoError(t, plan.Forward(bg, in))
		out[i] = m.values(in.O)
		require.NoError(t, plan.Close())
	}
	for i, x := range out[1] {
		require.Equal(t, fmt.Sprint(x), fmt.Sprint(out[0][i]), "element %d", i) // NaN where no sequence is
		require.Equal(t, fmt.Sprint(x), fmt.Sprint(out[2][i]), "element %d", i)
	}
	if f := matrixFragment(d); f.M*f.K%(8*f.Lanes) == 0 {
		packedAsScalar(t, d, p, kernel.KeepDSParameter, map[string]int{"kv_w": 1, "kv_rm": 1, "kv_heads_together": 2})
	}
}
