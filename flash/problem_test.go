package flash

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash/score"
)

func TestNormalizeDefaults(t *testing.T) {
	p, err := Problem{Batch: 2, Heads: 8, QueryLen: 33, HeadDim: 64}.Normalize()
	require.NoError(t, err)
	require.Equal(t, Problem{Batch: 2, Heads: 8, KeyHeads: 8, QueryLen: 33, KeyLen: 33, HeadDim: 64, ValueDim: 64, Scale: 0.125}, p)
	again, err := p.Normalize()
	require.NoError(t, err)
	require.Equal(t, p, again)
}

// Keys and values in a cache: shapes are those of pools, and types the problem's unless they say otherwise.
func TestNormalizeCache(t *testing.T) {
	p, err := Problem{Batch: 2, Heads: 8, KeyHeads: 2, QueryLen: 3, KeyLen: 100, HeadDim: 64, ValueDim: 48, DType: F16, ValueType: F8E4M3,
		Pages: Pages{Size: 16, Count: 20, PerSequence: 7}}.Normalize()
	require.NoError(t, err)
	require.Equal(t, [4]int{20, 2, 16, 64}, p.KShape())
	require.Equal(t, [4]int{20, 2, 16, 48}, p.VShape())
	require.Equal(t, F16, p.KeyType)
	require.Equal(t, F8E4M3, p.ValueType)
	require.Contains(t, p.String(), "pages 20 of 16 rows, 7 for each entry values fp8_e4m3")
	again, err := p.Normalize()
	require.NoError(t, err)
	require.Equal(t, p, again)
}

func TestNormalizeErrors(t *testing.T) {
	good := Problem{Batch: 1, Heads: 4, QueryLen: 8, HeadDim: 16}
	for _, c := range []struct {
		argument string
		change   func(*Problem)
	}{
		{"Problem.Batch", func(p *Problem) { p.Batch = 0 }},
		{"Problem.Batch", func(p *Problem) { p.Batch = -1 }},
		{"Problem.Heads", func(p *Problem) { p.Heads = 0 }},
		{"Problem.KeyHeads", func(p *Problem) { p.KeyHeads = -2 }},
		{"Problem.QueryLen", func(p *Problem) { p.QueryLen = 0 }},
		{"Problem.KeyLen", func(p *Problem) { p.KeyLen = -8 }},
		{"Problem.HeadDim", func(p *Problem) { p.HeadDim = 0 }},
		{"Problem.HeadDim", func(p *Problem) { p.HeadDim = 577 }},
		{"Problem.ValueDim", func(p *Problem) { p.ValueDim = 577 }},
		{"Problem.Heads", func(p *Problem) { p.KeyHeads = 3 }},
		{"Problem.DType", func(p *Problem) { p.DType = 7 }},
		{"Problem.Causal", func(p *Problem) { p.Causal = 3 }},
		{"Problem.Scale", func(p *Problem) { p.Scale = math.NaN() }},
		{"Problem.Scale", func(p *Problem) { p.Scale = math.Inf(1) }},
		{"Problem.Scale", func(p *Problem) { p.Scale = 1e300 }},
		{"Problem.Scale", func(p *Problem) { p.Scale = 1e-300 }},
		{"Problem", func(p *Problem) { p.Batch, p.Heads, p.QueryLen = 1<<20, 1<<20, 1<<20 }},
		{"Problem", func(p *Problem) { p.KeyLen, p.Heads = 1<<29, 64 }},
		{"Problem.QueryLen", func(p *Problem) { p.QueryLen = math.MaxInt64 }},
		{"Problem.Pages.Size", func(p *Problem) { p.Pages = Pages{Count: 4, PerSequence: 8} }},
		{"Problem.Pages.Size", func(p *Problem) { p.Pages = Pages{Size: 24, Count: 4, PerSequence: 8} }},
		{"Problem.Pages.Size", func(p *Problem) { p.Pages = Pages{Size: 1 << 17, Count: 4, PerSequence: 8} }},
		{"Problem.Pages.Count", func(p *Problem) { p.Pages = Pages{Size: 16, PerSequence: 8} }},
		{"Problem.Pages.PerSequence", func(p *Problem) { p.Pages = Pages{Size: 16, Count: 4, PerSequence: -1} }},
		{"Problem.Pages.PerSequence", func(p *Problem) { p.KeyLen, p.Pages = 65, Pages{Size: 16, Count: 4, PerSequence: 4} }},
		{"Problem.Pages.Indices", func(p *Problem) { p.Pages = Pages{Size: 16, Count: 4, Indices: -4} }},
		{"Problem.Pages", func(p *Problem) { p.Pages = Pages{Size: 16, Count: 4} }},
		{"Problem.Pages", func(p *Problem) { p.Pages = Pages{Size: 16, Count: 4, PerSequence: 1, Indices: 1} }},
		{"Problem.KeyLengths", func(p *Problem) { p.KeyLengths, p.Pages = true, Pages{Size: 16, Count: 4, Indices: 9} }},
		{"Problem.KeyType", func(p *Problem) { p.KeyType = F16 }},
		{"Problem.ValueType", func(p *Problem) { p.ValueType = Int32 }},
		{"Problem.KeyType", func(p *Problem) { p.KeyType = 77 }},
		{"Problem.HeadDim", func(p *Problem) { p.KeyType = Q8_0 }},
		{"Problem.ValueDim", func(p *Problem) { p.HeadDim, p.ValueDim, p.ValueType = 32, 48, Q4_0 }},
		{"Problem.Lists.Keys", func(p *Problem) { p.Lists.Keys = -1 }},
		{"Problem.Lists.Keys", func(p *Problem) { p.Lists.PerHead = true }},
		{"Problem.Lists", func(p *Problem) { p.Lists.Keys, p.Blocks = 4, Blocks{Queries: 16, Keys: 16} }},
		{"Problem.Lists", func(p *Problem) {
			p.Lists.Keys, p.MaskFunction, p.MaskBlocks = 4, score.PrefixLM(3), Blocks{Queries: 16, Keys: 16}
		}},
		{"Problem.Lists", func(p *Problem) { p.Lists.Keys, p.Packed = 4, Packed{Queries: 8, Keys: 8} }},
		{"Problem.Lists", func(p *Problem) { p.Lists.Keys = 1 << 29 }},
		{"Problem", func(p *Problem) { p.Pages = Pages{Size: 1 << 15, Count: 1 << 15, PerSequence: 1} }},
	} {
		p := good
		c.change(&p)
		_, err := p.Normalize()
		var arg *ArgumentError
		require.ErrorAs(t, err, &arg, "%+v", p)
		require.ErrorIs(t, err, ErrArgument)
		require.Equal(t, c.argument, arg.Argument)
	}
}

