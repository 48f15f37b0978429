package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// TestBareAndNear: rows for bare problems are for those whose scores are products of queries and keys alone; what may make a row's later
// scores the larger ones as a rule, as windows and functions do, takes other rows. Those for near ones are for it too, where tiles can
// begin at a query's own position.
func TestBareAndNear(t *testing.T) {
	base := attn.Problem{Batch: 2, Heads: 2, KeyHeads: 2, QueryLen: 64, KeyLen: 64, HeadDim: 64, ValueDim: 64,
		DType: attn.F16, KeyType: attn.F16, ValueType: attn.F16}
	own := attn.PerScore{In: true, DType: attn.F16}
	for name, test := range map[string]struct {
		change func(p *attn.Problem)
		bare   bool
		near   bool
	}{
		"alone":           {func(p *attn.Problem) {}, true, true},
		"causal":          {func(p *attn.Problem) { p.Causal = attn.CausalTopLeft }, true, true},
		"dropout":         {func(p *attn.Problem) { p.Dropout = 0.1 }, true, true},
		"lengths":         {func(p *attn.Problem) { p.KeyLengths = true }, true, false},
		"packed":          {func(p *attn.Problem) { p.Packed = attn.Packed{Queries: 128, Keys: 128} }, true, false},
		"window":          {func(p *attn.Problem) { p.Window = attn.NewWindow(10, -1) }, false, true},
		"function":        {func(p *attn.Problem) { p.Score = score.Softcap(30) }, false, true},
		"bias":            {func(p *attn.Problem) { p.Bias = own }, false, false},
		"mask":            {func(p *attn.Problem) { p.BoolMask = own }, false, false},
		"blocks":          {func(p *attn.Problem) { p.Blocks = attn.Blocks{Queries: 64, Keys: 64} }, false, false},
		"lists":           {func(p *attn.Problem) { p.Lists = attn.Lists{Keys: 8} }, false, false},
		"pages":           {func(p *attn.Problem) { p.Pages = attn.Pages{Size: 16, Count: 8} }, false, false},
		"quantised":       {func(p *attn.Problem) { p.KeyType = attn.Q8_0 }, false, false},
		"lengths, causal": {func(p *attn.Problem) { p.KeyLengths, p.Causal = true, attn.CausalTopLeft }, true, true},
		"classes":         {func(p *attn.Problem) { p.Blocks = attn.Blocks{Queries: 64, Keys: 64, Classed: true} }, false, true},
		"max logit":       {func(p *attn.Problem) { p.MaxLogit = true }, false, false},
	} {
		p := base
		test.change(&p)
		require.Equal(t, test.bare, Asked(&p, Fragment{}).Bare, name)
		require.Equal(t, test.near, Asked(&p, Fragment{}).Near, name)
	}
}
