package hostmem

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/vk"
)

var bg = context.Background()

var testDevice = flashtest.Own // bytes move from one VkDevice to another

func devOf(t *testing.T, d *flash.Device) *vk.Device {
	t.Helper()
	env, err := within.Env(d)
	require.NoError(t, err)
	return env.Dev
}

// TestMover hands bytes from one device to another over memory of the host that both import, and through staging where a device cannot.
func TestMover(t *testing.T) {
	a, b := testDevice(t), testDevice(t)
	r := rand.New(rand.NewPCG(1, 1))
	const n = 300_000
	values := make([]float32, n)
	for i := range values {
		values[i] = r.Float32()
	}
	from, err := a.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	to, err := b.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	for _, imported := range []bool{true, false} {
		require.NoError(t, from.Upload(bg, values))
		require.NoError(t, to.Upload(bg, make([]float32, n)))
		h, err := New(4*n + 12)
		require.NoError(t, err)
		if !imported {
			h.imported[a], h.imported[b] = nil, nil
		}
		ma, err := NewMover(a)
		require.NoError(t, err)
		mb, err := NewMover(b)
		require.NoError(t, err)
		if imported && devOf(t, a).Enabled().ExternalMemoryHost {
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

		require.ErrorIs(t, ma.ToHost(bg, h, 0, to, 0, 4), flash.ErrArgument, "another device's")
		require.ErrorIs(t, ma.ToHost(bg, h, 0, from, 4*n, 4), flash.ErrArgument)
		require.ErrorIs(t, ma.ToHost(bg, h, 4*n+12, from, 0, 4), flash.ErrArgument)
		require.ErrorIs(t, ma.ToHost(bg, nil, 0, from, 0, 4), flash.ErrArgument)
		ended, cancel := context.WithCancel(bg)
		cancel()
		require.ErrorIs(t, ma.ToHost(ended, h, 0, from, 0, 4), context.Canceled)
		require.NoError(t, ma.Close())
		require.NoError(t, mb.Close())
		require.NoError(t, h.Close())
		require.NoError(t, h.Close())
	}
	t.Log("imports:", devOf(t, a).Enabled().ExternalMemoryHost, "queues that copy:", len(devOf(t, a).TransferQueues()))
	_, err = New(0)
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestCopyNotWaitedFor: memory of the host that a copy may still use, because it could not be waited for, is kept for good, where the
// device has imported it; the tensor is freed once the device was waited for.
func TestCopyNotWaitedFor(t *testing.T) {
	f := vk.NewFaults()
	d, err := flash.Attach(testDevice(t).External(), flash.WithoutDiskCache(), flash.WithFaults(f))
	require.NoError(t, err)
	for _, imports := range []bool{true, false} {
		for _, out := range []bool{true, false} {
			m, err := NewMover(d)
			require.NoError(t, err)
			x, err := d.NewTensor(flash.F32, 1, 1, 1, 16)
			require.NoError(t, err)
			require.NoError(t, x.Upload(bg, make([]float32, 16)))
			h, err := New(64)
			require.NoError(t, err)
			if !imports {
				h.imported[d] = nil
			}
			imported := m.Imports(h)
			require.NoError(t, f.Arm("wait", 1, 0))
			require.NoError(t, f.Arm("idle", 1, 0))
			if out {
				err = m.ToHost(bg, h, 0, x, 0, 64)
			} else {
				err = m.ToDevice(bg, x, 0, h, 0, 64)
			}
			require.ErrorIs(t, err, vk.ErrOutOfHostMemory)
			f.Disarm()

			require.NoError(t, f.Arm("idle", 1, 0))
			require.ErrorIs(t, x.Close(), vk.ErrOutOfHostMemory)
			f.Disarm()
			require.NoError(t, x.Close())
			if err = h.Close(); !imported {
				require.NoError(t, err)
				require.NoError(t, m.Close())
				continue
			}
			require.ErrorIs(t, err, vk.ErrOutOfHostMemory)
			_, kept := importedMemory.Load(h)
			require.True(t, kept)
			require.NoError(t, h.imported[d].Close()) // the copy has ended, as only this test knows
			h.pin.Unpin()
			importedMemory.Delete(h)
		}
	}
	require.NoError(t, d.Close())
}

// TestHostMemoryForgotten keeps memory that a device has imported and that nobody closed: its address is the device's.
func TestHostMemoryForgotten(t *testing.T) {
	d := testDevice(t)
	if !devOf(t, d).Enabled().ExternalMemoryHost {
		t.Skip("the device imports no memory of the host")
	}
	mover, err := NewMover(d)
	require.NoError(t, err)
	defer mover.Close()
	forget := func(imported bool) *atomic.Bool {
		h, err := New(1 << 20)
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
		require.NoError(t, h.(*Memory).Close())
		return true
	})
}

// TestMoves: copies that queues order by themselves, in both directions, after what was submitted and before what follows.
func TestMoves(t *testing.T) {
	d := testDevice(t)
	const n = 1 << 16
	m, err := NewMover(d)
	require.NoError(t, err)
	h, err := New(4 * n)
	require.NoError(t, err)
	a, err := d.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	b, err := d.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i % 1000)
	}
	require.NoError(t, a.Upload(bg, values))
	require.NoError(t, b.Upload(bg, make([]float32, n)))
	var after Point
	if m.Ordered() {
		after, err = m.Mark()
		require.NoError(t, err)
	} else {
		_, err = m.Mark()
		require.ErrorIs(t, err, flash.ErrUnsupported)
	}
	var out *Move
	for i := range uint64(8) { // more than are under way at once
		next, err := m.StartToHost(bg, h, i*n/2, a, i*n/2, n/2, after)
		require.NoError(t, err)
		require.NoError(t, out.Wait())
		out = next
	}
	in, err := m.StartToDevice(bg, b, 0, h, 0, 4*n, out.End())
	require.NoError(t, err)
	require.NoError(t, m.After(in.End()))
	sum, err := d.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	p, err := d.PlanAccumulate(flash.AccumulateProblem{Shape: [4]int{1, 1, 1, n}})
	require.NoError(t, err)
	require.NoError(t, p.Accumulate(bg, flash.Accumulate{X: b, Y: sum}))
	require.NoError(t, in.Wait())
	require.NoError(t, in.Wait(), "again")
	require.NoError(t, out.Wait())
	got := make([]float32, n)
	require.NoError(t, sum.Download(bg, got))
	require.Equal(t, values, got)

	_, err = m.StartToDevice(bg, b, 4*n, h, 0, 4, Point{})
	require.ErrorIs(t, err, flash.ErrArgument)
	ended, cancel := context.WithCancel(bg)
	cancel()
	_, err = m.StartToHost(ended, h, 0, a, 0, 4, Point{})
	require.ErrorIs(t, err, context.Canceled)
	var none *Move
	require.NoError(t, none.Wait())
	require.Equal(t, Point{}, none.End())
	require.NoError(t, h.Close(), "nothing holds it")
	require.NoError(t, m.Close())
	_, err = m.StartToHost(bg, h, 0, a, 0, 4, Point{})
	require.ErrorIs(t, err, flash.ErrClosed)
}

