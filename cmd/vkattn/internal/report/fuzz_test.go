package report_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/analysis"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// FuzzFiles: whatever a result file says, comparing it, analysing it and making its tables end with an error or a result, soon.
func FuzzFiles(f *testing.F) {
	good, err := os.ReadFile(filepath.Join("testdata", "synthetic.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	f.Add(bytes.Join(lines[:3], nil), []byte{})
	f.Add(bytes.Join(lines[1:2], nil), bytes.Join(lines[:1], nil))
	row := func(more string) []byte {
		return []byte(`{"vkattn":"1","device":"d"}` + "\n" + `{"impl":"flash2","library":"vkattn 1","dtype":"float16","B":1,"H":1,"D":1` +
			more + "}\n")
	}
	f.Add(row(`,"N":1073741823,"fwd_ms":1e-300,"kernel":"x 1x1"`), []byte{})
	f.Add(row(`,"N":1,"fwd_ms":1e300,"fwd_tflops":1e308,"bwd_ms":5e-324,"bwd_kernel":"kv 1x1, q 99999999999x1"`),
		row(`,"N":1,"fwd_ms":1e-300`))
	f.Add(row(`,"N":3,"Hkv":7,"error":"","max_err":-1,"fwd_rounds":[1,0,-1]`), []byte("{}"))
	rings, err := os.ReadFile(filepath.Join("testdata", "rings.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	lines = bytes.SplitAfter(rings, []byte("\n"))
	f.Add(bytes.Join(lines[:2], nil), lines[2])
	ring := func(more string) []byte {
		return []byte(`{"ranks":65536,"tokens":9007199254740993,"problem":"Nq Nk","device":"d","over":"host","fwd":{"ranks_ms":5e-324,"speedup":1e15` + more + "}}\n")
	}
	f.Add(ring(""),
		ring(`,"traced":{"ms":1e-6,"kernels_ms":1e15,"copies_ms":1,"hidden":1,"lanes":[{"rank":7,"lane":"copy in","spans":[{"what":"?","begin":0,"end":1e15}]},{"lane":""}]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		start := time.Now()
		older, err := result.Read("a", bytes.NewReader(a))
		if err != nil {
			return
		}
		newer, err := result.Read("b", bytes.NewReader(b))
		if err != nil {
			newer = older
		}
		if changes, err := report.Diff(older, newer); err == nil {
			for _, format := range report.ChangeFormats {
				_ = report.WriteChanges(io.Discard, format, changes, 40)
			}
		}
		if r, err := analysis.FromFile(older, 0.5, nil); err == nil {
			for _, format := range []string{"table", "json", "csv"} {
				_ = r.Write(io.Discard, format)
			}
		}
		_ = report.RingText(older.Rings, 60)
		for _, f := range figure.BuildRings(figure.NewSources([]*result.File{older, newer})) {
			if len(f.Series) > 0 {
				_, _ = f.Inline()
			}
		}
		results := &report.Results{Rows: older.Rows, Peers: newer.Rows, PeerImpls: []string{"fa2", "cudnn"}}
		if len(older.Headers) > 0 {
			results.Header = older.Headers[0]
			_ = report.HeaderLines(results.Header)
		}
		for _, format := range report.Formats {
			_ = report.Write(io.Discard, format, results, false)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}
