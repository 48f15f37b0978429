//go:build unix

package door

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// unmapped gives the address of memory that may be neither read nor written.
func unmapped(t *testing.T, n int) unsafe.Pointer {
	data, err := syscall.Mmap(-1, 0, n, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(data)) })
	return unsafe.Pointer(unsafe.SliceData(data))
}
