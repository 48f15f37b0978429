package conformance

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestScoresFarFromZero: a row's maximum is that of its scores, wherever they lie. Exponentials of scores about −724 are 0, and of 724
// infinite, unless it is subtracted. (In fp32, and with few queries: the kernels are those of other cases.)
func TestScoresFarFromZero(t *testing.T) {
	dev := device(t)
	for name, sign := range map[string]float32{"below": -1, "above": 1} {
		c := &Case{Name: name, fill: opposed(sign), Problem: flash.Problem{Batch: 1, Heads: 2, QueryLen: 8, KeyLen: 150, HeadDim: 8,
			DType: flash.F32,
			Scale: 1 / math.Sqrt(32)}}
		for _, target := range Targets(dev, Options{Tiers: []flash.Tier{flash.TierScalar}}) {
			t.Run(name+" on "+target.String(), func(t *testing.T) {
				r := c.Run(context.Background(), dev, target)
				if r.Skipped != "" {
					t.Skip(r.Skipped)
				}
				require.True(t, r.Pass, r.Failure)
			})
		}
	}
	require.Empty(t, takeMessages())
}