// TestLargestScale: what is said of a scale that is refused is true of it, and of the largest that is taken.
func TestLargestScale(t *testing.T) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 1, HeadDim: 8}
	for scale, taken := range map[float64]bool{2.3e38: true, -2.3e38: true, 2.4e38: false, 3e38: false, -3e38: false} {
		p.Scale = scale
		_, err := p.Normalize()
		if taken {
			require.NoError(t, err, scale)
			continue
		}
		require.ErrorContains(t, err, "product with log₂ e is finite and normal in fp32, of magnitude 8.148e-39 to 2.359e+38", scale)
	}
}

// TestNoDropout: what is shown of a probability that the nearest 1/256 makes none is none.
func TestNoDropout(t *testing.T) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 1, HeadDim: 8, Dropout: 1e-9}
	require.NotContains(t, p.String(), "dropout")
	p.Dropout = 1.0 / 512
	require.Contains(t, p.String(), "dropout")
}

// TestForwardFLOPs compares the count with a count pair by pair; the papers' convention is half for square causal problems.
func TestForwardFLOPs(t *testing.T) {
	require.Equal(t, 4.0*16*32*2048*2048*64, Problem{Batch: 16, Heads: 32, QueryLen: 2048, HeadDim: 64}.ForwardFLOPs())
	require.Equal(t, 2.0*16*32*2048*2048*64, Problem{Batch: 16, Heads: 32, QueryLen: 2048, HeadDim: 64,
		Causal: CausalTopLeft}.ForwardFLOPs())
	require.Equal(t, 2.0*3*3*(4+6), Problem{Batch: 1, Heads: 1, QueryLen: 3, HeadDim: 4, ValueDim: 6}.ForwardFLOPs())
	rapid.Check(t, func(t *rapid.T) {
		p := Problem{Batch: 1, Heads: 1, HeadDim: 1,
			QueryLen: rapid.IntRange(1, 20).Draw(t, "nq"), KeyLen: rapid.IntRange(1, 20).Draw(t, "nk"),
			Causal: Causal(rapid.IntRange(0, 2).Draw(t, "causal")), Window: SlidingWindow(rapid.IntRange(-1, 9).Draw(t, "left"),
				rapid.IntRange(-1, 9).Draw(t, "right"))}
		if p.Causal != CausalNone && p.QueryLen == p.KeyLen && p.Window == (Window{}) {
			return
		}
		pairs := 0
		for i := range p.QueryLen {
			for j := range p.KeyLen {
				if p.attn().Mask().KeysOf(i).Has(j) {
					pairs++
				}
			}
		}
		if got := p.ForwardFLOPs(); got != 4*float64(pairs) {
			t.Fatalf("%v: %v, want %v", p, got, 4*pairs)
		}
		if p.BackwardFLOPs() != 2.5*p.ForwardFLOPs() {
			t.Fatal("backward")
		}
	})
}
