package abi

import "github.com/ebitengine/purego"

// Callback makes a function of C from one whose arguments and result are uintptr. It is never freed, and there is room for some
// thousand: make one for a purpose, once. It may be called on any thread.
func Callback(f any) uintptr { return purego.NewCallback(f) }
