package flash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/shaders"
)

// TestRemedies: where no kernel runs a problem as it is asked for, the error says whether a device has to do with it, and what to ask
// for instead, which then runs it.
func TestRemedies(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64}
	wide, single := p, p
	wide.HeadDim = 320
	single.HeadDim, single.DType = 320, F32 // narrower ones are sums of terms there
	for _, test := range []struct {
		p        Problem
		opts     []PlanOption
		anywhere bool
		want     string
		instead  []PlanOption
	}{
		{wide, []PlanOption{WithImplementation(Standard)}, true, "WithImplementation(Flash) runs it, by ", nil},
		{wide, []PlanOption{WithImplementation(Flash1), WithTier(TierScalar)}, true, "WithImplementation(Flash) runs it, by ",
			[]PlanOption{WithTier(TierScalar)}},
		{single, []PlanOption{WithTier(TierMatrix)}, false, "without WithTier it is scalar_forward that runs it", nil},
	} {
		_, err := d.Plan(test.p, test.opts...)
		var unsupported *UnsupportedError
		require.ErrorAs(t, err, &unsupported)
		require.ErrorIs(t, err, ErrUnsupported)
		require.Equal(t, test.anywhere, unsupported.Anywhere, err)
		require.ErrorContains(t, err, test.want)
		require.Equal(t, test.anywhere, !strings.Contains(err.Error(), "on this device"), err)
		mustPlan(t, d, test.p, test.instead...)
	}
	back := mustPlan(t, d, p, WithImplementation(Flash1), WithTier(TierScalar))
	_, err := back.BackwardInfo()
	require.ErrorContains(t, err, "is supported on no device: there is no such kernel; WithImplementation(Flash) runs it, by ")
}

// TestNoRemedyIsDenied: an error names no kernel that has failed its self-check, neither the one in question nor one that was not asked
// for, and what it names runs.
func TestNoRemedyIsDenied(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 23, HeadDim: 8, DType: F32, ScoreFunction: score.Softcap(1)}
	for _, c := range []struct {
		name   string
		wrong  string // modules whose names begin so
		back   bool
		opts   []PlanOption
		remedy string
	}{
		{"forward, everything wrong", "", false, nil, ""},
		{"forward, its own wrong", "scalar_", false, nil, "WithImplementation(Standard) runs it, by "},
		{"backward, everything of it wrong", "standard_backward_|scalar_backward_", true, nil, ""},
		{"backward, its own wrong", "scalar_backward_", true, []PlanOption{WithTier(TierScalar)},
			"WithImplementation(Standard) runs it, by "},
	} {
		t.Run(c.name, func(t *testing.T) {
			forgetProcess(t)
			d.env.Modules = func(name string) ([]uint32, error) {
				code, err := shaders.Shipped.Module(name)
				for _, prefix := range strings.Split(c.wrong, "|") {
					if err == nil && strings.HasPrefix(name, prefix) {
						return crossed(code), nil
					}
				}
				return code, err
			}
			run := func(opts ...PlanOption) error {
				plan, err := d.Plan(p, opts...)
				if err == nil {
					defer plan.Close()
					if c.back {
						_, err = plan.BackwardInfo()
					}
				}
				return err
			}
			err := run(c.opts...)
			var unsupported *UnsupportedError
			require.ErrorAs(t, err, &unsupported)
			require.True(t, unsupported.Denied)
			if c.remedy == "" {
				require.Empty(t, unsupported.Remedy)
				require.Error(t, run(WithImplementation(Standard)))
				return
			}
			require.Contains(t, unsupported.Remedy, c.remedy)
			require.NoError(t, run(WithImplementation(Standard)))
		})
	}
}
