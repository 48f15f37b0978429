package score_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// places is the number of hooks of testdata/many.comp.
const places = 32

// randomPoints are pairs with scores of all sizes, positions before the first key, and a few numbers as large as they get.
func randomPoints(r *rand.Rand, n int) []score.Point {
	out := make([]score.Point, n)
	for i := range out {
		p := score.Point{S: r.NormFloat64() * math.Pow(10, float64(r.IntN(4)-2)), Batch: r.IntN(5), Head: r.IntN(8), Query: r.IntN(50),
			Key: r.IntN(50)}
		p.Position = p.Query - r.IntN(20)
		p.S = float64(float32(p.S))
		if i%16 == 0 {
			p.Query, p.Key, p.Position = math.MaxInt32-r.IntN(3), math.MaxInt32-r.IntN(3), math.MinInt32+r.IntN(3)
		}
		out[i] = p
	}
	return out
}

// Random expressions: value, slope and masks in float64 and on a device, against the analysis that was made beside them.
func TestRandomExpressions(t *testing.T) {
	d := newDevice(t)
	rounds := 4
	if !testing.Short() {
		rounds = 40
	}
	module := spirv(t, "many")
	checked, slopes, all := 0, 0, 0
	for round := range rounds {
		vktest.Budget(t)
		r := rand.New(rand.NewPCG(uint64(round), 13))
		var wants []floatExpr
		var bools []boolExpr
		var functions []score.Function
		var masks []score.MaskFunction
		for range places {
			g := &random{Rand: r}
			if r.IntN(4) == 0 {
				g.maskOf = true
				x := g.bool(1 + r.IntN(4))
				m, err := score.NewMask(x.e)
				require.NoError(t, err)
				bools, masks = append(bools, x), append(masks, m)
				continue
			}
			x := g.float(1 + r.IntN(5))
			f, err := score.New(x.e)
			require.NoError(t, err)
			wants, functions = append(wants, x), append(functions, f)
		}
		points := randomPoints(r, 128)
		code, captured, err := score.SpliceEach(module, 2, functions, masks)
		require.NoError(t, err)
		validate(t, "vulkan1.1", code)
		var words []uint32
		for _, p := range points {
			words = append(words, math.Float32bits(float32(p.S)), uint32(p.Batch), uint32(p.Head), uint32(p.Query), uint32(p.Key),
				uint32(int32(p.Position)))
		}
		got := floatsOf(d.run(code, []uint32{uint32(len(points))}, 2, 2*places*len(points), contents(captured, tensorData), words))
		for n, f := range functions {
			host, err := f.Bind(tensorData)
			require.NoError(t, err)
			for i, p := range points {
				want := wants[n].f(&env{at: p})
				x, y := float64(got[2*(places*i+n)]), float64(got[2*(places*i+n)+1])
				v, slope := host.Slope(p)
				all++
				if want.ok {
					checked++
					if math.Abs(v-want.v) > 1e-6*want.ev+1e-12*math.Abs(want.v) ||
						!(math.Abs(x-want.v) <= want.ev+ulp*math.Abs(want.v)+tiny) {
						t.Fatalf("%v\nat %+v: want %v ± %.2g, float64 %v, device %v", f, p, want.v, want.ev, v, x)
					}
				}
				if want.dk {
					slopes++
					if math.Abs(slope-want.d) > 1e-6*want.ed+1e-12*math.Abs(want.d) ||
						!(math.Abs(y-want.d) <= want.ed+ulp*math.Abs(want.d)+tiny) {
						t.Fatalf("%v\nslope at %+v: want %v ± %.2g, float64 %v, device %v", f, p, want.d, want.ed, slope, y)
					}
				}
			}
		}
		for n, m := range masks {
			host, err := m.Bind(tensorData)
			require.NoError(t, err)
			for i, p := range points {
				want, ok := bools[n].f(&env{at: p})
				x := got[2*(places*i+len(functions)+n)]
				if ok && (host.Allows(p) != want || (x == 1) != want || x != 0 && x != 1) {
					t.Fatalf("%v\nat %+v: want %v, host %v, device %v", m, p, want, host.Allows(p), x)
				}
			}
		}
	}
	t.Logf("%d points: %d values and %d slopes were known", all, checked, slopes)
	if 2*checked < all || 3*slopes < all {
		t.Errorf("of %d points only %d values and %d slopes were known: the expressions test too little", all, checked, slopes)
	}
}

// The derivative against differences of the value, where the function is smooth.
func TestFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	checked := 0
	for range 400 {
		g := &random{Rand: r}
		x := g.float(1 + r.IntN(5))
		f, err := score.New(x.e)
		require.NoError(t, err)
		e, err := f.Bind(tensorData)
		require.NoError(t, err)
		for _, p := range randomPoints(r, 20) {
			at := func(h float64) float64 {
				q := p
				q.S += h
				return e.Value(q)
			}
			h := 1e-5 * math.Max(1, math.Abs(p.S))
			_, slope := e.Slope(p)
			left, right := (at(0)-at(-h))/h, (at(h)-at(0))/h
			size := math.Max(math.Abs(left), math.Abs(right))
			noise := 1e-15*math.Abs(at(0))/h*100 + 1e-9
			if math.IsNaN(left) || math.IsNaN(right) || size > 1e6 || !x.f(&env{at: p}).dk || math.Abs(left-right) > 1e-3*size+noise {
				continue // not smooth here
			}
			checked++
			if mean := (left + right) / 2; !(math.Abs(slope-mean) <= 2e-3*size+2*noise) {
				t.Fatalf("%v\nat %+v: slope %v, differences %v and %v", f, p, slope, left, right)
			}
		}
	}
	if checked < 3000 {
		t.Errorf("only %d points were smooth", checked)
	}
}
