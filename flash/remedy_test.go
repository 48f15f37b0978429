package flash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		{wide, []PlanOption{WithImplementation(Flash1), WithTier(TierScalar)}, true, "WithImplementation(Flash) runs it, by ", []PlanOption{WithTier(TierScalar)}},
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
