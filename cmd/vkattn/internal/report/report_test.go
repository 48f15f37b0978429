package report

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

func ptr(v float64) *float64 { return &v }

func row(library, impl string, n int, causal bool, ms float64) result.Row {
	c := result.Case{Impl: impl, DType: "float16", B: 2, H: 8, Hkv: 8, Nq: n, N: n, D: 64, Dv: 64, Causal: causal}
	r := result.Row{Origin: result.Origin{Library: library}, Case: c,
		Fwd: result.Pass{Ms: ms, P20: ms * 0.98, P80: ms * 1.02, TFLOPS: c.ForwardFLOPs() / ms / 1e9, N: 50}}
	if strings.HasPrefix(library, "vkattn") {
		r.Tier, r.Kernel, r.MaxErr, r.ErrRows, r.Fwd.PeakMiB = "scalar", "scalar_forward 64x32", ptr(2e-4), 24, ptr(0.5)
	}
	return r
}

func sample() *Results {
	failed := row("vkattn 1", "standard", 1024, false, 0)
	failed.Fwd, failed.Error, failed.Reason = result.Pass{}, "needs 17 GB, has 8 GB", result.ReasonMemory
	return &Results{
		Header: result.Header{VKAttn: "1", Device: "Some GPU", Driver: "driver 2", Host: "linux/amd64",
			Peaks: result.Peaks{MatrixTFLOPS: 100, FP32TFLOPS: 10, CopyGBps: 900}},
		Rows: []result.Row{
			row("vkattn 1", "standard", 512, false, 4), row("vkattn 1", "flash2", 512, false, 2),
			failed, row("vkattn 1", "flash2", 1024, false, 8),
		},
		Peers: []result.Row{
			row("torch 2", "fa2", 512, false, 1), row("torch 2", "fa2", 1024, false, 16),
			row("torch 2", "cudnn", 512, false, 0.5), row("torch 2", "fa2", 4096, false, 100),
		},
		PeerImpls: []string{"fa2"},
	}
}

func TestSummaries(t *testing.T) {
	got := Summaries(sample())
	require.Len(t, got, 2)
	require.Equal(t, "flash2", got[0].Impl)
	require.Equal(t, "standard", got[0].Against)
	require.InDelta(t, 2, got[0].Mean, 1e-9)
	require.Equal(t, "torch 2 fa2", got[1].Against)
	require.InDelta(t, 1, got[1].Mean, 1e-9, "0.5 and 2")
	require.Equal(t, 2, got[1].N)
	require.InDelta(t, 0.5, got[1].Worst, 1e-9)
	require.Equal(t, 512, got[1].WorstCase.N)
	require.Contains(t, got[1].String(), "flash2 is 1.00 × the speed of torch 2 fa2 (geometric mean of 2 shapes; from 0.50 × at float16 "+
		"B2 H8 N512 D64")

	// The baseline is compared with the peer's baseline only.
	r := sample()
	r.Peers, r.PeerImpls = append(r.Peers, row("torch 2", "standard", 512, false, 5)), []string{"fa2", "standard"}
	got = Summaries(r)
	require.Len(t, got, 4)
	require.Equal(t, Summary{Impl: "standard", Against: "torch 2 standard", Mean: 1.25, Worst: 1.25, Best: 1.25,
		WorstCase: got[3].WorstCase, N: 1}, got[3])
	require.Equal(t, "standard is 1.25 × the speed of torch 2 standard (one shape)", got[3].String())
	var out bytes.Buffer
	require.NoError(t, Write(&out, "table", r, false))
	require.Contains(t, out.String(), "× standard  × fa2  × peer's standard")
}

func TestRepeatedPeerRowsCountWithTheirMedian(t *testing.T) {
	r := sample()
	r.Peers = append(r.Peers, row("torch 2", "fa2", 512, false, 3), row("torch 2", "fa2", 512, false, 5))
	x := newIndex(r)
	require.InDelta(t, 1.5, x.of(r.Rows[1]).Peers[0], 1e-9)
}

