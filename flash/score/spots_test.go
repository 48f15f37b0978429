package score_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
	words "github.com/vkattn/vkattn/internal/spirv"
)

// TestSpots: code goes where its operands exist, in a module whose key is one by number with the width in the types' declarations, and in
// one where a function with a hook takes score and key by value.
func TestSpots(t *testing.T) {
	f, err := score.New(score.S().Add(score.Key().Mul(score.ConstInt(3)).Float()))
	require.NoError(t, err)
	for name, module := range map[string][]uint32{"an identifier like a width": asking(32, false), "parameters": asking(33, true)} {
		t.Run(name, func(t *testing.T) {
			validate(t, "vulkan1.1", module)
			out, err := score.Splice(module, score.Code{Score: f})
			require.NoError(t, err)
			require.NotEqual(t, module, out)
			validate(t, "vulkan1.1", out)
		})
	}
}

// asking is a module that loads a key, behind something else, and asks for a function of it, or calls one that does.
func asking(key uint32, call bool) []uint32 {
	const (
		glsl = iota + 1
		main
		void
		nothing
		float
		integer
		unsigned
		vec4
		array
		block
		pointer
		element
		buffer
		zero
		one
		real
		function
		hooked
		place
		scaled
		bits
		first
		second
		asked
		result
		bound = 64
	)
	var out []uint32
	add := func(op uint32, a ...uint32) { out = append(out, words.Instruction(op, a...)...) }
	hook := func(s, key uint32) {
		add(124, float, bits, key) // OpBitcast
		add(80, vec4, first, s, real, real, real)
		add(80, vec4, second, bits, real, real, real)
		add(12, vec4, asked, glsl, 72, first, second, one)
		add(81, float, result, asked, 0)
	}
	out = append(out, words.Magic, 0x00010300, 0, bound, 0)
	add(17, 1) // the capability Shader
	add(11, slices.Concat([]uint32{glsl}, words.Words("GLSL.std.450"))...)
	add(14, 0, 1)
	add(15, slices.Concat([]uint32{5, main}, words.Words("main"))...)
	add(16, main, 17, 1, 1, 1)
	add(71, array, 6, 4)
	add(71, block, 2)
	add(72, block, 0, 35, 0)
	add(71, buffer, 34, 0)
	add(71, buffer, 33, 0)
	add(19, void)
	add(33, nothing, void)
	add(22, float, 32)
	add(21, integer, 32, 1)
	add(21, unsigned, 32, 0)
	add(23, vec4, float, 4)
	add(29, array, unsigned)
	add(30, block, array)
	add(32, pointer, 12, block)
	add(32, element, 12, unsigned)
	add(59, pointer, buffer, 12)
	add(43, integer, zero, 0)
	add(43, float, one, math.Float32bits(1))
	add(43, float, real, 0)
	add(33, function, float, float, unsigned)
	if call {
		add(54, float, hooked, 0, function)
		add(55, float, 50)
		add(55, unsigned, 51)
		add(248, 52)
		hook(50, 51)
		add(254, result)
		add(56)
	}
	add(54, void, main, 0, nothing)
	add(248, 53)
	add(65, element, place, buffer, zero, zero)
	add(61, unsigned, key, place)
	add(111, float, scaled, key)
	value := uint32(result)
	if call {
		value = 54
		add(57, float, value, hooked, scaled, key)
	} else {
		hook(scaled, key)
	}
	add(124, unsigned, 55, value)
	add(62, place, 55)
	add(253)
	add(56)
	return out
}
