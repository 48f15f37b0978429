package vk

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/spirv"
)

// head16 is the head of a module with two entry points and these types; it ends in a function.
func head16(types ...[]uint32) []uint32 {
	out := []uint32{spirv.Magic, 0x10300, 0, 10, 0,
		2<<16 | opCapability, 1, // Shader
		2<<16 | opCapability, 4433, // StorageBuffer16BitAccess
		3<<16 | 14, 0, 1, // OpMemoryModel Logical GLSL450
		5<<16 | opEntryPoint, 5, 4, 0x6e69616d, 0, // GLCompute %4 "main"
		4<<16 | opEntryPoint, 5, 6, 0x78, // GLCompute %6 "x"
		6<<16 | opExecutionMode, 4, 17, 64, 1, 1, // LocalSize
	}
	return append(slices.Concat(append([][]uint32{out}, types...)...), 5<<16|opFunction, 1, 4, 0, 2)
}

var (
	half   = []uint32{3<<16 | opTypeFloat, 7, 16}
	single = []uint32{3<<16 | opTypeFloat, 8, 32}
	brain  = []uint32{4<<16 | opTypeFloat, 9, 16, 0}
)

func TestWithFloatControls16(t *testing.T) {
	all := FloatControls{RoundingRTE16: true, DenormPreserve16: true, SignedZeroInfNan16: true, DenormIndependence: IndependenceAll}
	code := head16(half, single)
	before := slices.Clone(code)
	got := WithFloatControls16(code, all)
	require.Equal(t, before, code, "the input is the caller's")

	want := slices.Concat(code[:9],
		[]uint32{2<<16 | opCapability, 4464, 2<<16 | opCapability, 4466, 2<<16 | opCapability, 4467},
		[]uint32{7<<16 | opExtension, 0x5f565053, 0x5f52484b, 0x616f6c66, 0x6f635f74, 0x6f72746e, 0x0000736c}, // "SPV_KHR_float_controls"
		code[9:27],
		[]uint32{4<<16 | opExecutionMode, 4, 4459, 16, 4<<16 | opExecutionMode, 6, 4459, 16},
		[]uint32{4<<16 | opExecutionMode, 4, 4461, 16, 4<<16 | opExecutionMode, 6, 4461, 16},
		[]uint32{4<<16 | opExecutionMode, 4, 4462, 16, 4<<16 | opExecutionMode, 6, 4462, 16},
		code[27:])
	require.Equal(t, want, got)
	require.Equal(t, got, WithFloatControls16(got, all), "asking twice asks once")

	for name, c := range map[string]struct {
		code  []uint32
		f     FloatControls
		modes []uint32
	}{
		"nothing offered":    {code, FloatControls{}, nil},
		"fp32 alone offered": {code, FloatControls{RoundingRTE32: true, DenormPreserve32: true, SignedZeroInfNan32: true}, nil},
		"rounding":           {code, FloatControls{RoundingRTE16: true}, []uint32{4462}},
		"widths that go together": {code, FloatControls{RoundingRTE16: true, DenormPreserve16: true, SignedZeroInfNan16: true,
			DenormIndependence: IndependenceNone, RoundingIndependence: IndependenceNone}, []uint32{4461}},
		"rounding goes together": {code, FloatControls{RoundingRTE16: true, DenormPreserve16: true,
			RoundingIndependence: IndependenceNone}, []uint32{4459}},
		"no 16-bit floats":          {head16(single), all, nil},
		"bfloat16 beside":           {head16(half, brain), all, nil},
		"bfloat16 only":             {head16(brain), all, nil},
		"not SPIR-V":                {[]uint32{1, 2, 3, 4, 5, 6}, all, nil},
		"cut within an instruction": {code[:len(code)-2], all, nil},
		"empty":                     {nil, all, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := WithFloatControls16(c.code, c.f)
			if c.modes == nil {
				require.Equal(t, c.code, got)
				return
			}
			var modes []uint32
			for at := spirv.HeaderWords; at < len(got); at += int(got[at] >> 16) {
				if got[at] == 4<<16|opExecutionMode && got[at+1] == 4 {
					modes = append(modes, got[at+2])
				}
			}
			require.Equal(t, c.modes, modes)
		})
	}

	// 16 and 64 bits go together on such devices, and the module's 64 bits are not ours to change.
	wide := slices.Concat(code[:9], []uint32{2<<16 | opCapability, capabilityFloat64}, code[9:])
	require.Equal(t, wide, WithFloatControls16(wide, FloatControls{RoundingRTE16: true, DenormPreserve16: true}))
}
