package ref

import "math"

// bfloat16 is the upper half of a float32: 8 exponent bits, 7 explicit mantissa bits.

// bf16FromFloat32 rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
func bf16FromFloat32(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func bf16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
