package result

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func ptr(v float64) *float64 { return &v }

func sampleRow() Row {
	return Row{
		Origin: Origin{Library: "vkattn test", Device: "Some GPU", Driver: "driver <1.0> & more"},
		Case:   Case{Impl: "flash2", DType: "float16", B: 2, H: 8, Hkv: 4, Nq: 128, N: 256, D: 64, Dv: 32, Causal: true},
		Tier:   "scalar", Kernel: "scalar_forward 64x32",
		Fwd: Pass{Ms: 1.25, P20: 1.2, P80: 1.5, WallMs: 1.4, TFLOPS: 12.5, PeakMiB: ptr(0), BlockMiB: 0.0625, TotalMiB: 12.5, N: 80,
			Rounds: []float64{1.2, 1.25, 1.3}},
		Bwd: Pass{Ms: 3, TFLOPS: 9}, Check: Check{MaxErr: ptr(3e-4), ErrMax: ptr(1e-3), ErrRows: 24}, Note: "wall time",
	}
}

func TestFileRoundTrip(t *testing.T) {
	header := Header{VKAttn: "test", Command: []string{"vkattn", "bench"}, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Device: "Some GPU", Driver: "1.0", Limits: map[string]uint64{"maxComputeSharedMemorySize": 32768},
		Peaks: Peaks{FP32TFLOPS: 60, CopyGBps: 4200}}
	failed := Row{Origin: Origin{Library: "vkattn test"}, Case: sampleRow().Case,
		Failure: Failure{Error: "needs 17 GB, has 8 GB", Reason: ReasonMemory}}

	var out bytes.Buffer
	w := NewWriter(&out)
	require.NoError(t, w.Line(header))
	require.NoError(t, w.Line(sampleRow()))
	require.NoError(t, w.Line(failed))
	text := out.String()
	require.Equal(t, 3, strings.Count(text, "\n"))
	require.Contains(t, text, `"driver":"driver <1.0> & more"`, "no HTML escapes")
	require.Contains(t, text, `"fwd_peak_MiB":0,`, "a peak of zero is a figure")
	require.NotContains(t, strings.Split(text, "\n")[2], "fwd_ms", "a failed row has no figures")

	got, err := Read("x", &out)
	require.NoError(t, err)
	require.Equal(t, []Header{header}, got.Headers)
	want := []Row{sampleRow(), failed}
	for i := range want {
		want[i].peaks, want[i].command = header.Peaks, header.Command // of the run that the file says they are of
	}
	require.Equal(t, want, got.Rows)
}

// TestRowsOfWhatIsGone: rows of parameters, kernels and orders of sums that this version does not have are read, by what it knows of them.
func TestRowsOfWhatIsGone(t *testing.T) {
	text := `{"vkattn": "0.1.0"}
{"library": "vkattn 0.1.0", "impl": "flash2", "dtype": "float16", "B": 1, "H": 2, "N": 64, "D": 64, "tuning": "one=1", "any_order": true, "bwd_kernel": "matrix_backward_atomic kv 128x32", "bwd_ms": 2.5, "bwd_tflops": 9, "bwd_model": {"kind": "backward atomic", "delta": "d", "zero": "z", "sum": "s", "keys": {"label": "k", "rows": 128, "columns": 32}, "sum_rows": 16, "sum_columns": 64}}
{"library": "vkattn 0.1.0", "impl": "flash2", "dtype": "float16", "B": 1, "H": 2, "N": 64, "D": 64, "tuning": "kv_columns=2,kv_roles=2,kv_share=2", "bwd_ms": 3.5, "bwd_model": {"kind": "backward", "delta": "d", "keys": {"label": "k", "rows": 64, "columns": 32, "sharers": 2}, "queries": {"label": "q", "rows": 64, "columns": 32}}}
`
	got, err := Read("x", strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, got.Rows, 2)
	require.Equal(t, 2.5, got.Rows[0].Bwd.Ms)
	require.Equal(t, Tuning("one=1"), got.Rows[0].Tuning)
	require.True(t, got.Rows[0].Bwd.Model.IsZero(), "a kernel that is gone has no model")
	require.Equal(t, Tuning("kv_columns=2,kv_roles=2,kv_share=2"), got.Rows[1].Tuning)
	require.False(t, got.Rows[1].Bwd.Model.IsZero())
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, r := range got.Rows {
		require.NoError(t, w.Line(r))
	}
	require.NotContains(t, out.String(), "any_order")
	again, err := Read("x", &out)
	require.NoError(t, err)
	require.Len(t, again.Rows, 2)
}

