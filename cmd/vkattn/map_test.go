package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/heads"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

const vectors = "internal/conformance/vectors/"

// TestMapPicture: a picture of a file's heads and one of random heads, as PNG and SVG, and in a report.
func TestMapPicture(t *testing.T) {
	needDevice(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	status, stdout, stderr := call("map", vectors+"f16_cross_top_left.safetensors", "--out", at("a.png"))
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "causal top-left")
	data, err := os.ReadFile(at("a.png"))
	require.NoError(t, err)
	_, err = png.Decode(bytes.NewReader(data))
	require.NoError(t, err)

	status, _, stderr = call("map", vectors+"f16_d16.safetensors", "--out", at("a.png"))
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "exists already: replace it with --force")

	results := at("results.jsonl")
	good, err := os.ReadFile(synthetic)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(results, good, 0o644))
	status, stdout, stderr = call("map", "--random", "--seq", "70", "--heads", "3", "--head-dim", "16", "--head", "0,2", "--queries",
		"3:40", "--window", "9,-1",
		"--linear", "--pool", "sum", "--cells", "20", "--title", "Some <heads>", "--out", at("b.svg"), "--append", results)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "20 × 20 cells")
	svg, err := os.ReadFile(at("b.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "head 2")
	require.NotContains(t, string(svg), "head 1")
	for _, format := range []string{"html", "md"} {
		status, _, stderr = call("report", results, "--out", at("report"), "--format", format)
		require.Zero(t, status, stderr)
		page, err := os.ReadFile(at(map[string]string{"html": "report/index.html", "md": "report/README.md"}[format]))
		require.NoError(t, err)
		require.Contains(t, string(page), map[string]string{"html": `Some &lt;heads&gt;`, "md": "figures/attention-1.png"}[format])
		require.FileExists(t, at("report/figures/attention-1.png"))
	}
	status, _, stderr = call("report", synthetic, "--out", at("report"), "--format", "md")
	require.Zero(t, status, stderr)
	require.NoFileExists(t, at("report/figures/attention-1.png"), "of an earlier report")
}

// TestMapOfTooMany: a picture that no reader of the result file would take is refused, before anything is written; a smaller one is added,
// and the file stays one.
func TestMapOfTooMany(t *testing.T) {
	needDevice(t)
	dir := t.TempDir()
	results, out := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "a.png")
	const text = `{"torch": "a"}` // without an end
	require.NoError(t, os.WriteFile(results, []byte(text), 0o644))
	args := []string{"map", "--random", "--heads", "16", "--head-dim", "8", "--out", out, "--append", results}
	status, _, stderr := call(args...)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "--append "+results+": the picture makes a line of ")
	require.NoFileExists(t, out)
	status, _, stderr = call(append(args, "--cells", "32")...)
	require.Zero(t, status, stderr)
	file, err := result.ReadFile(results)
	require.NoError(t, err)
	require.Len(t, file.Other, 1)
	require.Len(t, file.Maps, 1)
}

// TestMapOfLists: of keys that are all alike, a query's listed ones have equal weights, and others none.
func TestMapOfLists(t *testing.T) {
	needDevice(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	zeros := make([]byte, 4*4*3*8)
	numbers := []int32{2, -1, 0, 1, 1, 0, 2, 0, 1, 2, -1, -1} // two key heads, three queries, two entries
	body := append(bytes.Clone(zeros), zeros[:2*4*3*8]...)
	for _, n := range numbers {
		body = binary.LittleEndian.AppendUint32(body, uint32(n))
	}
	text, err := json.Marshal(map[string]any{
		"q":            map[string]any{"dtype": "F32", "shape": []int{4, 3, 8}, "data_offsets": []int{0, 384}},
		"k":            map[string]any{"dtype": "F32", "shape": []int{2, 3, 8}, "data_offsets": []int{384, 576}},
		"l":            map[string]any{"dtype": "I32", "shape": []int{2, 3, 2}, "data_offsets": []int{576, 624}},
		"__metadata__": map[string]string{"causal": "none"},
	})
	require.NoError(t, err)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	require.NoError(t, os.WriteFile(at("lists.safetensors"), append(file, body...), 0o644))

	h, err := heads.Read(at("lists.safetensors"), heads.Names{Q: "q", K: "k", Lists: "l"})
	require.NoError(t, err)
	dev, err := flash.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	made, err := h.Map(t.Context(), dev, flash.Map{}, 8, 8)
	require.NoError(t, err)
	for head, cells := range made.Cells {
		for query := range 3 {
			list := numbers[(head/2*3+query)*2:][:2]
			n := 0
			for _, key := range list {
				if key >= 0 {
					n++
				}
			}
			for key := range 3 {
				want := 0.0
				if slices.Contains(list, int32(key)) {
					want = 1 / float64(n)
				}
				require.InDelta(t, want, cells[query*3+key], 1e-5, "head %d, query %d, key %d", head, query, key)
			}
		}
	}
	status, stdout, stderr := call("map", at("lists.safetensors"), "--lists", "l", "--out", at("l.png"))
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "of lists of 2 keys")
}

