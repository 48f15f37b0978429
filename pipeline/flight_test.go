package pipeline

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSubmitTogether: recordings of one submission see what those before them wrote, and each has a Pending and times of its own. Whoever
// is waited for last, or closed while the device works, leaves the others whole.
func TestSubmitTogether(t *testing.T) {
	c := newContext(t, Options{})
	const n, parts = 300, 3
	k := mixKernel(t, c, 3)
	var buffers [parts + 1]*Buffer
	for i := range buffers {
		buffers[i] = alloc(t, c, "part", 4*n)
	}
	var recordings []*Recording
	want := pattern(n, 7)
	upload(t, c, buffers[0], want)
	for i := range parts {
		r := newRecording(t, c, RecordingInfo{MaxDispatches: 1, MaxBindings: 2, Timestamps: true})
		chain(t, r, k, buffers[i], buffers[i+1], n, 1, 50)
		recordings = append(recordings, r)
		want = chainWant(want, 1, 50, 3)
	}
	ctx := context.Background()
	for range 2 {
		require.NoError(t, c.SubmitTogether(recordings))
		assert.ErrorIs(t, recordings[0].Reset(), ErrInFlight)
		assert.ErrorIs(t, c.SubmitTogether(recordings[1:]), ErrInFlight)
		for i := range recordings {
			p := recordings[(i+1)%parts].Pending()
			require.NoError(t, p.Wait(ctx))
			done, err := p.Done()
			require.NoError(t, err)
			require.True(t, done)
			if p.HasTimestamps() {
				require.Len(t, p.Timings(), 1)
			}
		}
		require.Equal(t, want, download(t, c, buffers[parts], n))
	}
	require.Len(t, c.flights.all, 1, "one serves again")

	// One is waited for and goes on by itself while others have not been.
	require.NoError(t, c.SubmitTogether(recordings))
	require.NoError(t, recordings[0].Pending().Wait(ctx))
	p, err := c.Submit(recordings[0])
	require.NoError(t, err)
	require.NoError(t, c.SubmitTogether([]*Recording{newFill(t, c, buffers[0])}), "a second flight")
	require.NoError(t, recordings[2].Close(), "waits")
	require.NoError(t, recordings[1].Pending().Wait(ctx))
	require.NoError(t, p.Wait(ctx))
	require.Len(t, c.flights.all, 2)
	require.Len(t, c.flights.free, 1, "the fill is still in the other")

	var arg *ArgumentError
	require.ErrorAs(t, c.SubmitTogether(nil), &arg)
	require.ErrorAs(t, c.SubmitTogether([]*Recording{recordings[0], nil}), &arg)
	require.ErrorAs(t, c.SubmitTogether([]*Recording{recordings[0], recordings[0]}), &arg)
	require.ErrorIs(t, c.SubmitTogether(recordings), ErrClosed)
	_, err = c.Submit(recordings[0])
	require.NoError(t, err, "a refused submission leaves it free")
	require.NoError(t, recordings[0].Pending().Wait(ctx))
}

// newFill is a recording that fills a buffer.
func newFill(t testing.TB, c *Context, b *Buffer) *Recording {
	t.Helper()
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 1})
	require.NoError(t, r.Fill(b.All(), 1, "fill"))
	return r
}
