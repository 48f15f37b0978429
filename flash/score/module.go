package score

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/spirv"
)

// SPIR-V's numbers (SPIR-V specification, sections 2.3, 3.7, 3.20 and 3.49, and GLSL.std.450).
const (
	versionWord = 1

	spvExtInstImport     = 11
	spvExtInst           = 12
	spvEntryPoint        = 15
	spvTypeBool          = 20
	spvTypeInt           = 21
	spvTypeFloat         = 22
	spvTypeVector        = 23
	spvTypeRuntimeArray  = 29
	spvTypeStruct        = 30
	spvTypePointer       = 32
	spvConstant          = 43
	spvConstantComposite = 44
	spvSpecComposite     = 51
	spvFunction          = 54
	spvFunctionEnd       = 56
	spvVariable          = 59
	spvDecorate          = 71
	spvMemberDecorate    = 72
	spvCopyObject        = 83
	spvLabel             = 248
	spvPhi               = 245
	spvLine              = 8
	spvNoLine            = 317

	storageBuffer  = 12
	version13      = 0x00010300
	version14      = 0x00010400
	glslStd450     = "GLSL.std.450"
	refract        = 72
	maxModuleWords = 1 << 26
)

// definition is where an identifier is made, if its type is a scalar of 32 bits, bool or a vector of four floats.
type definition struct {
	at       int // word of the instruction
	typ      uint32
	function int // number of the function, −1 for the module
}

// hookSite is an instruction that asks for a function.
type hookSite struct {
	at         int // word of the instruction
	set        uint32
	result     uint32
	first      uint32 // vec4(s, batch, head, query)
	second     uint32 // vec4(key, position, ·, ·)
	eta        float32
	function   int
	resultType uint32
}

// parsed is what splicing has to know of a module.
type parsed struct {
	words        []uint32
	glsl         map[uint32]bool // identifiers of the set GLSL.std.450
	float        uint32          // types, 0 where there is none
	int, uint    uint32
	bool, vec4   uint32
	constants    map[[2]uint32]uint32 // by type and bits
	values       map[uint32][2]uint32 // and back
	defs         map[uint32]definition
	entryPoints  []int // words of the instructions
	annotations  int   // word where further decorations go
	functions    int   // word of the first function
	entries      []int // of each function, the word where code may begin
	hooks        []hookSite
	hasFunctions bool
}

// parse reads a module, and fails where it is none. What it does not have to know it does not look at.
func parse(words []uint32) (*parsed, error) {
	if len(words) < spirv.HeaderWords || words[0] != spirv.Magic {
		return nil, errors.New("score: not a SPIR-V module")
	}
	if len(words) > maxModuleWords {
		return nil, fmt.Errorf("score: a module of %d words, at most %d are taken", len(words), maxModuleWords)
	}
	if b := words[spirv.BoundWord]; b == 0 || b > spirv.MaxBound {
		return nil, fmt.Errorf("score: the module's bound of identifiers is %d, must be from 1 to %d", b, spirv.MaxBound)
	}
	p := &parsed{words: words, glsl: map[uint32]bool{}, constants: map[[2]uint32]uint32{}, values: map[uint32][2]uint32{},
		defs: map[uint32]definition{}, annotations: -1, functions: len(words)}
	for at := spirv.HeaderWords; at < len(words); {
		n := int(words[at] >> 16)
		if n == 0 || at+n > len(words) {
			return nil, fmt.Errorf("score: the instruction at word %d reaches beyond the module", at)
		}
		if err := p.instruction(at, words[at]&0xffff, words[at+1:at+n]); err != nil {
			return nil, err
		}
		at += n
	}
	if p.annotations < 0 {
		p.annotations = len(words)
	}
	return p, nil
}

// inPreamble says whether an instruction stands before or among the decorations: all that come before types do.
func inPreamble(op uint32) bool {
	switch {
	case op >= 2 && op <= 7, op >= 10 && op <= 11, op >= 14 && op <= 17, op >= 71 && op <= 75:
		return true
	// ModuleProcessed, ExecutionModeId, DecorateId, DecorateString and of members
	case op == 330, op == 331, op == 332, op == 5632, op == 5633:
		return true
	}
	return false
}

