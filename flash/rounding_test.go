package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// TestOutputsAreRoundedToNearestEven: with a query of zeros the output is the mean of four values, exact in fp32, and what is stored of
// it in 16 bits is the nearest number, of two that are equally near the even one. Cutting off is wrong by less than the bounds of the
// conformance suite allow.
func TestOutputsAreRoundedToNearestEven(t *testing.T) {
	d := testDevice(t)
	for _, dtype := range []DType{F16, BF16} {
		for _, queries := range []int{1, 20} { // the kernel for few, and the tiled ones
			p := Problem{Batch: 1, Heads: 1, QueryLen: queries, KeyLen: 4, HeadDim: 16, DType: dtype}
			s := newSample(t, p)
			clear(s.q)
			ulp := ref.DType(dtype).Ulp(1)
			want := make([]float32, p.HeadDim)
			for c := range want {
				sum := 0.0
				for j := range p.KeyLen {
					v := 1 + float64((5*c+j*j*c)%100)*ulp // the sums end in each of 0 to 3 quarters
					s.v[j*p.HeadDim+c] = float32(v)
					sum += v
				}
				want[c] = ref.DType(dtype).Round(float32(sum / 4))
			}
			for _, impl := range []Implementation{Flash, Standard, Flash1} {
				if impl != Flash && (queries == 1 || dtype == F16) {
					continue // the same kernels again, and the driver's own conversion
				}
				plan := mustPlan(t, d, p, WithImplementation(impl), WithTier(TierScalar))
				f := s.tensors(t, d, plainly(t, d))
				require.NoError(t, plan.Forward(bg, f.Q, f.K, f.V, f.O, f.LSE))
				for row, o := 0, download(t, f.O); row < queries; row++ {
					require.Equal(t, want, o[row*p.HeadDim:(row+1)*p.HeadDim], "%s, %v", plan.Kernel(), dtype)
				}
				require.NoError(t, plan.Close())
			}
		}
	}
}
