package score

import "math"

// inBits is a score in the unit in which kernels take exponentials: times log₂e, but for numbers that would not be finite then (inFarBits).
// The factor goes to where it costs nothing: into constants, into what does not depend on the pair of query and key, into s, which kernels
// have as a product.
func inBits(g *graph, r ref) ref {
	s := scaling{g: g, ofPair: g.ofPairs(), done: map[ref]ref{}}
	if !s.takes()[r] {
		return inFarBits(g, r)
	}
	return s.times(r)
}

// far is FAR of shaders/include/common.glsl: 2¹²⁷ − 2¹²¹ + 2¹⁰⁴.
const far = 0x1p127 - 0x1p121 + 0x1p104

// inFarBits is bits_of_score of shaders/include/common.glsl: it keeps every finite score finite.
func inFarBits(g *graph, r ref) ref {
	half := g.apply(opMul, r, g.float(0.5))
	x := g.apply(opMax, g.apply(opMul, r, g.float(math.Log2E)), g.apply(opSub, half, g.float(far)))
	return g.apply(opMin, x, g.apply(opAdd, half, g.float(far)))
}

// scalable says of a constant whether it can be multiplied by log₂e in fp32; infinities can.
func scalable(c float64) bool { return math.IsInf(c, 0) || math.Abs(c)*math.Log2E <= math.MaxFloat32 }

// scaling multiplies values by log₂e, each once: an expression of few nodes can have any number of paths.
type scaling struct {
	g      *graph
	ofPair []bool
	done   map[ref]ref
}

// takes says of each value whether it can be multiplied by a number without an operation more for a pair.
func (s *scaling) takes() []bool {
	takes := make([]bool, len(s.g.values))
	for i := range s.g.values {
		v := &s.g.values[i]
		switch v.op {
		case opConst:
			takes[i] = scalable(math.Float64frombits(v.bits))
			continue
		case opS:
			takes[i] = true
		case opNeg:
			takes[i] = takes[v.args[0]]
		case opAdd, opSub, opMin, opMax:
			takes[i] = takes[v.args[0]] && takes[v.args[1]]
		case opMul:
			_, other := s.factors(*v)
			c, constant := s.g.constant(other)
			takes[i] = !s.ofPair[other] && !(constant && !scalable(math.Float64frombits(c)))
		}
		takes[i] = takes[i] || !s.ofPair[i]
	}
	return takes
}

// times is a value that takes the factor times that.
func (s *scaling) times(r ref) ref {
	if x, ok := s.done[r]; ok {
		return x
	}
	g, v := s.g, s.g.values[r]
	var x ref
	switch {
	case v.op == opConst || v.op == opS:
		x = g.apply(opMul, r, g.float(math.Log2E))
	case !s.ofPair[r]: // as a whole: of a product or sum that is finite, a part times log₂e may be infinite
		x = inFarBits(g, r)
	case v.op == opNeg:
		x = g.apply(opNeg, s.times(v.args[0]))
	case v.op == opMul:
		pair, other := s.factors(v)
		x = g.apply(opMul, pair, s.times(other))
	default:
		x = g.apply(v.op, s.times(v.args[0]), s.times(v.args[1]))
	}
	s.done[r] = x
	return x
}

// factors are those of a product of the pair; the second does not depend on the pair, if one does not.
func (s *scaling) factors(v value) (pair, other ref) {
	pair, other = v.args[0], v.args[1]
	if !s.ofPair[pair] {
		pair, other = other, pair
	}
	return pair, other
}

// ofPairs says of each value whether it depends on the pair of query and key.
func (g *graph) ofPairs() []bool {
	of := make([]bool, len(g.values))
	for i := range g.values {
		v := &g.values[i]
		switch v.op {
		case opS, opQuery, opKey, opPosition, opAhead:
			of[i] = true
		}
		for _, a := range v.operands() {
			of[i] = of[i] || of[a]
		}
	}
	return of
}
