package traffic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// TestLongWalksEnd: a million keys with a block mask are counted in seconds, and what would take minutes is refused.
func TestLongWalksEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of counting")
	}
	p := attn.Problem{Batch: 1, Heads: 1, KeyHeads: 1, QueryLen: 1 << 20, KeyLen: 1 << 20, HeadDim: 64, ValueDim: 64, DType: attn.F16,
		Blocks: attn.Blocks{Queries: 128, Keys: 128}}
	m := QueriesOutside{Rows: 128, Keys: 64}
	shape := p.MaskShape()
	bits := make([]bool, shape[1]*shape[2])
	for i := range bits {
		bits[i] = i%3 == 0
	}
	for _, c := range []Call{{Blocks: bits}, {Nonzero: 0.3}} {
		start := time.Now()
		_, err := m.Steps(p, c)
		require.NoError(t, err)
		t.Log(time.Since(start))
		require.Less(t, time.Since(start), 20*time.Second)
	}
	_, err := QueriesOutside{Rows: 1, Keys: 1}.Steps(p, Call{Nonzero: 0.3})
	require.ErrorContains(t, err, "counted one by one")
}
