package flash

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// meanOfFour makes the sample's queries zeros, so that its output is the mean of its four values, and gives these means. They end in each
// of 0 to 3 quarters of a unit of the type's last place.
func meanOfFour(s *sample) []float64 {
	clear(s.q)
	ulp := ref.DType(s.p.DType).Ulp(1)
	means := make([]float64, s.p.HeadDim)
	for c := range means {
		for j := range 4 {
			v := 1 + float64((5*c+j*j*c)%100)*ulp
			s.v[j*s.p.HeadDim+c] = float32(v)
			means[c] += v / 4
		}
	}
	return means
}

// TestOutputsAreRoundedToNearestEven: what is stored in 16 bits is the nearest number, of two that are equally near the even one. Cutting
// off is wrong by less than the bounds of the conformance suite allow.
func TestOutputsAreRoundedToNearestEven(t *testing.T) {
	d := testDevice(t)
	for _, dtype := range []DType{F16, BF16} {
		for _, queries := range []int{1, 20} { // the kernel for few, and the tiled ones
			p := Problem{Batch: 1, Heads: 1, QueryLen: queries, KeyLen: 4, HeadDim: 16, DType: dtype}
			s := newSample(t, p)
			want := make([]float32, p.HeadDim)
			for c, mean := range meanOfFour(s) {
				want[c] = ref.DType(dtype).Round(float32(mean))
			}
			for _, impl := range []Implementation{Flash, Standard, Flash1} {
				if impl != Flash && (queries == 1 || dtype == F16) {
					continue // the same kernels again, and the driver's own conversion
				}
				plan := mustPlan(t, d, p, WithImplementation(impl), WithTier(TierScalar))
				f := s.tensors(t, d, plainly(t, d))
				require.NoError(t, plan.Forward(bg, f))
				for row, o := 0, download(t, f.O); row < queries; row++ {
					require.Equal(t, want, o[row*p.HeadDim:(row+1)*p.HeadDim], "%s, %v", plan.ForwardInfo().Kernel, dtype)
				}
				require.NoError(t, plan.Close())
			}
		}
	}
}

// TestMatrixOutputsAreRounded is the same of the matrix tier in bf16, but for means that are as near to two numbers: its weights are cut
// off on purpose, and its sums made up for that to a few parts in a million.
func TestMatrixOutputsAreRounded(t *testing.T) {
	d := matrixDevice(t)
	if why := d.env.Caps.LacksMatrix(attn.BF16); why != "" {
		t.Skip(why)
	}
	p := Problem{Batch: 1, Heads: 1, QueryLen: 20, KeyLen: 4, HeadDim: 8, DType: BF16}
	s := newSample(t, p)
	means := meanOfFour(s)
	plan := mustPlan(t, d, p, WithTier(TierMatrix))
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, plan.Forward(bg, f))
	compared := 0
	for i, o := range download(t, f.O) {
		mean := means[i%p.HeadDim]
		if quarters := mean * 512; math.Mod(quarters, 4) != 2 {
			require.Equal(t, ref.BF16.Round(float32(mean)), o, "element %d of %v", i, mean)
			compared++
		}
	}
	require.Greater(t, compared, p.QueryLen)
	require.NoError(t, plan.Close())
}
