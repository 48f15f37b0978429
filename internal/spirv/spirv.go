// Package spirv is what those who read or write SPIR-V modules share: the layout of modules and instructions (SPIR-V specification, section
// 2.3). Each keeps the numbers of the instructions that it looks at.
package spirv

import (
	"encoding/binary"
	"strings"
)

// A module begins with Magic, in the byte order of its words; its header has HeaderWords words. All its identifiers are below the word at
// BoundWord.
const (
	Magic       = 0x07230203
	HeaderWords = 5
	BoundWord   = 3
)

// MaxBound is the bound that modules for Vulkan stay below (SPIR-V specification, section 2.17).
const MaxBound = 1 << 22

// Instruction is an opcode and its operands in words.
func Instruction(op uint32, operands ...uint32) []uint32 {
	return append([]uint32{uint32(len(operands)+1)<<16 | op}, operands...)
}

// Literal is a string of a module: UTF-8, four bytes a word, the first lowest, ended by a zero byte.
func Literal(words []uint32) string {
	raw := make([]byte, 0, 4*len(words))
	for _, w := range words {
		raw = binary.LittleEndian.AppendUint32(raw, w)
	}
	text, _, _ := strings.Cut(string(raw), "\x00")
	return text
}

// Words is Literal's inverse.
func Words(s string) []uint32 {
	out := make([]uint32, len(s)/4+1)
	for i := range len(s) {
		out[i/4] |= uint32(s[i]) << (8 * (i % 4))
	}
	return out
}

// Bytes is a module as it stands in a file, little-endian, of which hashes are made.
func Bytes(words []uint32) []byte {
	out := make([]byte, 4*len(words))
	for i, w := range words {
		binary.LittleEndian.PutUint32(out[4*i:], w)
	}
	return out
}
