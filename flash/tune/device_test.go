package tune

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
)

var bg = context.Background()

// What tests of packages beside flash share.
var (
	testDevice     = flashtest.Device
	mustPlan       = flashtest.Plan
	requireRefused = flashtest.Refused
)

func TestMain(m *testing.M) { os.Exit(flashtest.Main(m)) }

// tensor makes a tensor of values, of those that repeat where there are fewer than it has elements.
func tensor(t testing.TB, d *flash.Device, dtype flash.DType, shape [4]int, values ...float32) *flash.Tensor {
	t.Helper()
	x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
	require.NoError(t, err)
	all := make([]float32, x.Elements())
	for i := range all {
		if len(values) > 0 {
			all[i] = values[i%len(values)]
		}
	}
	require.NoError(t, x.Upload(bg, all))
	return x
}

// inputs are tensors of a problem's forward pass; o is zero.
func inputs(t testing.TB, d *flash.Device, p flash.Problem) flash.Forward {
	t.Helper()
	return flash.Forward{Q: tensor(t, d, p.DType, p.QShape(), 0.5, -1, 2, 0.25, -0.125), K: tensor(t, d, p.DType, p.KShape(), 1, 0.5, -1),
		V: tensor(t, d, p.DType, p.VShape(), 3, 1, -2, 0.5, 4, -1, 2), O: tensor(t, d, p.DType, p.OShape()),
		LSE: tensor(t, d, flash.F32, p.LSEShape())}
}

func download(t testing.TB, x *flash.Tensor) []float32 {
	t.Helper()
	out := make([]float32, x.Elements())
	require.NoError(t, x.Download(bg, out))
	return out
}

// few is a problem that any device computes at once.
var few = flash.Problem{Batch: 1, Heads: 2, QueryLen: 33, HeadDim: 8, DType: flash.F16, Causal: flash.CausalBottomRight}
