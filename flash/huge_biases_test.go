package flash

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

const lowest, highest = -math.MaxFloat32, math.MaxFloat32 // the first is what programs write as finfo.min

var noSink = float32(math.Inf(-1))

// hugeScores is attention of two queries [1, 1], keys [1, 2] and values [1, 3], whose second row has a bias c for each key, and a sink.
type hugeScores struct {
	name    string
	c, sink float32
	do      [2]float32
	o, lse  [2]float64
	one     bool // the second row's weights are 1 in the backward pass; else anything from 0 to 1
}

// Of the first row, whose bias is 0.
const (
	first0, first1 = 0.26894142, 0.73105858 // weights
	firstO         = first0 + 3*first1
	firstDS        = first1 * (3 - firstO)
)

var firstLSE = 2 + math.Log1p(math.Exp(-1))

func hugeScoresCases() []hugeScores {
	out := []hugeScores{
		{name: "sink -1e31", c: 0, sink: -1e31, o: [2]float64{firstO, firstO}, lse: [2]float64{firstLSE, firstLSE}},
		{name: "sink and row -1e31", c: -1e31, sink: -1e31, o: [2]float64{firstO, 4. / 3}, lse: [2]float64{firstLSE, -1e31}},
		{name: "sink and row lowest", c: lowest, sink: lowest, o: [2]float64{firstO, 4. / 3}, lse: [2]float64{firstLSE, lowest}},
		{name: "sink 3e38", c: -1e31, sink: 3e38, lse: [2]float64{3e38, 3e38}},
		{name: "sink highest, row too", c: highest, sink: highest, o: [2]float64{0, 4. / 3}, lse: [2]float64{highest, highest}},
		{name: "row hidden", c: noSink, sink: noSink, o: [2]float64{firstO, 0}, lse: [2]float64{firstLSE, math.Inf(-1)}},
		{name: "row hidden, sink lowest", c: noSink, sink: lowest, o: [2]float64{firstO, 0}, lse: [2]float64{firstLSE, lowest}},
	}
	for _, c := range []float32{
		-1e9, -1.4885229e9, -1e30, -1e31, -3e34, -1.8e38, -2.4e38, -3.3895314e38, lowest, 1e31, 2.4e38, 3e38, highest,
	} {
		out = append(out, hugeScores{
			name: fmt.Sprint("row ", c), c: c, sink: noSink, o: [2]float64{firstO, 2}, lse: [2]float64{firstLSE, float64(c)},
			one: c == -1e9 || c == lowest || c == -3.3895314e38,
		})
	}
	for i := range out {
		out[i].do = [2]float32{1, 1}
		alone := out[i]
		alone.name, alone.do = alone.name+", do of the first alone", [2]float32{1, 0}
		if i%2 == 0 || alone.c == -1.4885229e9 || alone.c == -3e34 {
			out = append(out, alone)
		}
	}
	return out
}

// TestHugeBiases: only -inf hides. A row all of whose scores are one finite number gives the mean of the values, down to fp32's lowest,
// sinks are numbers likewise, and gradients are finite: those of a row whose do is 0 are 0.
func TestHugeBiases(t *testing.T) {
	d := testDevice(t)
	for _, dtype := range []DType{F16, F32, BF16} {
		p := Problem{
			Batch: 1, Heads: 1, QueryLen: 2, KeyLen: 2, HeadDim: 1, DType: dtype, Scale: 1,
			Bias: PerScore{DType: F32, Batch: 1, Heads: 1, Queries: 2, Keys: 2}, Sinks: true,
		}
		t.Run(dtype.String(), func(t *testing.T) {
			if dtype != F16 {
				vktest.Long(t, "fp16, whose kernels read a bias of fp32 as well")
			}
			if dtype == BF16 {
				if _, err := d.Plan(p); err != nil {
					t.Skip(err)
				}
			}
			everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) { testHugeScores(t, d, p, opts...) })
		})
	}
}

