package specialize

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/spirv"
)

// builder writes modules of one function.
type builder struct {
	head, globals, code []uint32
	last                uint32 // identifier
	void, boolean, int  uint32
	pointer             uint32
	constants           map[uint32]uint32
	block               uint32 // the open block's label, 0 behind its end
}

func newBuilder() *builder {
	b := &builder{constants: map[uint32]uint32{}}
	b.void, b.boolean, b.int, b.pointer = b.id(), b.id(), b.id(), b.id()
	b.global(opTypeVoid, b.void)
	b.global(opTypeBool, b.boolean)
	b.global(opTypeInt, b.int, 32, 0)
	b.global(opTypePointer, b.pointer, 12, b.int)
	return b
}

const (
	opTypeVoid     = 19
	opTypeFunction = 33
	opTypePointer  = 32
	opLoad         = 61
)

func (b *builder) id() uint32 { b.last++; return b.last }

func (b *builder) global(op uint32, a ...uint32) {
	b.globals = append(b.globals, spirv.Instruction(op, a...)...)
}

// emit writes an instruction without result, and op one with an identifier.
func (b *builder) emit(op uint32, a ...uint32) {
	b.code = append(b.code, spirv.Instruction(op, a...)...)
	if terminates(op) {
		b.block = 0
	}
}

func (b *builder) op(typ, op uint32, a ...uint32) uint32 {
	id := b.id()
	b.emit(op, append([]uint32{typ, id}, a...)...)
	return id
}

func (b *builder) label(id uint32) {
	b.emit(opLabel, id)
	b.block = id
}

func (b *builder) constant(v uint32) uint32 {
	if b.constants[v] == 0 {
		b.constants[v] = b.id()
		b.global(opConstant, b.int, b.constants[v], v)
	}
	return b.constants[v]
}

func (b *builder) variable() uint32 {
	id := b.id()
	b.global(opVariable, b.pointer, id, 12)
	return id
}

// spec is a specialization constant; opSpecTrue and opSpecFalse make bools.
func (b *builder) spec(op, number, v uint32) uint32 {
	id := b.id()
	b.head = append(b.head, spirv.Instruction(opDecorate, id, specIDDeco, number)...)
	if op == opSpecConstant {
		b.global(op, b.int, id, v)
	} else {
		b.global(op, b.boolean, id)
	}
	return id
}

// module is the whole, with the code in a function.
func (b *builder) module() []uint32 {
	typ, f := b.id(), b.id()
	out := []uint32{spirv.Magic, 0x00010300, 0, b.last + 1, 0}
	out = slices.Concat(out, b.head, b.globals, spirv.Instruction(opTypeFunction, typ, b.void),
		spirv.Instruction(opFunction, b.void, f, 0, typ), b.code, spirv.Instruction(opFunctionEnd))
	return out
}

// writer of random programs: of integers, with selections and loops in one another, values that meet at their ends, ways out of both, and
// stores, which are what can be seen of a program.
type program struct {
	*builder
	t        *rapid.T
	out      []uint32 // variables to store to
	in       []uint32 // and to load from
	given    map[uint32]uint32
	bools    []uint32 // that are constant
	loops    []*loop
	left     int // statements that may follow
	headings int
}

// loop is one that is open: who leaves it, or goes on in it, brings a value.
type loop struct {
	merge, next    uint32
	leaves, goesOn []uint32 // value and label, in turn
}

