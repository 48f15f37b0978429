package attn

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// Quantised numbers. Blocks are those of ggml (ggml-quants.c, quantize_row_q8_0_ref and quantize_row_q4_0_ref), to the bit, so that buffers
// pass between programs: 32 numbers share a scale d in fp16, and each is an integer times d. Arithmetic is fp32, as there.

const blockOf = 32

// encodeQ8 takes d = max|x| / 127 and q = x/d to the nearest integer, halves away from zero.
func encodeQ8(dst []byte, x []float32) {
	most := float32(0)
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	d := most / 127
	binary.LittleEndian.PutUint16(dst, float16.Fromfloat32(d).Bits())
	inverse := float32(0)
	if d != 0 {
		inverse = 1 / d
	}
	for i, v := range x {
		dst[2+i] = byte(int8(math.Round(float64(v * inverse))))
	}
}

func decodeQ8(dst []float32, src []byte) {
	d := float16.Frombits(binary.LittleEndian.Uint16(src)).Float32()
	for i := range dst {
		dst[i] = float32(int8(src[2+i])) * d
	}
}

// encodeQ4 takes d = m / −8, where m is the number of largest magnitude with its sign, and q = x/d + 8 to the nearest integer from 0 to 15.
func encodeQ4(dst []byte, x []float32) {
	magnitude, most := float32(0), float32(0)
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > magnitude {
			magnitude, most = a, v
		}
	}
	d := most / -8
	binary.LittleEndian.PutUint16(dst, float16.Fromfloat32(d).Bits())
	inverse := float32(0)
	if d != 0 {
		inverse = 1 / d
	}
	q := func(v float32) byte {
		scaled := v * inverse // rounded to fp32 before the sum, as in C
		return byte(min(15, int8(scaled+8.5)))
	}
	for i := range blockOf / 2 {
		dst[2+i] = q(x[i]) | q(x[i+blockOf/2])<<4
	}
}

func decodeQ4(dst []float32, src []byte) {
	d := float16.Frombits(binary.LittleEndian.Uint16(src)).Float32()
	for i := range blockOf / 2 {
		dst[i] = float32(int(src[2+i]&15)-8) * d
		dst[i+blockOf/2] = float32(int(src[2+i]>>4)-8) * d
	}
}

// fp8 e4m3 (Micikevicius et al., FP8 Formats for Deep Learning, 2022, table 1): the exponent's bias is 7, all ones in exponent and mantissa
// are a NaN, and there are no infinities.
const (
	mostF8 = 448
	nanF8  = 0x7f
)

// encodeF8 rounds to nearest even; what is too large becomes the largest number there is.
func encodeF8(v float32) byte {
	sign := byte(math.Float32bits(v) >> 24 & 0x80)
	a := float32(math.Abs(float64(v)))
	switch {
	case v != v:
		return sign | nanF8
	case a >= mostF8:
		return sign | 0x7e
	}
	exponent := -6 // of denormals and of the smallest normal numbers
	if a >= 1.0/64 {
		exponent = int(math.Float32bits(a)>>23) - 127
	}
	// mantissa with its leading one, 16 where it rounds up to the next power
	n := byte(math.RoundToEven(math.Ldexp(float64(a), 3-exponent)))
	if n < 8 {
		return sign | n
	}
	return sign | byte(exponent+7)<<3 + (n - 8)
}

func decodeF8(b byte) float32 {
	magnitude := b & 0x7f
	exponent, mantissa := int(magnitude>>3), uint32(magnitude&7)
	var a float64
	switch {
	case magnitude == nanF8:
		return float32(math.NaN())
	case exponent == 0:
		a = math.Ldexp(float64(mantissa), -9)
	default:
		a = math.Ldexp(float64(8+mantissa), exponent-10)
	}
	if b&0x80 != 0 {
		a = -a
	}
	return float32(a)
}
