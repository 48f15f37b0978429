package input

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/internal/ref"
)

func stored(shape ...int) ref.Stored {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	return ref.Stored{DType: "F32", Shape: shape, Data: data}
}

func TestParse(t *testing.T) {
	s, err := parse(map[string]ref.Stored{
		"layer10.q": stored(4, 3, 2), "layer10.k": stored(2, 3, 2), "layer2.q": stored(1, 2, 3, 2), "layer2.k": stored(2, 3, 2),
		"other": stored(1), "lonely.q": stored(1, 1, 1),
		"layer10.lists": {DType: "I32", Shape: []int{2, 3, 1}, Data: []byte{23: 0}},
	}, map[string]string{"text": "añ\n", "layer10.window": "5,5", "window": "-1,-1", "causal": "none"})
	require.NoError(t, err)
	require.Len(t, s.Layers, 2)
	require.Equal(t, "layer2", s.Layers[0].Name)
	l := s.Layers[1]
	require.Equal(t, []int{4, 2, 3, 3, 2, 5}, []int{l.Heads, l.KeyHeads, l.Queries, l.Keys, l.Dim, l.Window})
	require.False(t, l.Causal)
	require.Equal(t, []rune("añ\n"), s.Text)
	require.Equal(t, float32(23), l.Q[23])
	require.Equal(t, []int{2, 1}, []int{l.Lists.Heads, l.Lists.Longest})
	require.Nil(t, s.Layers[0].Lists)
	_, err = view.New(s, 100, 100)
	require.NoError(t, err)
}

// What a file lacks is told by what it must be.
func TestParseRefusals(t *testing.T) {
	good := func() map[string]ref.Stored { return map[string]ref.Stored{"q": stored(2, 3, 4), "k": stored(2, 3, 4)} }
	for want, c := range map[string]struct {
		change func(m map[string]ref.Stored)
		about  map[string]string
	}{
		"no tensors of queries and keys":  {func(m map[string]ref.Stored) { delete(m, "k") }, nil},
		"of [batch, heads, tokens, dim]":  {func(m map[string]ref.Stored) { m["q"] = stored(4) }, nil},
		"with one batch and dim":          {func(m map[string]ref.Stored) { m["k"] = stored(2, 3, 5) }, nil},
		"tensor \"lists\" is F32 [2 3 1]": {func(m map[string]ref.Stored) { m["lists"] = stored(2, 3, 1) }, nil},
		"3 queries, 1 or more keys": {func(m map[string]ref.Stored) {
			m["lists"] = ref.Stored{DType: "I32", Shape: []int{4, 1}, Data: make([]byte, 16)}
		}, nil},
		"metadata text has 2 characters": {nil, map[string]string{"text": "ab"}},
		"it must be none, bottom-right":  {nil, map[string]string{"causal": "perhaps"}},
		"it must be two numbers of keys": {nil, map[string]string{"window": "-1"}},
		"has 2 batch entries":            {func(m map[string]ref.Stored) { m["q"], m["k"] = stored(2, 1, 3, 4), stored(2, 1, 3, 4) }, nil},
		"has scale -1":                   {nil, map[string]string{"scale": "-1"}},
		"the viewer shows one or more":   {nil, map[string]string{"window": "3,4", "causal": "none"}},
		"of as many queries as keys": {func(m map[string]ref.Stored) { m["k"] = stored(2, 5, 4) },
			map[string]string{"causal": "top-left"}},
		"tensor \"q\" is I64": {func(m map[string]ref.Stored) {
			m["q"] = ref.Stored{DType: "I64", Shape: []int{1, 1, 1}, Data: make([]byte, 8)}
		}, nil},
		"3 elements of shape": {func(m map[string]ref.Stored) {
			m["q"] = ref.Stored{DType: "F32", Shape: []int{1, 1, 4}, Data: make([]byte, 12)}
		}, nil},
	} {
		m := good()
		if c.change != nil {
			c.change(m)
		}
		_, err := parse(m, c.about)
		require.ErrorContains(t, err, want)
	}
}

func TestRead(t *testing.T) {
	body := slices.Concat(stored(2, 3, 4).Data, stored(1, 3, 4).Data)
	header, err := json.Marshal(map[string]any{
		"q": map[string]any{"dtype": "F32", "shape": []int{2, 3, 4}, "data_offsets": []int{0, 96}},
		"k": map[string]any{"dtype": "F32", "shape": []int{1, 3, 4}, "data_offsets": []int{96, 144}},
	})
	require.NoError(t, err)
	file := slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header, body)
	path := filepath.Join(t.TempDir(), "mine.safetensors")
	require.NoError(t, os.WriteFile(path, file, 0o644))
	s, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, "mine", s.Name)
	require.Equal(t, "layer", s.Layers[0].Name)
	require.NoError(t, os.WriteFile(path, file[:40], 0o644))
	_, err = Read(path)
	require.ErrorContains(t, err, path)
}

func TestRandom(t *testing.T) {
	a, err := Random(7, 4, 2, 10, 12, 3)
	require.NoError(t, err)
	b, err := Random(7, 4, 2, 10, 12, 3)
	require.NoError(t, err)
	require.Equal(t, a, b)
	other, err := Random(8, 4, 2, 10, 12, 3)
	require.NoError(t, err)
	require.NotEqual(t, a, other)
	_, err = view.New(a, 100, 100)
	require.NoError(t, err)
	_, err = Random(1, 3, 2, 4, 4, 4)
	require.ErrorContains(t, err, "multiple of KeyHeads")
}
