package score_test

import (
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash/score"
)

// A number is a value and its derivative by s with bounds on what rounding in fp32 may do to each: an analysis of errors, operation by
// operation, that knows nothing of how the package computes. Where a rounded comparison could go either way, nothing is known.
type number struct {
	v, ev  float64
	d, ed  float64
	ok, dk bool // the value and the derivative are known
}

const (
	ulp  = 0x1p-24
	tiny = 1e-36 // devices may flush what is below the normal numbers
)

func known(v float64, n number) number {
	n.v = v
	n.ok = n.ok && math.Abs(v) < 1e20 && !math.IsNaN(v) && n.ev < 1e18
	n.dk = n.dk && n.ok && math.Abs(n.d) < 1e20 && !math.IsNaN(n.d) && n.ed < 1e18
	return n
}

// times is a product of values with errors.
func times(a, ea, b, eb float64) (v, e float64) {
	v = a * b
	return v, math.Abs(a)*eb + math.Abs(b)*ea + ea*eb + 4*ulp*math.Abs(v) + tiny
}

func plus(a, ea, b, eb float64) (v, e float64) {
	v = a + b
	return v, ea + eb + 4*ulp*math.Max(math.Abs(a), math.Abs(b)) + tiny
}

func over(a, ea, b, eb float64) (v, e float64, ok bool) {
	v = a / b
	return v, (ea+math.Abs(v)*eb)/(math.Abs(b)-eb) + 8*ulp*math.Abs(v) + tiny, math.Abs(b) > 2*eb && math.Abs(b) > 1e-15
}

type env struct {
	at   score.Point
	data score.Data
}

type (
	floatExpr struct {
		e score.Float
		f func(*env) number
	}
	intExpr struct {
		e score.Int
		f func(*env) int32
	}
	boolExpr struct {
		e score.Bool
		f func(*env) (is, known bool)
	}
)

// random makes expressions and, beside each, what it must be.
type random struct {
	*rand.Rand
	floats []floatExpr // made before, to be used again
	ints   []intExpr
	maskOf bool // for a mask: no s
}

func (r *random) pick(n int) int { return r.IntN(n) }

func (r *random) float(depth int) floatExpr {
	if len(r.floats) > 0 && r.pick(6) == 0 {
		return r.floats[r.pick(len(r.floats))]
	}
	x := r.newFloat(depth)
	r.floats = append(r.floats, x)
	return x
}

func (r *random) newFloat(depth int) floatExpr {
	if depth <= 0 {
		switch {
		case r.pick(3) == 0:
			c := []float64{0, 1, -1, 0.5, 2, -3.25, 0.1, 30, 1e-3, 1000}[r.pick(10)]
			return floatExpr{score.Const(c), func(*env) number { return number{v: float64(float32(c)), ok: true, dk: true} }}
		case r.maskOf || r.pick(3) == 0:
			x := r.int(0)
			return floatExpr{x.e.Float(), func(e *env) number {
				v := float64(x.f(e))
				n := number{v: v, ok: true, dk: true}
				if math.Abs(v) > 1<<24 {
					n.ev = 2 * ulp * math.Abs(v)
				}
				return n
			}}
		}
		return floatExpr{score.S(), func(e *env) number { return number{v: e.at.S, d: 1, ok: true, dk: true} }}
	}
	switch r.pick(12) {
	case 0:
		return r.loaded(depth)
	case 1, 2:
		c, a, b := r.bool(depth-1), r.float(depth-1), r.float(depth-1)
		return floatExpr{c.e.Select(a.e, b.e), func(e *env) number {
			is, ok := c.f(e)
			n := b.f(e)
			if is {
				n = a.f(e)
			}
			n.ok, n.dk = n.ok && ok, n.dk && ok
			return n
		}}
	case 3, 4, 5, 6:
		return r.unary(depth)
	}
	return r.binary(depth)
}

func (r *random) unary(depth int) floatExpr {
	a := r.float(depth - 1)
	switch r.pick(5) {
	case 0:
		return floatExpr{a.e.Neg(), func(e *env) number { n := a.f(e); n.v, n.d = -n.v, -n.d; return n }}
	case 1:
		return floatExpr{a.e.Abs(), func(e *env) number {
			n := a.f(e)
			n.dk = n.dk && math.Abs(n.v) > n.ev
			if n.v < 0 {
				n.v, n.d = -n.v, -n.d
			}
			return n
		}}
	case 2:
		return floatExpr{a.e.Exp(), func(e *env) number {
			n := a.f(e)
			v := math.Exp(n.v)
			n.ok = n.ok && n.v < 40 && n.ev < 0.1
			ev := v*(1.2*n.ev+ulp*(16+16*math.Abs(n.v))) + tiny
			n.d, n.ed = times(n.d, n.ed, v, ev)
			n.ev = ev
			return known(v, n)
		}}
	case 3:
		return floatExpr{a.e.Log(), func(e *env) number {
			n := a.f(e)
			v := math.Log(n.v)
			n.ok = n.ok && n.v > 2*n.ev && n.v > 1e-15
			var ok bool
			n.d, n.ed, ok = over(n.d, n.ed, n.v, n.ev)
			n.ev = 2*n.ev/n.v + 0x1p-20 + 16*ulp*math.Abs(v)
			n.dk = n.dk && ok
			return known(v, n)
		}}
	}
	return floatExpr{a.e.Tanh(), func(e *env) number {
		n := a.f(e)
		v := math.Tanh(n.v)
		n.d, n.ed = times(n.d, n.ed, 1-v*v, math.Min(n.ev, 1)+4e-6)
		n.ev = math.Min(n.ev, 2) + 1e-6
		return known(v, n)
	}}
}

