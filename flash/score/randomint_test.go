package score_test

import (
	"math"
	"math/big"

	"github.com/vkattn/vkattn/flash/score"
)

func (r *random) int(depth int) intExpr {
	if len(r.ints) > 0 && r.pick(6) == 0 {
		return r.ints[r.pick(len(r.ints))]
	}
	x := r.newInt(depth)
	r.ints = append(r.ints, x)
	return x
}

func (r *random) newInt(depth int) intExpr {
	if depth <= 0 {
		switch r.pick(7) {
		case 0:
			return intExpr{score.Batch(), func(e *env) int32 { return int32(e.at.Batch) }}
		case 1:
			return intExpr{score.Head(), func(e *env) int32 { return int32(e.at.Head) }}
		case 2:
			return intExpr{score.Query(), func(e *env) int32 { return int32(e.at.Query) }}
		case 3:
			return intExpr{score.Key(), func(e *env) int32 { return int32(e.at.Key) }}
		case 4:
			return intExpr{score.Position(), func(e *env) int32 { return int32(e.at.Position) }}
		}
		c := []int32{0, 1, -1, 2, 3, 4, 7, 8, -5, -8, 16, 100, 1 << 20, 1 << 30, math.MaxInt32, math.MinInt32}[r.pick(16)]
		return intExpr{score.ConstInt(int(c)), func(*env) int32 { return c }}
	}
	a, b := r.int(depth-1), r.int(depth-1)
	two := func(made score.Int, f func(x, y int32) int32) intExpr {
		return intExpr{made, func(e *env) int32 { return f(a.f(e), b.f(e)) }}
	}
	switch r.pick(11) {
	case 0:
		return two(a.e.Add(b.e), func(x, y int32) int32 { return x + y })
	case 1:
		return two(a.e.Sub(b.e), func(x, y int32) int32 { return x - y })
	case 2:
		return two(a.e.Mul(b.e), func(x, y int32) int32 { return x * y })
	case 3, 4:
		return two(a.e.Div(b.e), func(x, y int32) int32 { q, _ := divMod(x, y); return q })
	case 5, 6:
		return two(a.e.Mod(b.e), func(x, y int32) int32 { _, m := divMod(x, y); return m })
	case 7:
		if r.pick(2) == 0 {
			return two(a.e.Min(b.e), func(x, y int32) int32 { return min(x, y) })
		}
		return two(a.e.Max(b.e), func(x, y int32) int32 { return max(x, y) })
	case 8:
		if r.pick(2) == 0 {
			return two(a.e.Neg(), func(x, _ int32) int32 { return -x })
		}
		return two(a.e.Abs(), func(x, _ int32) int32 { return max(x, -x) })
	case 9:
		t := tensors[r.pick(2)]
		i, j := r.int(depth-1), r.int(depth-1)
		return intExpr{t.ints.At(i.e, j.e), func(e *env) int32 { return t.intValues[t.at(i.f(e), j.f(e))] }}
	}
	x, y := r.int(depth-1), r.int(depth-1)
	return intExpr{a.e.Less(b.e).SelectInt(x.e, y.e), func(e *env) int32 {
		if a.f(e) < b.f(e) {
			return x.f(e)
		}
		return y.f(e)
	}}
}

// divMod rounds down, in whole numbers of any size.
func divMod(x, y int32) (q, m int32) {
	if y == 0 {
		return 0, x
	}
	a, b, r := big.NewInt(int64(x)), big.NewInt(int64(y)), new(big.Int)
	n, _ := new(big.Int).DivMod(a, b, r) // Euclid's: the remainder is never negative
	if r.Sign() != 0 && y < 0 {
		n.Sub(n, big.NewInt(1))
		r.Add(r, b)
	}
	return int32(n.Int64()), int32(r.Int64())
}

// testTensor is a tensor [5, 7] of both types: known to the package, or captured.
type testTensor struct {
	floats      score.FloatTensor
	ints        score.IntTensor
	floatValues []float32
	intValues   []int32
}

var tensors = func() (out [2]testTensor) {
	for n := range out {
		t := &out[n]
		for i := range 35 {
			t.floatValues = append(t.floatValues, float32(math.Sin(float64(i*(n+1))))*3)
			t.intValues = append(t.intValues, int32(i*i*(n+1))%23-7)
		}
	}
	out[0].floats, out[0].ints = score.Table(out[0].floatValues, 5, 7), score.TableInt(out[0].intValues, 5, 7)
	out[1].floats, out[1].ints = score.Capture("floats", 5, 7), score.CaptureInt("ints", 5, 7)
	return out
}()

var tensorData = score.Data{"floats": tensors[1].floatValues, "ints": tensors[1].intValues}

func (t *testTensor) at(i, j int32) int32 { return min(max(i, 0), 4)*7 + min(max(j, 0), 6) }

func (r *random) loaded(depth int) floatExpr {
	t := tensors[r.pick(2)]
	i, j := r.int(depth-1), r.int(depth-1)
	return floatExpr{t.floats.At(i.e, j.e), func(e *env) number {
		return number{v: float64(t.floatValues[t.at(i.f(e), j.f(e))]), ok: true, dk: true}
	}}
}
