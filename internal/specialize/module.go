package specialize

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/spirv"
)

// module is a module taken apart.
type module struct {
	words     []uint32
	given     map[uint32]uint32 // the constants' values by their SpecId
	specID    map[uint32]uint32 // SpecId by identifier
	bools     map[uint32]bool   // types of bools
	ints      map[uint32]bool   // and of integers of 32 bits
	floats    map[uint32]bool   // and of floats of 32 bits
	wideInts  bool              // there are integers of 64 bits
	values    []value           // by identifier
	functions []function
	globals   int // word of the first function
}

// state is what is known of an identifier.
type state uint8

const (
	unknown state = iota // not computed yet: by what is known, never
	constant
	varying
)

type value struct {
	state state
	bits  uint32
}

func (v value) is(bits uint32) bool { return v.state == constant && v.bits == bits }

// function is a range of words with blocks in it.
type function struct {
	begin, body, end int // words: of the function, its first block and behind its end
	blocks           []block
	index            map[uint32]int  // of a block, by label
	unrolled         map[uint32]bool // by label: continue targets of loops that are to be unrolled
}

// block is a label, instructions, and what ends it.
type block struct {
	label           uint32
	begin, end      int // words: behind the label, and behind the last instruction
	last            int // word of what ends it
	merge, loopNext uint32
	next            []uint32 // labels, the last instruction's successors
	live            []bool   // of each of them
	reachable       bool
}

