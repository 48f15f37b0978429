package spirv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstruction(t *testing.T) {
	require.Equal(t, []uint32{1<<16 | 253}, Instruction(253))
	require.Equal(t, []uint32{4<<16 | 43, 7, 8, 9}, Instruction(43, 7, 8, 9))
}

func TestStrings(t *testing.T) {
	require.Equal(t, []uint32{0}, Words(""))
	require.Equal(t, []uint32{'m' | 'a'<<8 | 'i'<<16 | 'n'<<24, 0}, Words("main"))
	for _, s := range []string{"", "a", "abc", "main", "GLSL.std.450", "größer"} {
		require.Equal(t, s, Literal(append(Words(s), 0x41414141)), "what follows the zero is no part of it")
	}
}
