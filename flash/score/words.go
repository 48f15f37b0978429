package score

import (
	"encoding/binary"
	"math"
	"strings"
)

func floatOf(bits uint32) float32 { return math.Float32frombits(bits) }

// literal is a string of SPIR-V: UTF-8, four bytes a word, ended by a zero byte.
func literal(words []uint32) string {
	raw := make([]byte, 0, 4*len(words))
	for _, w := range words {
		raw = binary.LittleEndian.AppendUint32(raw, w)
	}
	text, _, _ := strings.Cut(string(raw), "\x00")
	return text
}

// instruction is an opcode and its operands in words.
func instruction(op uint32, operands ...uint32) []uint32 {
	return append([]uint32{uint32(len(operands)+1)<<16 | op}, operands...)
}