// TestFlagsOfTheRun: a row knows with which flags it was measured, however they were spelled.
func TestFlagsOfTheRun(t *testing.T) {
	row := `{"library": "vkattn 1", "impl": "flash2", "dtype": "float32", "B": 1, "H": 1, "N": 64, "D": 64, "fwd_ms": 1}` + "\n"
	f, err := Read("f.jsonl", strings.NewReader(row+`{"vkattn": "1", "command": ["vkattn", "bench", "--tiles", "a b", "--tier=scalar", "--out"]}`+
		"\n"+row+`{"vkattn": "1"}`+"\n"+row))
	require.NoError(t, err)
	for i, want := range [][3]string{{}, {"a b", "scalar", ""}, {}} {
		r := &f.Rows[i]
		require.Equal(t, want, [3]string{r.Flag("tiles"), r.Flag("tier"), r.Flag("out")})
	}
}

func TestReadPeerFile(t *testing.T) {
	text := `{"torch": "2.11.0+cu130", "gpu": "NVIDIA H200", "capability": [9, 0]}
{"library": "torch 2.11.0+cu130", "impl": "fa2", "dtype": "float16", "B": 1, "H": 32, "Hkv": 8, "Nq": 1, "N": 4096, "D": 128, "causal": false, "fwd_peak_MiB": 0.5, "fwd_ms": 0.0172, "fwd_tflops": 3.9}

{"library": "torch 2.11.0+cu130", "impl": "standard", "dtype": "float16", "B": 64, "H": 32, "N": 4096, "D": 128, "causal": true, "error": "OutOfMemoryError: CUDA out of memory."}
{"gemm_tflops": 635.8}
`
	f, err := Read("torch.jsonl", strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, f.Other, 2)
	require.Len(t, f.Rows, 2)
	require.Equal(t, Case{Impl: "fa2", DType: "float16", B: 1, H: 32, Hkv: 8, Nq: 1, N: 4096, D: 128, Dv: 128}, f.Rows[0].Case)
	require.Equal(t, 0.0172, f.Rows[0].Fwd.Ms)
	require.Equal(t, 32, f.Rows[1].Hkv, "missing Hkv is H")
	require.True(t, f.Rows[1].Failed())
}

// TestRowsKeepThePeaksOfTheirRun: a share of the peak is that of the run that measured the row, whichever run shows it.
func TestRowsKeepThePeaksOfTheirRun(t *testing.T) {
	row := `{"library": "vkattn 1", "impl": "flash2", "dtype": "float32", "B": 1, "H": 1, "N": %d, "D": 64, "fwd_ms": 1, "fwd_tflops": 2}` +
		"\n"
	text := `{"vkattn": "1", "peaks": {"fp32_tflops": 4}}` + "\n" + fmt.Sprintf(row, 64) + `{"vkattn": "1", "peaks": {"fp32_tflops": 8}}` +
		"\n" + fmt.Sprintf(row, 128)
	f, err := Read("f.jsonl", strings.NewReader(text))
	require.NoError(t, err)
	view := &View{Peaks: Peaks{FP32TFLOPS: 20}}
	for i, want := range []string{"50.0", "25.0"} {
		require.Equal(t, want, (&Cell{View: view, Row: &f.Rows[i]}).percentOfPeak(&f.Rows[i].Fwd))
	}
	fresh := f.Rows[0]
	fresh.peaks = Peaks{}
	require.Equal(t, "10.0", (&Cell{View: view, Row: &fresh}).percentOfPeak(&fresh.Fwd))
	again := fresh // backward alone: the share is still of the run that timed forward
	again.Fwd = Pass{}
	again = again.After(f.Rows[0])
	require.Equal(t, "50.0", (&Cell{View: view, Row: &again}).percentOfPeak(&again.Fwd))
}

