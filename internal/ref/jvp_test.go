package ref

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// tangentsOf draws how all inputs of a problem move.
func tangentsOf(p *Problem, seed uint64) (d Tangents) {
	r := rand.New(rand.NewPCG(seed, 2))
	like := func(x *Tensor) *Tensor {
		if x == nil {
			return nil
		}
		out := NewTensor(x.B, x.H, x.N, x.D)
		for i := range out.Data {
			out.Data[i] = float32(r.NormFloat64())
		}
		return &out
	}
	d = Tangents{Q: like(&p.Q), K: like(&p.K), V: like(&p.V), Bias: like(p.Bias)}
	if p.Sinks != nil {
		sinks := NewTensor(1, 1, 1, len(p.Sinks))
		d.Sinks = like(&sinks)
	}
	return d
}

// moved is the problem with its inputs moved by step times their tangents.
func moved(p Problem, d Tangents, step float64) Problem {
	by := func(x *Tensor, d *Tensor) Tensor {
		out := NewTensor(x.B, x.H, x.N, x.D)
		for i := range out.Data {
			out.Data[i] = x.Data[i] + float32(step)*d.Data[i]
		}
		return out
	}
	p.Q, p.K, p.V = by(&p.Q, d.Q), by(&p.K, d.K), by(&p.V, d.V)
	bias := by(p.Bias, d.Bias)
	p.Bias = &bias
	sinks := Tensor{B: 1, H: 1, N: 1, D: len(p.Sinks), Data: p.Sinks}
	p.Sinks = by(&sinks, d.Sinks).Data
	return p
}

// TestJVPAgainstDifferences: o and lse of moved inputs differ as their tangents say, with every option on at once.
func TestJVPAgainstDifferences(t *testing.T) {
	for seed := range uint64(3) {
		p, _, _ := everything(seed)
		captureTable(t, &p)
		d := tangentsOf(&p, seed)
		o, lse, err := JVP(p, d)
		require.NoError(t, err)
		const h = 1.0 / 2048
		highO, highLSE, err := Forward(moved(p, d, h))
		require.NoError(t, err)
		lowO, lowLSE, err := Forward(moved(p, d, -h))
		require.NoError(t, err)
		for i, x := range o.Data {
			require.InDelta(t, (highO.Data[i]-lowO.Data[i])/(2*h), x, 2e-3*(1+math.Abs(x)), "o[%d]", i)
		}
		for i, x := range lse.Data {
			if math.IsInf(highLSE.Data[i], -1) {
				require.Zero(t, x)
				continue
			}
			require.InDelta(t, (highLSE.Data[i]-lowLSE.Data[i])/(2*h), x, 2e-3*(1+math.Abs(x)), "lse[%d]", i)
		}
	}
}

// TestJVPIsTheTransposeOfBackward: ⟨ȯ, do⟩ + ⟨lsė, dlse⟩ is the sum of ⟨tangent, gradient⟩ of all inputs.
func TestJVPIsTheTransposeOfBackward(t *testing.T) {
	for seed := range uint64(5) {
		p, do, dlse := everything(seed)
		captureTable(t, &p)
		d := tangentsOf(&p, seed)
		o, lse, err := JVP(p, d)
		require.NoError(t, err)
		g, err := Backward(p, do, dlse)
		require.NoError(t, err)
		dot := func(x []float64, y []float32) (sum float64) {
			for i := range x {
				sum += x[i] * float64(y[i])
			}
			return sum
		}
		forward := dot(o.Data, do.Data) + dot(lse.Data, dlse)
		reverse := dot(g.DQ.Data, d.Q.Data) + dot(g.DK.Data, d.K.Data) + dot(g.DV.Data, d.V.Data) + dot(g.DBias.Data, d.Bias.Data) +
			dot(g.DSinks, d.Sinks.Data)
		require.InDelta(t, reverse, forward, 1e-10*(1+math.Abs(reverse)))
		require.Greater(t, math.Abs(forward), 0.1)
	}
}

// TestPlainJVP: in fp32 it is the oracle's up to fp32, and in fp16 within what rounding explains.
func TestPlainJVP(t *testing.T) {
	p, _, _ := everything(11)
	captureTable(t, &p)
	d := tangentsOf(&p, 11)
	o, lse, err := JVP(p, d)
	require.NoError(t, err)
	plainO, plainLSE, err := PlainJVP(p, F32, d)
	require.NoError(t, err)
	require.InDeltaSlice(t, o.Data, plainO.Data, 2e-5)
	require.InDeltaSlice(t, lse.Data, plainLSE.Data, 2e-5)
	boundO, boundLSE, err := JVPRounding(p, F32, d)
	require.NoError(t, err)
	require.Equal(t, -1, Exceeds(plainO.Data, o.Data, boundO.Data, F32))
	require.Equal(t, -1, Exceeds(plainLSE.Data, lse.Data, boundLSE.Data, F32))
	boundO.Data[3], o.Data[3] = 1e-6, o.Data[3]+1e-3
	require.Equal(t, 3, Exceeds(plainO.Data, o.Data, boundO.Data, F32))
}

// TestJVPPacked: packed sequences are the sequences one by one.
func TestJVPPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	fill := func(t Tensor) Tensor {
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		return t
	}
	startsQ, startsK := []int32{0, 3, 3, 9}, []int32{0, 4, 6, 11}
	p := Problem{Q: fill(NewTensor(1, 4, 9, 3)), K: fill(NewTensor(1, 2, 11, 3)), V: fill(NewTensor(1, 2, 11, 2))}
	p.Causal = BottomRight
	d := tangentsOf(&p, 1)
	o, lse, err := JVPPacked(p, startsQ, startsK, d)
	require.NoError(t, err)
	one := p
	one.Q, one.K, one.V = gather(p.Q, 3, 6), gather(p.K, 6, 5), gather(p.V, 6, 5)
	q, k, v := gather(*d.Q, 3, 6), gather(*d.K, 6, 5), gather(*d.V, 6, 5)
	wantO, wantLSE, err := JVP(one, Tangents{Q: &q, K: &k, V: &v})
	require.NoError(t, err)
	for h := range 4 {
		for i := range 6 {
			require.Equal(t, wantO.Row(0, h, i), o.Row(0, h, 3+i))
			require.Equal(t, wantLSE.Row(0, h, i), lse.Row(0, h, 3+i))
		}
	}
	_, _, err = JVP(p, Tangents{Q: &k})
	require.ErrorContains(t, err, "the tangent of q")
	_, _, err = JVP(p, Tangents{Bias: &k})
	require.ErrorContains(t, err, "the tangent of bias")
	_, _, err = JVP(p, Tangents{Sinks: &k})
	require.ErrorContains(t, err, "tangents of 0 sinks")
}