func testHugeScores(t *testing.T, d *Device, p Problem, opts ...PlanOption) {
	plan := mustPlan(t, d, p, opts...)
	make1 := plainly(t, d)
	make2 := func(n int) *Tensor { return make1(p.DType, [4]int{1, 1, n, 1}) }
	bias, sinks := make1(F32, [4]int{1, 1, 2, 2}), make1(F32, [4]int{1, 1, 1, 1})
	var captured Captured
	rows := func(c float32) *Tensor {
		require.NoError(t, bias.Upload(bg, []float32{0, 0, c, c}))
		return bias
	}
	if p.Bias == (PerScore{}) {
		captured[0], bias = make1(F32, [4]int{1, 1, 1, 1}), nil
		rows = func(c float32) *Tensor {
			require.NoError(t, captured[0].Upload(bg, []float32{c}))
			return nil
		}
	}
	f := Forward{Q: make2(2), K: make2(2), V: make2(2), O: make2(2), LSE: make1(F32, [4]int{1, 1, 2, 1}), Sinks: sinks, Captured: captured}
	require.NoError(t, f.Q.Upload(bg, []float32{1, 1}))
	require.NoError(t, f.K.Upload(bg, []float32{1, 2}))
	require.NoError(t, f.V.Upload(bg, []float32{1, 3}))
	b := Backward{Forward: f, DO: make2(2), DQ: make2(2), DK: make2(2), DV: make2(2), DSinks: make1(F32, [4]int{1, 1, 1, 1})}
	if bias != nil {
		b.DBias = make1(F32, [4]int{1, 1, 2, 2})
	}
	if plan.Implementation() == Standard {
		w, err := plan.NewWeights()
		require.NoError(t, err)
		f.Weights, b.Weights = w, w
	}
	near := map[DType]float64{F32: 2e-6, F16: 4e-3, BF16: 4e-2}[p.DType]
	for _, c := range hugeScoresCases() {
		t.Run(c.name, func(t *testing.T) {
			if bias == nil && (c.c == 0 || c.c == noSink) { // one function replaces scores, the other makes NaN of 0 times infinity
				return
			}
			f.Bias = rows(c.c)
			b.Bias = f.Bias
			require.NoError(t, sinks.Upload(bg, []float32{c.sink}))
			require.NoError(t, b.DO.Upload(bg, c.do[:]))
			require.NoError(t, plan.Forward(bg, f))
			for i, o := range downloaded(t, f.O) {
				require.InDelta(t, c.o[i], o, 2*near, "o[%d]", i)
				lse := float64(downloaded(t, f.LSE)[i])
				if lse != c.lse[i] {
					require.InDelta(t, 0, (lse-c.lse[i])/math.Max(1, math.Abs(c.lse[i])), 1e-6, "lse[%d] is %v, want %v", i, lse, c.lse[i])
				}
			}
			err := plan.Backward(bg, b)
			if plan.Implementation() == Flash1 || p.DType == F32 && plan.ForwardInfo().Tier == TierMatrix { // forward alone
				require.ErrorIs(t, err, ErrUnsupported)
				return
			}
			require.NoError(t, err)
			got := map[string][]float32{}
			for name, x := range map[string]*Tensor{"dq": b.DQ, "dk": b.DK, "dv": b.DV, "dbias": b.DBias, "dsinks": b.DSinks} {
				if x == nil {
					continue
				}
				got[name] = downloaded(t, x)
				for i, y := range got[name] {
					require.False(t, math.IsNaN(float64(y)) || math.IsInf(float64(y), 0), "%s[%d] is %v", name, i, y)
				}
			}
			if c.sink > 0 { // the first row's weights are 0 as well
				return
			}
			if c.do[1] == 0 {
				want := map[string][]float64{
					"dq": {firstDS, 0}, "dk": {-firstDS, firstDS}, "dv": {first0, first1}, "dbias": {-firstDS, firstDS, 0, 0},
					"dsinks": {0},
				}
				for name, w := range want {
					for i, x := range w[:len(got[name])] {
						require.InDelta(t, x, got[name][i], near, "%s[%d]", name, i)
					}
				}
				return
			}
			for i, x := range [2]float64{first0, first1} {
				weight := float64(got["dv"][i]) - x
				require.True(t, weight >= -near && weight <= 1+near, "dv[%d] is %v", i, got["dv"][i])
				if c.one && plan.Implementation() != Standard { // which keeps the weights themselves
					require.InDelta(t, 1, weight, 2*near, "dv[%d]", i)
				}
			}
		})
	}
	if f.Weights != nil {
		require.NoError(t, f.Weights.Close())
	}
	require.NoError(t, plan.Close())
}

