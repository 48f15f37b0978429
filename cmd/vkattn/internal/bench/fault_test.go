package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// faultyDevice makes a device whose calls can fail.
func faultyDevice(t *testing.T, owner *flash.Device, f *vk.Faults) *flash.Device {
	t.Helper()
	dev, err := flash.Attach(owner.External(), flash.WithFaults(f), flash.WithoutDiskCache())
	require.NoError(t, err)
	return dev
}

// Calls of measuring a row fail in turn: the row says which and in what, nothing is left behind, and the next row is measured.
func TestFaultWalkRow(t *testing.T) {
	vktest.Long(t, "the walks of the package flash")
	ctx := context.Background()
	f := vk.NewFaults()
	c := result.Case{Impl: "flash2", DType: "float32", B: 1, H: 1, Hkv: 1, Nq: 4, N: 8, D: 8, Dv: 8}
	both := result.Passes{Fwd: true, Bwd: true}
	var dev *flash.Device
	var d *Device
	owner := testDevice(t)
	open := func() {
		dev = faultyDevice(t, owner, f)
		d = NewDevice(dev, "test", result.Peaks{}, flash.WithTier(flash.TierScalar))
		d.Limit = time.Nanosecond
		d.sets = 2 // each costs a GPU's driver milliseconds a row
	}
	row := func() error {
		s, err := d.Shape(ctx, c, both)
		if err != nil {
			return err
		}
		r := s.Measure(ctx, result.Job{Case: c, Passes: both}, true)
		if r.Error != "" {
			err = errors.New(r.Error)
		} else if r.BwdFailure.Error != "" {
			err = errors.New(r.BwdFailure.Error)
		} else {
			require.Positive(t, r.Fwd.Ms)
			require.Positive(t, r.Bwd.Ms)
		}
		return errors.Join(err, s.Close())
	}
	open()
	require.NoError(t, row())
	clean, used := f.Live(), dev.Usage().Current
	const stride = 11
	// An allocation that fails means fewer sets of inputs, so another failure than of memory is walked too.
	for _, result := range []vk.Result{vk.ErrUnknown, vk.ErrOutOfDeviceMemory, vk.ErrDeviceLost} {
		n := vktest.Walk{Faults: f, Kind: "any", Result: result, Stride: stride, Run: row, Check: func(t testing.TB, n int, call string,
			err error) {
			if err == nil {
				require.NotEqual(t, vk.ErrDeviceLost, result)
				if result == vk.ErrUnknown { // waits for the device
					require.Contains(t, []string{"vkWaitForFences", "vkDeviceWaitIdle"}, call)
				}
			} else {
				require.ErrorContains(t, err, call)
				require.ErrorContains(t, err, "flash: ")
				require.ErrorContains(t, err, result.String())
			}
			if result == vk.ErrDeviceLost {
				require.ErrorIs(t, dev.Lost(), flash.ErrDeviceLost)
				require.ErrorIs(t, dev.Close(), flash.ErrDeviceLost)
				require.Empty(t, f.Live())
				open()
				require.NoError(t, row())
				return
			}
			require.NoError(t, row())
			require.Empty(t, vktest.Leaked(clean, f.Live()))
			require.Equal(t, used, dev.Usage().Current)
		}}.Do(t)
		t.Logf("%v: %d calls", result, n)
		require.Positive(t, n)
	}
	require.NoError(t, dev.Close())
	require.Empty(t, f.Live())
}

// A tile that fails while tuning is out; a device that is lost ends tuning with that error.
func TestFaultsWhileTuning(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many tiles")
	}
	ctx := context.Background()
	f := vk.NewFaults()
	owner := testDevice(t)
	c := result.Case{Impl: "flash2", DType: "float32", B: 1, H: 1, Hkv: 1, Nq: 2, N: 8, D: 8, Dv: 8}
	for _, fault := range []struct {
		kind   string
		n      int
		result vk.Result
	}{{"submit", 40, vk.ErrUnknown}, {"pipeline", 3, vk.ErrOutOfDeviceMemory}, {"submit", 60, vk.ErrDeviceLost}} {
		dev := faultyDevice(t, owner, f)
		d := quick(dev, result.Peaks{}, flash.WithTier(flash.TierScalar))
		d.Limit = time.Nanosecond
		require.NoError(t, f.Arm(fault.kind, fault.n, fault.result))
		tuned, err := d.Tune(ctx, c, 1, nil)
		require.NotEmpty(t, f.Fired())
		f.Disarm()
		failed := ""
		for _, x := range tuned {
			if x.Error != "" {
				failed = x.Error
				require.False(t, x.Best)
			}
		}
		if err != nil {
			failed = err.Error()
		}
		require.Contains(t, failed, fault.result.String())
		require.Contains(t, failed, "flash: ")
		if fault.result == vk.ErrDeviceLost {
			require.ErrorIs(t, dev.Close(), flash.ErrDeviceLost)
		} else {
			_, err = d.Tune(ctx, c, 1, nil)
			require.NoError(t, err)
			require.NoError(t, dev.Close())
		}
		require.Empty(t, f.Live())
	}
}
