package flash

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/shaders"
)

// TestModuleFloatControls: fp16 shaders ask the device at hand for what it offers, under validation, and what is remembered
// of a shader is remembered of those words; others stay as they were compiled.
func TestModuleFloatControls(t *testing.T) {
	d := testDevice(t)
	f := d.env.Caps.Facts.FloatControls
	offers := f.RoundingRTE16 || f.DenormPreserve16 || f.SignedZeroInfNan16
	for _, name := range []string{"scalar_forward.f16", "scalar_forward.bf16", "scalar_forward.f32"} {
		plain, err := shaders.Module(name)
		require.NoError(t, err)
		code, err := d.env.Module(name)
		require.NoError(t, err)
		changed := offers && name == "scalar_forward.f16"
		require.Equal(t, changed, !slices.Equal(plain, code), name)

		info, err := shaders.Describe(name)
		require.NoError(t, err)
		hash, err := d.env.ModuleHash(name)
		require.NoError(t, err)
		require.Equal(t, changed, info.SPIRVSHA256 != hash, "%s: the hash is that of the words", name)
	}
	_, err := d.env.Module("no_such_shader")
	require.ErrorIs(t, err, shaders.ErrUnknownModule)
	_, err = d.env.ModuleHash("no_such_shader")
	require.ErrorIs(t, err, shaders.ErrUnknownModule)

	s := newSample(t, usual(Problem{Batch: 1, Heads: 2, QueryLen: 33, KeyLen: 70, HeadDim: 16, DType: F16, Causal: CausalBottomRight}))
	everyKernel(t, d, s.p, func(t *testing.T, opts ...PlanOption) {
		plan := mustPlan(t, d, s.p, opts...)
		f := s.tensors(t, d, plainly(t, d))
		require.NoError(t, plan.Forward(bg, f))
		s.check(t, plan, f)
	})
}
