package flash

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// matrixDevice is testDevice on a device with the tier matrix; without one the test is skipped, or fails where
// VKATTN_REQUIRE_MATRIX says that there must be one.
func matrixDevice(t testing.TB) *Device {
	t.Helper()
	d := testDevice(t)
	if why := d.caps.lacksMatrix(F16); why != "" {
		if os.Getenv("VKATTN_REQUIRE_MATRIX") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return d
}

// TestMatrixForms runs every form with every fragment that the device has.
func TestMatrixForms(t *testing.T) {
	d := matrixDevice(t)
	s := newSample(t, Problem{Batch: 1, Heads: 2, QueryLen: 37, KeyLen: 45, HeadDim: 16, DType: F16, Causal: CausalBottomRight})
	for _, f := range d.caps.fragments(F16) {
		layout, err := d.layout(F16, f)
		require.NoError(t, err)
		for form := layout.Form; form <= formShared; form++ {
			t.Run(fmt.Sprintf("%v-form%d", f, form), func(t *testing.T) {
				plan := mustPlan(t, d, s.p, WithTier(TierMatrix), WithTuning(map[string]int{"fm": f.M, "fn": f.N, "fk": f.K, "form": form}))
				require.Contains(t, plan.String(), fmt.Sprintf("%v form %d", f, form))
				tensors := s.tensors(t, d, plainly(t, d))
				require.NoError(t, plan.Forward(bg, tensors.Q, tensors.K, tensors.V, tensors.O, tensors.LSE))
				s.check(t, plan, tensors)
			})
		}
	}
}
