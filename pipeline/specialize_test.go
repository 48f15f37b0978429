package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestSpecialize: the driver gets a module that has the constants' values in it, and computes with these.
func TestSpecialize(t *testing.T) {
	info := mixInfo(t, 9)
	code, spec := info.specialized()
	require.Empty(t, spec)
	require.NotEqual(t, info.Code, code)
	require.Equal(t, spirv(t, "mix"), info.Code, "that of the caller is not written to")

	c := newContext(t, Options{Specialize: true})
	require.True(t, c.Specializes())
	require.False(t, newContext(t, Options{}).Specializes())
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

// TestSpecializeLeaves: a module that cannot be specialized goes to the driver as it is, with the values beside it.
func TestSpecializeLeaves(t *testing.T) {
	info := mixInfo(t, 9)
	info.Code = info.Code[:len(info.Code)-1]
	code, spec := info.specialized()
	require.Equal(t, info.Code, code)
	require.Equal(t, []vk.SpecConstant{{ID: 0, Value: groupSize}, {ID: 1, Value: 9}}, spec)
}
