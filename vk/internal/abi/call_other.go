//go:build !amd64 || windows

package abi

import "github.com/ebitengine/purego"

// run makes the calls one by one. Arguments that a function does not take it does not see.
func (b *batch) run() {
	for i := range b.calls[:b.n] {
		c := &b.calls[i]
		c.result, _, _ = purego.SyscallN(c.function, c.args[:]...)
	}
}
