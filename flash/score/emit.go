package score

import (
	"fmt"
	"math"
	"slices"

	"github.com/vkattn/vkattn/internal/spirv"
)

// More of SPIR-V's numbers.
const (
	spvLoad               = 61
	spvAccessChain        = 65
	spvCompositeConstruct = 80
	spvCompositeExtract   = 81
	spvBitcast            = 124
	spvSelect             = 169
	spvUDiv               = 134
	spvConvertSToF        = 111
	spvFAdd               = 129
	spvFMul               = 133
	spvFDiv               = 136

	decorationBlock         = 2
	decorationArrayStride   = 6
	decorationRestrict      = 19
	decorationNonWritable   = 24
	decorationBinding       = 33
	decorationDescriptorSet = 34
	decorationOffset        = 35
)

// operand is a value in the module, and the first word of the function where it can be used: 0 is anywhere.
type operand struct {
	id   uint32
	spot int
}

// emitter writes code into a copy of a module. An instruction goes to the last of its operands' spots: definitions that dominate one place
// lie on one chain of dominators and stand in its order, so the last of them is dominated by the others. Equal instructions at one spot are
// one.
type emitter struct {
	p                 *parsed
	firstBinding      int
	tensors           []*tensor
	bound             uint32
	globals           []uint32
	decorations       []uint32
	interfaces        []uint32
	arrays            [Int32 + 1]arrayTypes
	variables         map[int]uint32   // of captured tensors
	inserted          map[int][]uint32 // by the word before which they go
	replaced          map[int][]uint32 // by the word of the hook
	made              map[string]uint32
	intType, uintType uint32
	boolType          uint32
	h                 *hookSite // the hook at work
	inputs            map[op]operand
}

type arrayTypes struct{ block, element uint32 } // pointer types

func newEmitter(p *parsed, firstBinding int, tensors []*tensor) *emitter {
	return &emitter{p: p, firstBinding: firstBinding, tensors: tensors, bound: p.words[spirv.BoundWord], variables: map[int]uint32{},
		inserted: map[int][]uint32{}, replaced: map[int][]uint32{}, made: map[string]uint32{}, intType: p.int, uintType: p.uint,
		boolType: p.bool}
}

func (e *emitter) id() uint32 {
	e.bound++
	return e.bound - 1
}

// hook writes the code of one hook.
func (e *emitter) hook(h *hookSite, f *fragment) {
	e.h, e.inputs = h, map[op]operand{}
	used, at := f.g.reachable(f.results...), make([]operand, len(f.g.values))
	for r := range f.g.values {
		if used[r] {
			at[r] = e.value(f, ref(r), at)
		}
	}
	zero := e.float(0).id
	components := []uint32{h.resultType, h.result, zero, zero, zero, zero}
	for i, r := range f.results {
		components[2+i] = e.asFloat(at[r], f.g.kind(r)).id
	}
	e.replaced[h.at] = spirv.Instruction(spvCompositeConstruct, components...)
}

// asFloat is a result as a component of the hook's vector.
func (e *emitter) asFloat(x operand, k kind) operand {
	switch k {
	case kindInt:
		return e.make(spvBitcast, e.p.float, x)
	case kindBool:
		return e.make(spvSelect, e.p.float, x, e.float(1), e.float(0))
	}
	return x
}

// make adds an instruction with a result.
func (e *emitter) make(op, typ uint32, args ...operand) operand {
	return e.insert(op, typ, nil, args)
}

// extended adds an instruction of GLSL.std.450.
func (e *emitter) extended(op, typ uint32, args ...operand) operand {
	return e.insert(spvExtInst, typ, []uint32{e.h.set, op}, args)
}

func (e *emitter) insert(op, typ uint32, before []uint32, args []operand) operand {
	spot := 0
	words := slices.Clone(before)
	for _, a := range args {
		spot = max(spot, a.spot)
		words = append(words, a.id)
	}
	if spot == 0 {
		spot = e.p.entries[e.h.function]
	}
	if spot <= 0 || spot > e.h.at {
		spot = e.h.at
	}
	key := fmt.Sprint(spot, op, typ, words)
	if id, ok := e.made[key]; ok {
		return operand{id, spot}
	}
	id := e.id()
	e.made[key] = id
	e.inserted[spot] = append(e.inserted[spot], spirv.Instruction(op, append([]uint32{typ, id}, words...)...)...)
	return operand{id, spot}
}