// TestMapUsage: what is wrong with flags and files is said before a device is opened.
func TestMapUsage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a.png")
	file := vectors + "f16_d16.safetensors"
	for _, test := range []struct {
		args, want string
		status     int
	}{
		{"map --out " + out, "no FILE is given, and no --random", exitUsage},
		{"map --random", "--out is missing", exitUsage},
		{"map --random --out a.jpg", "must end in .png or .svg", exitUsage},
		{"map --random --pool median --out " + out, `--pool "median"`, exitUsage},
		{"map --random --colors jet --out " + out, `--colors "jet"`, exitUsage},
		{"map --random --seq 0 --out " + out, `--seq "0": it must be a`, exitUsage},
		{"map --random --heads 0 --out " + out, "--heads 0: it must be at least 1", exitUsage},
		{"map --random --cells 0 --out " + out, "--cells 0: it must be from 1", exitUsage},
		{"map --random --keys 9 --out " + out, `--keys "9": it must be first:end`, exitUsage},
		{"map --random --window 3 --out " + out, "--window must be two numbers", exitUsage},
		{"map --random " + file + " --out " + out, "--random stands in the place of a FILE", exitUsage},
		{"map --seq 9 " + file + " --out " + out, "--seq is of --random heads", exitUsage},
		{"map --q query " + file + " --out " + out, `no tensor "query": name another with --q; it has`, exitFailure},
		{"map --random --lists l --out " + out, "random heads have none", exitUsage},
		{"map --lists l " + file + " --out " + out, `no tensor "l" of lists: it has`, exitFailure},
		{"map --lists q " + file + " --out " + out, "lists of keys must be I32", exitFailure},
		{"map nothing.safetensors --out " + out, "nothing.safetensors", exitFailure},
	} {
		status, _, stderr := call(strings.Fields(test.args)...)
		require.Equal(t, test.status, status, test.args)
		require.Contains(t, stderr, test.want, test.args)
	}
	require.NoFileExists(t, out)
}

// safetensorsOf writes a file of tensors, each of one batch entry and head.
func safetensorsOf(t *testing.T, path string, dtype ref.DType, rows, columns int, tensors map[string][]float32) {
	t.Helper()
	header, body := map[string]any{}, []byte(nil)
	for name, values := range tensors {
		from := len(body)
		body = append(body, dtype.Encode(values)...)
		header[name] = map[string]any{"dtype": strings.ToUpper(dtype.String()), "shape": []int{1, 1, rows, columns},
			"data_offsets": []int{from, len(body)}}
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	require.NoError(t, os.WriteFile(path, append(file, body...), 0o644))
}

// TestMapOfNoNumbers: what NaN and infinities in queries and keys make of cells is drawn as such, counted and said; all other cells are
// what they are.
func TestMapOfNoNumbers(t *testing.T) {
	needDevice(t)
	const rows, columns = 64, 8
	dir := t.TempDir()
	for name, c := range map[string]struct {
		at    int // row of q, or rows+row of k
		value float32
		cells int // of 16 × 16 that are no numbers
	}{
		"queries":  {21, float32(math.NaN()), 16},
		"keys":     {rows + 63, float32(math.NaN()), 256},
		"infinity": {rows + 5, float32(math.Inf(1)), 256},
	} {
		for i, pool := range []string{"mean", "max", "mean", "max"} {
			dtype := []ref.DType{ref.F32, ref.F16}[i/2] // and matrices
			t.Run(fmt.Sprint(name, " ", pool, " ", dtype), func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, 2))
				values := make([]float32, 2*rows*columns)
				for i := range values {
					values[i] = float32(r.NormFloat64())
				}
				values[c.at*columns+3] = c.value
				file, out := filepath.Join(dir, name+".safetensors"), filepath.Join(dir, name+pool+dtype.String()+".png")
				safetensorsOf(t, file, dtype, rows, columns, map[string][]float32{"q": values[:rows*columns], "k": values[rows*columns:]})
				status, stdout, stderr := call("map", file, "--causal=false", "--cells", "16", "--pool", pool, "--out", out)
				require.Zero(t, status, stderr)
				require.Contains(t, stdout, fmt.Sprintf("%d of 256 cells are no numbers", c.cells))
				data, err := os.ReadFile(out)
				require.NoError(t, err)
				img, err := png.Decode(bytes.NewReader(data))
				require.NoError(t, err)
				red := 0
				for y := range img.Bounds().Dy() {
					for x := range img.Bounds().Dx() {
						if r, g, b, _ := img.At(x, y).RGBA(); r>>8 > 0xB0 && g>>8 < 0x60 && b>>8 < 0x60 {
							red++
						}
					}
				}
				require.Greater(t, red, 100)
			})
		}
	}
}
