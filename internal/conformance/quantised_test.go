package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestKeysRoundedToBF16: lse of keys in blocks may, on matrices, be that of keys rounded to bf16, which fragments hold, and is held as near to it as
// any. The scalar tier, which multiplies in fp32, may not; fp16, whose eleven bits are near enough, and fp8, of four bits, have no such lse.
func TestKeysRoundedToBF16(t *testing.T) {
	judge := func(c *Case, tier flash.Tier, add float32) Result {
		o := make([]float32, len(c.o))
		for i, x := range c.o {
			o[i] = float32(x)
		}
		lse := make([]float32, len(c.lse))
		for i, x := range c.keysL {
			lse[i] = float32(x) + add
		}
		var r Result
		c.check(Target{Implementation: flash.Flash, Tier: tier}, o, lse, &r)
		return r
	}
	of := func(dtype, keys flash.DType) *Case {
		c := &Case{Problem: flash.Problem{Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 158, KeyLen: 85, HeadDim: 96, DType: dtype, KeyType: keys, Causal: flash.CausalBottomRight}}
		c.fill = scaled(4, 4, 1)
		require.NoError(t, c.prepare())
		return c
	}
	c := of(flash.BF16, flash.Q8_0)
	require.Empty(t, judge(c, flash.TierMatrix, 0).Failure)
	require.NotEmpty(t, judge(c, flash.TierScalar, 0).Failure, "the scalar tier multiplies keys as they are")
	require.NotEmpty(t, judge(c, flash.TierMatrix, 0.02).Failure)
	require.Nil(t, of(flash.BF16, flash.F8E4M3).keysL)
	require.Nil(t, of(flash.F16, flash.Q8_0).keysL)
	require.Nil(t, of(flash.BF16, 0).keysL)
}
