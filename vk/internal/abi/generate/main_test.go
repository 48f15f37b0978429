package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func headersText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "include", "vulkan", "vulkan_core.h"))
	require.NoError(t, err)
	return string(text)
}

// The files are what the headers and the lists make.
func TestGenerated(t *testing.T) {
	files, err := generate(headersText(t))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is stale: go generate ./vk/internal/abi", name)
	}
	stale, err := filepath.Glob(filepath.Join("..", "z*.go"))
	require.NoError(t, err)
	require.Len(t, stale, len(files), "a file is left that nothing generates")
}

// What the generator cannot read is an error, not a guess.
func TestUnread(t *testing.T) {
	h := parse("typedef struct VkA {\n    uint32_t x : 3;\n} VkA;\ntypedef struct VkB {\n    wchar_t x;\n} VkB;\n")
	for name, says := range map[string]string{"A": "cannot read", "B": "no type for wchar_t", "C": "there is no VkC"} {
		require.ErrorContains(t, h.emit(nil, name), says)
	}
}
