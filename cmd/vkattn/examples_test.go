package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/heads"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/input"
	"github.com/vkattn/vkattn/flash"
)

// example builds one of the examples and runs it; it writes its heads to a file.
func example(t *testing.T, name string, args ...string) (file, output string) {
	t.Helper()
	run, folder := built(t, name)
	file = filepath.Join(folder, "heads.safetensors")
	return file, run(append([]string{"-heads", file}, args...)...)
}

// built builds one of the examples, and gives what runs it and a folder.
func built(t *testing.T, name string) (run func(args ...string) string, folder string) {
	t.Helper()
	needDevice(t)
	folder = t.TempDir()
	program := filepath.Join(folder, name)
	out, err := exec.Command("go", "build", "-o", program, "../../examples/"+name).CombinedOutput()
	require.NoError(t, err, string(out))
	return func(args ...string) string {
		t.Helper()
		line := append(append(strings.Fields(os.Getenv("VKATTN_EXEC")), program), args...)
		out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}, folder
}

// TestLlamaHeads: the file that examples/llama writes of a model's heads is one that `vkattn view` shows.
func TestLlamaHeads(t *testing.T) {
	run, folder := built(t, "llama")
	model, file := filepath.Join(folder, "tiny.gguf"), filepath.Join(folder, "heads.safetensors")
	run("-tiny", model)
	require.Contains(t, run("-model", model, "-prompt", "Once upon a time", "-heads", file), "3 layers over 8 tokens")
	s, err := input.Read(file)
	require.NoError(t, err)
	require.Len(t, s.Text, 8)
	require.Len(t, s.Layers, 3)
	for _, l := range s.Layers {
		require.Equal(t, [4]int{8, 8, 4, 2}, [4]int{l.Queries, l.Keys, l.Heads, l.KeyHeads})
		require.True(t, l.Causal)
		require.InDelta(t, 1, l.Temperature, 1e-6)
	}
}

// TestGeneratedHeads: the file that examples/generate writes is one that `vkattn view` shows.
func TestGeneratedHeads(t *testing.T) {
	const text = "Love is not love\n"
	file, _ := example(t, "generate", "-prompt", text, "-keep", "8")
	s, err := input.Read(file)
	require.NoError(t, err)
	require.Equal(t, []rune(text), s.Text)
	require.Len(t, s.Layers, 3)
	windows := 0
	for _, l := range s.Layers {
		require.Equal(t, [2]int{len(text), len(text)}, [2]int{l.Queries, l.Keys})
		require.True(t, l.Causal)
		require.Equal(t, l.Window == 0, l.Lists != nil, "layers without a window list keys")
		if l.Window > 0 {
			windows++
		} else {
			require.Equal(t, [2]int{l.KeyHeads, 8}, [2]int{l.Lists.Heads, l.Lists.Longest})
			require.Equal(t, float32(3), slices.Max(l.Lists.Of(0, l.Heads, 3)), "its own is among a character's keys")
		}
	}
	require.Positive(t, windows, "some layers see a window of keys")
}

// TestTrainedHeads: the file that examples/train writes is one that `vkattn map` draws.
func TestTrainedHeads(t *testing.T) {
	file, output := example(t, "train", "-steps", "1")
	require.Contains(t, output, "loss")
	trained, err := heads.Read(file, heads.Names{Q: "q", K: "k"})
	require.NoError(t, err)
	shape := trained.Problem.QShape()
	require.Equal(t, flash.CausalBottomRight, trained.Problem.Causal)
	require.Len(t, []rune(strings.Join(trained.Text, "")), shape[2])
}
