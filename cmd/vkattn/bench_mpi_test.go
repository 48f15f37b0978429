//go:build mpi && cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/ranks"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// TestBenchMPI: of two processes on one device the first writes the row of both; flags that do not go together are refused before MPI
// begins.
func TestBenchMPI(t *testing.T) {
	needDevice(t)
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		if os.Getenv("VKATTN_REQUIRE_MPI") == "1" {
			t.Fatal(err)
		}
		t.Skip("no mpirun (Debian, Ubuntu: apt-get install openmpi-bin):", err)
	}
	bench := func(n string, args ...string) (stdout, stderr string, err error) {
		line := []string{"--oversubscribe", "--bind-to", "none", "-n", n}
		if os.Getuid() == 0 {
			line = append(line, "--allow-run-as-root")
		}
		line = append(append(line, strings.Fields(os.Getenv("VKATTN_EXEC"))...), os.Args[0], "bench", "--mpi", "--quiet", "--heads", "2",
			"--head-dim", "16", "--seq", "130", "--causal")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, mpirun, append(line, args...)...)
		cmd.Env = append(os.Environ(), "VKATTN_TEST_COMMAND=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err = cmd.Run()
		return out.String(), errs.String(), err
	}
	stdout, stderr, err := bench("2", "--share-device", "--format", "json", "--pass", "both")
	require.NoError(t, err, stderr)
	require.Equal(t, 1, strings.Count(strings.TrimSpace(stdout), "\n")+1, stdout)
	var r ranks.Result
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), stdout)
	require.Empty(t, r.Error)
	require.Equal(t, 2, r.Ranks)
	require.Positive(t, r.Fwd.One)
	require.Positive(t, r.Fwd.Ranks)
	require.Positive(t, r.Bwd.Speed)
	require.Positive(t, r.MemoryRank)
	require.Equal(t, mapsMemory(t), r.Direct, "processes of one host copy from one another's memory")

	stdout, stderr, err = bench("3", "--ranks", "2")
	require.Error(t, err)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "it does not go with --ranks")
}

// mapsMemory says whether a device imports memory that processes share.
func mapsMemory(t *testing.T) bool {
	t.Helper()
	d, err := flash.Open()
	require.NoError(t, err)
	defer d.Close()
	m, err := hostmem.NewMover(d)
	require.NoError(t, err)
	defer m.Close()
	h, err := hostmem.NewShared(1)
	require.NoError(t, err)
	defer h.Close()
	return h.Descriptor() != nil && m.Imports(h)
}
