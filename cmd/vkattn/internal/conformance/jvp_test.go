package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestGoldenTangentsOnMatrices: forward mode on matrices gives the tangents of a golden vector, in every form. TestFolder has the others in
// scalar arithmetic.
func TestGoldenTangentsOnMatrices(t *testing.T) {
	dev := device(t)
	load := func() (*ref.Vector, error) { return ref.ReadVector(goldenFolder + "/f16_d16.safetensors") }
	v, err := load()
	require.NoError(t, err)
	require.NotEqual(t, ref.Tangents{}, v.Tangents)
	c, err := vectorCase("f16_d16", v, load)
	require.NoError(t, err)
	for _, target := range Targets(dev, Options{Families: []string{"flash2"}, Tiers: []flash.Tier{flash.TierMatrix}}) {
		target.light = false // its backward pass too, and with it forward mode
		if target.skip(c) != "" || target.Tuning["decode"] == 1 {
			continue
		}
		t.Run(target.String(), func(t *testing.T) {
			if target.Tuning["form"] > 1 {
				vktest.Long(t, "this form of the kernel's self-check")
			}
			require.Equal(t, "matrix_jvp", passes(t, dev, c, target).Tangents)
		})
	}
}

// TestAnswersOfVectorsAreCompared: a golden vector whose tangents are off is no measure.
func TestAnswersOfVectorsAreCompared(t *testing.T) {
	for _, name := range tangentAnswers {
		v, err := ref.ReadVector(goldenFolder + "/f32_d40.safetensors")
		require.NoError(t, err)
		v.Answers[name][7] += 1e-3
		c, err := vectorCase("f32_d40", v, func() (*ref.Vector, error) { return v, nil })
		require.NoError(t, err)
		require.ErrorContains(t, c.prepare(), name+" of the file is")
	}
}
