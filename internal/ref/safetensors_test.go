package ref

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSafetensorsMistakes: a file whose tensors or names cannot all be meant is refused, with what is wrong.
func TestSafetensorsMistakes(t *testing.T) {
	parse := func(header string) error {
		file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		_, _, err := ParseSafetensors(append(file, make([]byte, 16)...))
		return err
	}
	const a, b = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`, `"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}`
	const none = `"none":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}`
	require.NoError(t, parse("{"+b+","+a+"}"))
	require.NoError(t, parse("{"+a+","+none+"}"), "no byte in common")
	require.EqualError(t, parse("{"+a+","+b+","+a+"}"), `safetensors: header: "a" stands in it twice`)
	require.EqualError(t, parse(`{"__metadata__":{"x":"1","y":"2","x":"3"},`+a+"}"),
		`safetensors: header: "__metadata__.x" stands in it twice`)
	require.EqualError(t, parse(`{"__metadata__":{},`+a+`,"__metadata__":{}}`), `safetensors: header: "__metadata__" stands in it twice`)
	require.EqualError(t, parse(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"dtype":"F16"}}`),
		`safetensors: header: "a.dtype" stands in it twice`)
	for _, other := range []string{`[0,8]`, `[4,12]`, `[0,4]`, `[2,6]`, `[7,8]`} {
		err := parse("{" + a + `,"c":{"dtype":"U8","shape":[1],"data_offsets":` + other + `}}`)
		require.ErrorContains(t, err, "overlap those of ", other)
	}
	wide := `{"whole":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"within":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},` + b + `}`
	require.ErrorContains(t, parse(wide), "tensor within: its bytes 1 to 2 overlap those of whole, 0 to 16")
}
