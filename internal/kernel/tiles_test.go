package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// TestBare: rows for bare problems are for those whose scores are products of queries and keys alone; what may make a row's later scores
// the larger ones as a rule, as windows and functions do, takes other rows.
func TestBare(t *testing.T) {
	base := attn.Problem{Batch: 2, Heads: 2, KeyHeads: 2, QueryLen: 64, KeyLen: 64, HeadDim: 64, ValueDim: 64,
		DType: attn.F16, KeyType: attn.F16, ValueType: attn.F16}
	own := attn.PerScore{In: true, DType: attn.F16}
	for name, test := range map[string]struct {
		change func(p *attn.Problem)
		bare   bool
	}{
		"alone":     {func(p *attn.Problem) {}, true},
		"causal":    {func(p *attn.Problem) { p.Causal = attn.CausalTopLeft }, true},
		"dropout":   {func(p *attn.Problem) { p.Dropout = 0.1 }, true},
		"lengths":   {func(p *attn.Problem) { p.KeyLengths = true }, true},
		"packed":    {func(p *attn.Problem) { p.Packed = attn.Packed{Queries: 128, Keys: 128} }, true},
		"window":    {func(p *attn.Problem) { p.Window = attn.NewWindow(10, -1) }, false},
		"function":  {func(p *attn.Problem) { p.Score = score.Softcap(30) }, false},
		"bias":      {func(p *attn.Problem) { p.Bias = own }, false},
		"mask":      {func(p *attn.Problem) { p.BoolMask = own }, false},
		"blocks":    {func(p *attn.Problem) { p.Blocks = attn.Blocks{Queries: 64, Keys: 64} }, false},
		"lists":     {func(p *attn.Problem) { p.Lists = attn.Lists{Keys: 8} }, false},
		"pages":     {func(p *attn.Problem) { p.Pages = attn.Pages{Size: 16, Count: 8} }, false},
		"quantised": {func(p *attn.Problem) { p.KeyType = attn.Q8_0 }, false},
		"max logit": {func(p *attn.Problem) { p.MaxLogit = true }, false},
	} {
		p := base
		test.change(&p)
		require.Equal(t, test.bare, Asked(&p, Fragment{}).Bare, name)
	}
}
