package tally

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProcesses: what several processes write to one file is all read, and a line that is none is told.
func TestProcesses(t *testing.T) {
	const from = "VKATTN_TALLY_TEST_FROM"
	if name := os.Getenv(from); name != "" {
		for range 200 {
			Add(Line{Kind: Pipeline, Name: name, Detail: strings.Repeat("x", 500), Seconds: 0.5})
		}
		return
	}
	path := filepath.Join(t.TempDir(), "tally")
	var running []*exec.Cmd
	for _, name := range []string{"one", "two", "three"} {
		c := exec.Command(os.Args[0], "-test.run=^TestProcesses$") // it needs no device, nor what the device's libraries need
		running = append(running, c)
		c.Env = append(os.Environ(), Variable+"="+path, from+"="+name)
		require.NoError(t, c.Start())
	}
	for _, c := range running {
		require.NoError(t, c.Wait())
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	require.NoError(t, err)
	defer f.Close()
	lines, err := Read(f)
	require.NoError(t, err)
	counts := map[Line]int{}
	for _, l := range lines {
		counts[l]++
	}
	long := strings.Repeat("x", 500)
	require.Equal(t, map[Line]int{{Pipeline, "one", long, 0.5}: 200, {Pipeline, "two", long, 0.5}: 200,
		{Pipeline, "three", long, 0.5}: 200}, counts)

	_, err = Read(strings.NewReader("{\"kind\":\"pipeline\",\"name\":\"a\"}\n{\"kind\":\"pi\n"))
	require.ErrorContains(t, err, "line 2")
}

// TestNoFile: without a file nothing is written, and one that cannot be made stops nothing.
func TestNoFile(t *testing.T) {
	require.Nil(t, open(""))
	require.Nil(t, open(filepath.Join(t.TempDir(), "missing", "tally")))
}
