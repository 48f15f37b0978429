package report

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGobenchNamesPeers: benchstat takes lines of one name for runs of one thing, so a peer's implementation that is called as one of ours
// has another name, whatever the version of its library.
func TestGobenchNamesPeers(t *testing.T) {
	r := sample()
	r.PeerImpls = []string{"fa2", standard}
	for _, p := range r.Peers {
		p.Library, p.Impl = "torch 3", standard
		r.Peers = append(r.Peers, p)
		break
	}
	var out bytes.Buffer
	require.NoError(t, Write(&out, "gobench", r, false))
	names := regexp.MustCompile(`(?m)^Benchmark\S+`).FindAllString(out.String(), -1)
	require.Contains(t, out.String(), "BenchmarkForward/impl=standard/dtype=float16/")
	require.Contains(t, out.String(), "BenchmarkForward/library=torch/impl=standard/dtype=float16/")
	require.Contains(t, out.String(), "BenchmarkForward/library=torch/impl=fa2/dtype=float16/")
	slices.Sort(names)
	require.Equal(t, slices.Compact(slices.Clone(names)), names)
}
