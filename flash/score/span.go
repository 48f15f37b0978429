package score

import "math"

// span holds what an integer may be, both ends included.
type span struct{ low, high int64 }

var anyInt = span{math.MinInt32, math.MaxInt32}

// fit is the span, or every integer where a value in it wraps.
func (s span) fit() span {
	if s.low < anyInt.low || s.high > anyInt.high {
		return anyInt
	}
	return s
}

// rangeOf is what v may be, from what its operands may be. Clamps that change nothing are found by it.
func (g *graph) rangeOf(v *value) span {
	if v.kind != kindInt {
		return anyInt
	}
	var a, b span
	if n := arity(v.op); n > 0 && v.op != opSelect {
		a = g.ranges[v.args[0]]
		if n > 1 {
			b = g.ranges[v.args[1]]
		}
	}
	switch v.op {
	case opBatch, opHead, opQuery, opKey:
		return span{0, math.MaxInt32}
	case opConst:
		c := int64(int32(v.bits))
		return span{c, c}
	case opAdd:
		return span{a.low + b.low, a.high + b.high}.fit()
	case opSub:
		return span{a.low - b.high, a.high - b.low}.fit()
	case opMul:
		p := [...]int64{a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high}
		return span{min(p[0], p[1], p[2], p[3]), max(p[0], p[1], p[2], p[3])}.fit()
	case opDiv, opQuotient:
		if a.low >= 0 && b.low >= 1 {
			return span{a.low / b.high, a.high / b.low}
		}
	case opMod:
		if b.low >= 1 {
			return span{0, b.high - 1}
		}
	case opBitAnd:
		if b.low >= 0 {
			return span{0, b.high}
		}
	case opShiftRight:
		if b.low == b.high {
			return span{a.low >> b.low, a.high >> b.low}
		}
	case opNeg:
		return span{-a.high, -a.low}.fit()
	case opAbs:
		if a.low > math.MinInt32 {
			return span{max(a.low, -a.high, 0), max(-a.low, a.high)}
		}
	case opMin:
		return span{min(a.low, b.low), min(a.high, b.high)}
	case opMax:
		return span{max(a.low, b.low), max(a.high, b.high)}
	case opSelect:
		yes, no := g.ranges[v.args[1]], g.ranges[v.args[2]]
		return span{min(yes.low, no.low), max(yes.high, no.high)}
	}
	return anyInt
}
