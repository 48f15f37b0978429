package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
)

// goldenFolder holds cases that others computed.
const goldenFolder = "../../testdata/vectors"

// folderOf copies files of testdata/vectors, by the names that they are to have.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range files {
		data, err := os.ReadFile(filepath.Join(goldenFolder, from))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
}

// TestVerifyVectors: cases of a folder run on every kernel, a case that asks for what there is not is counted apart, and a part that is
// missing is no pass.
func TestVerifyVectors(t *testing.T) {
	needDevice(t)
	dir := folderOf(t, map[string]string{
		"one.safetensors":            "f16_one.safetensors",
		"b/plain.safetensors":        "onnx/test_attention_3d_gqa_causal.safetensors",
		"b/scores.safetensors":       "onnx/test_attention_4d_with_qk_matmul.safetensors",
		"b/c/window.safetensors":     "onnx/test_attention_bidirectional_window.safetensors",
		"b/c/lengths.safetensors":    "onnx/test_attention_4d_causal_nonpad_batch_prefill.safetensors",
		"b/c/rotary.safetensors":     "onnx/test_rotary_embedding.safetensors",
		"b/c/notes.txt":              "README.md",
		"b/d/blocks/one.safetensors": "f16_block_sparse.safetensors",
	})
	other := filepath.Join(dir, "b", "c", "other.safetensors") // of an operator that there is not
	data, err := os.ReadFile(filepath.Join(dir, "b", "c", "rotary.safetensors"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, bytes.Replace(data, []byte("RotaryEmbedding"), []byte("RotaryUnbedding"), 1), 0o644))
	status, stdout, stderr := call("verify", "--vectors", dir, "--tier", "scalar", "--no-skipped")
	require.Zero(t, status, stdout+stderr)
	require.Regexp(t, `b/plain +flash2/scalar\S* +pass +forward +\S+ +\S+ +\S+\n`, stdout)
	require.Regexp(t, `b/scores +standard/scalar +pass +forward`, stdout)
	require.NotRegexp(t, `b/scores +flash`, stdout)
	require.Regexp(t, `one +standard/scalar +pass +both`, stdout)
	require.Regexp(t, `b/c/window +standard/scalar +pass +forward`, stdout)
	require.Regexp(t, `b/c/lengths +flash2/scalar\S* +pass +forward`, stdout)
	require.Regexp(t, `b/c/rotary +append +pass +forward +Y`, stdout)
	require.Regexp(t, `b/c/other +none +lacks +lacks: the operator RotaryUnbedding\n`, stdout)
	require.Regexp(t, `b/d/blocks/one +blocksparse/scalar +pass +both`, stdout)
	require.Contains(t, stdout, "1 case asks for what vkattn does not have, and 1 not run: the operator RotaryUnbedding (1)\n")

	status, stdout, _ = call("verify", "--vectors", dir, "--tier", "scalar", "--run", "^b/(plain|c/)", "--summary")
	require.Zero(t, status)
	require.Contains(t, stdout, "cases by option")
	require.Contains(t, stdout, "1 case asks for")
	status, stdout, _ = call("verify", "--vectors", dir, "--tier", "scalar", "--run", "^b/c/o", "--failed")
	require.Equal(t, exitFailure, status, "nothing ran")
	require.Contains(t, stdout, "no case ran")
	require.NotContains(t, stdout, "b/c/other")
}

// TestVerifyWrongVectors: an output that is not what a file says fails.
func TestVerifyWrongVectors(t *testing.T) {
	needDevice(t)
	for file, output := range map[string]string{"f16_one.safetensors": "o", "f16_d16.safetensors": "dk",
		"onnx/test_attention_local_window_default.safetensors": "out.Y"} {
		dir := folderOf(t, map[string]string{"wrong.safetensors": file})
		path := filepath.Join(dir, "wrong.safetensors")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		n := binary.LittleEndian.Uint64(data)
		var header map[string]struct {
			Offsets [2]int `json:"data_offsets"`
		}
		require.NoError(t, json.Unmarshal(data[8:8+n], &header))
		data[8+int(n)+header[output].Offsets[1]-1] ^= 0x40 // the exponent of its last element
		require.NoError(t, os.WriteFile(path, data, 0o644))
		status, stdout, _ := call("verify", "--vectors", dir, "--tier", "scalar", "--impl", "flash,standard")
		require.Equal(t, exitFailure, status, file)
		require.Regexp(t, `wrong +flash2/scalar\S* +FAIL`, stdout, file)
		require.Regexp(t, `standard/scalar +0 cases passed, 1 FAILED`, stdout, file)
	}
}

// TestVerifyDamagedVectors: a file that is damaged is named and counted, all others run, and the exit status says that something was wrong.
func TestVerifyDamagedVectors(t *testing.T) {
	needDevice(t)
	dir := folderOf(t, map[string]string{"a.safetensors": "f16_one.safetensors", "b/cut.safetensors": "f16_d16.safetensors",
		"b/text.safetensors": "README.md",
		"c.safetensors":      "onnx/test_attention_local_window_default.safetensors"})
	require.NoError(t, os.Truncate(filepath.Join(dir, "b", "cut.safetensors"), 1000))
	args := []string{"verify", "--vectors", dir, "--tier", "scalar", "--impl", "standard"}
	status, stdout, stderr := call(args...)
	require.Equal(t, exitFailure, status, stderr)
	for _, want := range []string{`a +standard/scalar +pass`, `c +standard/scalar +pass`,
		`FAIL  of 4 files 2 cannot be read as a case, and left out:\n`,
		`\n +b/cut.safetensors: \S`, `\n +b/text.safetensors: \S`} {
		require.Regexp(t, want, stdout)
	}
	for _, file := range []string{"cut", "text"} {
		require.NoError(t, os.Remove(filepath.Join(dir, "b", file+".safetensors")))
	}
	status, stdout, stderr = call(args...)
	require.Zero(t, status, stdout+stderr)
}

// TestVectorsAreCheckedBeforeTheDevice: what is wrong with a folder is said at once, with the file's name.
func TestVectorsAreCheckedBeforeTheDevice(t *testing.T) {
	none := t.TempDir()
	bad := folderOf(t, map[string]string{"a/z.safetensors": "README.md"})
	for _, test := range []struct{ dir, want string }{
		{none, "vkattn: --vectors: in " + none + ": there is no .safetensors file in it"},
		{bad, "vkattn: --vectors: in " + bad + ": there is no case in it: a/z.safetensors: "},
		{filepath.Join(none, "other"), "vkattn: --vectors: stat "},
		{filepath.Join(bad, "a", "z.safetensors"), "is a file: it must be a folder"},
	} {
		status, stdout, stderr := call("verify", "--device", "no such device", "--vectors", test.dir)
		require.Equal(t, exitFailure, status, test.dir)
		require.Empty(t, stdout)
		require.Contains(t, stderr, test.want)
	}
}

// TestLacksLine: a case counts once, and for everything that it asks for.
func TestLacksLine(t *testing.T) {
	require.Equal(t, "lacks", resultWord(conformance.Result{Lacks: []string{"bias"}, Skipped: "x"}))
	require.Equal(t, "FAIL", resultWord(conformance.Result{Lacks: []string{"bias"}, Failure: "x"}))
	require.Equal(t, "1 case asks for", asks(1))
}
