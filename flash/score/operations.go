package score

import "math"

// code is an instruction for an operation: of SPIR-V itself, or of GLSL.std.450.
type code struct {
	op       uint32
	extended bool
}

var floatCodes = map[op]code{opAdd: {op: spvFAdd}, opSub: {op: 131}, opMul: {op: 133}, opDiv: {op: spvFDiv}, opNeg: {op: 127}, opMin: {37, true}, opMax: {40, true},
	opAbs: {4, true}, opSign: {6, true}, opExp2: {29, true}, opLog2: {30, true}, opLess: {op: 184}, opLessEqual: {op: 188}, opEqual: {op: 180},
	opNotEqual: {op: 183}, opSelect: {op: spvSelect}}

var intCodes = map[op]code{opAdd: {op: 128}, opSub: {op: 130}, opMul: {op: 132}, opNeg: {op: 126}, opMin: {39, true}, opMax: {42, true}, opAbs: {5, true},
	opShiftRight: {op: 195}, opBitAnd: {op: 199}, opBitXor: {op: 198}, opLess: {op: 177}, opLessEqual: {op: 179}, opEqual: {op: 170},
	opNotEqual: {op: 171}, opSelect: {op: spvSelect}, opToFloat: {op: 111}}

var boolCodes = map[op]code{opAnd: {op: 167}, opOr: {op: 166}, opNot: {op: 168}, opSelect: {op: spvSelect}}

// value writes one value of a fragment, whose operands are written.
func (e *emitter) value(f *fragment, v *value, at []operand) operand {
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
	case opLogistic:
		sum := e.make(spvFAdd, e.p.float, e.extended(29, e.p.float, args[0]), e.float(1))
		return e.make(spvFDiv, e.p.float, e.float(1), sum)
	case opToFloat:
		if x, ok := e.converted(f.g.values[v.args[0]].op); ok {
			return x
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
	var x operand
	switch o {
	case opKey:
		x = e.component(e.h.second, 2)
	case opPosition:
		x = e.component(e.h.second, 3)
	default:
		return x, false
	}
	_, isConstant := e.p.values[x.id]
	d, ok := e.p.defs[x.id]
	return x, ok && !isConstant && d.function >= 0
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
	case !ok || d.function != e.h.function || e.p.after(d.at) > e.h.at:
		return operand{id, e.h.at}
	}
	return operand{id, e.p.after(d.at)}
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