func TestEarlierRunComparesTheSameImplementation(t *testing.T) {
	r := sample()
	r.Peers = []result.Row{row("vkattn 0", "flash2", 512, false, 3), row("vkattn 0", "standard", 512, false, 4)}
	got := Summaries(r)
	require.Equal(t, "the earlier run (vkattn 0)", got[1].Against)
	require.InDelta(t, 1.5, got[1].Mean, 1e-9)
	require.Equal(t, 1, got[1].N)

	// Nothing takes the one run for the other.
	r.Rows = r.Rows[:2]
	for format, want := range map[string]string{"table": "\nflash2 (earlier) ", "md": "| flash2 (earlier) |",
		"csv": "\nvkattn 0 (earlier),flash2,", "jsonl": `"library":"vkattn 0 (earlier)","impl":"flash2"`} {
		var out bytes.Buffer
		require.NoError(t, Write(&out, format, r, false))
		require.Equal(t, 1, strings.Count(out.String(), want), "%s: %s", format, out.String())
	}
	var out bytes.Buffer
	require.NoError(t, Write(&out, "gobench", r, false))
	require.Equal(t, 2, strings.Count(out.String(), "BenchmarkForward/"), "benchstat would take both for rounds of one")
}

// TestEarlierRunStandsBesidePeers: in one file our earlier rows and another program's, of the same name even, are kept apart; a tile is
// compared with the same tile, backward columns stand with forward's, and every column has its own name.
func TestEarlierRunStandsBesidePeers(t *testing.T) {
	tile := func(library string, tuning result.Tuning, ms float64) result.Row {
		r := row(library, "flash2", 512, false, ms)
		r.Tuning = tuning
		return r
	}
	peer := row("torch 2", "fa2", 512, false, 1)
	peer.Bwd = result.Pass{Ms: 2}
	r := sample()
	r.Rows = []result.Row{row("vkattn 1", "standard", 512, false, 4), row("vkattn 1", "flash2", 512, false, 2),
		tile("vkattn 1", "br=64", 5), tile("vkattn 1", "br=32", 6)}
	r.Rows[1].Bwd = result.Pass{Ms: 8}
	r.Peers = []result.Row{row("torch 2", "standard", 512, false, 40), peer, row("vkattn 0", "standard", 512, false, 8),
		row("vkattn 0", "flash2", 512, false, 3), tile("vkattn 0", "br=64", 10), tile("vkattn 0", "br=128", 100)}
	r.PeerImpls = []string{"fa2", "standard", "flex"}
	x := newIndex(r)
	require.Equal(t, []string{"fa2", "standard", sameImpl}, x.impls, "nothing is known of flex")
	require.Equal(t, []float64{0.25, 10, 2}, x.of(r.Rows[0]).Peers)
	require.Equal(t, []float64{0.5, 20, 1.5}, x.of(r.Rows[1]).Peers)
	require.Equal(t, 2.0, x.of(r.Rows[2]).Peers[2])
	require.Zero(t, x.of(r.Rows[3]).Peers[2], "the earlier run has no such tile")
	require.Zero(t, x.of(r.Peers[0]).Peers[2], "the earlier run is none of torch's")
	against := map[string]string{}
	for _, s := range Summaries(r) {
		if s.Impl == "flash2" {
			against[s.What()+" "+s.Against] = result.Times(s.Mean)
		}
	}
	require.Equal(t, map[string]string{"flash2 standard": "2.00", "flash2 torch 2 fa2": "0.50", "flash2 torch 2 standard": "20.00",
		"flash2 the earlier run (vkattn 0)": "1.50", "flash2 backward torch 2 fa2": "0.25"}, against)
	rows, _ := ordered(r)
	require.Len(t, rows, 4+6, "all tiles of the earlier run")

	var out bytes.Buffer
	require.NoError(t, Write(&out, "csv", r, false))
	require.Contains(t, out.String(), ",vs_earlier,")
	out.Reset()
	require.NoError(t, Write(&out, "md", r, false))
	require.Contains(t, out.String(), "| bwd × fa2 |")
	require.NotContains(t, out.String(), "bwd × earlier")
	require.Regexp(t, `\| 0\.25 \|\n`, out.String(), "backward, with forward's columns")
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Write(&out, "table", sample(), false))
	text := out.String()
	lines := strings.Split(text, "\n")
	require.Equal(t, "Some GPU · driver 2 · vkattn 1", lines[0])
	require.Equal(t, "measured peaks: matrix 100.0 TFLOP/s · fp32 10.00 TFLOP/s · copy 900.0 GB/s", lines[1])
	require.Equal(t, "all rows: float16 · head dim 64 · emb dim 512 · batch 2 · 8 heads · not causal", lines[2])
	require.Contains(t, text, "no memory")
	require.Contains(t, text, "! standard float16 B2 H8 N1024 D64: needs 17 GB, has 8 GB")
	require.Contains(t, text, "torch 2", "the peer's rows stand beside ours")
	require.NotContains(t, text, "4096", "a peer's shape that we did not measure is left out")
	require.NotContains(t, text, "cudnn", "so is an implementation that nobody asked for")
	require.Regexp(t, `512 +flash2 +scalar_forward 64x32 +2\.000 +2% +\S+ +\S+ +0\.5 +2\.0e-04 +24 +2\.00 +0\.50`, text)

	r := sample()
	r.Rows[2] = result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: r.Rows[2].Case,
		Failure: result.Failure{Error: "skipped: …", Reason: result.ReasonLimit}, PredictedMs: 83456}
	out.Reset()
	require.NoError(t, Write(&out, "table", r, false))
	require.Regexp(t, `1024 +standard +predicted: 1m23.5s +skipped`, out.String())
	require.Contains(t, out.String(), "! skipped: 1 of 6 rows")

	out.Reset()
	require.NoError(t, Write(&out, "table", &Results{Header: result.Header{Device: "D", VKAttn: "1"}}, false))
	require.Contains(t, out.String(), "no rows")
}

