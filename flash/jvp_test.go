package flash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/vktest"
)

// jvpSample is a forward pass that has run, with tangents of all inputs.
func jvpSample(t *testing.T, d *Device, plan *Plan) (*backwardSample, Backward, JVP) {
	t.Helper()
	p := plan.Problem()
	s, b := newBackwardSample(t, d, plan, p.DType)
	mk, rng := plainly(t, d), rand.New(rand.NewPCG(7, 8))
	j := JVP{Forward: s.f, OTangent: mk(p.DType, p.OShape()), LSETangent: mk(F32, p.LSEShape())}
	j.Weights = nil
	for _, x := range []struct {
		to    **Tensor
		shape [4]int
	}{{&j.QTangent, p.QShape()}, {&j.KTangent, p.KShape()}, {&j.VTangent, p.VShape()}} {
		*x.to = mk(p.DType, x.shape)
		require.NoError(t, (*x.to).Upload(bg, randomValues(rng, p.DType, x.shape)))
	}
	if p.Sinks {
		shape := [4]int{1, 1, 1, p.Heads}
		j.SinksTangent, b.DSinks = mk(F32, shape), mk(F32, shape)
		require.NoError(t, j.SinksTangent.Upload(bg, randomValues(rng, F32, shape)))
	}
	return s, b, j
}

