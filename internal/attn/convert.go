package attn

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// Encode writes values as elements of type t, little-endian, to nearest even, blocks as ggml does (quantised.go). dst holds len(src)
// elements; the rest of the last byte of bits is 0.
func Encode(t DType, dst []byte, src []float32) {
	switch t {
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], float16.Fromfloat32(v).Bits())
		}
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], bf16Bits(v))
		}
	case Int32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(int32(v)))
		}
	case Bool:
		for i, v := range src {
			dst[i] = 0
			if v != 0 {
				dst[i] = 1
			}
		}
	case Bit:
		clear(dst[:t.Bytes(len(src))])
		for i, v := range src {
			if v != 0 {
				dst[i/8] |= 1 << (i % 8)
			}
		}
	case F8E4M3:
		for i, v := range src {
			dst[i] = encodeF8(v)
		}
	case F8E5M2:
		for i, v := range src {
			dst[i] = encodeE5M2(v)
		}
	default:
		u := t.unit()
		for i := 0; u.elements == blockOf && (i+1)*blockOf <= len(src); i++ {
			blocks[t].encode(dst[i*u.bytes:(i+1)*u.bytes], src[i*blockOf:(i+1)*blockOf])
		}
	}
}

// Decode reads elements of type t. src holds len(dst) elements.
func Decode(t DType, dst []float32, src []byte) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = float16.Frombits(binary.LittleEndian.Uint16(src[2*i:])).Float32()
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	case Int32:
		for i := range dst {
			dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
		}
	case Bool:
		for i := range dst {
			dst[i] = 0
			if src[i] != 0 {
				dst[i] = 1
			}
		}
	case Bit:
		for i := range dst {
			dst[i] = float32(src[i/8] >> (i % 8) & 1)
		}
	case F8E4M3:
		for i := range dst {
			dst[i] = decodeF8(src[i])
		}
	case F8E5M2:
		for i := range dst {
			dst[i] = float16.Frombits(uint16(src[i]) << 8).Float32()
		}
	default:
		u := t.unit()
		for i := 0; u.elements == blockOf && (i+1)*blockOf <= len(dst); i++ {
			blocks[t].decode(dst[i*blockOf:(i+1)*blockOf], src[i*u.bytes:(i+1)*u.bytes])
		}
	}
}

// bf16Bits rounds to nearest even. A NaN stays a NaN (its payload may vanish with the lower half, so a bit is set).
func bf16Bits(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
