package tune

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestStored: a tile that is stored for a problem is what plans of it take from then on, until it is removed; and it can be exported.
func TestStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(FileEnv, path)
	require.Equal(t, path, File())
	d := testDevice(t)
	_, err := ExportTiles(d)
	require.ErrorContains(t, err, "no tiles are stored")
	key, err := KeyOf(d, "scalar_forward", few)
	require.NoError(t, err)
	require.Equal(t, d.Info().Name, key.Device)
	require.NoError(t, Store(Entry{Key: key, Tuning: map[string]int{"br": 8, "bc": 64, "mr": 1, "mc": 4}, Tile: "8x64", Gain: 1.25}))
	all, err := Stored()
	require.NoError(t, err)
	require.Len(t, all, 1)
	plan := mustPlan(t, d, few, flash.WithTier(flash.TierScalar))
	require.True(t, plan.Tuned())
	require.Equal(t, "scalar_forward 8x64", plan.ForwardInfo().Kernel)
	text, err := ExportTiles(d)
	require.NoError(t, err)
	require.Contains(t, text, "br=8")
	require.NoError(t, Remove(key))
	require.False(t, mustPlan(t, d, few, flash.WithTier(flash.TierScalar)).Tuned())
	_, err = KeyOf(d, "scalar_forward", flash.Problem{})
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestNoDevice: what no device can be asked for is an argument's error.
func TestNoDevice(t *testing.T) {
	for _, d := range []*flash.Device{nil, new(flash.Device)} {
		for name, err := range map[string]error{
			"Candidates":         func() error { _, err := Candidates(d, few); return err }(),
			"BackwardCandidates": func() error { _, err := BackwardCandidates(d, few); return err }(),
			"KeyOf":              func() error { _, err := KeyOf(d, "scalar_forward", few); return err }(),
			"ExportTiles":        func() error { _, err := ExportTiles(d); return err }(),
			"MeasurePeaks":       func() error { _, err := MeasurePeaks(bg, d); return err }(),
			"TimeRuns":           func() error { _, err := TimeRuns[Commands](bg, d, nil, 1); return err }(),
			"StoredVerdicts":     func() error { _, err := StoredVerdicts(d); return err }(),
			"SelfCheck":          func() error { _, err := SelfCheck(bg, d, nil, nil); return err }(),
		} {
			require.ErrorIs(t, err, flash.ErrArgument, name)
		}
		require.Zero(t, Compilations(d))
	}
	for _, p := range []*flash.Plan{nil, new(flash.Plan)} {
		require.True(t, ForwardModel(p).IsZero())
		_, err := BackwardModel(p)
		require.ErrorIs(t, err, flash.ErrArgument)
	}
	_, err := LeastForwardBytes(flash.Problem{}, flash.Flash)
	require.ErrorIs(t, err, flash.ErrArgument)
	_, err = LeastBackwardBytes(flash.Problem{}, flash.Flash)
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestCompilations: planning compiles kernels, and planning again does not.
func TestCompilations(t *testing.T) {
	d := testDevice(t)
	require.Zero(t, Compilations(d).Kernels)
	mustPlan(t, d, few, flash.WithTier(flash.TierScalar))
	n := Compilations(d).Kernels
	require.Positive(t, n)
	mustPlan(t, d, few, flash.WithTier(flash.TierScalar))
	require.Equal(t, n, Compilations(d).Kernels)
}

// TestSelfCheck: the scalar kernels of every device compute attention.
func TestSelfCheck(t *testing.T) {
	d := testDevice(t)
	verdicts, err := SelfCheck(bg, d, []flash.Implementation{flash.Standard}, []flash.Tier{flash.TierScalar})
	require.NoError(t, err)
	require.NotEmpty(t, verdicts)
	for _, v := range verdicts {
		require.True(t, v.Pass, "%+v", v)
		require.Equal(t, flash.Standard, v.Implementation)
		require.Equal(t, flash.TierScalar, v.Tier)
	}
}
