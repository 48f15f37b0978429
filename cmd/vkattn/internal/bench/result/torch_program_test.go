package result

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTorchIsMissing: without PyTorch, or with one that cannot be imported, tools/torch_baseline.py says so in one line.
func TestTorchIsMissing(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3:", err)
	}
	hidden := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(hidden, "torch.py"),
		[]byte("raise ImportError('libcudart.so.13: cannot open shared object file')\n"), 0o644))
	cmd := exec.Command(python, "../../../../../tools/torch_baseline.py", "--peer")
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+hidden)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	require.Contains(t, stderr.String(), "torch_baseline: PyTorch is needed, and cannot be imported: libcudart.so.13")
}

// TestTorchListIsReadInPart: a reader that has enough, as head has, ends a list without a word.
func TestTorchListIsReadInPart(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3:", err)
	}
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer write.Close()
	require.NoError(t, read.Close())
	cmd := exec.Command(python, "../../../../../tools/torch_baseline.py", "--list")
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(`{"impl":"fa2","B":1,"H":2,"N":64,"D":64}`), write, &stderr
	require.Error(t, cmd.Run(), "what was written did not arrive")
	require.Empty(t, stderr.String())
}
