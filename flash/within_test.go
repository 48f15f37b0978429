package flash

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// TestWithinBlocks: queries of a part that begins a block have the rows of the whole, whose causal mask and dropout count from its first
// query; bits come back as they were given.
func TestWithinBlocks(t *testing.T) {
	d := testDevice(t)
	for _, tier := range []Tier{TierScalar, TierMatrix} {
		for _, dropout := range []float64{0, 0.25} {
			p, err := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 160, KeyLen: 192, HeadDim: 16, DType: F16, Causal: CausalBottomRight,
				Dropout: dropout, Blocks: Blocks{Queries: 32, Keys: 64, PerHead: true}}).Normalize()
			require.NoError(t, err)
			plan, err := d.Plan(p, WithTier(tier))
			if tier == TierMatrix && errors.Is(err, ErrUnsupported) {
				t.Log(err)
				continue
			}
			require.NoError(t, err)
			bits := make([]bool, 2*5*3)
			for i := range bits {
				bits[i] = i%4 != 1
			}
			run := func(plan *Plan, first int, bits []bool) (o, lse []float32) {
				part := plan.Problem()
				mask, err := d.NewBlockMask(bg, part, bits)
				require.NoError(t, err)
				back, err := mask.Bits(bg)
				require.NoError(t, err)
				require.Equal(t, bits, back)
				require.Equal(t, p.Blocks, mask.Blocks())
				s := newSample(t, p) // the same of every call
				n := part.QueryLen
				var q []float32
				for h := range p.Heads {
					q = append(q, s.q[(h*p.QueryLen+first)*p.HeadDim:(h*p.QueryLen+first+n)*p.HeadDim]...)
				}
				s.p, s.q = part, q
				f := s.tensors(t, d, plainly(t, d))
				f.Blocks, f.Seed = mask, 7
				require.NoError(t, plan.Forward(bg, f))
				require.NoError(t, mask.Close())
				require.NoError(t, plan.Close())
				return download(t, f.O), download(t, f.LSE)
			}
			o, lse := run(plan, 0, bits)
			const first, n = 64, 96
			part := p
			part.QueryLen, part.Within = n, Within{Queries: 160, Keys: 192, Query: first}
			plan, err = d.Plan(part, WithTier(tier))
			require.NoError(t, err)
			someO, someLSE := run(plan, first, append(append([]bool(nil), bits[2*3:5*3]...), bits[7*3:10*3]...))
			for h := range p.Heads {
				dim := p.ValueDim
				require.InDeltaSlice(t, o[(h*160+first)*dim:(h+1)*160*dim], someO[h*n*dim:(h+1)*n*dim], 2e-3)
				require.InDeltaSlice(t, finite(lse[h*160+first:(h+1)*160]), finite(someLSE[h*n:(h+1)*n]), 1e-3)
			}
		}
	}
}

// TestWithinBiasIsProved: kernels of the gradient with respect to a bias pass their self-checks in parts of problems with dropout, where
// the check has more entries than the part.
func TestWithinBiasIsProved(t *testing.T) {
	d := testDevice(t)
	for tier, f := range map[Tier]score.Function{TierMatrix: {}, TierScalar: score.Softcap(2)} {
		p, err := Problem{Batch: 2, Heads: 2, QueryLen: 23, KeyLen: 64, HeadDim: 16, DType: F16, Dropout: 0.25, ScoreFunction: f,
			Within: Within{Queries: 117, Keys: 212}, Bias: PerScore{DType: F16, Batch: 1, Heads: 2, Queries: 23, Keys: 64}}.Normalize()
		require.NoError(t, err)
		plan, err := d.Plan(p, WithTier(tier))
		if tier == TierMatrix && errors.Is(err, ErrUnsupported) {
			t.Log(err)
			continue
		}
		require.NoError(t, err)
		make := plainly(t, d)
		fwd := newSample(t, p).tensors(t, d, make)
		fwd.Bias = make(F16, p.Bias.shape())
		require.NoError(t, plan.Forward(bg, fwd))
		require.NoError(t, plan.Backward(bg, Backward{Forward: fwd, DO: make(F16, p.OShape()), DQ: make(F16, p.QShape()),
			DK: make(F16, p.KShape()), DV: make(F16, p.VShape()), DBias: make(F16, p.Bias.shape())}))
		info, err := plan.BackwardInfo()
		require.NoError(t, err)
		require.NotContains(t, strings.Join(info.WhyNotFaster, "; "), "deny-list")
		require.NoError(t, plan.Close())
	}
}

