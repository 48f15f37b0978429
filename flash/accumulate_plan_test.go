package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAccumulate compares copies, sums and running merges with float64, in aligned and odd layouts, with rows that one side or both have
// nothing of.
func TestAccumulate(t *testing.T) {
	d := testDevice(t)
	r := rand.New(rand.NewPCG(3, 9))
	for _, dtype := range []DType{F32, F16, BF16} {
		for _, types := range [][2]DType{{dtype, F32}, {F32, dtype}, {dtype, dtype}, {F32, F32}} {
			for rule := AccumulateCopy; rule <= AccumulateJoin; rule++ {
				if rule != AccumulateCopy && types[1] != F32 {
					continue
				}
				for _, layout := range []int{0, 1, inUnits} {
					shape := [4]int{2, 3, 5, []int{24, 7, 16}[layout%3]}
					p := AccumulateProblem{Rule: rule, Shape: shape, X: types[0], Y: types[1]}
					t.Run(fmt.Sprintf("%v %v to %v layout %d", rule, p.X, p.Y, layout),
						func(t *testing.T) { testAccumulate(t, d, r, p, layout) })
				}
			}
		}
	}
}

func testAccumulate(t *testing.T, d *Device, r *rand.Rand, p AccumulateProblem, layout int) {
	x, y := newGuarded(t, d, r, p.X, p.Shape, layout), newGuarded(t, d, r, p.Y, p.Shape, layout)
	rows := [4]int{p.Shape[0], p.Shape[1], p.Shape[2], 1}
	a := Accumulate{X: x.tensor, Y: y.tensor}
	var lx, ly, out *guarded
	if p.Rule == AccumulateJoin {
		lx, ly, out = newGuarded(t, d, r, F32, rows, 0), newGuarded(t, d, r, F32, rows, 0), newGuarded(t, d, r, F32, rows, 0)
		for b := range rows[0] {
			for h := range rows[1] {
				for i := range rows[2] { // nothing here, there, in both
					if i%4 == 1 || i%4 == 3 {
						lx.values[lx.row(b, h, i)] = float32(math.Inf(-1))
						x.values[x.row(b, h, i)] = float32(math.NaN())
					}
					if i%4 >= 2 {
						ly.values[ly.row(b, h, i)] = float32(math.Inf(-1))
						y.values[y.row(b, h, i)] = float32(math.NaN())
					}
				}
			}
		}
		for _, g := range []*guarded{x, y, lx, ly} {
			g.send(t)
		}
		a.XLSE, a.YLSE, a.LSE = lx.tensor, ly.tensor, out.tensor
	}
	want, off := wide(y.values), map[int]float64{}
	var wantLSE []float64
	if out != nil {
		wantLSE = wide(out.values)
	}
	for b := range rows[0] {
		for h := range rows[1] {
			for i := range rows[2] {
				wx, wy := 1.0, float64(min(p.Rule, 1))
				if p.Rule == AccumulateJoin {
					ex, ey := math.Exp(float64(lx.values[lx.row(b, h, i)])), math.Exp(float64(ly.values[ly.row(b, h, i)]))
					wantLSE[out.row(b, h, i)] = math.Log(ex + ey)
					wx, wy = ex/max(ex+ey, math.SmallestNonzeroFloat64), ey/max(ex+ey, math.SmallestNonzeroFloat64)
				}
				for c := range p.Shape[3] {
					at, z, size := y.row(b, h, i)+c, 0.0, 0.0
					for _, term := range [][2]float64{{wx, float64(x.values[x.row(b, h, i)+c])}, {wy, float64(y.values[at])}} {
						if term[0] != 0 {
							z += term[0] * term[1]
							size += math.Abs(term[0] * term[1])
						}
					}
					want[at] = z
					off[at] = refTypes[p.Y].Ulp(z)/2 + 1e-6*size*float64(p.Rule)
				}
			}
		}
	}
	plan, err := d.PlanAccumulate(p)
	require.NoError(t, err)
	defer plan.Close()
	require.NoError(t, plan.Accumulate(t.Context(), a))
	got := make([]float32, len(y.values))
	require.NoError(t, y.whole.Download(t.Context(), got))
	for i, v := range got {
		if float64(v) != want[i] && !(math.Abs(float64(v)-want[i]) <= off[i]) {
			t.Fatalf("element %d is %v and should be %v, within %g", i, v, want[i], off[i])
		}
	}
	x.unchanged(t)
	if out == nil {
		return
	}
	got = make([]float32, len(out.values))
	require.NoError(t, out.whole.Download(t.Context(), got))
	for i, v := range got {
		if float64(v) != wantLSE[i] && !(math.Abs(float64(v)-wantLSE[i]) <= 2e-6) {
			t.Fatalf("lse %d is %v and should be %v", i, v, wantLSE[i])
		}
	}
	lx.unchanged(t)
	ly.unchanged(t)
}

// TestAccumulateBadInput: what cannot be is named before anything runs.
func TestAccumulateBadInput(t *testing.T) {
	d := testDevice(t)
	good := AccumulateProblem{Rule: AccumulateJoin, Shape: [4]int{1, 1, 2, 8}, X: F16, Y: F32}
	for name, change := range map[string]func(*AccumulateProblem){
		"AccumulateProblem.Rule":     func(p *AccumulateProblem) { p.Rule = 3 },
		"AccumulateProblem.Shape[2]": func(p *AccumulateProblem) { p.Shape[2] = 0 },
		"AccumulateProblem.X":        func(p *AccumulateProblem) { p.X = Int32 },
		"AccumulateProblem.Y":        func(p *AccumulateProblem) { p.Y = F16 },
	} {
		p := good
		change(&p)
		_, err := d.PlanAccumulate(p)
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, name, bad.Argument)
	}
	plan, err := d.PlanAccumulate(good)
	require.NoError(t, err)
	defer plan.Close()
	x, err := d.NewTensor(F16, 1, 1, 2, 8)
	require.NoError(t, err)
	y, err := d.NewTensor(F32, 1, 1, 2, 8)
	require.NoError(t, err)
	lse, err := d.NewLSE(1, 1, 2)
	require.NoError(t, err)
	other, err := d.NewLSE(1, 1, 2)
	require.NoError(t, err)
	for name, a := range map[string]Accumulate{
		"Accumulate.X":    {Y: y, XLSE: lse, YLSE: lse, LSE: other},
		"Accumulate.Y":    {X: x, Y: x, XLSE: lse, YLSE: lse, LSE: other},
		"Accumulate.LSE":  {X: x, Y: y, XLSE: lse, YLSE: other, LSE: other},
		"Accumulate.XLSE": {X: x, Y: y, YLSE: lse, LSE: other},
	} {
		var bad *ArgumentError
		require.ErrorAs(t, plan.Accumulate(t.Context(), a), &bad, name)
		require.Equal(t, name, bad.Argument)
	}
}
