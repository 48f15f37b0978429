package conformance

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// lacking is how many cases of testdata/vectors ask for what the library does not have, by what they ask for. A case may ask for several
// things. What the library learns is a line less here.
var lacking = map[string]int{}

// TestFolder runs the cases that others computed, golden vectors and cases of ONNX's suite, on the scalar tier: what runs passes, and what
// the library lacks is listed once, counted apart.
func TestFolder(t *testing.T) {
	vktest.Budget(t)
	dev := device(t)
	folder, err := ReadFolder(os.DirFS(goldenFolder))
	require.NoError(t, err)
	require.Empty(t, folder.Damaged)
	o := Options{Folder: folder, Tiers: []flash.Tier{flash.TierScalar}}
	if testing.Short() {
		// What the operator has beside its two layouts of heads; TestConformance has more of the others.
		o.Filter = only("onnx/test_(attention_(2|[bl])|rotary|tensorscatter)|f16_one")
	}
	results, err := Run(context.Background(), dev, o)
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(results, func(a, b Result) int { return strings.Compare(a.Case, b.Case) }))
	lacks, passed, moved, stored := map[string]int{}, map[string]int{}, map[string]bool{}, 0
	for _, r := range results {
		require.Empty(t, r.Failure, "%s on %s", r.Case, r.Target)
		if len(r.Lacks) > 0 && r.Target == "" {
			require.False(t, r.Pass)
			require.NotEmpty(t, r.Skipped)
			for _, what := range r.Lacks {
				lacks[what]++
			}
			continue
		}
		if r.Skipped != "" {
			continue
		}
		require.Equal(t, len(r.Lacks) == 0, r.Pass, r.Case)
		require.NotEmpty(t, r.Worst)
		require.LessOrEqual(t, r.WorstErr, r.WorstBound)
		passed[r.Case]++
		if r.Tangents != "" {
			moved[r.Case] = true
		}
		if strings.Contains(r.Case, "qk_matmul") {
			require.Equal(t, flash.Standard, r.Implementation)
			stored++
		} else if strings.HasPrefix(r.Case, "onnx/") {
			require.Empty(t, r.Lacks)
		} else if r.Implementation != flash.Flash1 {
			require.True(t, r.Gradients, "%s on %s", r.Case, r.Target)
		}
	}
	require.GreaterOrEqual(t, stored, 1)
	if !testing.Short() {
		require.Equal(t, lacking, lacks)
		require.Equal(t, map[string]bool{"f16_bias": true, "f16_d16": true, "f16_one": true, "f16_softcap": true,
			"f32_d40": true, "f32_mask_dead_row": true}, moved, "vectors with tangents")
	}
	require.Empty(t, takeMessages())
	t.Logf("%d cases ran; lacking: %v", len(passed), lacks)
}

// TestBadFolders: files that are no cases are left out and named, and a folder without any case is an error.
func TestBadFolders(t *testing.T) {
	read := func(path string) []byte {
		data, err := os.ReadFile(goldenFolder + "/" + path)
		require.NoError(t, err)
		return data
	}
	one, op := read("f16_one.safetensors"), read("onnx/test_attention_bidirectional_window.safetensors")
	moved := read("f32_mask_dead_row.safetensors")
	// without takes a tensor out of the header; what was its data stays.
	without := func(file []byte, from, to string) []byte {
		n := binary.LittleEndian.Uint64(file)
		header := string(file[8 : 8+n])
		require.Contains(t, header, from)
		header = strings.Replace(header, from, to, 1)
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), file[8+n:]...)
	}
	for _, test := range []struct {
		name string
		file []byte
		want string
	}{
		{"cut short", one[:100], "a/b.safetensors: safetensors: header of"},
		{"empty", nil, "a/b.safetensors: safetensors: 0 bytes"},
		{"no lse", without(one, `"lse"`, `"lsd"`), "a/b.safetensors: there is no tensor lse"},
		{"no dk", without(one, `"dk"`, `"dz"`), "a/b.safetensors: there is no tensor dk"},
		{"no dq", without(one, `"dq"`, `"dz"`), "a/b.safetensors: there is a tensor d"},
		{"no q", without(one, `"q"`, `"qq"`), "a/b.safetensors: ref: q is [0 0 0 0]"},
		{"no gradient of o", without(one, `"do"`, `"dz"`), "a/b.safetensors: tensor do is [0 0 0 0]"},
		{"no tangent of o", without(moved, `"o_tangent"`, `"o_moves"`),
			"a/b.safetensors: tangents of inputs and a tensor o_tangent must go together"},
		{"tangent's shape", without(moved, `"k_tangent":{"dtype":"F32","shape":[1,2,40,32]`, `"k_tangent":{"dtype":"F32","shape":[1,2,32,40]`),
			"a/b.safetensors: ref: the tangent of k is [1 2 32 40]"},
		{"tangents alone", without(without(without(moved, `"dq"`, `"xq"`), `"dk"`, `"xk"`), `"dv"`, `"xv"`),
			"a/b.safetensors: there are tangents and no dq"},
		{"no case", without(one, `"case"`, `"cast"`), "a/b.safetensors: metadata case: "},
		{"attribute", without(op, `left_window_size\": 1`, `left_window_size\": -4`),
			"a/b.safetensors: onnx: attribute left_window_size is -4"},
		{"attribute's name", without(op, `left_window_size`, `window`), "a/b.safetensors: onnx: Attention has no attribute window"},
		{"no output", without(op, `"out.Y"`, `"out.Z"`), "a/b.safetensors: onnx: there is no tensor out.Y"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := ReadFolder(fstest.MapFS{"a.safetensors": {Data: one}, "a/b.safetensors": {Data: test.file},
				"a/b.txt": {Data: []byte("no case")}})
			require.NoError(t, err, "there is another case")
			require.Equal(t, 2, f.Files)
			require.Len(t, f.Damaged, 1)
			require.ErrorContains(t, f.Damaged[0], test.want)
			cases, err := f.cases()
			require.NoError(t, err)
			require.Len(t, cases, 1)
			_, err = ReadFolder(fstest.MapFS{"a/b.safetensors": {Data: test.file}})
			require.ErrorContains(t, err, "there is no case in it: "+test.want)
		})
	}
	_, err := ReadFolder(fstest.MapFS{"a/b.txt": {Data: one}})
	require.ErrorContains(t, err, "no .safetensors file")
	_, err = ReadFolder(os.DirFS("there is none"))
	require.Error(t, err)
	f, err := ReadFolder(fstest.MapFS{"x/y/one.safetensors": {Data: one}, "a.safetensors": {Data: op}})
	require.NoError(t, err)
	cases, err := f.cases()
	require.NoError(t, err)
	require.Len(t, cases, 2)
	require.Equal(t, "a", cases[0].Name)
	require.Equal(t, "x/y/one", cases[1].Name)
}
