package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestCompileOnly: kernels are made, and nothing reaches the queue.
func TestCompileOnly(t *testing.T) {
	c := newContext(t, Options{CompileOnly: true, CacheDir: t.TempDir()})
	require.True(t, c.CompileOnly())
	require.Empty(t, c.DiskCache().Path, "what is not kept is compiled each time")
	first, second := mixKernel(t, c, 3), mixKernel(t, c, 4)
	require.Equal(t, []*Kernel{first, second}, c.Kernels())
	require.Positive(t, first.Took())
	require.Equal(t, "mix", first.Listed().Name)
	_, err := first.Stats()
	if c.Device().Enabled().PipelineExecutableInfo {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, ErrNoStats)
	}

	buf, err := c.Alloc("x", 256, vk.DeviceLocal)
	require.NoError(t, err)
	defer buf.Close()
	require.NoError(t, c.Upload(t.Context(), buf.All(), make([]byte, 256)), "it is dropped")
	require.ErrorIs(t, c.Download(t.Context(), buf.All(), make([]byte, 256)), ErrCompileOnly)
	rec, err := c.NewRecording(RecordingInfo{Listed: true, MaxDispatches: 1})
	require.NoError(t, err)
	defer rec.Close()
	require.NoError(t, rec.Fill(buf.All(), 1, "fill"))
	_, err = c.Submit(rec)
	require.ErrorIs(t, err, ErrCompileOnly)
	require.ErrorIs(t, c.SubmitTogether([]*Recording{rec}), ErrCompileOnly)
	list, err := rec.Listing()
	require.NoError(t, err)
	require.Len(t, list.Operations, 1, "it can be looked at all the same")
	_, err = c.NewCopier(0)
	require.ErrorIs(t, err, ErrCompileOnly)

	plain := newContext(t, Options{NoDiskCache: true})
	_, err = mixKernel(t, plain, 3).Stats()
	require.ErrorIs(t, err, ErrNoStats)
	var none *Context
	require.Empty(t, none.Kernels())
	require.False(t, none.CompileOnly())
}
