package flash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/internal/tuned"
)

// TestForeignTiles: whatever numbers the rows of somebody's file have, a kernel takes a tile within the device's limits, or none.
func TestForeignTiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.IntRange(0, 17), rapid.SampledFrom([]int{24, 31, 32, 33, 48, 64, 100, 128, 256, 1000, 1024}))
		row := func(names ...string) string {
			text := "any :"
			for _, name := range names {
				text += fmt.Sprintf(" %s=%d", name, number.Draw(t, name))
			}
			return text + "\n"
		}
		text := "family mine\ndevice any\n"
		add := func(kernel string, names ...string) { // rows that may not be are for the parser's tests
			more := text + "kernel " + kernel + " derived\n" + row(names...)
			if _, err := catalogue.ParseTiles("f.tiles", more); err == nil {
				text = more
			}
		}
		for range 6 {
			add("matrix_forward", "w", "rm", "bc", "ck", "prefetch", "q_reg", "heads_together")
			add("matrix_flash1", "w", "rm", "bc", "ck", "prefetch")
			add("matrix_backward_kv", "w", "rm", "bc", "ck", "prefetch", "a_reg")
			add("matrix_backward_q", "w", "rm", "bc", "ck", "b_reg")
			for _, kernel := range []string{"scalar_forward", "scalar_flash1", "scalar_backward_kv", "scalar_backward_q"} {
				add(kernel, "br", "bc", "mr", "mc")
			}
			add("scalar_forward", "br", "bc", "mr", "mc", "dk", "pc")
			add("scalar_backward_q", "br", "bc", "mr", "mc", "vc")
			add("scalar_decode", "w", "lpr", "u", "registers", "in_flight", "beside", "part_keys", "shared_kib")
			add("standard_scores_matrix", "wr", "rows", "columns", "run")
			add("standard_product_matrix", "wr", "wc", "rows", "keys")
			add("standard_scalar", "br", "bc", "mr", "mc", "dk", "product_bc")
			add("standard_softmax", "pieces")
		}
		file, err := catalogue.ParseTiles("f.tiles", text)
		require.NoError(t, err)
		g := &madeUpGPUs[rapid.IntRange(0, len(madeUpGPUs)-1).Draw(t, "device")]
		c := g.caps()
		c.Tiles, err = file.Over(c.TilesDevice())
		require.NoError(t, err)
		p := kerneltest.DrawProblem(t)
		if rapid.Bool().Draw(t, "blocks") {
			p.Blocks = attn.Blocks{Queries: 48, Keys: 32}
		}
		fits := func(name string, err error, why func() string) {
			var no *kernel.Declined
			if err == nil && why() != "" || err != nil && !errors.As(err, &no) {
				t.Fatalf("%s: %v, %v\n%s", name, why(), err, text)
			}
		}
		limits, elem := &c.Facts.Limits, p.DType.Size()
		inFP32, err := scalar.ChooseForwardTile(c, p, kernel.NewTuning(nil))
		fits("scalar_forward", err, func() string { return inFP32.Check(p.HeadDim, p.ValueDim, elem, limits) })
		flash1, err := scalar.ChooseFlash1Tile(c, p, kernel.NewTuning(nil))
		fits("scalar_flash1", err, func() string { return flash1.Check(p.HeadDim, p.ValueDim, elem, limits) })
		inThree, err := standard.ChooseScalarTile(c, p, kernel.NewTuning(nil))
		fits("standard_scalar", err, func() string { return inThree.Check(p, limits) })
		decode, err := scalar.ChooseDecodeTile(c, p, kernel.NewTuning(nil))
		fits("scalar_decode", err, func() string { _, why := decode.Check(p, limits); return why })
		for _, prefix := range []string{"kv_", "q_"} {
			tile, err := scalar.ChooseBackwardTile(c, p, prefix, kernel.NewBackwardTuning(nil))
			fits("scalar_backward", err, func() string { return tile.Check(prefix, max(p.HeadDim, p.ValueDim), elem, limits) })
		}
		if len(g.fragments) == 0 {
			return
		}
		f := c.Fragments(p.DType)[0]
		for _, choose := range []func(*kernel.Capabilities, *attn.Problem, kernel.Fragment, int, *kernel.Tuning) (matrix.Tile,
			error){matrix.ChooseTile, matrix.ChooseBlockTile, matrix.ChooseFlash1Tile} {
			tile, err := choose(c, p, f, g.form, kernel.NewTuning(nil))
			fits("matrix_forward", err, func() string { return tile.Check(p.HeadDim, p.ValueDim, c) })
		}
		for _, prefix := range []string{"kv_", "q_"} {
			tile, err := matrix.ChooseBackwardTile(c, p, &kernel.FragmentLayout{Form: g.form}, f, g.form, prefix,
				kernel.NewBackwardTuning(nil))
			fits("matrix_backward", err, func() string { return tile.Check(prefix, p, c) })
		}
		products, err := standard.ChooseMatrixTile(c, p, f, kernel.NewTuning(nil))
		fits("standard_matrix", err, func() string { return products.Check(p, c) })
		_, err = standard.ChooseMatrixGradients(c, p, f, kernel.NewBackwardTuning(nil))
		fits("standard_backward_matrix", err, func() string { return "" })
	})
}

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
	require.Equal(t, "scalar_forward 8x64", plan.Kernel())
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
	require.Equal(t, "scalar_forward 16x64", plan.Kernel())
	require.True(t, plan.Tuned())
	require.Contains(t, plan.String(), "scalar_forward: "+path+":5, tuned")
	builtIn := mustPlan(t, d, p, WithTier(TierScalar), WithoutStoredTuning())
	require.NotEqual(t, "scalar_forward 16x64", builtIn.Kernel())
	require.Contains(t, builtIn.String(), "internal/tiles/")
	key := d.tuned().Key("scalar_forward", attnOf(normal(t, p)))
	require.NoError(t, tuned.Store(tuned.Entry{Key: key, Tuning: map[string]int{"br": 8, "bc": 64, "mr": 1, "mc": 4}, Tile: "8x64",
		Gain: 1.25}))
	require.Equal(t, "scalar_forward 16x64", mustPlan(t, d, p, WithTier(TierScalar)).Kernel())
	entries, err := tuned.Stored()
	require.NoError(t, err)
	text, err := d.tuned().Tiles(entries)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	write(text)
	d, err = Open(WithoutDiskCache(), WithTiles(path))
	require.NoError(t, err)
	require.Equal(t, "scalar_forward 8x64", mustPlan(t, d, p, WithTier(TierScalar)).Kernel())
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
