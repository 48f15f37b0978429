package kvcache

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/kernel"
)

var bg = context.Background()

// What tests of packages beside flash share.
var (
	testDevice     = flashtest.Device
	mustPlan       = flashtest.Plan
	plainly        = flashtest.RowMajor
	randomValues   = flashtest.Values
	requireRefused = flashtest.Refused
)

func TestMain(m *testing.M) { os.Exit(flashtest.Main(m)) }

// decodeDevice is a test device that scalar_decode runs on.
func decodeDevice(t *testing.T) *flash.Device {
	d := testDevice(t)
	if why := envOf(t, d).Caps.LacksShuffles(); why != "" {
		t.Skip(why)
	}
	return d
}

// envOf is what kernels of a device are built with.
func envOf(t testing.TB, d *flash.Device) *kernel.Env {
	t.Helper()
	env, err := within.Env(d)
	require.NoError(t, err)
	return env
}

func download(t testing.TB, x *flash.Tensor) []float32 {
	t.Helper()
	out := make([]float32, x.Elements())
	require.NoError(t, x.Download(bg, out))
	return out
}

func doubles(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