// constant is one of the module's, or a new one.
func (e *emitter) constant(typ, bits uint32) operand {
	key := [2]uint32{typ, bits}
	id, ok := e.p.constants[key]
	if !ok {
		id = e.id()
		e.p.constants[key] = id
		e.globals = append(e.globals, spirv.Instruction(spvConstant, typ, id, bits)...)
	}
	return operand{id: id}
}

func (e *emitter) float(c float32) operand { return e.constant(e.p.float, math.Float32bits(c)) }
func (e *emitter) int(c int32) operand     { return e.constant(e.typeInt(), uint32(c)) }

// global adds a type unless there is one: types that are not aggregates must be unique.
func (e *emitter) global(have *uint32, op uint32, operands ...uint32) uint32 {
	if *have == 0 {
		*have = e.id()
		e.globals = append(e.globals, spirv.Instruction(op, append([]uint32{*have}, operands...)...)...)
	}
	return *have
}

func (e *emitter) typeInt() uint32  { return e.global(&e.intType, spvTypeInt, 32, 1) }
func (e *emitter) typeUint() uint32 { return e.global(&e.uintType, spvTypeInt, 32, 0) }
func (e *emitter) typeBool() uint32 { return e.global(&e.boolType, spvTypeBool) }

func (e *emitter) typeOf(k kind) uint32 {
	switch k {
	case kindInt:
		return e.typeInt()
	case kindBool:
		return e.typeBool()
	}
	return e.p.float
}

// load reads an element of a captured tensor.
func (e *emitter) load(slot int, k kind, index operand) operand {
	t := e.tensors[slot].Type
	types := &e.arrays[t]
	if types.block == 0 {
		element, array, block := e.typeOf(k), e.id(), e.id()
		e.globals = append(e.globals, spirv.Instruction(spvTypeRuntimeArray, array, element)...)
		e.globals = append(e.globals, spirv.Instruction(spvTypeStruct, block, array)...)
		e.global(&types.block, spvTypePointer, storageBuffer, block)
		e.global(&types.element, spvTypePointer, storageBuffer, element)
		e.decorate(array, decorationArrayStride, 4)
		e.decorate(block, decorationBlock)
		e.decorations = append(e.decorations, spirv.Instruction(spvMemberDecorate, block, 0, decorationOffset, 0)...)
	}
	variable, ok := e.variables[slot]
	if !ok {
		variable = e.id()
		e.variables[slot] = variable
		e.globals = append(e.globals, spirv.Instruction(spvVariable, types.block, variable, storageBuffer)...)
		e.decorate(variable, decorationDescriptorSet, 0)
		e.decorate(variable, decorationBinding, uint32(e.firstBinding+slot))
		e.decorate(variable, decorationNonWritable)
		e.decorate(variable, decorationRestrict)
		e.interfaces = append(e.interfaces, variable)
	}
	place := e.make(spvAccessChain, types.element, operand{id: variable}, e.int(0), index)
	return e.make(spvLoad, e.typeOf(k), place)
}

func (e *emitter) decorate(id uint32, decoration ...uint32) {
	e.decorations = append(e.decorations, spirv.Instruction(spvDecorate, append([]uint32{id}, decoration...)...)...)
}

// module is the copy with all that was written.
func (e *emitter) module() ([]uint32, error) {
	if e.bound > spirv.MaxBound {
		return nil, fmt.Errorf("score: the module would have more than %d identifiers", spirv.MaxBound)
	}
	words := e.p.words
	out := slices.Clone(words[:spirv.HeaderWords])
	out[spirv.BoundWord] = e.bound
	entries := map[int]bool{}
	for _, at := range e.p.entryPoints {
		entries[at] = words[versionWord] >= version14 && len(e.interfaces) > 0
	}
	for at := spirv.HeaderWords; at < len(words); {
		n := int(words[at] >> 16)
		if at == e.p.annotations {
			out = append(out, e.decorations...)
		}
		if at == e.p.functions {
			out = append(out, e.globals...)
		}
		out = append(out, e.inserted[at]...)
		switch code, ok := e.replaced[at]; {
		case ok:
			out = append(out, code...)
		case entries[at]: // since 1.4 an entry point lists every variable that it uses
			if n+len(e.interfaces) > math.MaxUint16 {
				return nil, fmt.Errorf("score: the entry point at word %d has too many variables", at)
			}
			out = append(out, uint32(n+len(e.interfaces))<<16|spvEntryPoint)
			out = append(append(out, words[at+1:at+n]...), e.interfaces...)
		default:
			out = append(out, words[at:at+n]...)
		}
		at += n
	}
	return out, nil
}
