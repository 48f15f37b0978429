package score

import "math"

// inBits is a value times log₂e, the unit in which kernels take exponentials. The factor goes to where it costs nothing: into constants, into what
// does not depend on the pair of query and key, into s, which kernels have as a product.
func inBits(g *graph, r ref) ref {
	s := scaling{g: g, ofPair: g.ofPairs(), done: map[ref]ref{}}
	if !s.takes()[r] {
		return g.apply(opMul, r, g.float(math.Log2E))
	}
	return s.times(r)
}

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
		case opConst, opS:
			takes[i] = true
		case opNeg:
			takes[i] = takes[v.args[0]]
		case opAdd, opSub, opMin, opMax:
			takes[i] = takes[v.args[0]] && takes[v.args[1]]
		case opMul:
			takes[i] = !s.ofPair[v.args[0]] || !s.ofPair[v.args[1]]
		default:
			takes[i] = !s.ofPair[i]
		}
	}
	return takes
}

// times is a value that takes the factor times that.
func (s *scaling) times(r ref) ref {
	if x, ok := s.done[r]; ok {
		return x
	}
	g, v := s.g, s.g.values[r]
	factor := g.float(math.Log2E)
	var x ref
	switch v.op {
	case opNeg:
		x = g.apply(opNeg, s.times(v.args[0]))
	case opAdd, opSub, opMin, opMax:
		x = g.apply(v.op, s.times(v.args[0]), s.times(v.args[1]))
	case opMul:
		pair, other := v.args[0], v.args[1]
		if !s.ofPair[pair] {
			pair, other = other, pair
		}
		x = g.apply(opMul, pair, g.apply(opMul, other, factor))
	default:
		x = g.apply(opMul, r, factor)
	}
	s.done[r] = x
	return x
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
