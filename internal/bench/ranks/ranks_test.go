package ranks

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

func devices(t *testing.T, n int) []*flash.Device {
	t.Helper()
	all, err := ring.Open(n, true, flash.WithoutDiskCache())
	if err != nil {
		if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		for _, d := range all {
			require.NoError(t, d.Close())
		}
	})
	return all
}

// TestMeasure: a small problem on two ranks, and streamed, has figures, and results that were compared with float64.
func TestMeasure(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 300, HeadDim: 32, DType: flash.F16, Causal: flash.CausalBottomRight}
	for _, stream := range []bool{false, true} {
		r := Measure(t.Context(), devices(t, 2), p, ring.Shard{}, Options{Backward: true, Stream: stream, Runs: 2, Timeout: 5 * time.Minute})
		require.Empty(t, r.Error)
		require.Positive(t, r.Fwd.Speed)
		require.Positive(t, r.Bwd.Speed)
		require.Positive(t, r.Both)
		require.Positive(t, r.MemoryOne)
		require.Positive(t, r.MemoryRank)
		require.Positive(t, r.MaxErr)
		require.Less(t, r.MaxErr, 5e-3)
	}
	p.Heads = 0
	require.Contains(t, Measure(t.Context(), devices(t, 1), p, ring.Shard{}, Options{}).Error, "Problem.Heads")
}

// TestCheckFinds: a result that is off is found.
func TestCheckFinds(t *testing.T) {
	d := devices(t, 1)[0]
	p, err := flash.Problem{Batch: 1, Heads: 1, QueryLen: 40, HeadDim: 16, DType: flash.F32}.Normalize()
	require.NoError(t, err)
	o, err := d.NewTensor(flash.F32, 1, 1, 40, 16)
	require.NoError(t, err)
	require.NoError(t, o.Upload(t.Context(), make([]float32, o.Elements())))
	_, err = newNoise(flash.F32).check(t.Context(), p, o, []ring.Span{{End: 40}})
	require.ErrorContains(t, err, "should be")
}

// TestLinks: every pair of ends has a rate.
func TestLinks(t *testing.T) {
	links, err := MeasureLinks(t.Context(), devices(t, 2), 1<<20)
	require.NoError(t, err)
	require.Len(t, links, 6)
	for _, l := range links {
		require.Positive(t, l.GBps)
		require.NotEqual(t, l.From, l.To)
	}
}
