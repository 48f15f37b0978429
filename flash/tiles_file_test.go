package flash

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/tuned"
)

// TestWithTiles: rows of a file go before the built-in ones, and what tune measured before the tuning file.
func TestWithTiles(t *testing.T) {
	testDevice(t) // skips without one
	dir := t.TempDir()
	t.Setenv(tuned.Env, filepath.Join(dir, "tuning.json"))
	path := filepath.Join(dir, "mine.tiles")
	write := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	p := tuningProblem()
	write("family mine\ndevice any\nkernel scalar_forward derived\nany : br=8 bc=64 mr=1 mc=4\n")
	d, err := Open(WithoutDiskCache(), WithTiles(path))
	require.NoError(t, err)
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	require.Equal(t, "scalar_forward 8x64", plan.ForwardInfo().Kernel)
	require.False(t, plan.Tuned())
	require.Contains(t, plan.String(), "scalar_forward: "+path+":4, derived")
	require.Equal(t, "mine", d.Info().Tiles[0])
	require.NoError(t, d.Close())
	infos, err := Devices(WithTiles(path))
	require.NoError(t, err)
	require.Equal(t, "mine", infos[0].Tiles[0])

	write("family mine\ndevice any\nkernel scalar_forward tuned\nhead_dim=4 : br=8\nqueries<=64 : br=16 bc=64 mr=2 mc=4\n")
	d, err = Open(WithoutDiskCache(), WithTiles(path))
	require.NoError(t, err)
	plan = mustPlan(t, d, p, WithTier(TierScalar))
	require.Equal(t, "scalar_forward 16x64", plan.ForwardInfo().Kernel)
	require.True(t, plan.Tuned())
	require.Contains(t, plan.String(), "scalar_forward: "+path+":5, tuned")
	builtIn := mustPlan(t, d, p, WithTier(TierScalar), WithoutStoredTuning())
	require.NotEqual(t, "scalar_forward 16x64", builtIn.ForwardInfo().Kernel)
	require.Contains(t, builtIn.String(), "internal/tiles/")
	key := d.tuned().Key("scalar_forward", attnOf(normal(t, p)))
	require.NoError(t, tuned.Store(tuned.Entry{Key: key, Tuning: map[string]int{"br": 8, "bc": 64, "mr": 1, "mc": 4}, Tile: "8x64",
		Gain: 1.25}))
	require.Equal(t, "scalar_forward 16x64", mustPlan(t, d, p, WithTier(TierScalar)).ForwardInfo().Kernel)
	entries, err := tuned.Stored()
	require.NoError(t, err)
	text, err := d.tuned().Tiles(entries)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	write(text)
	d, err = Open(WithoutDiskCache(), WithTiles(path))
	require.NoError(t, err)
	require.Equal(t, "scalar_forward 8x64", mustPlan(t, d, p, WithTier(TierScalar)).ForwardInfo().Kernel)
	require.NoError(t, d.Close())

	for text, want := range map[string]string{
		"family mine\nnonsense": path + ":2: ",
		// of versions that had them
		"family mine\nkernel matrix_backward_kv measured\nany : w=8 rm=1 bc=32 ck=16 columns=2": path +
			`:3: matrix_backward_kv has no number "columns"`,
		"family mine\nkernel matrix_backward_atomic derived": path +
			`:2: unknown kernel "matrix_backward_atomic"`,
		"family mine\ndevice id=1 vendor=0x1": path +
			": these tiles are for other devices: for id=1 vendor=0x1, and this one is ",
	} {
		write(text)
		_, err = Open(WithoutDiskCache(), WithTiles(path))
		require.ErrorContains(t, err, want)
	}
	_, err = Open(WithTiles(filepath.Join(dir, "missing")))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(WithTiles(""))
	require.ErrorIs(t, err, ErrArgument)
}