// TestRowsKeepTheCopiesOfTheirRun: a share of the bandwidth of copying too.
func TestRowsKeepTheCopiesOfTheirRun(t *testing.T) {
	row := `{"library": "vkattn 1", "impl": "flash2", "dtype": "float16", "B": 1, "H": 1, "Nq": 1, "N": %d, "D": 64, "fwd_ms": 1, ` +
		`"fwd_least_bytes": 1e9}` + "\n"
	text := `{"vkattn": "1", "peaks": {"copy_GBps": 2000}}` + "\n" + fmt.Sprintf(row, 1024) +
		`{"vkattn": "1", "peaks": {"copy_GBps": 4000}}` + "\n" + fmt.Sprintf(row, 2048)
	f, err := Read("f.jsonl", strings.NewReader(text))
	require.NoError(t, err)
	view := &View{Peaks: Peaks{CopyGBps: 4000}}
	for i, want := range []string{"50.0", "25.0"} {
		require.Equal(t, want, (&Cell{View: view, Row: &f.Rows[i]}).percentOfCopy(&f.Rows[i].Fwd))
	}
	fresh := f.Rows[0]
	fresh.peaks = Peaks{}
	require.Equal(t, "25.0", (&Cell{View: view, Row: &fresh}).percentOfCopy(&fresh.Fwd))
}

func TestBadFiles(t *testing.T) {
	good := `{"torch": "2", "gpu": "G"}` + "\n"
	for name, test := range map[string]struct{ text, err string }{
		"empty": {"", "f.jsonl:1: the file is empty"},
		"not JSON": {good + "hello\n", "f.jsonl:2: not a JSON object: its byte 1, \"h\", is not what JSON has there (where a power " +
			"cut damaged the line, delete it"},
		"cut short":  {good + `{"impl": "fa2", "dty` + "\n" + good, "f.jsonl:2: not a JSON object"},
		"only a cut": {`{"vkattn": "0`, "f.jsonl:1: the only line was cut off"},
		"not ours":   {good + `hello`, "f.jsonl:2: not a JSON object"},
		"an array":   {"[1]\n", "f.jsonl:1: not a JSON object"},
		"foreign":    {`{"name": "x"}` + "\n", "f.jsonl:1: neither a header"},
		"bad dtype":  {`{"impl": "fa2", "dtype": "int8", "B": 1, "H": 1, "N": 1, "D": 1}`, `f.jsonl:1: bad result row: dtype "int8"`},
		"no sizes":   {`{"impl": "fa2", "dtype": "float16"}`, "f.jsonl:1: bad result row: batch is 0"},
		"wrong type": {`{"impl": "fa2", "dtype": "float16", "B": "1"}`,
			"f.jsonl:1: bad result row: B: it is text, and must be a whole number"},
		"negative":     {`{"impl": "fa2", "dtype": "float16", "B": 1, "H": 1, "N": 1, "D": 1, "fwd_ms": -1}`, "fwd_ms is -1"},
		"a bad header": {`{"vkattn": 3}`, "f.jsonl:1: bad header"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o644))
			_, err := ReadFile(path)
			require.ErrorContains(t, err, test.err)
		})
	}
	_, err := ReadFile(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRoundKeepsSixDigits(t *testing.T) {
	require.Equal(t, 123.457, Round(123.4567891))
	require.Equal(t, 1.23457e-4, Round(1.234567891e-4))
	require.Equal(t, 0.0, Round(0))
}