// TestRatesOfACPU: all rates of a CPU are in GFLOP/s, fast ones too.
func TestRatesOfACPU(t *testing.T) {
	r := sample()
	r.Header.CPU, r.Header.Peaks = true, result.Peaks{MatrixTFLOPS: 0.154, FP32TFLOPS: 0.0763, CopyGBps: 47}
	for _, format := range []string{"table", "md"} {
		var out bytes.Buffer
		require.NoError(t, Write(&out, format, r, false))
		require.Contains(t, out.String(), "matrix 154.0 GFLOP/s · fp32 76.30 GFLOP/s")
		require.NotContains(t, out.String(), "TFLOP/s")
	}
}

// TestTableFitsTheTerminal: on a narrow screen no line breaks, and what is left out is named.
func TestTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{60, 80, 100} {
		var out bytes.Buffer
		require.NoError(t, WriteTable(&out, sample(), Screen{Width: width}))
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
		}
		require.Contains(t, out.String(), "× standard", width)
		require.Contains(t, out.String(), "(--wide shows all)")
		require.Contains(t, strings.Join(strings.Fields(out.String()), " "), "checked")
	}
	var wide, any bytes.Buffer
	require.NoError(t, WriteTable(&wide, sample(), Screen{Width: 500}))
	require.NoError(t, WriteTable(&any, sample(), Screen{}))
	require.Equal(t, any.String(), wide.String())
	require.NotContains(t, any.String(), "--wide")
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Write(&out, "md", sample(), false))
	var widths []int
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(line, "|") {
			widths = append(widths, strings.Count(line, "|"))
		}
	}
	require.Len(t, widths, 2+4+2)
	for _, n := range widths {
		require.Equal(t, widths[0], n, "every line has the same columns")
	}
}

func TestCSV(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Write(&out, "csv", sample(), false))
	lines, err := csv.NewReader(&out).ReadAll() // refuses lines of unequal length
	require.NoError(t, err)
	require.Len(t, lines, 1+6)
	at := func(line int, name string) string {
		for i, h := range lines[0] {
			if h == name {
				return lines[line][i]
			}
		}
		t.Fatalf("no column %s", name)
		return ""
	}
	require.Equal(t, "2", at(2, "fwd_ms"))
	require.Equal(t, "0.5", at(2, "vs_fa2"))
	require.Equal(t, "2", at(2, "vs_standard"))
	require.Equal(t, "", at(4, "fwd_ms"))
	require.Equal(t, "needs 17 GB, has 8 GB", at(4, "error"))
}

func TestJSONLReadsBack(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Write(&out, "jsonl", sample(), false))
	f, err := result.Read("x", &out)
	require.NoError(t, err)
	require.Len(t, f.Headers, 1)
	require.Len(t, f.Rows, 6)
}

func TestGobench(t *testing.T) {
	r := sample()
	r.Rows[1].Fwd.Rounds = []float64{1.9, 2, 2.1}
	var out bytes.Buffer
	require.NoError(t, Write(&out, "gobench", r, false))
	require.Contains(t, out.String(), "goos: linux\ngoarch: amd64\npkg: github.com/vkattn/vkattn\ndevice: Some GPU\n")
	require.Equal(t, 3, strings.Count(out.String(),
		"BenchmarkForward/impl=flash2/dtype=float16/B=2/H=8/Hkv=8/Nq=512/N=512/D=64/Dv=64/causal=false 16 "))
	require.Contains(t, out.String(), " 1900000 ns/op ")
	require.Equal(t, 3+1+1+2, strings.Count(out.String(), "Benchmark"), "rows without figures are left out")
}