// parse takes a module apart. It fails on what is none, and on what this package does not handle.
func parse(words []uint32, given map[uint32]uint32) (*module, error) {
	if len(words) < spirv.HeaderWords || words[0] != spirv.Magic {
		return nil, fmt.Errorf("specialize: not a SPIR-V module")
	}
	bound := words[spirv.BoundWord]
	if bound == 0 || bound > spirv.MaxBound {
		return nil, fmt.Errorf("specialize: the bound of identifiers is %d, must be from 1 to %d", bound, spirv.MaxBound)
	}
	m := &module{words: words, given: given, specID: map[uint32]uint32{}, bools: map[uint32]bool{}, ints: map[uint32]bool{},
		floats: map[uint32]bool{},
		values: make([]value, bound), globals: len(words)}
	var f *function
	var b *block
	for at := spirv.HeaderWords; at < len(words); {
		n := int(words[at] >> 16)
		if n == 0 || at+n > len(words) {
			return nil, fmt.Errorf("specialize: the instruction at word %d reaches beyond the module", at)
		}
		op, a := words[at]&0xffff, words[at+1:at+n]
		if err := known(op, a); err != nil {
			return nil, fmt.Errorf("specialize: word %d: %w", at, err)
		}
		switch {
		case op == opFunction:
			if f != nil {
				return nil, fmt.Errorf("specialize: word %d: a function in a function", at)
			}
			m.globals = min(m.globals, at)
			m.functions = append(m.functions, function{begin: at, index: map[uint32]int{}, unrolled: map[uint32]bool{}})
			f, b = &m.functions[len(m.functions)-1], nil
		case f == nil:
			if m.globals < len(words) {
				return nil, fmt.Errorf("specialize: word %d: an instruction behind functions", at)
			}
			if err := m.global(op, a); err != nil {
				return nil, fmt.Errorf("specialize: word %d: %w", at, err)
			}
		case op == opFunctionEnd:
			if b != nil {
				return nil, fmt.Errorf("specialize: word %d: a block without end", at)
			}
			f.end = at + n
			f = nil
		case op == opLabel:
			if b != nil {
				return nil, fmt.Errorf("specialize: word %d: a block in a block", at)
			}
			if len(f.blocks) == 0 {
				f.body = at
			}
			if _, ok := f.index[a[0]]; ok || int(a[0]) >= len(m.values) {
				return nil, fmt.Errorf("specialize: word %d: label %d again, or not below the bound %d", at, a[0], len(m.values))
			}
			f.index[a[0]] = len(f.blocks)
			f.blocks = append(f.blocks, block{label: a[0], begin: at + n})
			b = &f.blocks[len(f.blocks)-1]
		case b == nil:
			id := result(op, a)
			if int(id) >= len(m.values) {
				return nil, fmt.Errorf("specialize: word %d: identifier %d is not below the bound %d", at, id, len(m.values))
			}
			if len(f.blocks) == 0 { // a parameter
				m.values[id].state = varying
			}
		default:
			if err := m.inBlock(b, op, a); err != nil {
				return nil, fmt.Errorf("specialize: word %d: %w", at, err)
			}
			if op == opLoopMerge && a[2]&loopUnroll != 0 {
				f.unrolled[a[1]] = true
			}
			if terminates(op) {
				b.last, b.end = at, at+n
				b = nil
			}
		}
		at += n
	}
	if f != nil {
		return nil, fmt.Errorf("specialize: a function without end")
	}
	for i := range m.functions {
		if err := m.functions[i].check(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// operands is the least number of operands of instructions that the rest looks into.
var operands = [...]int{opUndef: 2, opName: 1, opTypeBool: 1, opTypeInt: 3, opTypeFloat: 2, opConstantTrue: 2, opConstantFalse: 2,
	opConstant: 3, opConstantComposite: 2, opConstantSampler: 2, opReplicated: 2, opSpecReplicated: 2, opVariable: 2,
	opConstantNull: 2, opSpecTrue: 2, opSpecFalse: 2, opSpecConstant: 3, opSpecComposite: 2, opSpecOp: 3, opFunction: 4,
	opDecorate: 2, opPhi: 2,
	opLoopMerge: 3, opSelectionMerge: 2, opLabel: 1, opBranch: 1, opBranchConditional: 3, opSwitch: 2, opDecorateID: 2, opDecorateString: 2}

// known checks that they are there.
func known(op uint32, a []uint32) error {
	if int(op) < len(operands) && len(a) < operands[op] {
		return fmt.Errorf("instruction %d has %d operands, must have %d", op, len(a), operands[op])
	}
	return nil
}

func (m *module) global(op uint32, a []uint32) error {
	set := func(id uint32, v value) error {
		if id == 0 || int(id) >= len(m.values) {
			return fmt.Errorf("identifier %d is not below the bound %d", id, len(m.values))
		}
		m.values[id] = v
		return nil
	}
	switch op {
	case opGroupDecorate, opGroupMember, opDecorationGroup:
		return fmt.Errorf("decorations by groups are not handled")
	case opDecorate:
		if a[1] == specIDDeco && len(a) == 3 {
			m.specID[a[0]] = a[2]
		}
	case opTypeBool:
		m.bools[a[0]] = true
	case opTypeInt:
		m.ints[a[0]] = a[1] == 32
		m.wideInts = m.wideInts || a[1] > 32
	case opTypeFloat:
		m.floats[a[0]] = a[1] == 32
	case opConstantTrue:
		return set(a[1], value{constant, 1})
	case opConstantFalse:
		return set(a[1], value{constant, 0})
	case opConstant:
		if m.ints[a[0]] {
			return set(a[1], value{constant, a[2]})
		}
		return set(a[1], value{state: varying})
	case opConstantNull:
		if m.ints[a[0]] || m.bools[a[0]] {
			return set(a[1], value{constant, 0})
		}
		return set(a[1], value{state: varying})
	case opSpecTrue, opSpecFalse:
		bits := uint32(0)
		if v, ok := m.value(a[1]); ok && v != 0 || !ok && op == opSpecTrue {
			bits = 1
		}
		return set(a[1], value{constant, bits})
	case opSpecConstant:
		v, ok := m.value(a[1])
		if ok && !m.ints[a[0]] && !m.floats[a[0]] {
			return fmt.Errorf("a specialization constant of another type than bool, integer or float of 32 bits has a value")
		}
		if !ok {
			v = a[2]
		}
		if m.ints[a[0]] {
			return set(a[1], value{constant, v})
		}
		return set(a[1], value{state: varying})
	case opSpecOp:
		return set(a[1], m.compute(a[0], a[2], a[3:]))
	// Left unknown, they would be what no instruction makes: a branch on them has no side that is taken.
	case opUndef, opConstantComposite, opConstantSampler, opReplicated, opSpecComposite, opSpecReplicated, opVariable:
		return set(a[1], value{state: varying})
	}
	return nil
}

// value is what is given for the constant with this identifier.
func (m *module) value(id uint32) (uint32, bool) {
	number, ok := m.specID[id]
	if !ok {
		return 0, false
	}
	v, ok := m.given[number]
	return v, ok
}

func (m *module) inBlock(b *block, op uint32, a []uint32) error {
	if id := result(op, a); int(id) >= len(m.values) {
		return fmt.Errorf("identifier %d is not below the bound %d", id, len(m.values))
	}
	switch op {
	case opSelectionMerge:
		b.merge = a[0]
	case opLoopMerge:
		b.merge, b.loopNext = a[0], a[1]
	case opBranch:
		b.next = []uint32{a[0]}
	case opBranchConditional:
		b.next = []uint32{a[1], a[2]}
	case opSwitch:
		if m.wideInts || len(a)%2 != 0 {
			return fmt.Errorf("a switch on 64 bits is not handled")
		}
		for i := 1; i < len(a); i += 2 {
			b.next = append(b.next, a[i])
		}
	}
	b.live = make([]bool, len(b.next))
	return nil
}

// check says whether every label that is jumped to exists.
func (f *function) check() error {
	for i := range f.blocks {
		b := &f.blocks[i]
		labels := b.next
		if b.merge != 0 {
			labels = append(labels[:len(labels):len(labels)], b.merge)
		}
		if b.loopNext != 0 {
			labels = append(labels[:len(labels):len(labels)], b.loopNext)
		}
		for _, l := range labels {
			if _, ok := f.index[l]; !ok {
				return fmt.Errorf("specialize: label %d is not in the function of block %d", l, b.label)
			}
		}
	}
	return nil
}
