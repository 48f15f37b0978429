//go:build !unix

package door

import (
	"testing"
	"unsafe"
)

// unmapped gives the address of memory that may be neither read nor written, where the system has a call for it that Go knows.
func unmapped(t *testing.T, _ int) unsafe.Pointer {
	t.Skip("no mmap")
	return nil
}
