package score

import "math"

// simplify finds a value equal to v that is there already, or simpler to make. Constants stand last where order puts them.
func (g *graph) simplify(v *value) (ref, bool) {
	a, b := v.args[0], v.args[1]
	switch g.kind(a) {
	case kindFloat:
		return g.simplifyFloat(v.op, a, b)
	case kindInt:
		return g.simplifyInt(v.op, a, b)
	}
	return g.simplifyBool(v)
}

func (g *graph) simplifyFloat(o op, a, b ref) (ref, bool) {
	switch o {
	case opAdd:
		switch {
		case g.isFloat(b, 0):
			return a, true
		case g.values[b].op == opNeg:
			return g.apply(opSub, a, g.values[b].args[0]), true
		case g.values[a].op == opNeg:
			return g.apply(opSub, b, g.values[a].args[0]), true
		}
	case opSub:
		switch {
		case g.isFloat(b, 0):
			return a, true
		case g.isFloat(a, 0):
			return g.apply(opNeg, b), true
		case g.values[b].op == opNeg:
			return g.apply(opAdd, a, g.values[b].args[0]), true
		}
	case opMul:
		return g.simplifyProduct(a, b)
	case opDiv:
		switch {
		case g.isFloat(b, 1):
			return a, true
		case g.isFloat(a, 0):
			return a, true
		}
	case opNeg:
		if g.values[a].op == opNeg {
			return g.values[a].args[0], true
		}
	case opMin, opMax:
		if a == b {
			return a, true
		}
	case opAbs:
		switch g.values[a].op {
		case opAbs, opExp, opExp2:
			return a, true
		case opNeg:
			return g.apply(opAbs, g.values[a].args[0]), true
		}
	}
	return 0, false
}

func (g *graph) simplifyProduct(a, b ref) (ref, bool) {
	switch {
	case g.isFloat(a, 0): // after folding: −0, or a constant beside another that is not finite
		return a, true
	case g.isFloat(b, 0):
		return b, true
	case g.isFloat(b, 1):
		return a, true
	case g.isFloat(b, -1):
		return g.apply(opNeg, a), true
	case g.values[a].op == opNeg && g.values[b].op == opNeg:
		return g.apply(opMul, g.values[a].args[0], g.values[b].args[0]), true
	}
	word, ok := g.constant(b)
	if !ok || !g.device {
		return 0, false
	}
	c := math.Float64frombits(word)
	switch x := g.values[a]; x.op {
	case opNeg:
		return g.apply(opMul, x.args[0], g.float(-c)), true
	case opMul:
		if inner, ok := g.constant(x.args[1]); ok && normal(c*math.Float64frombits(inner)) {
			return g.apply(opMul, x.args[0], g.float(c*math.Float64frombits(inner))), true
		}
	case opAdd: // c·(1 − 2·logistic) is c − 2c·logistic: a factor on tanh costs nothing
		m := g.values[x.args[0]]
		offset, ok := g.constant(x.args[1])
		if m.op != opMul || !ok || g.values[m.args[0]].op != opLogistic {
			return 0, false
		}
		if inner, ok := g.constant(m.args[1]); ok {
			product := g.apply(opMul, m.args[0], g.float(c*math.Float64frombits(inner)))
			return g.apply(opAdd, product, g.float(c*math.Float64frombits(offset))), true
		}
	}
	return 0, false
}

// normal says whether fp32 holds c with its full precision.
func normal(c float64) bool {
	c = math.Abs(c)
	return c >= 0x1p-126 && c <= math.MaxFloat32
}

func (g *graph) simplifyInt(o op, a, b ref) (ref, bool) {
	switch o {
	case opAdd, opBitXor:
		if g.isInt(b, 0) {
			return a, true
		}
	case opSub:
		switch {
		case g.isInt(b, 0):
			return a, true
		case a == b:
			return g.int(0), true
		case g.isInt(a, 0):
			return g.apply(opNeg, b), true
		}
	case opMul:
		switch {
		case g.isInt(b, 0):
			return b, true
		case g.isInt(b, 1):
			return a, true
		}
	case opDiv, opQuotient:
		if g.isInt(b, 1) {
			return a, true
		}
	case opMod:
		switch r := g.ranges[a]; {
		case g.isInt(b, 0):
			return a, true
		case g.isInt(b, 1):
			return g.int(0), true
		case r.low >= 0 && g.ranges[b].low > r.high:
			return a, true
		}
	case opNeg:
		if g.values[a].op == opNeg {
			return g.values[a].args[0], true
		}
	case opMin:
		switch {
		case a == b || g.ranges[a].high <= g.ranges[b].low:
			return a, true
		case g.ranges[b].high <= g.ranges[a].low:
			return b, true
		}
	case opMax:
		switch {
		case a == b || g.ranges[a].low >= g.ranges[b].high:
			return a, true
		case g.ranges[b].low >= g.ranges[a].high:
			return b, true
		}
	case opAbs:
		if g.ranges[a].low >= 0 {
			return a, true
		}
	case opLess:
		switch {
		case g.ranges[a].high < g.ranges[b].low:
			return g.bool(true), true
		case a == b || g.ranges[a].low >= g.ranges[b].high:
			return g.bool(false), true
		}
	case opLessEqual:
		switch {
		case a == b || g.ranges[a].high <= g.ranges[b].low:
			return g.bool(true), true
		case g.ranges[a].low > g.ranges[b].high:
			return g.bool(false), true
		}
	case opEqual:
		if a == b {
			return g.bool(true), true
		}
	case opNotEqual:
		if a == b {
			return g.bool(false), true
		}
	}
	return 0, false
}

func (g *graph) simplifyBool(v *value) (ref, bool) {
	a, b := v.args[0], v.args[1]
	switch v.op {
	case opAnd, opOr:
		if a == b {
			return a, true
		}
		if w, ok := g.constant(b); ok {
			if (w == 1) == (v.op == opAnd) { // true in a conjunction, false in a disjunction
				return a, true
			}
			return b, true
		}
	case opNot:
		if g.values[a].op == opNot {
			return g.values[a].args[0], true
		}
	case opSelect:
		if b == v.args[2] {
			return b, true
		}
		if w, ok := g.constant(a); ok {
			if w != 0 {
				return b, true
			}
			return v.args[2], true
		}
	}
	return 0, false
}