func (p *parsed) instruction(at int, op uint32, a []uint32) error {
	if p.annotations < 0 && !inPreamble(op) {
		p.annotations = at
	}
	if op == spvFunction {
		if !p.hasFunctions {
			p.hasFunctions, p.functions = true, at
		}
		p.entries = append(p.entries, -1)
		return nil
	}
	if p.hasFunctions {
		return p.body(at, op, a)
	}
	switch {
	case op == spvExtInstImport && len(a) > 1:
		p.glsl[a[0]] = spirv.Literal(a[1:]) == glslStd450
	case op == spvEntryPoint:
		p.entryPoints = append(p.entryPoints, at)
	case op == spvTypeBool && len(a) == 1:
		p.bool = a[0]
	case op == spvTypeInt && len(a) == 3 && a[1] == 32 && a[2] == 0:
		p.uint = a[0]
	case op == spvTypeInt && len(a) == 3 && a[1] == 32:
		p.int = a[0]
	case op == spvTypeFloat && len(a) == 2 && a[1] == 32: // a third operand would be another encoding
		p.float = a[0]
	case op == spvTypeVector && len(a) == 3 && a[2] == 4 && a[1] == p.float && p.float != 0:
		p.vec4 = a[0]
	case op == spvConstant && len(a) == 3:
		p.constants[[2]uint32{a[0], a[2]}] = a[1]
		p.values[a[1]] = [2]uint32{a[0], a[2]}
	}
	if op < spvTypeBool || op > spvTypeVector { // which name the type that they make: a width follows, or that of components
		p.define(at, a, -1)
	}
	return nil
}

// define notes where an identifier of one of the types is made: an instruction whose first operand is a type makes its second.
func (p *parsed) define(at int, a []uint32, function int) {
	if len(a) < 2 || a[0] == 0 {
		return
	}
	switch a[0] {
	case p.float, p.int, p.uint, p.bool, p.vec4:
		if _, ok := p.defs[a[1]]; !ok {
			p.defs[a[1]] = definition{at, a[0], function}
		}
	}
}

func (p *parsed) body(at int, op uint32, a []uint32) error {
	function := len(p.entries) - 1
	if p.entries[function] < 0 && op == spvLabel {
		p.entries[function] = p.codeFrom(at + len(a) + 1)
	}
	p.define(at, a, function)
	if op != spvExtInst || len(a) < 4 || !p.glsl[a[2]] || a[3] != refract {
		return nil
	}
	if len(a) != 7 {
		return fmt.Errorf("score: the hook at word %d has %d operands, must have 3", at, len(a)-4)
	}
	if a[0] != p.vec4 || p.vec4 == 0 {
		return nil // a refraction that is meant as such
	}
	eta, ok := p.values[a[6]]
	if !ok || eta[0] != p.float {
		return fmt.Errorf("score: the last operand of the hook at word %d is no constant", at)
	}
	p.hooks = append(p.hooks, hookSite{at: at, resultType: a[0], result: a[1], set: a[2], first: a[4], second: a[5], eta: floatOf(eta[1]),
		function: function})
	return nil
}

// codeFrom is the first word from at on where an instruction may be put: behind phis, variables and lines.
func (p *parsed) codeFrom(at int) int {
	for at < len(p.words) {
		switch p.words[at] & 0xffff {
		case spvPhi, spvVariable, spvLine, spvNoLine:
		default:
			return at
		}
		n := int(p.words[at] >> 16)
		if n == 0 {
			return at
		}
		at += n
	}
	return at
}

// after is the first word behind a definition in a function where another instruction may be put: behind a parameter, where code begins.
func (p *parsed) after(d definition) int {
	return max(p.codeFrom(d.at+int(p.words[d.at]>>16)), p.entries[d.function])
}
