//go:build cgo

package main

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContextIsNoPointer: what C passes as a context of its lock may be any number, and Go ends a process where a pointer on a stack that
// grows is one that cannot be.
func TestContextIsNoPointer(t *testing.T) {
	context, found := reflect.TypeFor[queueLock]().FieldByName("context")
	require.True(t, found)
	require.Equal(t, reflect.Uintptr, context.Type.Kind())
}
