package score

import "math"

// inBits is a value times log₂e, the unit in which kernels take exponentials. The factor goes to where it costs nothing: into constants, into what
// does not depend on the pair of query and key, into s, which kernels have as a product.
func inBits(g *graph, r ref) ref {
	if !g.takesFactor(r) {
		return g.apply(opMul, r, g.float(math.Log2E))
	}
	return g.times(r, math.Log2E)
}

// takesFactor says whether a value can be multiplied by a number without an operation more for a pair.
func (g *graph) takesFactor(r ref) bool {
	v := &g.values[r]
	switch v.op {
	case opConst, opS:
		return true
	case opNeg:
		return g.takesFactor(v.args[0])
	case opAdd, opSub, opMin, opMax:
		return g.takesFactor(v.args[0]) && g.takesFactor(v.args[1])
	case opMul:
		return !g.ofPair(v.args[0]) || !g.ofPair(v.args[1])
	}
	return !g.ofPair(r)
}

// times is a value that takes a factor, which is above 0, times that.
func (g *graph) times(r ref, factor float64) ref {
	v := g.values[r]
	switch v.op {
	case opNeg:
		return g.apply(opNeg, g.times(v.args[0], factor))
	case opAdd, opSub, opMin, opMax:
		return g.apply(v.op, g.times(v.args[0], factor), g.times(v.args[1], factor))
	case opMul:
		if g.ofPair(v.args[0]) {
			return g.apply(opMul, v.args[0], g.apply(opMul, v.args[1], g.float(factor)))
		}
		return g.apply(opMul, v.args[1], g.apply(opMul, v.args[0], g.float(factor)))
	}
	return g.apply(opMul, r, g.float(factor))
}

// ofPair says whether a value depends on the pair of query and key.
func (g *graph) ofPair(r ref) bool {
	for i, used := range g.reachable(r) {
		if used {
			switch g.values[i].op {
			case opS, opQuery, opKey, opPosition, opAhead:
				return true
			}
		}
	}
	return false
}
