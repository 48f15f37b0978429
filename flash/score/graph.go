package score

import (
	"maps"
	"math"
	"slices"
)

// ref names a value of a graph.
type ref int32

// value is an operation on earlier values. Its operands stand before it, so that a graph's order is an order of evaluation.
type value struct {
	op   op
	kind kind
	args [3]ref // those of arity(op), then zeros
	bits uint64 // of opConst the word, of opLoad the number of the captured tensor
}

// graph is a set of values in which no two are equal. Values that an identity makes simpler are made simpler as they enter.
type graph struct {
	values []value
	ranges []span // of integers
	index  map[value]ref
	// device marks a graph in the operations of devices: constants are rounded to fp32 in the end, so that chains of constants are joined.
	device bool
}

func newGraph(device bool) *graph { return &graph{index: map[value]ref{}, device: device} }

func arity(o op) int {
	switch o {
	case opS, opBatch, opHead, opQuery, opKey, opPosition, opConst, opAhead:
		return 0
	case opLoad, opNeg, opAbs, opExp, opLog, opTanh, opNot, opToFloat, opSign, opSech2, opExp2, opLog2, opLogistic:
		return 1
	case opSelect:
		return 3
	}
	return 2
}

// operands are the values that v is computed from.
func (v *value) operands() []ref { return v.args[:arity(v.op)] }

func (g *graph) put(v value) ref {
	if r, ok := g.index[v]; ok {
		return r
	}
	r := ref(len(g.values))
	g.values, g.index[v] = append(g.values, v), r
	g.ranges = append(g.ranges, g.rangeOf(&v))
	return r
}

func (g *graph) float(c float64) ref {
	return g.put(value{op: opConst, kind: kindFloat, bits: math.Float64bits(c)})
}

func (g *graph) int(c int32) ref {
	return g.put(value{op: opConst, kind: kindInt, bits: wordOfInt(c)})
}

func (g *graph) bool(c bool) ref {
	return g.put(value{op: opConst, kind: kindBool, bits: wordOfBool(c)})
}

func (g *graph) kind(r ref) kind { return g.values[r].kind }

// constant is the word of r, if it is a constant.
func (g *graph) constant(r ref) (uint64, bool) {
	v := &g.values[r]
	return v.bits, v.op == opConst
}

// isFloat and isInt say whether r is this constant.
func (g *graph) isFloat(r ref, c float64) bool {
	v := &g.values[r]
	if v.op != opConst || v.kind != kindFloat {
		return false
	}
	f := math.Float64frombits(v.bits)
	return f == c || g.device && float32(f) == float32(c)
}

func (g *graph) isInt(r ref, c int32) bool {
	v := &g.values[r]
	return v.op == opConst && v.kind == kindInt && int32(v.bits) == c
}

// apply is an operation on values, as simple as it gets.
func (g *graph) apply(o op, args ...ref) ref {
	v := value{op: o, kind: g.kind(args[0])}
	copy(v.args[:], args)
	switch o {
	case opLess, opLessEqual, opEqual, opNotEqual:
		v.kind = kindBool
	case opToFloat:
		v.kind = kindFloat
	case opSelect:
		v.kind = g.kind(args[1])
	}
	if r, ok := g.fold(&v); ok {
		return r
	}
	g.order(&v)
	if r, ok := g.simplify(&v); ok {
		return r
	}
	return g.put(v)
}

// fold computes an operation on constants. What is not finite is left to the device.
func (g *graph) fold(v *value) (ref, bool) {
	var words [3]uint64
	for i, a := range v.operands() {
		w, ok := g.constant(a)
		if !ok {
			return 0, false
		}
		words[i] = w
	}
	w := compute(v.op, g.kind(v.args[0]), words[0], words[1], words[2])
	if f := math.Float64frombits(w); v.kind == kindFloat && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return 0, false
	}
	return g.put(value{op: opConst, kind: v.kind, bits: w}), true
}

// order gives the operands of an operation that commutes one order, a constant last. Not those of min and max: their derivative at ties is
// the first one's.
func (g *graph) order(v *value) {
	switch v.op {
	case opAdd, opMul, opEqual, opNotEqual, opAnd, opOr:
		_, first := g.constant(v.args[0])
		_, second := g.constant(v.args[1])
		if first || !second && v.args[0] > v.args[1] {
			v.args[0], v.args[1] = v.args[1], v.args[0]
		}
	}
}

// reachable marks what roots are computed from.
func (g *graph) reachable(roots ...ref) []bool {
	used := make([]bool, len(g.values))
	for _, r := range roots {
		used[r] = true
	}
	for i := len(g.values) - 1; i >= 0; i-- {
		if used[i] {
			for _, a := range g.values[i].operands() {
				used[a] = true
			}
		}
	}
	return used
}

// clone is a graph with the same values under the same refs, to which others may be added.
func (g *graph) clone() *graph {
	return &graph{values: slices.Clone(g.values), ranges: slices.Clone(g.ranges), index: maps.Clone(g.index), device: g.device}
}
