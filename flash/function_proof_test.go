package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/shaders"
)

// hugeFunctions are score functions whose numbers no fp32 can judge everywhere, and whether a proof can judge any of them.
func hugeFunctions(t *testing.T) map[string]struct {
	f      score.Function
	judged bool
} {
	huge, batch, query, key := score.Const(-1e9), score.Batch(), score.Query(), score.Key()
	lengths, mask := score.CaptureInt("lengths", 1), score.Capture("mask", 1, 40)
	made := func(e score.Float) score.Function {
		f, err := score.New(e)
		require.NoError(t, err)
		return f
	}
	n := lengths.At(batch)
	return map[string]struct {
		f      score.Function
		judged bool
	}{
		"lengths":    {made(query.Less(n).And(key.Less(n)).Select(score.S(), huge)), true},
		"first keys": {made(key.Less(score.ConstInt(7)).Select(score.S(), huge)), true},
		"a mask":     {made(score.S().Add(score.Const(1).Sub(mask.At(batch, key)).Mul(huge))), true},
		"nothing":    {made(score.S().Mul(score.Const(0)).Add(huge)), false},
		"steep":      {made(score.S().Mul(huge)), false},
	}
}

// TestProofsOfHugeScores: rows whose scores are too large for fp32 to say anything of a weight deny no kernel, in either pass or in maps,
// on any tier. A kernel that is wrong is found by the others.
func TestProofsOfHugeScores(t *testing.T) {
	for name, c := range hugeFunctions(t) {
		for _, dtype := range []DType{F32, F16} {
			for _, of := range []struct {
				impl Implementation
				tier Tier
			}{{Flash, TierScalar}, {Standard, TierScalar}, {Flash, TierMatrix}} {
				if of.tier == TierMatrix && dtype == F32 || testing.Short() && (name != "lengths" || dtype == F32) {
					continue // the function that was first seen to be denied, on each tier
				}
				t.Run(name+" "+dtype.String()+" "+of.impl.String()+" "+string(of.tier), func(t *testing.T) {
					d := testDevice(t)
					forgetProcess(t)
					if of.tier == TierMatrix && d.env.Caps.LacksMatrix(attn.F16) != "" {
						t.Skip("no matrices")
					}
					p := Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 8, DType: dtype, ScoreFunction: c.f}
					try := func(pass string) error {
						plan, err := d.Plan(p, WithImplementation(of.impl), WithTier(of.tier))
						if err != nil {
							return err
						}
						switch pass {
						case "backward":
							_, err = plan.BackwardInfo()
						case "map":
							_, err = plan.MapInfo()
						}
						require.NoError(t, plan.Close())
						return err
					}
					for _, pass := range []string{"forward", "backward", "map"} {
						require.NoError(t, try(pass), pass)
					}
					require.NotEmpty(t, kernel.Known.Entries)
					for key, verdict := range kernel.Known.Entries {
						require.NotContains(t, verdict, "should be", key)
					}
					if !c.judged {
						return
					}
					forgetProcess(t)
					d.env.Modules = func(name string) ([]uint32, error) {
						code, err := shaders.Shipped.Module(name)
						return crossed(code), err
					}
					err := try("backward")
					require.ErrorIs(t, err, ErrUnsupported)
					require.ErrorContains(t, err, "self-check failed: ")
				})
			}
		}
	}
}
