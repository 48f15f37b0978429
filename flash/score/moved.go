package score

// Places says where part of a longer problem lies in the whole: added to the Query, Key, Head, Batch and Position that a function is asked
// for in the part, they give those of the whole.
type Places struct{ Query, Key, Head, Position, Batch int }

// Moved is the function shifted: its s′ at (query, key) is that of f at (query + Query, key + Key), and so on. Functions moved to other
// places have the same code: the places are values of a table. It is an error if one of them, or Position − Key, does not fit 32 bits.
func (f Function) Moved(to Places) (Function, error) {
	if err := f.Err(); err != nil || f.Identity() {
		return f, err
	}
	return build(moved(f.get().parts, to))
}

// Moved is the mask function shifted, as [Function.Moved].
func (m MaskFunction) Moved(to Places) (MaskFunction, error) {
	if err := m.Err(); err != nil || m.Everything() {
		return m, err
	}
	return buildMask(moved(m.get().parts, to))
}

// moved replaces the inputs of expressions.
func moved(stages []*node, to Places) []*node {
	var values []int32
	for _, v := range []int{to.Query, to.Key, to.Head, to.Position, to.Position - to.Key, to.Batch} {
		n := ConstInt(v).n
		if n.err != nil {
			return []*node{bad("Moved(%+v): places, and Position − Key, must fit 32 bits", to)}
		}
		values = append(values, int32(n.bits))
	}
	table := TableInt(values, len(values))
	at := func(i int) Int { return table.At(ConstInt(i)) }
	by := map[op]Int{opQuery: at(0), opKey: at(1), opHead: at(2), opPosition: at(3), opBatch: at(5)}
	ahead := at(4).Float() // how much further the query is ahead of the key
	done := map[*node]*node{}
	var move func(n *node) *node
	move = func(n *node) *node {
		if n == nil || n.err != nil {
			return n
		}
		if m := done[n]; m != nil {
			return m
		}
		m := n
		if d, input := by[n.op]; input {
			m = combine(opAdd, kindInt, n, d.n)
		} else if sign := distance(n); sign != 0 { // which kernels have at hand
			o := opAdd
			if sign < 0 {
				o = opSub
			}
			m = combine(o, kindFloat, n, ahead.n)
		} else if len(n.args) > 0 {
			c := *n
			c.args = make([]*node, len(n.args))
			for i, a := range n.args {
				c.args[i] = move(a)
			}
			m = &c
			for _, a := range c.args {
				if a != nil && a.err != nil {
					m = &node{err: a.err}
				} else if a != nil {
					m.depth = max(m.depth, a.depth+1)
				}
			}
			if m.depth >= MaxNodes {
				m = bad("an expression is more than %d operations deep at other places", MaxNodes)
			}
		}
		done[n] = m
		return m
	}
	out := make([]*node, len(stages))
	for i, n := range stages {
		out[i] = move(n)
	}
	return out
}

// distance is 1 for the query's position minus the key, as floats, −1 for the reverse, and 0 for anything else.
func distance(n *node) int {
	is := func(x *node, o op) bool {
		return x != nil && x.op == opToFloat && x.args[0] != nil && x.args[0].op == o
	}
	switch {
	case n.op != opSub || len(n.args) != 2:
		return 0
	case is(n.args[0], opPosition) && is(n.args[1], opKey):
		return 1
	case is(n.args[0], opKey) && is(n.args[1], opPosition):
		return -1
	}
	return 0
}
