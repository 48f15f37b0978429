package flash

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestJVPMovesWhatTheModelSays is TestForwardMovesWhatTheModelSays of forward mode, with tangents of q, k and v. Those count with the
// tensors that they are of, and that of lse with delta.
func TestJVPMovesWhatTheModelSays(t *testing.T) {
	d, c := countingDevice(t)
	for name, p := range countedProblems {
		for _, tier := range []Tier{TierScalar, TierMatrix} {
			if tier == TierMatrix && (p.DType == F32 || slowCompiler(d) && name != "ragged") {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", name, tier), func(t *testing.T) {
				if name != "ragged" {
					vktest.Long(t, "one problem of either kernel")
				}
				vktest.Budget(t)
				plan := mustPlan(t, d, p)
				plan.gradient.tier = tier
				choice, err := plan.forwardMode()
				skipUnsupported(t, err)
				_, _, j := jvpSample(t, d, plan)
				steps, err := choice.program.Model().Steps(plan.attn, traffic.Call{LSE: true})
				require.NoError(t, err)
				counted := c.during(func() { require.NoError(t, plan.JVP(bg, j)) })
				eachDispatch(t, steps, counted)
				kernel := steps[0].Kernel
				by := counted[kernel]
				equalBytes(t, modelled(steps, kernel, traffic.StepScoresAgain, traffic.StepScoreTangents), total(by, "q", "k"),
					"Q, K and their tangents")
				equalBytes(t, modelled(steps, kernel, traffic.StepValueMoves, traffic.StepValueTangents, traffic.StepLessOutput),
					total(by, "v", "g", "x"), "V, its tangent, O and its tangent")
				equalBytes(t, modelled(steps, kernel, traffic.StepWeightsAgain, traffic.StepWeightMoves), total(by, "lse", "delta"),
					"lse and its tangent")
			})
		}
	}
}
