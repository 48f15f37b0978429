package score

import (
	"errors"
	"fmt"
)

// builder turns expressions, as users wrote them, into values of one graph.
type builder struct {
	g       *graph
	tensors []*tensor     // in the order in which expressions first read them
	done    map[*node]ref // of the expression at work
	nodes   int           // of all expressions
	s       ref           // what S stands for
	noS     bool          // S may not be read
	err     error         // the first mistake
}

func newBuilder() *builder {
	g := newGraph(false)
	return &builder{g: g, s: g.put(value{op: opS, kind: kindFloat})}
}

// expression adds one expression and returns its value; S in it stands for b.s.
func (b *builder) expression(n *node, want kind) (ref, error) {
	switch {
	case n == nil:
		return 0, errors.New("score: the expression is a zero value, made by no function of this package")
	case n.err != nil:
		return 0, n.err
	case n.kind != want:
		return 0, errors.New("score: the expression is of the wrong type")
	}
	b.done = map[*node]ref{}
	r := b.node(n)
	return r, b.err
}

func (b *builder) node(n *node) ref {
	if r, ok := b.done[n]; ok || b.err != nil {
		return r
	}
	if b.nodes++; b.nodes > MaxNodes {
		b.err = fmt.Errorf("score: more than %d operations, inputs and constants", MaxNodes)
		return 0
	}
	var args [4]ref
	for i, a := range n.args {
		if args[i] = b.node(a); b.err != nil {
			return 0
		}
	}
	var r ref
	switch n.op {
	case opS:
		if b.noS {
			b.err = errors.New("score: a mask function may not read S: which pairs take part must be known before their scores")
			return 0
		}
		r = b.s
	case opBatch, opHead, opQuery, opKey, opPosition, opConst:
		r = b.g.put(value{op: n.op, kind: n.kind, bits: n.bits})
	case opLoad:
		r = b.load(n, args[:len(n.args)])
	default:
		r = b.g.apply(n.op, args[:len(n.args)]...)
	}
	b.done[n] = r
	return r
}

// load is an element at indices that are clamped into the shape and flattened.
func (b *builder) load(n *node, index []ref) ref {
	slot, err := slotOf(&b.tensors, n.tensor)
	if err != nil {
		b.err = err
		return 0
	}
	g := b.g
	flat := g.int(0)
	for i, x := range index {
		d := int32(n.tensor.Shape[i])
		x = g.apply(opMin, g.apply(opMax, x, g.int(0)), g.int(d-1))
		flat = g.apply(opAdd, g.apply(opMul, flat, g.int(d)), x)
	}
	return g.put(value{op: opLoad, kind: n.kind, args: [3]ref{flat}, bits: uint64(slot)})
}

// slotOf is the place of t in a list of tensors, at whose end it is put if it is new.
func slotOf(list *[]*tensor, t *tensor) (int, error) {
	for i, u := range *list {
		switch same, err := u.same(t); {
		case err != nil:
			return 0, err
		case same:
			return i, nil
		}
	}
	*list = append(*list, t)
	return len(*list) - 1, nil
}

// describe lists tensors as users see them.
func describe(list []*tensor) []Tensor {
	out := make([]Tensor, len(list))
	for i, t := range list {
		out[i] = t.Tensor
	}
	return out
}
