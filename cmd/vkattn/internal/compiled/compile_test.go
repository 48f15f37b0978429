package compiled

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
)

func open() (*flash.Device, error) { return flash.Open(flash.CompileOnly()) }

// TestPlanned: what plans make, on a device of their own each, is what their recordings dispatch.
func TestPlanned(t *testing.T) {
	dev, err := open()
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer dev.Close()
	both := result.Passes{Fwd: true, Bwd: true}
	for _, c := range []struct {
		name   string
		change func(*result.Case)
		passes result.Passes
		count  int
	}{
		{"both passes", func(*result.Case) {}, both, 2},
		{"backward alone", func(*result.Case) {}, result.Passes{Bwd: true}, 1},
		{"packed", func(c *result.Case) { c.Packed, c.B, c.Nq, c.N = "mixed", 2, 64, 64 }, both, 2},
		{"decoding", func(c *result.Case) { c.Nq, c.Hkv, c.N = 1, 1, 4096 }, result.Passes{Fwd: true}, 1},
		{"refused", func(c *result.Case) { c.H, c.Hkv = 3, 2 }, both, 1},
		{"refused behind forward", func(c *result.Case) { c.D, c.Dv = 300, 300 }, both, 2},
	} {
		j := result.Job{Passes: c.passes, Case: result.Case{Impl: "flash2", DType: "float32", B: 1, H: 2, Hkv: 2, Nq: 32, N: 32, D: 16,
			Dv: 16}}
		c.change(&j.Case)
		listed, _, err := compile(t.Context(), dev, j, flash.TierScalar)
		require.NoError(t, err, c.name)
		again, err := open()
		require.NoError(t, err)
		made, _, err := planned(t.Context(), again, j, flash.TierScalar)
		require.NoError(t, err, c.name)
		require.NoError(t, again.Close())
		require.Len(t, made, c.count, "%s: %v", c.name, made)
		for _, passes := range [][]Pass{listed, made} {
			for i := range passes {
				for s := range passes[i].Stages {
					passes[i].Stages[s].Seconds = 0
				}
				slices.SortFunc(passes[i].Stages, func(a, b Stage) int { return cmp.Compare(a.Module, b.Module) })
			}
		}
		require.Equal(t, listed, made, c.name)
	}
}
