package shaders

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/spirv"
)

// Interface is what a module asks of the program that runs it, read from SPIR-V that still has its names. The optimised module that
// ships may use less of it, never more.
type Interface struct {
	Constants map[string]uint32 `json:"constants"` // specialization constants: number by name
	// buffers of descriptor set 0: binding by block name; blocks may share a binding
	Bindings map[string]uint32 `json:"bindings,omitempty"`
	// members of the buffer block MoreBlock, four bytes each: arguments that push constants have no room for
	More []string `json:"more,omitempty"`
	Push []string `json:"push,omitempty"` // members of the push-constant block, four bytes each, without gaps
}

// MoreBlock is the name of the block of further arguments (shaders/include/more.glsl).
const MoreBlock = "More"

// WorkgroupConstant is the name of the constant for the workgroup's size where the shader declares it only by local_size_x_id.
const WorkgroupConstant = "WG"

// PushBytes is the size of the push-constant block.
func (i *Interface) PushBytes() int { return 4 * len(i.Push) }

// BindingCount is one more than the greatest binding.
func (i *Interface) BindingCount() int {
	n := 0
	for _, b := range i.Bindings {
		n = max(n, int(b)+1)
	}
	return n
}

// SPIR-V's numbers for what ReadInterface looks at (SPIR-V specification, sections 2.3, 3.7, 3.20 and 3.49).
const (
	opName           = 5
	opMemberName     = 6
	opTypePointer    = 32
	opVariable       = 59
	opDecorate       = 71
	opMemberDecorate = 72

	decorationSpecID  = 1
	decorationBinding = 33
	decorationOffset  = 35

	classPushConstant = 9
)

// ReadInterface reads the interface of a module from its words, which must still have their names: a specialization constant without
// one, other than the workgroup's size, is an error.
func ReadInterface(words []uint32) (Interface, error) {
	s := newNames()
	if err := s.scan(words); err != nil {
		return Interface{}, err
	}
	out := Interface{Constants: map[string]uint32{}, Bindings: map[string]uint32{}}
	for id, number := range s.specID {
		name := s.name[id]
		if name == "" && number == 0 {
			name = WorkgroupConstant
		}
		if name == "" {
			return out, fmt.Errorf("shaders: specialization constant %d has no name", number)
		}
		if other, ok := out.Constants[name]; ok && other != number {
			return out, fmt.Errorf("shaders: specialization constants %d and %d are both called %s", other, number, name)
		}
		out.Constants[name] = number
	}
	for id, binding := range s.binding {
		out.Bindings[s.name[s.pointee[s.typeOf[id]]]] = binding
	}
	var err error
	for id := range s.binding {
		if block := s.pointee[s.typeOf[id]]; s.name[block] == MoreBlock && err == nil {
			out.More, err = s.words(block)
		}
	}
	if s.push != 0 && err == nil {
		out.Push, err = s.words(s.pointee[s.typeOf[s.push]])
	}
	return out, err
}

// words lists the members of a block of four bytes each.
func (s *names) words(block uint32) ([]string, error) {
	out := make([]string, len(s.member[block]))
	for member, name := range s.member[block] {
		if at := s.offset[block][member]; at != 4*member || int(member) >= len(out) {
			return out, fmt.Errorf("shaders: argument %s lies at byte %d, must be member %d of four bytes each", name, at, member)
		}
		out[member] = name
	}
	return out, nil
}

// names is what a module says of its identifiers.
type names struct {
	name            map[uint32]string
	member          map[uint32]map[uint32]string
	offset          map[uint32]map[uint32]uint32
	specID, binding map[uint32]uint32
	typeOf, pointee map[uint32]uint32 // of variables; of pointer types
	push            uint32            // the variable that holds push constants
}

func newNames() *names {
	return &names{name: map[uint32]string{}, member: map[uint32]map[uint32]string{}, offset: map[uint32]map[uint32]uint32{},
		specID: map[uint32]uint32{}, binding: map[uint32]uint32{}, typeOf: map[uint32]uint32{}, pointee: map[uint32]uint32{}}
}

func (s *names) scan(words []uint32) error {
	if len(words) < spirv.HeaderWords || words[0] != spirv.Magic {
		return errors.New("shaders: not a SPIR-V module")
	}
	for at := spirv.HeaderWords; at < len(words); {
		op, n := words[at]&0xffff, int(words[at]>>16)
		if n == 0 || at+n > len(words) {
			return fmt.Errorf("shaders: instruction at word %d reaches beyond the module", at)
		}
		s.instruction(op, words[at+1:at+n])
		at += n
	}
	return nil
}

func (s *names) instruction(op uint32, a []uint32) {
	switch {
	case op == opName && len(a) > 1:
		if s.name[a[0]] == "" { // a constant that another is declared equal to has both names, its own first
			s.name[a[0]] = spirv.Literal(a[1:])
		}
	case op == opMemberName && len(a) > 2:
		put(s.member, a[0], a[1], spirv.Literal(a[2:]))
	case op == opDecorate && len(a) == 3 && a[1] == decorationSpecID:
		s.specID[a[0]] = a[2]
	case op == opDecorate && len(a) == 3 && a[1] == decorationBinding:
		s.binding[a[0]] = a[2]
	case op == opMemberDecorate && len(a) == 4 && a[2] == decorationOffset:
		put(s.offset, a[0], a[1], a[3])
	case op == opTypePointer && len(a) == 3:
		s.pointee[a[0]] = a[2]
	case op == opVariable && len(a) >= 3:
		s.typeOf[a[1]] = a[0]
		if a[2] == classPushConstant {
			s.push = a[1]
		}
	}
}

func put[V any](m map[uint32]map[uint32]V, outer, inner uint32, v V) {
	if m[outer] == nil {
		m[outer] = map[uint32]V{}
	}
	m[outer][inner] = v
}

// SpecIDs lists the numbers of the specialization constants that a module uses, names or not.
func SpecIDs(words []uint32) ([]uint32, error) {
	s := newNames()
	if err := s.scan(words); err != nil {
		return nil, err
	}
	var out []uint32
	for _, number := range s.specID {
		out = append(out, number)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
