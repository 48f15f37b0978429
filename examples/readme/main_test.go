package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestReadmeShowsThis keeps README.md and the program that compiles here the same.
func TestReadmeShowsThis(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, function, found := strings.Cut(string(source), "\nfunc attend(")
	require.True(t, found)
	require.Contains(t, string(readme), "```go\nfunc attend("+function+"```\n")
}

// TestAttend runs it: where every value is the same, attention gives that value back.
func TestAttend(t *testing.T) {
	q, kv, o := make([]float32, 2*8*512*64), make([]float32, 2*2*512*64), make([]float32, 2*8*512*64)
	for i := range q {
		q[i] = float32(i%5) - 2
	}
	for i := range kv {
		kv[i] = 0.75
	}
	err := attend(t.Context(), q, kv, kv, o)
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skipf("no Vulkan device: %v", err)
	}
	require.NoError(t, err)
	for i, got := range o {
		if !(got > 0.749 && got < 0.751) {
			t.Fatalf("o[%d] is %v, want 0.75", i, got)
		}
	}
}
