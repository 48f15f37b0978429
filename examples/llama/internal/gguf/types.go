package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// Type is how elements of a tensor are stored, in ggml's numbers.
type Type uint32

// Types that are read. Quantised ones are blocks of elements, integers q that share numbers of fp16:
//
//	Q8_0, Q4_0, Q5_0    32 elements d·q
//	Q4_1, Q5_1          32 elements d·q + m
//	Q4_K, Q5_K          256 elements d·s·q − m·t, eight times 32 of them with scales s and t of 6 bits
//	Q6_K                256 elements d·s·q, sixteen times 16 of them with a scale s of 8 bits
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// names are those of types that can be met; the others are numbers.
var names = map[Type]string{F32: "F32", F16: "F16", Q4_0: "Q4_0", Q4_1: "Q4_1", Q5_0: "Q5_0", Q5_1: "Q5_1", Q8_0: "Q8_0", 9: "Q8_1",
	10: "Q2_K", 11: "Q3_K", Q4_K: "Q4_K", Q5_K: "Q5_K", Q6_K: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
	17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
	21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", BF16: "BF16", 34: "TQ1_0",
	35: "TQ2_0", 39: "MXFP4"}

// Types are those that are read.
func Types() []Type { return []Type{F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q5_1, Q5_0, Q4_1, Q4_0} }

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
	case Q4_1:
		return 32, 20
	case Q5_0:
		return 32, 22
	case Q5_1:
		return 32, 24
	case Q4_K:
		return 256, 144
	case Q5_K:
		return 256, 176
	case Q6_K:
		return 256, 210
	}
	return 0, 0
}

// halves are all numbers of fp16: a table is faster than taking them apart.
var halves = func() *[1 << 16]float32 {
	var all [1 << 16]float32
	for i := range all {
		all[i] = float16.Frombits(uint16(i)).Float32()
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
	default:
		elements, bytes := t.Block()
		for ; len(x) >= elements; x, raw = x[elements:], raw[bytes:] {
			t.block(x[:elements], raw[:bytes])
		}
	}
}

// half is the fp16 at an offset.
func half(raw []byte, at int) float32 { return halves[binary.LittleEndian.Uint16(raw[at:])] }

// block writes the elements of a quantised block.
func (t Type) block(x []float32, raw []byte) {
	switch t {
	case Q8_0:
		d := half(raw, 0)
		for i, q := range raw[2:34] {
			x[i] = d * float32(int8(q))
		}
	case Q4_0:
		small(x, half(raw, 0), 0, -8, nil, raw[2:])
	case Q4_1:
		small(x, half(raw, 0), half(raw, 2), 0, nil, raw[4:])
	case Q5_0:
		small(x, half(raw, 0), 0, -16, raw[2:6], raw[6:])
	case Q5_1:
		small(x, half(raw, 0), half(raw, 2), 0, raw[4:8], raw[8:])
	case Q4_K:
		large(x, raw, nil, raw[16:])
	case Q5_K:
		large(x, raw, raw[16:48], raw[48:])
	case Q6_K:
		d := half(raw, 208)
		for i := range x {
			part, at := i/128, i%128 // halves of a block; in each, lower bits of bytes are elements 0 to 63, upper ones 64 to 127
			low := raw[part*64+at%64] >> (at / 64 * 4) & 15
			high := raw[128+part*32+at%32] >> (at / 32 * 2) & 3
			x[i] = d * float32(int8(raw[192+i/16])) * float32(int(high<<4|low)-32)
		}
	}
}

// small writes 32 elements d·(q + zero) + m, whose lower four bits are in low, those of elements 0 to 15 in the lower halves of bytes, and
// whose fifth bits are those of high.
func small(x []float32, d, m float32, zero int, high, low []byte) {
	var bits uint32
	if high != nil {
		bits = binary.LittleEndian.Uint32(high)
	}
	for i, q := range low[:16] {
		// products are rounded, on processors that could add without it too: elements are the same on all
		x[i] = float32(d*float32(int(q&15)+int(bits>>i&1)<<4+zero)) + m
		x[i+16] = float32(d*float32(int(q>>4)+int(bits>>(i+16)&1)<<4+zero)) + m
	}
}

// large writes 256 elements d·s·q − m·t. Eight scales s and t of 6 bits are in twelve bytes: of the first four the bytes' lower 6 bits, and
// of the last four the upper 2 bits of those above the halves of the last four bytes.
func large(x []float32, raw, high, low []byte) {
	d, m, packed := half(raw, 0), half(raw, 2), raw[4:16]
	for j := range 8 {
		s, t := packed[j%4]&63, packed[4+j%4]&63
		if j >= 4 {
			s, t = packed[4+j]&15|packed[j-4]>>6<<4, packed[4+j]>>4|packed[j]>>6<<4
		}
		scale, least := d*float32(s), m*float32(t)
		for i := range 32 { // two times 32 elements share 32 bytes
			q := low[j/2*32+i] >> (j % 2 * 4) & 15
			if high != nil {
				q |= high[i] >> j & 1 << 4
			}
			x[j*32+i] = float32(scale*float32(q)) - least
		}
	}
}
