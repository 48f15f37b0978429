// Package flashtest has what tests of the packages beside flash share: devices under the validation layers, plans, tensors and values.
// Tests inside of package flash have their own, since this package imports it.
package flashtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/vktest"
)

// within is what flash keeps to itself.
var within = access.Get[*flash.Device, *flash.Plan, flash.Problem, *flash.Tensor, *flash.Recording]()

// shared is the device below those of the tests.
var shared = vktest.Shared[*flash.Device]{Open: open}

// open opens a device with the validation layers, or without them where there is nothing to take messages.
func open(onMessage func(flash.Message)) (*flash.Device, error) {
	if onMessage == nil {
		return flash.Open(flash.WithoutDiskCache())
	}
	return flash.Open(flash.WithoutDiskCache(), flash.WithValidation(onMessage))
}

// sharedQueue lets devices of one test, which all submit to one queue, take turns.
var sharedQueue sync.Mutex

// Device gives a device with the validation layers, whose every message fails the test. It has nothing of an earlier test but the VkDevice
// below.
func Device(t testing.TB) *flash.Device {
	t.Helper()
	vktest.Budget(t)
	external := shared.Device(t).External()
	external.QueueLock = &sharedQueue
	d, err := flash.Attach(external, flash.WithoutDiskCache())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	env, err := within.Env(d)
	require.NoError(t, err)
	env.Attached = false // not one of a caller: kernels prove themselves when they are first used
	return d
}

// Own is Device with a VkDevice that no other has.
func Own(t testing.TB) *flash.Device {
	t.Helper()
	vktest.Budget(t)
	return vktest.Opened(t, open)
}

// Main runs a package's tests and closes their device. It is for TestMain, and gives the status to exit with.
func Main(m *testing.M) int {
	_, err := flash.Devices()
	vktest.LeaveOutExamples(err)
	return shared.Main(m)
}

// Plan makes a plan that there must be.
func Plan(t testing.TB, d *flash.Device, p flash.Problem, opts ...flash.PlanOption) *flash.Plan {
	t.Helper()
	plan, err := d.Plan(p, opts...)
	require.NoError(t, err)
	return plan
}

// Finish waits for a submission: Finish(r.Submit()).
func Finish(p flash.Pending, err error) error {
	if err != nil {
		return err
	}
	return p.Wait(context.Background())
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