func newProgram(t *rapid.T) *program {
	p := &program{builder: newBuilder(), t: t, given: map[uint32]uint32{}, left: 30}
	for range 2 {
		p.in, p.out = append(p.in, p.variable()), append(p.out, p.variable())
	}
	values := []uint32{p.constant(0), p.constant(1), p.constant(2)}
	number := uint32(0)
	for range rapid.IntRange(0, 3).Draw(t, "integers") {
		values = append(values, p.spec(opSpecConstant, number, p.small()))
		number++
	}
	for range rapid.IntRange(0, 3).Draw(t, "bools") {
		p.bools = append(p.bools, p.spec(rapid.SampledFrom([]uint32{opSpecTrue, opSpecFalse}).Draw(t, "default"), number, 0))
		number++
	}
	for i := range number {
		if rapid.Bool().Draw(t, "given") {
			p.given[i] = p.small()
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "operations") {
		id, op := p.id(), rapid.SampledFrom([]uint32{opIAdd, opISub, opIMul, opUDiv, opUMod, opBitwiseXor}).Draw(t, "of constants")
		p.global(opSpecOp, p.int, id, op, p.any(values), p.any(values))
		values = append(values, id)
	}
	p.label(p.id())
	for _, v := range p.in {
		values = append(values, p.op(p.int, opLoad, v))
	}
	p.statements(values)
	if p.block != 0 {
		p.emit(opReturn)
	}
	return p
}

func (p *program) small() uint32 { return uint32(rapid.IntRange(0, 3).Draw(p.t, "small")) }
func (p *program) any(values []uint32) uint32 {
	return rapid.SampledFrom(values).Draw(p.t, "value")
}

func (p *program) condition(values []uint32) uint32 {
	switch rapid.IntRange(0, 3).Draw(p.t, "condition") {
	case 0:
		if len(p.bools) > 0 {
			return p.any(p.bools)
		}
	case 1:
		if len(p.bools) > 0 {
			return p.op(p.boolean, rapid.SampledFrom([]uint32{opLogicalAnd, opLogicalOr, opLogicalNotEqual}).Draw(p.t, "logic"),
				p.any(p.bools),
				p.op(p.boolean, opULessThan, p.any(values), p.any(values)))
		}
	}
	return p.op(p.boolean, rapid.SampledFrom([]uint32{opIEqual, opINotEqual, opULessThan, opSGreaterThan, opUGreaterThanEqual}).Draw(p.t,
		"comparison"), p.any(values), p.any(values))
}

// statements writes some, and gives the values that can be used behind them.
func (p *program) statements(values []uint32) []uint32 {
	for range rapid.IntRange(1, 4).Draw(p.t, "statements") {
		if p.left--; p.left < 0 || p.block == 0 {
			return values
		}
		switch rapid.IntRange(0, 7).Draw(p.t, "statement") {
		case 0, 1:
			values = append(values, p.op(p.int, rapid.SampledFrom([]uint32{opIAdd, opISub, opIMul, opShiftLeft, opUDiv}).Draw(p.t,
				"operation"), p.any(values), p.any(values)))
		case 2:
			values = append(values, p.op(p.int, opSelect, p.condition(values), p.any(values), p.any(values)))
		case 3:
			p.emit(opStore, p.any(p.out), p.any(values))
		case 4:
			values = p.selection(values)
		case 5:
			values = p.choice(values)
		case 6:
			values = p.loop(values)
		case 7:
			p.way(values)
		}
	}
	return values
}

// way leaves or continues a loop if a condition holds, or returns.
func (p *program) way(values []uint32) {
	if len(p.loops) == 0 {
		return
	}
	l, behind := p.loops[len(p.loops)-1], p.id()
	c, v := p.condition(values), p.any(values)
	if rapid.Bool().Draw(p.t, "leave") {
		l.leaves = append(l.leaves, v, p.block)
		p.emit(opBranchConditional, c, l.merge, behind)
	} else {
		l.goesOn = append(l.goesOn, v, p.block)
		p.emit(opBranchConditional, c, behind, l.next)
	}
	p.label(behind)
}

// side is one of a selection: statements, and then to its end, or out of everything.
func (p *program) side(label uint32, values []uint32, merge uint32, came *[]uint32) {
	p.label(label)
	values = p.statements(slices.Clone(values))
	if p.block == 0 {
		return
	}
	switch rapid.IntRange(0, 5).Draw(p.t, "end") {
	case 0:
		p.emit(opReturn)
		return
	case 1:
		if len(p.loops) > 0 {
			l := p.loops[len(p.loops)-1]
			l.leaves = append(l.leaves, p.any(values), p.block)
			p.emit(opBranch, l.merge)
			return
		}
	}
	*came = append(*came, p.any(values), p.block)
	p.emit(opBranch, merge)
}

func (p *program) end(merge uint32, came, values []uint32) []uint32 {
	p.label(merge)
	if len(came) == 0 {
		p.emit(opUnreachable)
		return values
	}
	if rapid.Bool().Draw(p.t, "nothing meets") {
		return values
	}
	return append(values, p.op(p.int, opPhi, came...))
}

func (p *program) selection(values []uint32) []uint32 {
	yes, no, merge := p.id(), p.id(), p.id()
	var came []uint32
	c := p.condition(values)
	p.emit(opSelectionMerge, merge, 0)
	if rapid.Bool().Draw(p.t, "one side") {
		came = append(came, p.any(values), p.block)
		if rapid.Bool().Draw(p.t, "the other") {
			p.emit(opBranchConditional, c, merge, yes)
		} else {
			p.emit(opBranchConditional, c, yes, merge)
		}
		p.side(yes, values, merge, &came)
	} else {
		p.emit(opBranchConditional, c, yes, no)
		p.side(yes, values, merge, &came)
		p.side(no, values, merge, &came)
	}
	return p.end(merge, came, values)
}

func (p *program) choice(values []uint32) []uint32 {
	other, merge := p.id(), p.id()
	cases := []uint32{p.id(), p.id()}
	var came []uint32
	of := p.any(values)
	p.emit(opSelectionMerge, merge, 0)
	p.emit(opSwitch, of, other, 1, cases[0], 2, cases[1])
	for _, l := range append(cases, other) {
		p.side(l, values, merge, &came)
	}
	return p.end(merge, came, values)
}

// loop counts to a value, at most 3 from outside, and carries another one round.
func (p *program) loop(values []uint32) []uint32 {
	header, body, l := p.id(), p.id(), &loop{merge: p.id(), next: p.id()}
	most := p.op(p.int, opBitwiseAnd, p.any(values), p.constant(3))
	before, first := p.block, p.any(values)
	p.emit(opBranch, header)
	p.label(header)
	i, carried, nextI, nextCarried := p.id(), p.id(), p.id(), p.id()
	p.emit(opPhi, p.int, i, p.constant(0), before, nextI, l.next)
	p.emit(opPhi, p.int, carried, first, before, nextCarried, l.next)
	inside := append(slices.Clone(values), i, carried)
	more := p.op(p.boolean, opULessThan, i, most)
	l.leaves = []uint32{carried, header}
	p.emit(opLoopMerge, l.merge, l.next, rapid.Uint32Range(0, loopUnroll).Draw(p.t, "unroll"))
	p.emit(opBranchConditional, more, body, l.merge)
	p.label(body)
	p.loops = append(p.loops, l)
	inside = p.statements(inside)
	p.loops = p.loops[:len(p.loops)-1]
	if p.block != 0 {
		l.goesOn = append(l.goesOn, p.any(inside), p.block)
		p.emit(opBranch, l.next)
	}
	p.label(l.next)
	came := p.constant(0)
	if len(l.goesOn) > 0 {
		came = p.op(p.int, opPhi, l.goesOn...)
	}
	p.emit(opIAdd, p.int, nextCarried, came, p.constant(1))
	p.emit(opIAdd, p.int, nextI, i, p.constant(1))
	p.emit(opBranch, header)
	return p.end(l.merge, l.leaves, values)
}