func TestUnknownFormat(t *testing.T) {
	require.ErrorContains(t, Write(&bytes.Buffer{}, "xml", sample(), false),
		`format "xml": it must be one of table, md, csv, jsonl, gobench`)
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "", 1234.5: "1234", 123.45: "123.5", 12.345: "12.35", 1.2345: "1.234", 0.01234: "0.0123",
		0.00001234: "1.2e-05"} {
		require.Equal(t, want, Digits(v))
	}
}

// TestTableColumnsKeepTheirOrder: the columns of a table with everything in it, and those that its rows share in the line above.
func TestTableColumnsKeepTheirOrder(t *testing.T) {
	all := result.Row{Origin: result.Origin{Library: "vkattn 1"}, Tier: "scalar", Kernel: "scalar_forward 64x32",
		Check:    result.Check{MaxErr: ptr(1e-4), ErrRows: 24},
		BwdCheck: result.Check{MaxErr: ptr(1e-3), ErrRows: 24},
		Fwd:      result.Pass{Ms: 1, P20: 0.9, P80: 1.1, TFLOPS: 2, PeakMiB: ptr(1), TotalMiB: 3, N: 10, Bytes: 1e9}}
	all.Bwd = all.Fwd
	all.Case = result.Case{Impl: "standard", DType: "float16", B: 2, H: 8, Hkv: 4, Nq: 1, N: 64, D: 64, Dv: 64, Density: 0.5,
		Tuning: "br=64"}
	other := all
	other.Case = result.Case{Impl: "standard", DType: "float32", B: 1, H: 4, Hkv: 4, Nq: 32, N: 32, D: 32, Dv: 32, Causal: true,
		Dropout: 0.1, Density: 0.25}
	peer := all
	peer.Library, peer.Impl = "torch 2", "standard"
	r := &Results{Header: result.Header{Peaks: result.Peaks{FP32TFLOPS: 10}}, Rows: []result.Row{all, other}, Peers: []result.Row{peer},
		PeerImpls: []string{"standard"}}
	var names []string
	for _, c := range build(r).columns {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"dtype", "head dim", "emb dim", "batch", "heads", "q len", "seq", "causal", "dropout", "impl", "kernel",
		"density", "tuning",
		"ms", "±", "TFLOP/s", "% peak", "peak MiB", "in all", "GB asked for", "tokens/s", "max err", "checked", "× standard",
		"× peer's standard",
		"bwd ms", "bwd ±", "bwd TFLOP/s", "bwd peak MiB", "fwd+bwd ms", "bwd max err", "bwd × standard", "bwd × peer's standard"}, names)

	r.Rows = []result.Row{all, all}
	require.Equal(t, []string{"float16", "head dim 64", "emb dim 512", "batch 2", "8 on 4 heads", "1 query", "seq 64", "not causal"},
		build(r).shared)
}

// TestPlainRatio: what functions, masks and the like of scores cost is a ratio of rates, within one implementation.
func TestPlainRatio(t *testing.T) {
	plain := row("vkattn 1", "flash2", 512, true, 2)
	plain.Bwd = result.Pass{Ms: 5, TFLOPS: 50}
	softcap := plain
	softcap.Score, softcap.Fwd.Ms, softcap.Fwd.TFLOPS, softcap.Bwd.TFLOPS = "softcap=30", 4, plain.Fwd.TFLOPS/2, 40
	documents := row("vkattn 1", "flash2", 512, true, 2)
	documents.Mask = "documents=8"
	documents.Fwd.TFLOPS = documents.ForwardFLOPs() / 2 / 1e9 // an eighth of the pairs in the same time
	lone := row("vkattn 1", "standard", 512, true, 9)
	lone.Sinks = true
	r := &Results{Rows: []result.Row{plain, softcap, documents, lone}}
	x := newIndex(r)
	require.Zero(t, x.of(plain).Plain)
	require.InDelta(t, 0.5, x.of(softcap).Plain, 1e-9)
	require.InDelta(t, 1.0/8, x.of(documents).Plain, 3e-3, "pairs on the diagonals count whole")
	require.Zero(t, x.of(lone).Plain, "flash2 is no measure of standard")

	var out bytes.Buffer
	require.NoError(t, Write(&out, "csv", r, false))
	lines, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	at := map[string]int{}
	for i, key := range lines[0] {
		at[key] = i
	}
	require.Equal(t, "0.5", lines[2][at["vs_plain"]])
	require.Equal(t, "softcap=30", lines[2][at["score"]])
	require.Equal(t, "documents=8", lines[3][at["mask"]])
	out.Reset()
	require.NoError(t, Write(&out, "md", r, false))
	require.Contains(t, out.String(), "× plain")
	require.Contains(t, out.String(), "bwd × plain")
	require.Contains(t, out.String(), "0.80", "backward")
}