func downloaded(t *testing.T, x *Tensor) []float32 {
	t.Helper()
	out := make([]float32, x.Elements())
	require.NoError(t, x.Download(bg, out))
	return out
}

// TestHugeFunctions: what a function makes of scores is a number likewise.
func TestHugeFunctions(t *testing.T) {
	d := testDevice(t)
	c := score.Capture("c", 1).At(score.ConstInt(0))
	for name, e := range map[string]score.Float{
		"in place of scores": score.Query().Equal(score.ConstInt(1)).Select(c, score.S()),
		"times a mask":       score.S().Add(score.Query().Float().Mul(c)),
	} {
		t.Run(name, func(t *testing.T) {
			f, err := score.New(e)
			require.NoError(t, err)
			p := Problem{Batch: 1, Heads: 1, QueryLen: 2, KeyLen: 2, HeadDim: 1, DType: F16, Scale: 1, Sinks: true, ScoreFunction: f}
			everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
				if !strings.Contains(t.Name(), "flash2-matrix") {
					vktest.Long(t, "flash2 on matrices, whose functions give scores in units of log 2")
				}
				testHugeScores(t, d, p, opts...)
			})
		})
	}
}

// TestHugeBiasesOfFewRows: the same of kernels for few queries, whose keys are in parts, and of wide heads.
func TestHugeBiasesOfFewRows(t *testing.T) {
	d := testDevice(t)
	p := Problem{
		Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 70, HeadDim: 8, DType: F16,
		Bias: PerScore{DType: F32, Batch: 1, Heads: 1, Queries: 1, Keys: 70}, Sinks: true,
	}
	wide := p
	wide.HeadDim = 264
	for _, c := range []struct {
		name   string
		p      Problem
		tuning map[string]int
		tier   Tier
		long   string
	}{
		{"few rows", p, map[string]int{"decode": 1, "parts": 2}, TierScalar, ""},
		{"few rows on matrices", p, map[string]int{"decode": 1, "parts": 2}, TierMatrix, ""},
		{"parts", p, map[string]int{"decode": 0, "parts": 2}, TierScalar, "few rows"},
		{"parts on matrices", p, map[string]int{"decode": 0, "parts": 2}, TierMatrix, "few rows"},
		{"wide", wide, map[string]int{"parts": 1}, TierMatrix, "TestHugeBiases"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			plan, err := d.Plan(c.p, WithTier(c.tier), WithTuning(c.tuning))
			if err != nil && c.tier == TierMatrix {
				t.Skip(err)
			}
			require.NoError(t, err)
			n := c.p.HeadDim
			make1 := plainly(t, d)
			f := Forward{
				Q: make1(F16, [4]int{1, 1, 1, n}), K: make1(F16, [4]int{1, 1, 70, n}), V: make1(F16, [4]int{1, 1, 70, n}),
				O: make1(F16, [4]int{1, 1, 1, n}), LSE: make1(F32, [4]int{1, 1, 1, 1}), Bias: make1(F32, [4]int{1, 1, 1, 70}),
				Sinks: make1(F32, [4]int{1, 1, 1, 1}),
			}
			require.NoError(t, f.Q.Upload(bg, make([]float32, n)))
			require.NoError(t, f.K.Upload(bg, make([]float32, 70*n)))
			v, row := make([]float32, 70*n), make([]float32, 70)
			for i := range v {
				v[i] = float32(1 + i/n%2*2)
			}
			require.NoError(t, f.V.Upload(bg, v))
			for _, x := range []float32{-1e31, -2.4e38, lowest, 3e38} {
				for i := range row {
					row[i] = x
				}
				require.NoError(t, f.Bias.Upload(bg, row))
				for _, sink := range []float32{noSink, lowest} {
					if sink == x { // what a part hands on of scores so large does not say of how many keys it is
						continue
					}
					require.NoError(t, f.Sinks.Upload(bg, []float32{sink}))
					require.NoError(t, plan.Forward(bg, f))
					require.InDelta(t, 2, downloaded(t, f.O)[n-1], 2e-3, "o of scores %v and sink %v", x, sink)
					require.InDelta(t, 1, downloaded(t, f.LSE)[0]/x, 1e-6, "lse of scores %v and sink %v", x, sink)
				}
			}
			require.NoError(t, plan.Close())
		})
	}
}