// finite has numbers in place of −∞.
func finite(values []float32) []float32 {
	for i, x := range values {
		values[i] = max(x, -1e4)
	}
	return values
}

// TestWithinBadInput: parts that lie outside the whole, or whose entries have positions of their own, are errors that say so.
func TestWithinBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Problem)
		bad    string
	}{
		"part":              {func(p *Problem) { p.Within = Within{Queries: 30, Keys: 40, Query: 10, Key: 20} }, ""},
		"queries outside":   {func(p *Problem) { p.Within = Within{Queries: 30, Keys: 40, Query: 11} }, "Problem.Within.Query"},
		"keys outside":      {func(p *Problem) { p.Within = Within{Queries: 30, Keys: 40, Key: 21} }, "Problem.Within.Key"},
		"entries and heads": {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Head: 2, Heads: 4, Batch: 7} }, ""},
		"heads outside": {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Head: 3, Heads: 4} },
			"Problem.Within.Head"},
		"entries before the first": {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Batch: -1} }, "Problem.Within.Batch"},
		"entries beyond counting":  {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Batch: 1 << 30} }, "Problem.Within.Batch"},
		"draws between": {func(p *Problem) { p.Dropout, p.Within = 0.5, Within{Queries: 30, Keys: 400, Key: 63} },
			"Problem.Within.Key"},
		"packed, of some heads": {func(p *Problem) {
			p.Packed, p.Within = Packed{Queries: 50, Keys: 50}, Within{Queries: 20, Keys: 20, Head: 2, Heads: 4}
		}, ""},
		"packed, of some queries": {func(p *Problem) {
			p.Packed, p.Within = Packed{Queries: 50, Keys: 50}, Within{Queries: 30, Keys: 20, Query: 1}
		}, "Problem.Within"},
		"some blocks": {func(p *Problem) {
			p.Blocks, p.Within = Blocks{Queries: 16, Keys: 16}, Within{Queries: 30, Keys: 40, Query: 10, Key: 20}
		}, ""},
		"classes of blocks": {func(p *Problem) {
			p.MaskFunction, p.MaskBlocks = score.Dilated(3, -1), Blocks{Queries: 16, Keys: 16}
			p.Within = Within{Queries: 30, Keys: 40, Query: 10, Key: 20}
		}, "Problem.Within"},
		"lengths, of some keys": {func(p *Problem) { p.KeyLengths, p.Within = true, Within{Queries: 20, Keys: 30} }, "Problem.Within"},
	} {
		p := Problem{Batch: 2, Heads: 2, QueryLen: 20, HeadDim: 8}
		c.change(&p)
		_, err := p.Normalize()
		if c.bad == "" {
			require.NoError(t, err, name)
			continue
		}
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, c.bad, bad.Argument, name)
	}
}

// TestWithinCaptures: functions that capture as much as can be bound, and read positions, have a table of places besides in a part.
func TestWithinCaptures(t *testing.T) {
	d := testDevice(t)
	sum := score.S()
	for i := range MaxCaptured - 2 {
		sum = sum.Add(score.Capture(fmt.Sprint("c", i), 2).At(score.Head()))
	}
	last := score.Capture("last", 64)
	for captured, fits := range map[int]bool{MaxCaptured - 2: true, MaxCaptured - 1: false} {
		e := sum
		if captured > MaxCaptured-2 {
			e = e.Add(last.At(score.Key()))
		}
		f, err := score.New(e.Add(score.Key().Float().Mul(score.Const(0.01))))
		require.NoError(t, err)
		mask, err := score.NewMask(score.Query().GreaterEqual(score.Key()))
		require.NoError(t, err)
		plan, err := d.Plan(Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 8, ScoreFunction: f, MaskFunction: mask,
			Within: Within{Queries: 64, Keys: 64, Key: 8}}, WithTier(TierScalar))
		if !fits {
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, "functions capture 9 tensors, at most 8")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, plan.Close())
	}
}
