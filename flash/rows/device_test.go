package rows

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
)

var bg = context.Background()

// testDevice opens a device with the validation layers, whose every message fails the test.
func testDevice(t testing.TB) *flash.Device {
	t.Helper()
	vktest.Budget(t)
	return vktest.Opened(t, func(onMessage func(flash.Message)) (*flash.Device, error) {
		if onMessage == nil {
			return flash.Open(flash.WithoutDiskCache())
		}
		return flash.Open(flash.WithoutDiskCache(), flash.WithValidation(onMessage))
	})
}

// envOf is what kernels of a device are built with.
func envOf(t testing.TB, d *flash.Device) *kernel.Env {
	t.Helper()
	env, err := within.Env(d)
	require.NoError(t, err)
	return env
}

func mustPlan(t testing.TB, d *flash.Device, p flash.Problem, opts ...flash.PlanOption) *flash.Plan {
	t.Helper()
	plan, err := d.Plan(p, opts...)
	require.NoError(t, err)
	return plan
}

// plainly makes tensors in row-major order.
func plainly(t testing.TB, d *flash.Device) func(flash.DType, [4]int) *flash.Tensor {
	return func(dtype flash.DType, s [4]int) *flash.Tensor {
		x, err := d.NewTensor(dtype, s[0], s[1], s[2], s[3])
		require.NoError(t, err)
		return x
	}
}

// randomValues are random numbers as a type has them.
func randomValues(rng *rand.Rand, t flash.DType, shape [4]int) []float32 {
	n, _ := attn.Elements(shape)
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	raw := make([]byte, len(out)*t.Size())
	attn.Encode(attn.DType(t), raw, out)
	attn.Decode(attn.DType(t), out, raw)
	return out
}

// requireRefused: the error is of this argument.
func requireRefused(t *testing.T, argument string, err error) {
	t.Helper()
	var arg *flash.ArgumentError
	require.ErrorAs(t, err, &arg)
	require.Equal(t, argument, arg.Argument)
	require.NotEmpty(t, arg.Value)
	require.NotEmpty(t, arg.Rule)
}
