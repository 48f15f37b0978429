package vk

import (
	"slices"

	"github.com/vkattn/vkattn/internal/spirv"
)

// Independence is a VkShaderFloatControlsIndependence: whether the widths of floats in one shader may differ in how they
// treat denormals, or how they round.
type Independence uint32

// The kinds of independence.
const (
	Independence32 Independence = iota // 32 bits from the others; 16 and 64 bits go together
	IndependenceAll
	IndependenceNone
)

const extFloatControls = "VK_KHR_shader_float_controls"

// SPIR-V's numbers for what follows (SPIR-V specification, sections 2.3, 3.6, 3.31 and 3.49).
const (
	opExtension       = 10
	opEntryPoint      = 15
	opExecutionMode   = 16
	opCapability      = 17
	opTypeFloat       = 22
	opFunction        = 54
	opExecutionModeID = 331

	capabilityFloat64                  = 10
	capabilityDenormPreserve           = 4464
	capabilitySignedZeroInfNanPreserve = 4466
	capabilityRoundingModeRTE          = 4467

	modeDenormPreserve           = 4459
	modeSignedZeroInfNanPreserve = 4461
	modeRoundingModeRTE          = 4462
)

// module16 is what WithFloatControls16 needs to know of a SPIR-V module.
type module16 struct {
	capabilities, extensions, modes int // the word behind the last of each section
	entries                         []uint32
	ieee16, other16, float64, set   bool
}

// scan reads a module's head and types; ok is false for what is no whole module.
func scan(code []uint32) (m module16, ok bool) {
	if len(code) < spirv.HeaderWords || code[0] != spirv.Magic {
		return m, false
	}
	m.capabilities = spirv.HeaderWords
	for at := spirv.HeaderWords; at < len(code); {
		op, n := code[at]&0xffff, int(code[at]>>16)
		if n == 0 || at+n > len(code) {
			return m, false
		}
		next := at + n
		switch {
		case op == opCapability && n == 2:
			m.capabilities, m.extensions = next, next
			m.float64 = m.float64 || code[at+1] == capabilityFloat64
			m.set = m.set || code[at+1] == capabilityDenormPreserve || code[at+1] == capabilitySignedZeroInfNanPreserve ||
				code[at+1] == capabilityRoundingModeRTE
		case op == opExtension:
			m.extensions = next
		case op == opEntryPoint && n > 2:
			m.entries, m.modes = append(m.entries, code[at+2]), next
		case op == opExecutionMode || op == opExecutionModeID:
			m.modes = next
		case op == opTypeFloat && n == 3 && code[at+2] == 16:
			m.ieee16 = true
		case op == opTypeFloat && n == 4 && code[at+2] == 16: // another encoding: bfloat16
			m.other16 = true
		case op == opFunction:
			return m, m.extensions > 0 && m.modes > 0
		}
		at = next
	}
	return m, m.extensions > 0 && m.modes > 0
}

// FloatControls are those of the facts that shader modules of this device may ask for: none where the device was created
// without Vulkan 1.2 and VK_KHR_shader_float_controls.
func (d *Device) FloatControls() FloatControls {
	if d.facts.EffectiveVersion < Version12 && !slices.Contains(d.external.Extensions, extFloatControls) {
		return FloatControls{}
	}
	return d.facts.FloatControls
}

// WithFloatControls16 makes a SPIR-V module ask for what a device offers of: rounding to nearest even, keeping denormals,
// and keeping signed zeros, infinities and NaNs, in fp16 arithmetic and conversions (SPV_KHR_float_controls). fp32 stays as it
// is: a device on which all widths must go together is asked for neither rounding nor denormals. A module without IEEE fp16,
// with bf16 beside it, or that asks for such things itself is returned unchanged. The given words are never written to.
func WithFloatControls16(code []uint32, f FloatControls) []uint32 {
	m, ok := scan(code)
	if !ok || !m.ieee16 || m.other16 || m.set {
		return code
	}
	free := func(i Independence) bool { return i == IndependenceAll || i == Independence32 && !m.float64 }
	var capabilities, modes []uint32
	add := func(offered bool, capability, mode uint32) {
		if !offered {
			return
		}
		capabilities = append(capabilities, spirv.Instruction(opCapability, capability)...)
		for _, e := range m.entries {
			modes = append(modes, spirv.Instruction(opExecutionMode, e, mode, 16)...)
		}
	}
	add(f.DenormPreserve16 && free(f.DenormIndependence), capabilityDenormPreserve, modeDenormPreserve)
	add(f.SignedZeroInfNan16, capabilitySignedZeroInfNanPreserve, modeSignedZeroInfNanPreserve)
	add(f.RoundingRTE16 && free(f.RoundingIndependence), capabilityRoundingModeRTE, modeRoundingModeRTE)
	if len(modes) == 0 {
		return code
	}
	extension := spirv.Instruction(opExtension, spirv.Words("SPV_KHR_float_controls")...)
	return slices.Concat(code[:m.capabilities], capabilities, code[m.capabilities:m.extensions], extension,
		code[m.extensions:m.modes], modes, code[m.modes:])
}