func (r *random) binary(depth int) floatExpr {
	a, b := r.float(depth-1), r.float(depth-1)
	both := func(e *env) (x, y, n number) {
		x, y = a.f(e), b.f(e)
		n.ok, n.dk = x.ok && y.ok, x.dk && y.dk
		return x, y, n
	}
	switch r.pick(6) {
	case 0:
		return floatExpr{a.e.Add(b.e), func(e *env) number {
			x, y, n := both(e)
			n.v, n.ev = plus(x.v, x.ev, y.v, y.ev)
			n.d, n.ed = plus(x.d, x.ed, y.d, y.ed)
			return known(n.v, n)
		}}
	case 1:
		return floatExpr{a.e.Sub(b.e), func(e *env) number {
			x, y, n := both(e)
			n.v, n.ev = plus(x.v, x.ev, -y.v, y.ev)
			n.d, n.ed = plus(x.d, x.ed, -y.d, y.ed)
			return known(n.v, n)
		}}
	case 2:
		return floatExpr{a.e.Mul(b.e), func(e *env) number {
			x, y, n := both(e)
			n.v, n.ev = times(x.v, x.ev, y.v, y.ev)
			d1, e1 := times(x.d, x.ed, y.v, y.ev)
			d2, e2 := times(x.v, x.ev, y.d, y.ed)
			n.d, n.ed = plus(d1, e1, d2, e2)
			return known(n.v, n)
		}}
	case 3:
		return floatExpr{a.e.Div(b.e), func(e *env) number {
			x, y, n := both(e)
			var ok, dk bool
			n.v, n.ev, ok = over(x.v, x.ev, y.v, y.ev)
			t, et := times(n.v, n.ev, y.d, y.ed)
			t, et = plus(x.d, x.ed, -t, et)
			n.d, n.ed, dk = over(t, et, y.v, y.ev)
			n.ok, n.dk = n.ok && ok, n.dk && dk
			return known(n.v, n)
		}}
	}
	least := r.pick(2) == 0
	made := a.e.Max(b.e)
	if least {
		made = a.e.Min(b.e)
	}
	return floatExpr{made, func(e *env) number {
		x, y, n := both(e)
		clear := math.Abs(x.v-y.v) > x.ev+y.ev || x == y
		taken, other := x, y
		if x.v != y.v && (x.v < y.v) != least {
			taken, other = y, x
		}
		taken.ev = math.Max(taken.ev, other.ev)
		taken.ok, taken.dk = n.ok, n.dk && clear
		return taken
	}}
}

func (r *random) bool(depth int) boolExpr {
	switch r.pick(8) {
	case 0, 1:
		if depth > 0 {
			return r.logic(depth)
		}
	case 2, 3, 4:
		a, b := r.int(depth-1), r.int(depth-1)
		switch r.pick(6) {
		case 0:
			return boolExpr{a.e.Less(b.e), func(e *env) (bool, bool) { return a.f(e) < b.f(e), true }}
		case 1:
			return boolExpr{a.e.LessEqual(b.e), func(e *env) (bool, bool) { return a.f(e) <= b.f(e), true }}
		case 2:
			return boolExpr{a.e.Greater(b.e), func(e *env) (bool, bool) { return a.f(e) > b.f(e), true }}
		case 3:
			return boolExpr{a.e.GreaterEqual(b.e), func(e *env) (bool, bool) { return a.f(e) >= b.f(e), true }}
		case 4:
			return boolExpr{a.e.Equal(b.e), func(e *env) (bool, bool) { return a.f(e) == b.f(e), true }}
		}
		return boolExpr{a.e.NotEqual(b.e), func(e *env) (bool, bool) { return a.f(e) != b.f(e), true }}
	}
	a, b := r.float(depth-1), r.float(depth-1)
	compare := func(f func(x, y float64) bool) func(*env) (bool, bool) {
		return func(e *env) (bool, bool) {
			x, y := a.f(e), b.f(e)
			return f(x.v, y.v), x.ok && y.ok && (math.Abs(x.v-y.v) > x.ev+y.ev || x.ev == 0 && y.ev == 0)
		}
	}
	switch r.pick(6) {
	case 0:
		return boolExpr{a.e.Less(b.e), compare(func(x, y float64) bool { return x < y })}
	case 1:
		return boolExpr{a.e.LessEqual(b.e), compare(func(x, y float64) bool { return x <= y })}
	case 2:
		return boolExpr{a.e.Greater(b.e), compare(func(x, y float64) bool { return x > y })}
	case 3:
		return boolExpr{a.e.GreaterEqual(b.e), compare(func(x, y float64) bool { return x >= y })}
	case 4:
		return boolExpr{a.e.Equal(b.e), compare(func(x, y float64) bool { return x == y })}
	}
	return boolExpr{a.e.NotEqual(b.e), compare(func(x, y float64) bool { return x != y })}
}

func (r *random) logic(depth int) boolExpr {
	a, b := r.bool(depth-1), r.bool(depth-1)
	switch r.pick(3) {
	case 0:
		return boolExpr{a.e.Not(), func(e *env) (bool, bool) { x, ok := a.f(e); return !x, ok }}
	case 1:
		return boolExpr{a.e.And(b.e), func(e *env) (bool, bool) {
			x, ok := a.f(e)
			y, yk := b.f(e)
			return x && y, ok && yk
		}}
	}
	return boolExpr{a.e.Or(b.e), func(e *env) (bool, bool) {
		x, ok := a.f(e)
		y, yk := b.f(e)
		return x || y, ok && yk
	}}
}
