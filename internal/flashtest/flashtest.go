// Package flashtest has what tests of the packages beside flash share: devices under the validation layers, plans, tensors and values.
// Tests inside of package flash have their own, since this package imports it.
package flashtest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/vktest"
)

// Device opens a device with the validation layers, whose every message fails the test.
func Device(t testing.TB) *flash.Device {
	t.Helper()
	vktest.Budget(t)
	return vktest.Opened(t, func(onMessage func(flash.Message)) (*flash.Device, error) {
		if onMessage == nil {
			return flash.Open(flash.WithoutDiskCache())
		}
		return flash.Open(flash.WithoutDiskCache(), flash.WithValidation(onMessage))
	})
}

// Plan makes a plan that there must be.
func Plan(t testing.TB, d *flash.Device, p flash.Problem, opts ...flash.PlanOption) *flash.Plan {
	t.Helper()
	plan, err := d.Plan(p, opts...)
	require.NoError(t, err)
	return plan
}

// RowMajor makes tensors in row-major order.
func RowMajor(t testing.TB, d *flash.Device) func(flash.DType, [4]int) *flash.Tensor {
	return func(dtype flash.DType, s [4]int) *flash.Tensor {
		x, err := d.NewTensor(dtype, s[0], s[1], s[2], s[3])
		require.NoError(t, err)
		return x
	}
}

// Values are random numbers as a type has them.
func Values(rng *rand.Rand, t flash.DType, shape [4]int) []float32 {
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

// Refused requires that the error is of this argument, with its value and a rule.
func Refused(t *testing.T, argument string, err error) {
	t.Helper()
	var arg *flash.ArgumentError
	require.ErrorAs(t, err, &arg)
	require.Equal(t, argument, arg.Argument)
	require.NotEmpty(t, arg.Value)
	require.NotEmpty(t, arg.Rule)
}
