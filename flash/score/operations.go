package score

import "math"

// code is an instruction for an operation: of SPIR-V itself, or of GLSL.std.450.
type code struct {
	op       uint32
	extended bool
}

var floatCodes = map[op]code{opAdd: {op: spvFAdd}, opSub: {op: 131}, opMul: {op: spvFMul}, opDiv: {op: spvFDiv}, opNeg: {op: 127},
	opMin: {37, true}, opMax: {40, true},
	opAbs: {4, true}, opSign: {6, true}, opExp2: {29, true}, opLog2: {30, true}, opLess: {op: 184}, opLessEqual: {op: 188},
	opEqual:    {op: 180},
	opNotEqual: {op: 183}, opSelect: {op: spvSelect}}

var intCodes = map[op]code{opAdd: {op: 128}, opSub: {op: 130}, opMul: {op: 132}, opNeg: {op: 126}, opMin: {39, true}, opMax: {42, true},
	opAbs:        {5, true},
	opShiftRight: {op: 195}, opBitAnd: {op: 199}, opBitXor: {op: 198}, opLess: {op: 177}, opLessEqual: {op: 179}, opEqual: {op: 170},
	opNotEqual: {op: 171}, opSelect: {op: spvSelect}, opToFloat: {op: spvConvertSToF}}

var boolCodes = map[op]code{opAnd: {op: 167}, opOr: {op: 166}, opNot: {op: 168}, opSelect: {op: spvSelect}}

// value writes one value of a fragment, whose operands are written.
func (e *emitter) value(f *fragment, r ref, at []operand) operand {
	v := &f.g.values[r]
	args := make([]operand, arity(v.op))
	for i, a := range v.operands() {
		args[i] = at[a]
	}
	switch v.op {
	case opConst:
		return e.literal(v)
	case opS, opBatch, opHead, opQuery, opKey, opPosition:
		return e.input(v.op)
	case opLoad:
		return e.load(f.slots[v.bits], v.kind, args[0])
	case opQuotient:
		a, b := e.make(spvBitcast, e.typeUint(), args[0]), e.make(spvBitcast, e.typeUint(), args[1])
		return e.make(spvBitcast, e.typeInt(), e.make(spvUDiv, e.typeUint(), a, b))
	case opLogistic: // by an inverse square root: a division takes care of quotients that are no normal numbers, five instructions more
		root := e.extended(32, e.p.float, e.make(spvFAdd, e.p.float, e.extended(29, e.p.float, args[0]), e.float(1)))
		return e.make(spvFMul, e.p.float, root, root)
	case opAhead:
		return e.ahead()
	case opToFloat:
		if x, ok := e.converted(f.g.values[v.args[0]].op); ok {
			return x
		}
	case opAdd, opSub:
		if x, ok := e.contracted(f, v, args); ok {
			return x
		}
	case opMul:
		if factors, ok := e.factors(f, r); ok {
			return e.make(spvFMul, e.p.float, factors[0], factors[1])
		}
	}
	codes := floatCodes
	switch k := f.g.kind(v.args[len(args)-1]); {
	case v.op == opToFloat, k == kindInt:
		codes = intCodes
	case k == kindBool:
		codes = boolCodes
	}
	if c := codes[v.op]; c.extended {
		return e.extended(c.op, e.typeOf(v.kind), args...)
	}
	return e.make(codes[v.op].op, e.typeOf(v.kind), args...)
}

func (e *emitter) literal(v *value) operand {
	switch v.kind {
	case kindInt:
		return e.int(int32(v.bits))
	case kindBool: // identities leave one only as a whole mask
		return e.make(170, e.typeBool(), e.int(1), e.int(int32(v.bits)))
	}
	return e.float(float32(math.Float64frombits(v.bits)))
}

// input is what the hook says of the pair.
func (e *emitter) input(o op) operand {
	if x, ok := e.inputs[o]; ok {
		return x
	}
	var x operand
	switch o {
	case opS:
		x = e.component(e.h.first, 0)
		x.spot = e.h.at
	case opBatch:
		x = e.integer(e.component(e.h.first, 1))
	case opHead:
		x = e.integer(e.component(e.h.first, 2))
	case opQuery:
		x = e.integer(e.component(e.h.first, 3))
	case opKey:
		x = e.integer(e.component(e.h.second, 0))
	case opPosition:
		x = e.integer(e.component(e.h.second, 1))
	}
	e.inputs[o] = x
	return x
}

// converted is an input as a float where the hook has it so.
func (e *emitter) converted(o op) (operand, bool) {
	key, ok := e.cheap(2)
	switch {
	case o == opKey:
		return key, ok
	case o == opPosition && ok:
		if ahead, ok := e.cheap(3); ok {
			return e.make(spvFAdd, e.p.float, key, ahead), true
		}
	}
	return operand{}, false
}

