package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestPoints: copies begin after what they are told, in order, more of them than are under way at once, and the device's queue goes on
// after them.
func TestPoints(t *testing.T) {
	c := newContext(t, Options{})
	if !c.HasPoints() {
		t.Skip("the device has no timeline semaphores")
	}
	const n = 1 << 12
	a, err := c.Alloc("a", n, vk.DeviceLocal)
	require.NoError(t, err)
	b, err := c.Alloc("b", n, vk.DeviceLocal)
	require.NoError(t, err)
	copiers := [2]*Copier{}
	for i := range copiers {
		copiers[i], err = c.NewCopier(i)
		require.NoError(t, err)
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7)
	}
	require.NoError(t, c.Upload(t.Context(), a.All(), data))
	require.NoError(t, c.Upload(t.Context(), b.All(), make([]byte, n)))
	p, err := c.Mark()
	require.NoError(t, err)
	for i := range 3 * copiesAtOnce { // there and back, each after the one before
		p, err = copiers[0].Start(b.All().Buffer, uint64(4*i), a.All().Buffer, uint64(4*i), n-uint64(4*i), p)
		require.NoError(t, err)
		require.NoError(t, c.After(p))
		if p, err = c.Mark(); err != nil {
			t.Fatal(err)
		}
		p, err = copiers[1].Start(a.All().Buffer, uint64(4*i), b.All().Buffer, uint64(4*i), n-uint64(4*i), p)
		require.NoError(t, err)
	}
	require.NoError(t, c.Reach(p))
	require.NoError(t, c.Reach(p), "again")
	require.NoError(t, c.Reach(Point{}))
	require.NoError(t, c.After(Point{}))
	got := make([]byte, n)
	require.NoError(t, c.Download(t.Context(), b.All(), got))
	require.Equal(t, data, got)
	for _, x := range copiers {
		require.NoError(t, x.Close())
		require.NoError(t, x.Close())
		_, err = x.Start(b.All().Buffer, 0, a.All().Buffer, 0, 4, Point{})
		require.ErrorIs(t, err, ErrInFlight)
	}
	require.NoError(t, c.Close())
	_, err = c.Mark()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, c.After(p), ErrClosed)
	require.ErrorIs(t, c.Reach(p), ErrClosed)
}
