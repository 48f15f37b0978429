package flash

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// TestProblemWithoutADevice: a normalized problem says the same of itself on both sides, and no field is forgotten.
func TestProblemWithoutADevice(t *testing.T) {
	p, err := Problem{Batch: 2, Heads: 6, KeyHeads: 3, QueryLen: 40, KeyLen: 50, HeadDim: 8, ValueDim: 32, DType: BF16,
		Causal: CausalTopLeft, Scale: 0.3,
		ScoreFunction: score.Softcap(2), MaskFunction: score.PrefixLM(3), Sinks: true, Bias: PerScore{DType: F32, Batch: 1, Heads: 6,
			Queries: 40, Keys: 50},
		Mask: PerScore{DType: Bool, Batch: 2, Heads: 1, Queries: 1, Keys: 50}, Window: SlidingWindow(9, 3), Dropout: 0.25,
		Blocks: Blocks{Queries: 16, Keys: 32, PerHead: true}, KeyLengths: true, QueryLengths: true,
		Pages: Pages{Size: 16, Count: 9, PerSequence: 4}, KeyType: F8E4M3, ValueType: Q4_0}.Normalize()
	require.NoError(t, err)
	p.Packed = Packed{Queries: 70}           // which has no block mask
	p.Lists = Lists{Keys: 30, PerHead: true} // likewise
	p.Within = Within{Queries: 80, Keys: 90, Query: 1, Key: 2}
	others(reflect.ValueOf(&p).Elem())
	same := p.attn()
	require.Equal(t, p.String(), same.String())
	require.Equal(t, p.MaskShape(), same.MaskShape())
	require.Equal(t, p.ForwardFLOPs(), same.ForwardFLOPs())
	require.Equal(t, p.Scale, same.Scale)
	fields := 0
	for _, f := range reflect.VisibleFields(reflect.TypeOf(same)) {
		if f.IsExported() && !f.Anonymous {
			require.False(t, reflect.ValueOf(same).FieldByIndex(f.Index).IsZero(), f.Name)
			fields++
		}
	}
	require.Equal(t, reflect.TypeOf(p).NumField(), fields+1, "Blocks and MaskBlocks are one field there")
	p.Blocks, p.MaskBlocks = Blocks{}, Blocks{Queries: 16, Keys: 32}
	require.Equal(t, attn.Blocks{Queries: 16, Keys: 32, Classed: true}, p.attn().Blocks)
}

// others sets the fields that are numbers or describe tensors by score, and are none of those above, to something.
func others(of reflect.Value) {
	for i := range of.NumField() {
		f := of.Field(i)
		if !f.IsZero() {
			continue
		}
		switch x := f.Addr().Interface().(type) {
		case *int:
			*x = 7
		case *bool:
			*x = true
		case *float64:
			*x = 0.5
		case *PerScore:
			*x = PerScore{DType: F32, Batch: 2, Heads: 1, Queries: 1, Keys: 50}
		}
	}
}
