package ref

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// everything is a small problem with as many options as go together.
func everything(seed uint64) (Problem, Tensor, []float32) {
	r := rand.New(rand.NewPCG(seed, 1))
	fill := func(t Tensor) Tensor {
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		return t
	}
	p := Problem{
		Q: fill(NewTensor(2, 4, 5, 3)), K: fill(NewTensor(2, 2, 7, 3)), V: fill(NewTensor(2, 2, 7, 4)),
		Options: Options{
			Scale: -0.7, Softcap: 2, Causal: BottomRight, Window: &Window{4, 3},
			Slopes: []float32{0.1, 0.2, 0.3, 0.4}, Sinks: []float32{0.5, -1, 0, 2},
			Dropout: &Dropout{P: 0.3, Seed: 5, Offset: 1},
		},
	}
	bias := fill(NewTensor(1, 4, 1, 7))
	p.Bias = &bias
	mask := &Mask{1, 1, 5, 7, make([]bool, 35)}
	for i := range mask.Data {
		mask.Data[i] = r.IntN(5) > 0
	}
	clear(mask.Data[14:21]) // a row with nothing but its sink
	p.Mask = mask
	p.Blocks = &BlockMask{1, 1, 3, 2, 2, 4, []bool{true, true, false, true, true, true}}
	do := fill(NewTensor(2, 4, 5, 4))
	dlse := make([]float32, 2*4*5)
	for i := range dlse {
		dlse[i] = float32(r.NormFloat64())
	}
	return p, do, dlse
}

// captureTable gives the problem a score function of a captured table, of which the derivative depends on the score.
func captureTable(t *testing.T, p *Problem) (table []float32) {
	f, err := score.Compose(score.RelativeBias(score.Capture("table", 3, 4), score.Key().Sub(score.Query())), score.Softcap(3))
	require.NoError(t, err)
	table = make([]float32, 12)
	for i := range table {
		table[i] = float32(math.Sin(float64(i)))
	}
	p.Score, p.Captured = f, score.Data{"table": table}
	return table
}

// loss is Σ do·o + Σ dlse·lse, whose gradients Backward computes.
func loss(t *testing.T, p Problem, do Tensor, dlse []float32) float64 {
	o, lse, err := Forward(p)
	require.NoError(t, err)
	sum := 0.0
	for i, x := range o.Data {
		sum += x * float64(do.Data[i])
	}
	for i, x := range lse.Data {
		if !math.IsInf(x, -1) {
			sum += x * float64(dlse[i])
		}
	}
	return sum
}

func checkDifferences(t *testing.T, name string, x []float32, gradient []float64, loss func() float64) {
	t.Helper()
	require.Len(t, gradient, len(x), name)
	const h = 1.0 / 1024 // exact in float32 at this magnitude, up to rounding of x ± h, which is measured
	for i, v := range x {
		x[i] = v + h
		high, up := loss(), float64(x[i])
		x[i] = v - h
		low, down := loss(), float64(x[i])
		x[i] = v
		require.InDelta(t, (high-low)/(up-down), gradient[i], 2e-5*(1+math.Abs(gradient[i])), "%s[%d]", name, i)
	}
}

// Every gradient against central differences, with every option on at once.
func TestGradientsAgainstDifferences(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p, do, dlse := everything(seed)
			table := captureTable(t, &p)
			g, err := Backward(p, do, dlse)
			require.NoError(t, err)
			at := func() float64 { return loss(t, p, do, dlse) }
			checkDifferences(t, "dq", p.Q.Data, g.DQ.Data, at)
			checkDifferences(t, "dk", p.K.Data, g.DK.Data, at)
			checkDifferences(t, "dv", p.V.Data, g.DV.Data, at)
			checkDifferences(t, "dbias", p.Bias.Data, g.DBias.Data, at)
			checkDifferences(t, "dsinks", p.Sinks, g.DSinks, at)
			checkDifferences(t, "dtable", table, g.DCaptured["table"], at)
		})
	}
}

// Plain gradients in fp32 are the oracle's gradients, up to fp32, with every option on.
func TestPlainAgainstOracle(t *testing.T) {
	p, do, dlse := everything(11)
	captureTable(t, &p)
	o, lse, err := Forward(p)
	require.NoError(t, err)
	po, plse, err := PlainForward(p, F32)
	require.NoError(t, err)
	g, err := Backward(p, do, dlse)
	require.NoError(t, err)
	pg, err := PlainBackward(p, F32, do, dlse)
	require.NoError(t, err)
	for _, c := range []struct {
		name        string
		want, plain []float64
	}{
		{"o", o.Data, po.Data}, {"lse", lse.Data, plse.Data}, {"dq", g.DQ.Data, pg.DQ.Data}, {"dk", g.DK.Data, pg.DK.Data},
		{"dv", g.DV.Data, pg.DV.Data}, {"dbias", g.DBias.Data, pg.DBias.Data}, {"dsinks", g.DSinks, pg.DSinks},
		{"dtable", g.DCaptured["table"], pg.DCaptured["table"]},
	} {
		require.InDeltaSlice(t, c.want, c.plain, 2e-5, c.name)
		require.Greater(t, maxAbs(c.want), 0.1, c.name)
	}
}

func TestRowsAreThoseOfForward(t *testing.T) {
	p, _, _ := everything(3)
	o, lse, err := Forward(p)
	require.NoError(t, err)
	rows := []Row{{1, 3, 4}, {0, 0, 0}, {1, 2, 2}}
	ro, rlse, err := ForwardRows(p, rows)
	require.NoError(t, err)
	po, _, err := PlainForward(p, F16)
	require.NoError(t, err)
	pr, _, err := PlainForwardRows(p, F16, rows)
	require.NoError(t, err)
	for n, r := range rows {
		require.Equal(t, o.Row(r.B, r.H, r.I), ro[n])
		require.Equal(t, lse.Row(r.B, r.H, r.I)[0], rlse[n])
		require.Equal(t, po.Row(r.B, r.H, r.I), pr[n])
	}
	_, _, err = ForwardRows(p, []Row{{0, 4, 0}})
	require.ErrorContains(t, err, "outside q")
}

// Rows with nothing to attend to: o = 0, lse = −∞, zero gradients, never NaN.
func TestEmptyRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := Problem{Q: NewTensor(1, 1, 6, 2), K: NewTensor(1, 1, 2, 2), V: NewTensor(1, 1, 2, 2), Options: Options{Causal: BottomRight}}
	do := NewTensor(1, 1, 6, 2)
	for _, t := range []Tensor{p.Q, p.K, p.V, do} {
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
	}
	for _, plain := range []bool{false, true} {
		o, lse, err := Forward(p)
		require.NoError(t, err)
		g, err := Backward(p, do, nil)
		require.NoError(t, err)
		if plain {
			o, lse, err = PlainForward(p, BF16)
			require.NoError(t, err)
			g, err = PlainBackward(p, BF16, do, nil)
			require.NoError(t, err)
		}
		for i := range 4 {
			require.Equal(t, []float64{0, 0}, o.Row(0, 0, i))
			require.True(t, math.IsInf(lse.Row(0, 0, i)[0], -1))
			require.Equal(t, []float64{0, 0}, g.DQ.Row(0, 0, i))
		}
		for _, x := range append(append(g.DK.Data, g.DV.Data...), g.DQ.Data...) {
			require.False(t, math.IsNaN(x))
		}
		require.NotZero(t, maxAbs(g.DV.Data))
	}
}
