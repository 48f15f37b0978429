//go:build !windows

package abi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var said = make(chan uintptr, 1)

// A thread that Go did not make may call back, as drivers' threads do.
func TestCallbackOfForeignThread(t *testing.T) {
	create, join := cLibrary(t, "pthread_create"), cLibrary(t, "pthread_join")
	start := Callback(func(argument uintptr) uintptr {
		said <- argument
		return 0
	})
	f := NewFrame()
	defer f.Free()
	for i := range uintptr(20) {
		thread := New[uintptr](f)
		require.Zero(t, f.Call(create, Address(thread), 0, start, i))
		require.Equal(t, i, <-said)
		require.Zero(t, f.Call(join, *thread, 0))
	}
}
