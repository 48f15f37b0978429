package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is how elements of a tensor are stored, in ggml's numbers.
type Type uint32

// Types that are read. Q8_0 is blocks of 32 elements, an fp16 scale and 32 int8; Q4_0 a scale and 32 numbers of 4 bits from −8 to 7.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q8_0 Type = 8
	BF16 Type = 30
)

// names are those of types that can be met; the others are numbers.
var names = map[Type]string{F32: "F32", F16: "F16", Q4_0: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", Q8_0: "Q8_0", 9: "Q8_1", 10: "Q2_K",
	11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
	21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", BF16: "BF16", 34: "TQ1_0",
	35: "TQ2_0", 39: "MXFP4"}

// Types are those that are read.
func Types() []Type { return []Type{F32, F16, BF16, Q8_0, Q4_0} }

func (t Type) String() string {
	if s, known := names[t]; known {
		return s
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block is the elements of a block and its bytes; 0 of types that are not read.
func (t Type) Block() (elements, bytes int) {
	switch t {
	case F32:
		return 1, 4
	case F16, BF16:
		return 1, 2
	case Q8_0:
		return 32, 34
	case Q4_0:
		return 32, 18
	}
	return 0, 0
}

// halves are all numbers of fp16: a table is faster than taking them apart.
var halves = func() *[1 << 16]float32 {
	var all [1 << 16]float32
	for i := range all {
		mantissa, exponent := float64(i&0x3ff), i>>10&31
		x := math.Ldexp(mantissa, -24)
		switch {
		case exponent == 31 && mantissa == 0:
			x = math.Inf(1)
		case exponent == 31:
			x = math.NaN()
		case exponent > 0:
			x = math.Ldexp(mantissa+1024, exponent-25)
		}
		if i>>15 == 1 {
			x = -x
		}
		all[i] = float32(x)
	}
	return &all
}()

// Floats writes the elements that raw holds to x, as many as x has: whole blocks of them.
func (t Type) Floats(x []float32, raw []byte) {
	switch t {
	case F32:
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case F16:
		for i := range x {
			x[i] = halves[binary.LittleEndian.Uint16(raw[2*i:])]
		}
	case BF16:
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		}
	case Q8_0:
		for ; len(x) >= 32; x, raw = x[32:], raw[34:] {
			scale := halves[binary.LittleEndian.Uint16(raw)]
			for i, q := range raw[2:34] {
				x[i] = scale * float32(int8(q))
			}
		}
	case Q4_0:
		for ; len(x) >= 32; x, raw = x[32:], raw[18:] {
			scale := halves[binary.LittleEndian.Uint16(raw)]
			for i, q := range raw[2:18] { // the lower halves of bytes are elements 0 to 15, the upper ones 16 to 31
				x[i], x[i+16] = scale*float32(int(q&15)-8), scale*float32(int(q>>4)-8)
			}
		}
	}
}
