package traffic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// TestStandardPitchBytesByHand: the product reads a row of weights to the end of its memory and no further, whatever it takes at a time; so
// do blocks of a causal product that see a part of the keys.
func TestStandardPitchBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 3, KeyLen: 10, HeadDim: 2, ValueDim: 4, DType: attn.F16}
	// pitch = 16, and 32 keys at a time: 3 rows of 16 weights, and 10 rows of V for each of 2 blocks.
	w := bytesOf(t, Standard{Scores: Product{Rows: 2, Columns: 8}, Product: Product{Rows: 2, Columns: 32}}, p, Call{})
	require.Equal(t, float64(3*16+2*10*4)*2, w[StepValues].Read)
	// Top-left: the first block sees 2 keys and walks over 4, the second 3 and 4.
	p.Causal = attn.CausalTopLeft
	w = bytesOf(t, Standard{Scores: Product{Rows: 2, Columns: 8}, Product: Product{Rows: 2, Columns: 4}}, p, Call{})
	require.Equal(t, float64(2*4+1*4+(4+4)*4)*2, w[StepValues].Read)
}
