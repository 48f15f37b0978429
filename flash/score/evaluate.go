package score

import (
	"fmt"
	"math"
)

// Point is a pair of a query and a key, and its score.
type Point struct {
	S                       float64 // scaled score
	Batch, Head, Query, Key int
	Position                int // Query + Nk − Nq
}

// Data holds the values of captured tensors by name, []float32 or []int32, row-major. Tables are not among them.
type Data map[string]any

// program computes values of a graph, each step into a register of its own.
type program struct {
	steps   []step
	results []int32
	floats  [][]float32 // by the number of the captured tensor
	ints    [][]int32
}

type step struct {
	op      op
	kind    kind // of the operands
	a, b, c int32
	bits    uint64
}

// compile makes the program for roots, with what they capture.
func compile(g *graph, tensors []*tensor, data Data, roots ...ref) (*program, error) {
	p := &program{floats: make([][]float32, len(tensors)), ints: make([][]int32, len(tensors))}
	for i, t := range tensors {
		if err := p.capture(i, t, data); err != nil {
			return nil, err
		}
	}
	used, register := g.reachable(roots...), make([]int32, len(g.values))
	for r, v := range g.values {
		if !used[r] {
			continue
		}
		register[r] = int32(len(p.steps))
		s := step{op: v.op, kind: v.kind, a: register[v.args[0]], b: register[v.args[1]], c: register[v.args[2]], bits: v.bits}
		if n := arity(v.op); n > 0 && v.op != opLoad {
			s.kind = g.kind(v.args[0])
		}
		p.steps = append(p.steps, s)
	}
	for _, r := range roots {
		p.results = append(p.results, register[r])
	}
	return p, nil
}

func (p *program) capture(i int, t *tensor, data Data) error {
	p.floats[i], p.ints[i] = t.Floats, t.Ints
	if t.Table() {
		return nil
	}
	n := 0
	switch v := data[t.Name].(type) {
	case []float32:
		if t.Type == Float32 {
			p.floats[i], n = v, len(v)
		}
	case []int32:
		if t.Type == Int32 {
			p.ints[i], n = v, len(v)
		}
	}
	if n != t.Elements() {
		return fmt.Errorf("score: the values of %s, are a %T of %d: they must be %d of %v", t.describe(), data[t.Name], n,
			t.Elements(), t.Type)
	}
	return nil
}

// run fills registers.
func (p *program) run(at *Point, registers []uint64) {
	for i := range p.steps {
		s := &p.steps[i]
		var w uint64
		switch s.op {
		case opConst:
			w = s.bits
		case opS:
			w = math.Float64bits(at.S)
		case opBatch:
			w = wordOfInt(int32(at.Batch))
		case opHead:
			w = wordOfInt(int32(at.Head))
		case opQuery:
			w = wordOfInt(int32(at.Query))
		case opKey:
			w = wordOfInt(int32(at.Key))
		case opPosition:
			w = wordOfInt(int32(at.Position))
		case opLoad:
			n := int32(registers[s.a])
			if s.kind == kindFloat {
				w = math.Float64bits(float64(p.floats[s.bits][n]))
			} else {
				w = wordOfInt(p.ints[s.bits][n])
			}
		default:
			w = compute(s.op, s.kind, registers[s.a], registers[s.b], registers[s.c])
		}
		registers[i] = w
	}
}

// two computes the first two results.
func (p *program) two(at *Point) (first, second uint64) {
	var few [48]uint64
	registers := few[:]
	if len(p.steps) > len(few) {
		registers = make([]uint64, len(p.steps))
	}
	p.run(at, registers)
	return registers[p.results[0]], registers[p.results[len(p.results)-1]]
}