func product(t *testing.T, x, y *Tensor) (sum float64) {
	t.Helper()
	a, b := download(t, x), download(t, y)
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// TestJVPAgainstBackward: forward and reverse mode are the same linear map, from either side: ⟨ȯ, do⟩ + ⟨lsė, dlse⟩ is
// ⟨q̇, dq⟩ + ⟨k̇, dk⟩ + ⟨v̇, dv⟩ for any do, dlse and tangents.
func TestJVPAgainstBackward(t *testing.T) {
	d := testDevice(t)
	for _, p := range []Problem{
		{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 37, KeyLen: 75, HeadDim: 24, Causal: CausalBottomRight},
		{Batch: 1, Heads: 2, QueryLen: 70, HeadDim: 64, ValueDim: 48, Window: SlidingWindow(20, 3), ScoreFunction: score.Softcap(3)},
		{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 33, KeyLen: 40, HeadDim: 40, Dropout: 0.3},
		{Batch: 1, Heads: 2, QueryLen: 19, KeyLen: 50, HeadDim: 320, ValueDim: 288},
		{Batch: 2, Heads: 3, QueryLen: 50, KeyLen: 20, HeadDim: 8, Sinks: true, Causal: CausalBottomRight}, // some see a sink alone
	} {
		t.Run(p.String(), func(t *testing.T) {
			plan := mustPlan(t, d, p)
			_, b, j := jvpSample(t, d, plan)
			b.DLSE = plainly(t, d)(F32, plan.Problem().LSEShape())
			require.NoError(t, b.DLSE.Upload(bg, randomValues(rand.New(rand.NewPCG(9, 9)), F32, plan.Problem().LSEShape())))
			require.NoError(t, plan.Backward(bg, b))
			require.NoError(t, plan.JVP(bg, j))
			forward := product(t, j.OTangent, b.DO) + product(t, j.LSETangent, b.DLSE)
			reverse := product(t, j.QTangent, b.DQ) + product(t, j.KTangent, b.DK) + product(t, j.VTangent, b.DV)
			if p.Sinks {
				reverse += product(t, j.SinksTangent, b.DSinks)
			}
			require.InDelta(t, reverse, forward, 1e-3*(1+max(reverse, -reverse)))
		})
	}
}

// TestJVPOnMatrices: the kernel on matrices proves itself in every form, with all that scores may have, whatever moves.
func TestJVPOnMatrices(t *testing.T) {
	d := testDevice(t)
	everything := []kernel.Moving{kernel.QMoves, kernel.VMoves, kernel.KMoves | kernel.VMoves, kernel.Movings - 1}
	for i, x := range []struct {
		name string
		set  func(p *Problem)
		long string
	}{
		{"plain", func(p *Problem) {}, ""},
		{"causal window", func(p *Problem) { p.Causal, p.Window = CausalBottomRight, SlidingWindow(20, 3) }, ""},
		{"softcap, sinks, values of 24", func(p *Problem) { p.ScoreFunction, p.Sinks, p.ValueDim = score.Softcap(3), true, 24 }, ""},
		{"dropout", func(p *Problem) { p.Dropout, p.Causal = 0.25, CausalTopLeft }, ""},
		{"bias", func(p *Problem) {
			p.Bias = PerScore{DType: p.DType, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, ""},
		{"bias of a head", func(p *Problem) {
			p.Bias, p.ScoreFunction = PerScore{DType: F32, Batch: 1, Heads: p.Heads, Queries: 1, Keys: p.KeyLen}, score.Softcap(3)
		}, "the other bias"},
		{"lengths", func(p *Problem) { p.KeyLengths, p.QueryLengths = true, true }, "the suite has them"},
		{"packed", func(p *Problem) { p.Packed, p.Causal = Packed{Queries: 80, Keys: 100}, CausalBottomRight }, "the suite has them"},
		// With it a driver crashed where v alone moves, and tangents of scores were products with zeros.
		{"a mask function", func(p *Problem) { p.MaskFunction = score.PrefixLM(5) }, ""},
		{"blocks", func(p *Problem) { p.Blocks = Blocks{Queries: 16, Keys: 16} }, "the suite has them"},
		{"bf16", func(p *Problem) { p.DType = BF16 }, "another type"},
	} {
		for form := 1; form <= 3; form++ {
			t.Run(fmt.Sprintf("%s, form %d", x.name, form), func(t *testing.T) {
				vktest.Budget(t)
				if x.long != "" {
					vktest.Long(t, x.long)
				}
				if form > 1 && i > 0 {
					vktest.Long(t, "this form of plain scores")
				}
				p := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 45, KeyLen: 64, HeadDim: 16, DType: F16}
				x.set(&p)
				plan := mustPlan(t, d, p)
				if why := matrix.JVP.Cannot(&d.env.Caps, &plan.attn); why != "" {
					t.Skip(why)
				}
				program, err := matrix.JVP.Plan(d.env, &plan.attn, kernel.NewTuning(map[string]int{"form": form, "q_w": 1}))
				var no *kernel.Declined
				if errors.As(err, &no) && !kernel.IsDenied(err) {
					t.Skip(no.Why)
				}
				require.NoError(t, err)
				for _, moving := range everything {
					if i > 0 && moving != kernel.Movings-1 && (moving != kernel.VMoves || x.name != "a mask function") {
						continue
					}
					if p.Bias == (PerScore{}) {
						moving &^= kernel.BiasMoves
					}
					if !p.Sinks {
						moving &^= kernel.SinksMove
					}
					for _, aligned := range []bool{true, false} {
						if !aligned && i%3 > 0 {
							continue
						}
						v := pass.Variant{Aligned: aligned, Output: aligned, LSE: moving != kernel.QMoves, Moving: moving}
						require.NoError(t, program.(*pass.JVP).Ready(v), "%+v", v)
					}
				}
			})
		}
	}
}

// TestJVPOfWhatIsHidden: what a mask hides may have any tangent: o and lse move as if the bias stayed there, to the bit, on
// either tier.
func TestJVPOfWhatIsHidden(t *testing.T) {
	d := testDevice(t)
	t.Run("scalar", func(t *testing.T) { jvpOfWhatIsHidden(t, d, F32, TierScalar) })
	t.Run("matrix", func(t *testing.T) { jvpOfWhatIsHidden(t, d, F16, TierMatrix) })
}

func jvpOfWhatIsHidden(t *testing.T, d *Device, dtype DType, tier Tier) {
	p := Problem{Batch: 1, Heads: 2, QueryLen: 21, KeyLen: 21, HeadDim: 16, DType: dtype, Causal: CausalBottomRight}
	p.Bias = PerScore{DType: F32, Batch: 1, Heads: 2, Queries: 21, Keys: 21}
	plan, err := d.Plan(p, WithTier(tier))
	if errors.Is(err, ErrUnsupported) && tier == TierMatrix {
		t.Skip(err)
	}
	require.NoError(t, err)
	info, err := plan.JVPInfo()
	require.NoError(t, err)
	require.Equal(t, tier, info.Tier, info.Kernel)
	p = plan.Problem()
	mk, rng := plainly(t, d), rand.New(rand.NewPCG(5, 6))
	drawn := func(dtype DType, shape [4]int) *Tensor {
		x := mk(dtype, shape)
		require.NoError(t, x.Upload(bg, randomValues(rng, dtype, shape)))
		return x
	}
	f := Forward{Q: drawn(dtype, p.QShape()), K: drawn(dtype, p.KShape()), V: drawn(dtype, p.VShape()), Bias: drawn(F32, p.Bias.shape()),
		O: mk(dtype, p.OShape()), LSE: mk(F32, p.LSEShape())}
	require.NoError(t, plan.Forward(bg, f))
	j := JVP{Forward: f, QTangent: drawn(dtype, p.QShape()), KTangent: drawn(dtype, p.KShape()), VTangent: drawn(dtype, p.VShape()),
		BiasTangent: drawn(F32, p.Bias.shape()), OTangent: mk(dtype, p.OShape()), LSETangent: mk(F32, p.LSEShape())}
	values := download(t, j.BiasTangent)
	var first [2][]float32
	for i, hidden := range []float32{0, float32(math.NaN()), float32(math.Inf(1))} {
		for at := range values {
			if query, key := at/p.KeyLen%p.QueryLen, at%p.KeyLen; key > query {
				values[at] = hidden
			}
		}
		require.NoError(t, j.BiasTangent.Upload(bg, values))
		require.NoError(t, plan.JVP(bg, j))
		got := [2][]float32{download(t, j.OTangent), download(t, j.LSETangent)}
		if i == 0 {
			first = got
			require.NotContains(t, first[1], float32(0), "every query's lse moves")
		}
		require.Equal(t, first, got, "hidden pairs' tangent is %v", hidden)
	}
}

// TestBadJVP: what a pass in forward mode is given fits, and something moves.
func TestBadJVP(t *testing.T) {
	d := testDevice(t)
	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 2, QueryLen: 9, KeyLen: 11, HeadDim: 8, DType: F16})
	_, _, good := jvpSample(t, d, plan)
	mk := plainly(t, d)
	p := plan.Problem()
	for _, c := range []struct {
		argument string
		spoil    func(j *JVP)
	}{
		{"JVP", func(j *JVP) { j.QTangent, j.KTangent, j.VTangent = nil, nil, nil }},
		{"JVP.QTangent", func(j *JVP) { j.QTangent = j.KTangent }},
		{"JVP.KTangent", func(j *JVP) { j.KTangent = mk(F32, p.KShape()) }},
		{"JVP.VTangent", func(j *JVP) { j.VTangent = mk(F16, [4]int{1, 2, 11, 9}) }},
		{"JVP.BiasTangent", func(j *JVP) { j.BiasTangent = j.QTangent }},
		{"JVP.OTangent", func(j *JVP) { j.OTangent = nil }},
		{"JVP.OTangent", func(j *JVP) { j.OTangent = j.O }},
		{"JVP.LSETangent", func(j *JVP) { j.LSETangent = j.LSE }},
		{"JVP.LSE", func(j *JVP) { j.LSE = nil }},
		{"JVP.PageTable", func(j *JVP) { j.PageTable = mk(Int32, [4]int{1, 1, 1, 1}) }},
		{"JVP.KeyScales", func(j *JVP) { j.KeyScales = mk(F32, [4]int{1, 1, 1, 2}) }},
	} {
		j := good
		c.spoil(&j)
		requireRefused(t, c.argument, plan.JVP(bg, j))
	}
	require.NoError(t, plan.JVP(bg, good), "a refused call must leave the plan usable")
	rec, err := plan.NewRecording(ForJVP())
	require.NoError(t, err)
	requireRefused(t, "Recording", rec.Forward(good.Forward))
	require.NoError(t, rec.JVP(good))
	require.NoError(t, rec.Close())

	cached := mustPlan(t, d, Problem{Batch: 1, Heads: 2, QueryLen: 1, KeyLen: 64, HeadDim: 32, DType: F16, KeyType: Q8_0, ValueType: Q8_0})
	_, err = cached.JVPInfo()
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "caches have no tangents")
}

// TestJVPAllocatesNothing: in steady state, as of other passes.
func TestJVPAllocatesNothing(t *testing.T) {
	d := testDevice(t)
	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 2, QueryLen: 9, KeyLen: 11, HeadDim: 8})
	_, _, j := jvpSample(t, d, plan)
	other := j
	other.VTangent = nil
	rec, err := plan.NewRecording(ForJVP())
	require.NoError(t, err)
	defer rec.Close()
	require.NoError(t, rec.JVP(j))
	require.NoError(t, rec.JVP(other))
	require.Zero(t, testing.AllocsPerRun(10, func() {
		require.NoError(t, rec.JVP(j))
		require.NoError(t, rec.JVP(other))
	}))
}
