package score_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
)

// Expressions where a shortcut would be wrong, on the host and on a device.
func TestCorners(t *testing.T) {
	s, p := score.S(), score.Position()
	table := score.Table([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10)
	const low, high = math.MinInt32, math.MaxInt32
	cases := []struct {
		e    score.Float
		at   score.Point
		want float64
	}{
		{table.At(p.Neg().Abs()), score.Point{Position: low}, 0}, // |−2³¹| is −2³¹
		{table.At(p.Abs()), score.Point{Position: low}, 0},
		{table.At(p.Abs()), score.Point{Position: -4}, 4},
		{p.Abs().Less(score.ConstInt(0)).Select(score.Const(2), score.Const(3)), score.Point{Position: low}, 2},
		{table.At(score.Key().Add(score.Query())), score.Point{Key: high, Query: 5}, 0}, // wraps below 0
		{table.At(score.Key().Mul(score.Query())), score.Point{Key: 1 << 16, Query: 1 << 15}, 0},
		{table.At(score.Key().Sub(p)), score.Point{Key: high, Position: low}, 0}, // −1
		{table.At(score.Key()), score.Point{Key: high}, 9},
		{p.Div(score.ConstInt(-1)).Float(), score.Point{Position: low}, low},
		{p.Mod(score.ConstInt(-1)).Float(), score.Point{Position: low}, 0},
		{p.Div(score.Key()).Float(), score.Point{Position: low}, 0}, // by 0
		{p.Mod(score.Key()).Float(), score.Point{Position: low}, low},
		{p.Div(score.ConstInt(0)).Float(), score.Point{Position: 9}, 0},
		{p.Mod(score.ConstInt(0)).Float(), score.Point{Position: 9}, 9},
		{p.Div(score.ConstInt(3)).Float(), score.Point{Position: -7}, -3},
		{p.Mod(score.ConstInt(3)).Float(), score.Point{Position: -7}, 2},
		{p.Div(score.ConstInt(-3)).Float(), score.Point{Position: 7}, -3},
		{p.Mod(score.ConstInt(-3)).Float(), score.Point{Position: 7}, -2},
		{p.Div(score.ConstInt(8)).Float(), score.Point{Position: -1}, -1},
		{p.Mod(score.ConstInt(8)).Float(), score.Point{Position: -1}, 7},
		{s.Tanh(), score.Point{S: 1e30}, 1},
		{s.Tanh(), score.Point{S: math.Inf(-1)}, -1},
		{s.Mul(score.Const(0)), score.Point{S: math.Inf(-1)}, 0},                        // as documented
		{s.Less(score.Const(0)).Select(score.Const(2), s.Log()), score.Point{S: -1}, 2}, // the NaN is not taken
		{score.Table([]float32{float32(math.Inf(-1))}, 1).At(p).Add(s), score.Point{}, math.Inf(-1)},
	}
	d := newDevice(t)
	var functions []score.Function
	var words []uint32
	for _, c := range cases {
		f, err := score.New(c.e)
		require.NoError(t, err)
		functions = append(functions, f)
		words = append(words, math.Float32bits(float32(c.at.S)), 0, 0, uint32(c.at.Query), uint32(c.at.Key), uint32(int32(c.at.Position)))
	}
	require.LessOrEqual(t, len(cases), places)
	code, captured, err := score.SpliceEach(spirv(t, "many"), 2, functions, nil)
	require.NoError(t, err)
	validate(t, "vulkan1.1", code)
	got := floatsOf(d.run(code, []uint32{uint32(len(cases))}, 1, 2*places*len(cases), contents(captured, nil), words))
	for i, c := range cases {
		v, _ := value(t, functions[i], nil, c.at)
		near := func(x float64) bool { return x == c.want || math.Abs(x-c.want) <= 1e-6*math.Abs(c.want) }
		if x := float64(got[2*(places*i+i)]); !near(v) || !near(x) {
			t.Errorf("%v at %+v: want %v, float64 %v, device %v", functions[i], c.at, c.want, v, x)
		}
	}
}

// Two branches of a condition ask for the same score.
func TestBranches(t *testing.T) {
	const pairs, keys = 32, 8
	f, err := score.Compose(score.ALiBiFrom(score.Table([]float32{0.5, 0.25, 1, 2, 3, 4, 5, 6}, 8)), score.Softcap(9))
	require.NoError(t, err)
	code, err := score.Splice(spirv(t, "branches"), score.Code{Score: f, FirstBinding: 2})
	require.NoError(t, err)
	validate(t, "vulkan1.1", code)
	scores := make([]float32, pairs*keys)
	for i := range scores {
		scores[i] = float32(math.Sin(float64(i)) * 10)
	}
	got := floatsOf(newDevice(t).run(code, []uint32{pairs, keys}, 1, pairs, contents(f.Captures(), nil), bitsOf(scores)))
	e, err := f.Bind(nil)
	require.NoError(t, err)
	for n := range pairs {
		sum := 0.0
		for j := range keys {
			p := score.Point{S: float64(scores[n*keys+j]), Batch: n / 8, Head: (n + j) % 8, Query: n, Key: j, Position: n - 4}
			sum += float64(1+j%2) * e.Value(p)
		}
		assert.InDelta(t, sum, got[n], 1e-3)
	}
}
