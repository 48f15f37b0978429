package heads

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// file writes a safetensors file of zeros.
func file(t *testing.T, metadata map[string]string, shapes map[string][]int, dtype string) string {
	t.Helper()
	header := map[string]any{"__metadata__": metadata}
	size, at := map[string]int{"F32": 4, "F16": 2, "I64": 8}[dtype], 0
	for name, shape := range shapes {
		n := size
		for _, d := range shape {
			n *= d
		}
		header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": [2]int{at, at + n}}
		at += n
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "heads.safetensors")
	raw := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	require.NoError(t, os.WriteFile(path, append(raw, make([]byte, at)...), 0o644))
	return path
}

func TestRead(t *testing.T) {
	shapes := map[string][]int{"layer.q": {4, 3, 8}, "layer.k": {2, 5, 8}, "bias": {3, 5}}
	names := Names{Q: "layer.q", K: "layer.k"}
	h, err := Read(file(t, map[string]string{"causal": "top-left", "window": "2,-1", "text": "añb c", "title": "T", "scale": "0.5"}, shapes,
		"F16"), names)
	require.NoError(t, err)
	p := h.Problem
	require.Equal(t, [4]int{1, 4, 3, 8}, p.QShape())
	require.Equal(t, [4]int{1, 2, 5, 8}, p.KShape())
	require.Equal(t, flash.CausalTopLeft, p.Causal)
	require.Equal(t, flash.SlidingWindow(2, -1), p.Window)
	require.Equal(t, 0.5, p.Scale)
	require.Equal(t, flash.F16, p.DType)
	require.Equal(t, []string{"a", "ñ", "b", " ", "c"}, h.Text)
	require.True(t, h.Masked)

	for want, c := range map[string]struct {
		metadata map[string]string
		shapes   map[string][]int
		dtype    string
	}{
		`no tensor "layer.q": name another with --q; it has k, q`: {nil, map[string][]int{"q": {1, 2}, "k": {1, 2}}, "F32"},
		"must be F32, F16 or BF16":                                {nil, shapes, "I64"},
		"one batch and dim": {nil, map[string][]int{"layer.q": {4, 3, 8}, "layer.k": {3, 5, 8}},
			"F32"},
		"metadata causal":                  {map[string]string{"causal": "yes"}, shapes, "F32"},
		"metadata window":                  {map[string]string{"window": "wide"}, shapes, "F32"},
		"metadata text has 2":              {map[string]string{"text": "ab"}, shapes, "F32"},
		"metadata scale":                   {map[string]string{"scale": "x"}, shapes, "F32"},
		"a tensor bias, which changes the": {map[string]string{"case": "{}"}, shapes, "F32"},
		"have a softcap": {map[string]string{"case": `{"softcap": 3}`},
			map[string][]int{"layer.q": {3, 8}, "layer.k": {5, 8}}, "F32"},
		"must be from 1 to": {nil, map[string][]int{"layer.q": {3, 600}, "layer.k": {5, 600}}, "F32"},
	} {
		_, err := Read(file(t, c.metadata, c.shapes, c.dtype), names)
		require.ErrorContains(t, err, want)
	}
}

func TestRandom(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 9, HeadDim: 8}
	a, err := Random(p, 1)
	require.NoError(t, err)
	b, err := Random(p, 1)
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.Len(t, a.Q, 4*9*8)
	require.Len(t, a.K, 2*9*8)
	_, err = Random(flash.Problem{}, 1)
	require.ErrorIs(t, err, flash.ErrArgument)
}
