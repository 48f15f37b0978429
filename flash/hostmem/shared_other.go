//go:build !linux

package hostmem

import "github.com/vkattn/vkattn/flash"

// newShared: nothing but Linux names memory of one process to another by numbers alone.
func newShared(int) *Memory { return nil }

func open(Descriptor) (*Memory, error) {
	return nil, &flash.UnsupportedError{What: "hostmem.Open", Reasons: []string{"it needs Linux"}, Anywhere: true}
}
