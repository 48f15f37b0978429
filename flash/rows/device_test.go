package rows

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

// envOf is what kernels of a device are built with.
func envOf(t testing.TB, d *flash.Device) *kernel.Env {
	t.Helper()
	env, err := within.Env(d)
	require.NoError(t, err)
	return env
}