// TestHostMemoryClosesBesideMoves: who closes memory waits for moves under way, and who moves it is not kept from waiting for its own by
// that.
func TestHostMemoryClosesBesideMoves(t *testing.T) {
	d := testDevice(t)
	m, err := NewMover(d)
	require.NoError(t, err)
	defer m.Close()
	if !m.Ordered() {
		t.Skip("the device has no timeline semaphores: moves are waited for")
	}
	h, err := New(64)
	require.NoError(t, err)
	a, err := d.NewTensor(flash.F32, 1, 1, 1, 16)
	require.NoError(t, err)
	require.NoError(t, a.Upload(bg, make([]float32, 16)))
	first, err := m.StartToHost(bg, h, 0, a, 0, 32, Point{})
	require.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- h.Close() }()
	for { // until Close has begun
		next, err := m.StartToHost(bg, h, 32, a, 32, 32, Point{})
		if err != nil {
			require.ErrorIs(t, err, flash.ErrClosed)
			break
		}
		require.NoError(t, next.Wait())
	}
	require.False(t, m.Imports(h), "it is closing")
	select {
	case <-closed:
		t.Fatal("the first move was not waited for")
	case <-time.After(10 * time.Millisecond):
	}
	require.NoError(t, first.Wait())
	require.NoError(t, <-closed)
}

// TestCloseBesideMoves: a move that nobody waits for, and one whose end the device does not tell, keep neither tensors nor the device from
// being closed.
func TestCloseBesideMoves(t *testing.T) {
	for name, fails := range map[string]bool{"not waited for": false, "a wait that fails": true} {
		t.Run(name, func(t *testing.T) {
			faults := vk.NewFaults()
			d, err := flash.Open(flash.WithFaults(faults), flash.WithoutDiskCache())
			if err != nil {
				t.Skip(err)
			}
			m, err := NewMover(d)
			require.NoError(t, err)
			if !m.Ordered() {
				t.Skip("the device has no timeline semaphores: moves are waited for")
			}
			h, err := New(64)
			require.NoError(t, err)
			a, err := d.NewTensor(flash.F32, 1, 1, 1, 16)
			require.NoError(t, err)
			b, err := d.NewTensor(flash.F32, 1, 1, 1, 16)
			require.NoError(t, err)
			for _, x := range []*flash.Tensor{a, b} {
				require.NoError(t, x.Upload(bg, make([]float32, 16)))
				move, err := m.StartToHost(bg, h, 0, x, 0, 64, Point{})
				require.NoError(t, err)
				if fails {
					require.NoError(t, faults.Arm("wait", 1, 0))
					require.NoError(t, faults.Arm("idle", 1, 0))
					require.Error(t, move.Wait())
				}
			}
			closed := make(chan error, 1)
			go func() { closed <- errors.Join(a.Close(), d.Close()) }() // b by its device
			select {
			case err := <-closed:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Fatal("a move holds a tensor for ever")
			}
		})
	}
}
