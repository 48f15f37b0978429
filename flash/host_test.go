package flash

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMover hands bytes from one device to another over memory of the host that both import, and through staging where a device cannot.
func TestMover(t *testing.T) {
	a, b := testDevice(t), testDevice(t)
	r := rand.New(rand.NewPCG(1, 1))
	const n = 300_000
	values := make([]float32, n)
	for i := range values {
		values[i] = r.Float32()
	}
	from, err := a.NewTensor(F32, 1, 1, 1, n)
	require.NoError(t, err)
	to, err := b.NewTensor(F32, 1, 1, 1, n)
	require.NoError(t, err)
	for _, imported := range []bool{true, false} {
		require.NoError(t, from.Upload(bg, values))
		require.NoError(t, to.Upload(bg, make([]float32, n)))
		h, err := NewHostMemory(4*n + 12)
		require.NoError(t, err)
		if !imported {
			h.imported[a], h.imported[b] = nil, nil
		}
		ma, err := a.NewMover()
		require.NoError(t, err)
		mb, err := b.NewMover()
		require.NoError(t, err)
		if imported && a.dev.Enabled().ExternalMemoryHost {
			require.True(t, ma.Imports(h), "the device has the extension")
		}
		if !imported {
			require.False(t, ma.Imports(h))
		}
		for _, piece := range [][2]uint64{{0, 400_000}, {400_000, 4*n - 400_000}} {
			require.NoError(t, ma.ToHost(bg, h, 8+piece[0], from, piece[0], piece[1]))
			require.NoError(t, mb.ToDevice(bg, to, piece[0], h, 8+piece[0], piece[1]))
		}
		got := make([]float32, n)
		require.NoError(t, to.Download(bg, got))
		require.Equal(t, values, got)
		require.Zero(t, h.Bytes()[0], "before")
		require.Zero(t, h.Bytes()[4*n+9], "behind")

		require.ErrorIs(t, ma.ToHost(bg, h, 0, to, 0, 4), ErrArgument, "another device's")
		require.ErrorIs(t, ma.ToHost(bg, h, 0, from, 4*n, 4), ErrArgument)
		require.ErrorIs(t, ma.ToHost(bg, h, 4*n+12, from, 0, 4), ErrArgument)
		require.ErrorIs(t, ma.ToHost(bg, nil, 0, from, 0, 4), ErrArgument)
		ended, cancel := context.WithCancel(bg)
		cancel()
		require.ErrorIs(t, ma.ToHost(ended, h, 0, from, 0, 4), context.Canceled)
		require.NoError(t, ma.Close())
		require.NoError(t, mb.Close())
		require.NoError(t, h.Close())
		require.NoError(t, h.Close())
	}
	t.Log("imports:", a.dev.Enabled().ExternalMemoryHost, "queues that copy:", len(a.dev.TransferQueues()))
	_, err = NewHostMemory(0)
	require.ErrorIs(t, err, ErrArgument)
}

// TestHostMemoryForgotten keeps memory that a device has imported and that nobody closed: its address is the device's.
func TestHostMemoryForgotten(t *testing.T) {
	d := testDevice(t)
	if !d.dev.Enabled().ExternalMemoryHost {
		t.Skip("the device imports no memory of the host")
	}
	mover, err := d.NewMover()
	require.NoError(t, err)
	defer mover.Close()
	forget := func(imported bool) *atomic.Bool {
		h, err := NewHostMemory(1 << 20)
		require.NoError(t, err)
		if imported {
			require.True(t, mover.Imports(h))
		}
		collected := new(atomic.Bool)
		runtime.AddCleanup(h, func(c *atomic.Bool) { c.Store(true) }, collected)
		return collected
	}
	unused, imported := forget(false), forget(true)
	for range 100 {
		runtime.GC()
		if unused.Load() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	require.True(t, unused.Load(), "no device holds it")
	require.False(t, imported.Load(), "the device holds its address")
	importedMemory.Range(func(h, _ any) bool {
		require.NoError(t, h.(*HostMemory).Close())
		return true
	})
}
