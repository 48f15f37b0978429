package ref

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// selfCheck is a small problem whose inputs have the type's values.
func selfCheck(seed uint64, t DType, spread float64) (Problem, Tensor, []float32) {
	r := rand.New(rand.NewPCG(seed, 9))
	fill := func(x Tensor, by float64) Tensor {
		for i := range x.Data {
			x.Data[i] = float32(by * r.NormFloat64())
		}
		t.RoundAll(x.Data)
		return x
	}
	hk, group, nq, nk, d, dv := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(20), 1+r.IntN(40), 1+r.IntN(40), 1+r.IntN(40)
	p := Problem{
		Q: fill(NewTensor(1, hk*group, nq, d), spread), K: fill(NewTensor(1, hk, nk, d), spread), V: fill(NewTensor(1, hk, nk, dv), 1),
		Options: Options{Causal: Causal(r.IntN(3))},
	}
	if r.IntN(2) == 0 {
		p.Dropout = &Dropout{P: 0.2, Seed: seed}
	}
	dlse := make([]float32, hk*group*nq)
	for i := range dlse {
		dlse[i] = float32(r.NormFloat64())
	}
	return p, fill(NewTensor(1, hk*group, nq, dv), 1), dlse
}

type outputs struct{ o, lse, dq, dk, dv []float64 }

func (x outputs) all() [5][]float64 { return [5][]float64{x.o, x.lse, x.dq, x.dk, x.dv} }

func outputsOf(t *testing.T, p Problem, do Tensor, dlse []float32, plain bool, dtype DType) outputs {
	t.Helper()
	var o, lse Array
	var g *Gradients
	var err, err2 error
	if plain {
		o, lse, err = PlainForward(p, dtype)
		g, err2 = PlainBackward(p, dtype, do, dlse)
	} else {
		o, lse, err = Forward(p)
		g, err2 = Backward(p, do, dlse)
	}
	require.NoError(t, err)
	require.NoError(t, err2)
	return outputs{o.Data, lse.Data, g.DQ.Data, g.DK.Data, g.DV.Data}
}

// Attention that only rounds stays within the bounds, however badly conditioned the problem, and comes near them.
func TestRoundingBoundsHold(t *testing.T) {
	for _, dtype := range []DType{F32, F16, BF16} {
		nearest := [5]float64{}
		for _, spread := range []float64{0, 0.1, 1, 4, 20} {
			for seed := range uint64(60) {
				p, do, dlse := selfCheck(seed, dtype, spread)
				right, plain := outputsOf(t, p, do, dlse, false, dtype), outputsOf(t, p, do, dlse, true, dtype)
				b, err := RoundingBounds(p, dtype, Rounds{Scores: true}, &do, dlse)
				require.NoError(t, err)
				for i, bound := range [5][]float64{b.O.Data, b.LSE.Data, b.DQ.Data, b.DK.Data, b.DV.Data} {
					of := dtype
					if i == 1 {
						of = F32
					}
					got, want := plain.all()[i], right.all()[i]
					at := Exceeds(got, want, bound, of)
					if at >= 0 {
						t.Fatalf("%v, spread %v, seed %d, output %d, element %d: %v, want %v, bound %v", dtype, spread, seed, i, at,
							got[at], want[at], bound[at])
					}
					for j := range got {
						if bound[j] > 0 && spread == 1 {
							nearest[i] = math.Max(nearest[i], math.Abs(got[j]-want[j])/bound[j])
						}
					}
				}
			}
		}
		t.Logf("%v: plain attention comes to %.2f of the bounds of o, lse, dq, dk, dv", dtype, nearest)
		for i, share := range nearest {
			require.Greater(t, share, 0.01, "output %d of %v: a bound that far away finds nothing", i, dtype)
		}
	}
}

// Mistakes exceed the bounds.
func TestRoundingBoundsNoticeMistakes(t *testing.T) {
	for _, m := range []struct {
		name  string
		make  func(p *Problem)
		finds int // the output that shows it
	}{
		{"scale off by a hundredth", func(p *Problem) { p.Scale = 1.01 * p.scale() }, 1},
		{"the other causal mask", func(p *Problem) { p.Causal = (p.Causal + 1) % 3 }, 0},
		{"a key's value forgotten", func(p *Problem) { clear(p.V.Row(0, 0, p.K.N/2)) }, 0},
		{"a key forgotten", func(p *Problem) { clear(p.K.Row(0, 0, p.K.N/2)) }, 3},
		{"two queries exchanged", func(p *Problem) {
			a, b := p.Q.Row(0, 0, 1), p.Q.Row(0, 0, 3)
			for d := range a {
				a[d], b[d] = b[d], a[d]
			}
		}, 2},
		{"another seed", func(p *Problem) { p.Dropout = &Dropout{P: 0.2, Seed: 1 << 40} }, 4},
	} {
		for _, dtype := range []DType{F32, F16, BF16} {
			found, tried := 0, 0
			for seed := range uint64(40) {
				p, do, dlse := selfCheck(seed, dtype, 1)
				if p.Q.N < 8 || p.K.N < 8 || p.Q.D < 8 {
					continue
				}
				tried++
				right := outputsOf(t, p, do, dlse, false, dtype)
				b, err := RoundingBounds(p, dtype, Rounds{}, &do, dlse)
				require.NoError(t, err)
				m.make(&p)
				wrong := outputsOf(t, p, do, dlse, false, dtype)
				bounds := [5][]float64{b.O.Data, b.LSE.Data, b.DQ.Data, b.DK.Data, b.DV.Data}
				if Exceeds(wrong.all()[m.finds], right.all()[m.finds], bounds[m.finds], dtype) >= 0 {
					found++
				}
			}
			t.Logf("%s, %v: found in %d of %d", m.name, dtype, found, tried)
			require.Greater(t, tried, 10)
			require.GreaterOrEqual(t, found, tried*2/3, "%s, %v", m.name, dtype)
		}
	}
}

func TestRoundingBoundsExceeded(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	require.Equal(t, -1, Exceeds([]float64{1, -inf}, []float64{1.1, -inf}, []float64{0.2, 0}, F32))
	require.Equal(t, 0, Exceeds([]float64{1}, []float64{1.3}, []float64{0.2}, F32))
	require.Equal(t, 0, Exceeds([]float64{nan}, []float64{1}, []float64{inf}, F16))
	require.Equal(t, 0, Exceeds([]float64{inf}, []float64{60000}, []float64{100}, F16))
	require.Equal(t, 0, Exceeds([]float64{-inf}, []float64{70000}, []float64{100}, F16))
	require.Equal(t, -1, Exceeds([]float64{inf}, []float64{70000}, []float64{100}, F16))
	_, err := RoundingBounds(Problem{Q: NewTensor(1, 1, 1, 1), K: NewTensor(1, 1, 1, 1), V: NewTensor(1, 1, 1, 1),
		Options: Options{Softcap: 1}}, F32, Rounds{}, nil, nil)
	require.Error(t, err)
}
