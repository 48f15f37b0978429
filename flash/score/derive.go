package score

// derivative is ∂root/∂by: forward, value by value, so that a NaN on the side of a selection that is not taken stays there.
func (g *graph) derivative(root, by ref) ref {
	zero, used := g.float(0), g.reachable(root)
	d := map[ref]ref{by: g.float(1)}
	of := func(r ref) ref {
		if x, ok := d[r]; ok {
			return x
		}
		return zero
	}
	for r := by + 1; r <= root; r++ {
		if v := g.values[r]; used[r] && v.kind == kindFloat {
			if x := g.derive(r, v, of); x != zero {
				d[r] = x
			}
		}
	}
	return of(root)
}

// derive is the derivative of one value from those of its operands.
func (g *graph) derive(r ref, v value, of func(ref) ref) ref {
	a, b := v.args[0], v.args[1]
	switch v.op {
	case opAdd:
		return g.apply(opAdd, of(a), of(b))
	case opSub:
		return g.apply(opSub, of(a), of(b))
	case opMul:
		return g.apply(opAdd, g.apply(opMul, of(a), b), g.apply(opMul, a, of(b)))
	case opDiv: // (a/b)′ = (a′ − (a/b)·b′) / b
		return g.apply(opDiv, g.apply(opSub, of(a), g.apply(opMul, r, of(b))), b)
	case opNeg:
		return g.apply(opNeg, of(a))
	case opMin:
		return g.either(g.apply(opLessEqual, a, b), of(a), of(b))
	case opMax:
		return g.either(g.apply(opLessEqual, b, a), of(a), of(b))
	case opAbs:
		return g.apply(opMul, of(a), g.apply(opSign, a))
	case opExp:
		return g.apply(opMul, of(a), r)
	case opLog:
		return g.apply(opDiv, of(a), a)
	case opTanh:
		return g.apply(opMul, of(a), g.apply(opSech2, a))
	case opSelect:
		return g.either(a, of(b), of(v.args[2]))
	}
	return g.float(0)
}

func (g *graph) either(c, yes, no ref) ref { return g.apply(opSelect, c, yes, no) }
