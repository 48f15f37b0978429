package flash

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProblemWithoutADevice: a normalized problem says the same of itself on both sides, and no field is forgotten.
func TestProblemWithoutADevice(t *testing.T) {
	p, err := Problem{Batch: 2, Heads: 6, KeyHeads: 3, QueryLen: 40, KeyLen: 50, HeadDim: 8, ValueDim: 16, DType: BF16, Causal: CausalTopLeft, Scale: 0.3,
		Window: SlidingWindow(9, 3), Dropout: 0.25, Blocks: Blocks{Queries: 16, Keys: 32, PerHead: true}}.Normalize()
	require.NoError(t, err)
	same := p.attn()
	require.Equal(t, p.String(), same.String())
	require.Equal(t, p.MaskShape(), same.MaskShape())
	require.Equal(t, p.ForwardFLOPs(), same.ForwardFLOPs())
	require.Equal(t, p.Scale, same.Scale)
	require.Equal(t, reflect.TypeOf(p).NumField(), reflect.TypeOf(same).NumField())
	for i := range reflect.TypeOf(same).NumField() {
		require.False(t, reflect.ValueOf(same).Field(i).IsZero(), reflect.TypeOf(same).Field(i).Name)
	}
}
