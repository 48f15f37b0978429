package flash

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBackwardKeepsNaN: a query that is no number leaves no number in o, dq of its own row and in dk and dv of every key of its head, on
// every kernel; the other head is as it would be.
func TestBackwardKeepsNaN(t *testing.T) {
	d := testDevice(t)
	for _, dtype := range []DType{F16, F32} {
		p := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 33, KeyLen: 47, HeadDim: 16, DType: dtype})
		const bad = 20 // of head 1
		everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
			plan := mustPlan(t, d, p, opts...)
			defer plan.Close()
			if _, err := plan.BackwardInfo(); errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			s, b := newBackwardSample(t, d, plan, dtype)
			s.q[(p.QueryLen+bad)*p.HeadDim+3] = float32(math.NaN())
			require.NoError(t, b.Q.Upload(bg, s.q))
			s.forward(t, plan)
			require.NoError(t, plan.Backward(bg, b))
			for name, x := range map[string]*Tensor{"o": b.O, "lse": b.LSE, "dq": b.DQ, "dk": b.DK, "dv": b.DV} {
				perHead := x.Elements() / 2
				for i, v := range download(t, x) {
					row := i % perHead / x.Shape()[3]
					none := i >= perHead && (row == bad || name == "dk" || name == "dv")
					if !assert.Equal(t, none, v != v, "%s of head %d, row %d is %v", name, i/perHead, row, v) {
						break
					}
				}
			}
		})
	}
}
