package score

import (
	"math"
	"math/bits"
)

// lower writes values in the operations of devices, into a graph of its own: what costs much becomes what costs less, constants are joined,
// and integer division becomes that of unsigned numbers, the only one whose result Vulkan promises for every operand.
func lower(g *graph, roots ...ref) (*graph, []ref) {
	l := &lowering{from: g, to: newGraph(true), at: make([]ref, len(g.values))}
	used := g.reachable(roots...)
	for r := range g.values {
		if used[r] {
			l.at[r] = l.value(&g.values[r])
		}
	}
	out := make([]ref, len(roots))
	for i, r := range roots {
		out[i] = l.at[r]
	}
	return l.to, out
}

type lowering struct {
	from, to *graph
	at       []ref // of each value of from, its value in to
}

func (l *lowering) value(v *value) ref {
	g := l.to
	var args [3]ref
	for i, a := range v.operands() {
		args[i] = l.at[a]
	}
	a, b := args[0], args[1]
	switch v.op {
	case opS, opBatch, opHead, opQuery, opKey, opPosition, opConst:
		return g.put(*v)
	case opSub:
		if l.isAhead(a, b) {
			return g.put(value{op: opAhead, kind: kindFloat})
		}
		if l.isAhead(b, a) {
			return g.apply(opNeg, g.put(value{op: opAhead, kind: kindFloat}))
		}
	case opLoad:
		return g.put(value{op: opLoad, kind: v.kind, args: [3]ref{a}, bits: v.bits})
	case opDiv:
		if v.kind == kindInt {
			return l.floorDiv(a, b)
		}
		if w, ok := g.constant(b); ok && normal(1/math.Float64frombits(w)) {
			return g.apply(opMul, a, g.float(1/math.Float64frombits(w)))
		}
	case opMod:
		return l.mod(a, b)
	case opExp: // eˣ = 2^(x·log₂e)
		return g.apply(opExp2, g.apply(opMul, a, g.float(math.Log2E)))
	case opLog:
		return g.apply(opMul, g.apply(opLog2, a), g.float(math.Ln2))
	case opTanh: // 1 − 2r with r = 1/(1 + e²ˣ): r runs from 1 to 0, so that neither end can be a NaN
		return g.apply(opAdd, g.apply(opMul, l.logistic(a), g.float(-2)), g.float(1))
	case opAbs: // of what may be the smallest integer, of which drivers take SAbs to be no less than 0, where it is itself
		if v.kind == kindInt && g.ranges[a].low == math.MinInt32 {
			turn := g.apply(opShiftRight, a, g.int(31))
			return g.apply(opSub, g.apply(opBitXor, a, turn), turn)
		}
	case opSech2: // 1 − (1 − 2r)² = 4·(r − r²), which keeps its relative precision where r is small
		r := l.logistic(a)
		return g.apply(opMul, g.apply(opSub, r, g.apply(opMul, r, r)), g.float(4))
	}
	return g.apply(v.op, args[:arity(v.op)]...)
}

// isAhead says whether a − b is that of the query's position and the key, both as floats.
func (l *lowering) isAhead(a, b ref) bool {
	is := func(r ref, o op) bool {
		v := &l.to.values[r]
		return v.op == opToFloat && l.to.values[v.args[0]].op == o
	}
	return is(a, opPosition) && is(b, opKey)
}

func (l *lowering) logistic(x ref) ref {
	return l.to.apply(opLogistic, l.to.apply(opMul, x, l.to.float(2*math.Log2E)))
}

// powerOfTwo is log₂ of a constant that is a power of two.
func (l *lowering) powerOfTwo(b ref) (int32, bool) {
	w, ok := l.to.constant(b)
	c := int32(w)
	if !ok || c < 1 || c&(c-1) != 0 {
		return 0, false
	}
	return int32(bits.TrailingZeros32(uint32(c))), true
}

// floorDiv is ⌊a/b⌋, 0 for b = 0.
func (l *lowering) floorDiv(a, b ref) ref {
	g := l.to
	zero := g.int(0)
	if g.isInt(b, 0) {
		return zero
	}
	if n, ok := l.powerOfTwo(b); ok {
		if n == 0 {
			return a
		}
		return g.apply(opShiftRight, a, g.int(n))
	}
	if g.ranges[b].low >= 1 { // for a < 0: ⌊a/b⌋ = −1 − ⌊(−1 − a)/b⌋, and −1 − a is a with all its bits turned
		if g.ranges[a].low >= 0 {
			return g.apply(opQuotient, a, b)
		}
		turn := g.apply(opShiftRight, a, g.int(31))
		return g.apply(opBitXor, g.apply(opQuotient, g.apply(opBitXor, a, turn), b), turn)
	}
	none := g.apply(opEqual, b, zero)
	size, divisor := g.apply(opAbs, a), g.apply(opSelect, none, g.int(1), g.apply(opAbs, b))
	q := g.apply(opQuotient, size, divisor)
	rest := g.apply(opSub, size, g.apply(opMul, q, divisor))
	up := g.apply(opAdd, q, g.apply(opSelect, g.apply(opEqual, rest, zero), zero, g.int(1)))
	negative := g.apply(opLess, g.apply(opBitXor, a, b), zero)
	return g.apply(opSelect, none, zero, g.apply(opSelect, negative, g.apply(opNeg, up), q))
}

// mod is a − b·⌊a/b⌋.
func (l *lowering) mod(a, b ref) ref {
	g := l.to
	if n, ok := l.powerOfTwo(b); ok {
		return g.apply(opBitAnd, a, g.int(1<<n-1))
	}
	return g.apply(opSub, a, g.apply(opMul, l.floorDiv(a, b), b))
}
