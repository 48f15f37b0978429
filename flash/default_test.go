package flash

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// TestDefaultOfFP32: attention of fp32 goes to matrices unasked where that was measured to be faster, in three terms of bf16: on the Hopper
// family, up to head dimension 128, where queries fill a workgroup. Whoever asks for the tier has it elsewhere too, and plans say why it is
// not taken.
func TestDefaultOfFP32(t *testing.T) {
	choose := func(c *kernel.Capabilities, p Problem, tier Tier) (name, why string) {
		p, err := p.Normalize()
		require.NoError(t, err)
		chosen, err := pick(&Device{env: &kernel.Env{Caps: *c}}, attnOf(p), catalogue.Forward, "", Flash, tier,
			func(k *kernel.Kernel) (kernel.Program, *kernel.Tuning, string, error) {
				return nil, kernel.NewTuning(nil), "", nil
			})
		require.NoError(t, err)
		if at := slices.IndexFunc(chosen.reasons, func(r string) bool { return strings.HasPrefix(r, "matrix_forward_split: ") }); at >= 0 {
			why = strings.TrimPrefix(chosen.reasons[at], "matrix_forward_split: ")
		}
		return chosen.kernel.Name, why
	}
	sized := func(dim, queries int) Problem {
		return Problem{Batch: 4, Heads: 16, QueryLen: queries, KeyLen: 2048, HeadDim: dim, DType: F32}
	}
	const notMeasured = "it was not measured to be faster than the scalar tier"
	for i := range kerneltest.GPUs {
		g := &kerneltest.GPUs[i]
		t.Run(g.Name, func(t *testing.T) {
			c := g.Everything()
			for _, dim := range []int{8, 64, 72, 128, 136, 256} {
				for _, queries := range []int{64, 65, 2048} {
					for _, causal := range []Causal{CausalNone, CausalBottomRight} {
						p := sized(dim, queries)
						p.Causal = causal
						name, why := choose(c, p, "")
						switch {
						case g.Family == "hopper" && dim <= 128 && queries > 64:
							require.Equal(t, "matrix_forward_split", name, "%v", p)
							require.Empty(t, why)
							continue
						case g.Family == "hopper" && dim == 256: // three terms do not fit
							require.Contains(t, why, "bytes of shared memory pass the device's 49152")
						case len(g.Fragments) > 0:
							require.True(t, strings.Contains(why, notMeasured) || strings.Contains(why, "bytes of shared memory pass"),
								"%v: %s", p, why)
						default:
							require.NotEmpty(t, why)
						}
						require.Equal(t, "scalar_forward", name, "%v", p)
						if len(g.Fragments) > 0 {
							name, _ = choose(c, p, TierMatrix)
							require.Equal(t, "matrix_forward_split", name, "%v", p)
						}
					}
				}
			}
		})
	}
	without := kerneltest.GPUs[1].Everything() // two terms of fp16 are not fp32
	without.Enabled.BFloat16CooperativeMatrix = false
	name, why := choose(without, sized(64, 2048), "")
	require.Equal(t, "scalar_forward", name)
	require.Contains(t, why, "for three of bf16 the device lacks the feature shaderBFloat16CooperativeMatrix; WithTier(TierMatrix) insists")
	name, _ = choose(without, sized(64, 2048), TierMatrix)
	require.Equal(t, "matrix_forward_split", name)
}