// ahead is how far the query's position is ahead of the key, as a float.
func (e *emitter) ahead() operand {
	if x, ok := e.cheap(3); ok {
		return x
	}
	return e.make(spvConvertSToF, e.p.float, e.make(130, e.typeInt(), e.input(opPosition), e.input(opKey)))
}

// cheap is a component of the hook's second vector, unless the kernel has none for it.
func (e *emitter) cheap(n uint32) (operand, bool) {
	x := e.component(e.h.second, n)
	_, isConstant := e.p.values[x.id]
	d, ok := e.p.defs[x.id]
	return x, ok && !isConstant && d.function >= 0
}

// contracted is s + x, s − x or x − s as one instruction, where the kernel made s by a multiplication.
func (e *emitter) contracted(f *fragment, v *value, args []operand) (operand, bool) {
	if v.kind != kindFloat {
		return operand{}, false
	}
	s, other := 0, 1
	factors, ok := e.factors(f, v.args[0])
	if !ok {
		s, other = 1, 0
		factors, ok = e.factors(f, v.args[1])
	}
	if !ok || v.args[0] == v.args[1] {
		return operand{}, false
	}
	x := args[other]
	if v.op == opSub {
		negated := &x
		if s == 1 {
			negated = &factors[0]
		}
		*negated = e.make(floatCodes[opNeg].op, e.p.float, *negated)
	}
	return e.extended(50, e.p.float, factors[0], factors[1], x), true
}

// factors are those of s, or of s times what does not depend on the pair, where the kernel made s by a multiplication; what does not depend
// on the pair is the second then.
func (e *emitter) factors(f *fragment, r ref) (factors [2]operand, ok bool) {
	v := &f.g.values[r]
	switch {
	case v.op == opS:
		return e.product(e.input(opS).id)
	case v.op == opMul && f.g.values[v.args[0]].op == opS:
		w, constant := f.g.constant(v.args[1])
		if factors, ok = e.product(e.input(opS).id); !ok || !constant {
			return factors, false
		}
		if factors[0].spot < factors[1].spot {
			factors[0], factors[1] = factors[1], factors[0]
		}
		factors[1] = e.make(spvFMul, e.p.float, factors[1], e.float(float32(math.Float64frombits(w))))
		return factors, true
	}
	return factors, false
}

// product is what a value of the module is the product of.
func (e *emitter) product(id uint32) (factors [2]operand, ok bool) {
	d, ok := e.p.defs[id]
	if !ok || e.p.words[d.at] != 5<<16|spvFMul {
		return factors, false
	}
	for i := range factors {
		factors[i] = e.known(e.p.words[d.at+3+i])
	}
	return factors, true
}

// component is a component of one of the hook's vectors, as near as can be to where it is made.
func (e *emitter) component(vector, n uint32) operand {
	if d, ok := e.p.defs[vector]; ok {
		words := e.p.words[d.at : d.at+int(e.p.words[d.at]>>16)]
		switch words[0] & 0xffff {
		case spvCompositeConstruct, spvConstantComposite, spvSpecComposite:
			if len(words) == 7 { // otherwise vectors are among its parts
				return e.known(words[3+n])
			}
		}
	}
	return e.make(spvCompositeExtract, e.p.float, operand{vector, e.h.at}, operand{id: n}) // n is a literal, which is written the same way
}

// known is an identifier of the module with its spot.
func (e *emitter) known(id uint32) operand {
	d, ok := e.p.defs[id]
	switch {
	case ok && d.function < 0:
		return operand{id: id}
	case !ok || d.function != e.h.function || e.p.after(d) > e.h.at:
		return operand{id, e.h.at}
	}
	return operand{id, e.p.after(d)}
}

// integer is an int whose bits the hook passes as a float: what was converted to it, if that can be seen.
func (e *emitter) integer(x operand) operand {
	for range 8 {
		d, ok := e.p.defs[x.id]
		if !ok {
			break
		}
		op := e.p.words[d.at] & 0xffff
		if (op != spvBitcast && op != spvCopyObject) || e.p.words[d.at]>>16 != 4 {
			break
		}
		if _, ok := e.p.defs[e.p.words[d.at+3]]; !ok { // not one of 32 bits
			break
		}
		x = e.known(e.p.words[d.at+3])
	}
	if d, ok := e.p.defs[x.id]; ok && d.typ == e.intType && d.typ != 0 {
		return x
	}
	return e.make(spvBitcast, e.typeInt(), x)
}
