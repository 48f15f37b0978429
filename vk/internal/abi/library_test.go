package abi

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The reason is there from whatever thread a goroutine asks: on Unix the system keeps it for each thread, and a goroutine may move.
func TestOpenSaysWhy(t *testing.T) {
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 500 {
				if _, err := Open("libnothing-vkattn.so.7"); !assert.Error(t, err) || !assert.NotEmpty(t, err.Error()) {
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSymbol(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the library's name is Linux's")
	}
	l, err := Open("libc.so.6")
	require.NoError(t, err)
	require.Zero(t, Symbol(l, "vkNothing"))
	require.NotZero(t, Symbol(l, "malloc"))
}
