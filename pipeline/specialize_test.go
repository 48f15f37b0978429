package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecialize: the driver gets a module that has the constants' values in it, and computes with these.
func TestSpecialize(t *testing.T) {
	info := mixInfo(t, 9)
	plain, err := info.prepare(0)
	require.NoError(t, err)
	require.Equal(t, info.Code, plain.words)
	c := newContext(t, Options{Specialize: true})
	made, err := info.prepare(c.Specialized())
	require.NoError(t, err)
	require.NotEqual(t, info.Code, made.words)
	require.Equal(t, plain.code, made.code, "the hash is that of the module as it was")
	require.Equal(t, testModule(t, "mix"), info.Code, "that of the caller is not written to")

	require.Positive(t, c.Specialized())
	require.Zero(t, newContext(t, Options{}).Specialized())
	const n, steps = 1000, 3
	a, b := alloc(t, c, "a", n), alloc(t, c, "b", n)
	in := pattern(n, 5)
	for _, mul := range []uint32{9, 4} {
		upload(t, c, a, in)
		r := newRecording(t, c, RecordingInfo{MaxDispatches: steps, MaxBindings: 2 * steps})
		chain(t, r, mixKernel(t, c, mul), a, b, n, steps, 2)
		runAndWait(t, c, r)
		require.Equal(t, chainWant(in, steps, 2, mul), download(t, c, b, n))
	}
}

// TestSpecializeRefuses: a module that cannot be specialized is an error that says why, also at the second call.
func TestSpecializeRefuses(t *testing.T) {
	c := newContext(t, Options{Specialize: true})
	info := mixInfo(t, 9)
	info.Code = info.Code[:len(info.Code)-1]
	for range 2 {
		_, err := c.Kernel(info)
		require.ErrorContains(t, err, `pipeline: kernel "mix": specialize: a function without end`)
	}
}
