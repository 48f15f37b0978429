package figure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

const testdata = "../testdata"

func read(t *testing.T, names ...string) []*result.File {
	t.Helper()
	var out []*result.File
	for _, name := range names {
		f, err := result.ReadFile(filepath.Join(testdata, name))
		require.NoError(t, err)
		out = append(out, f)
	}
	return out
}

// raw is a result row as it stands in the file, read without the code under test.
type raw = map[string]any

// rawRows reads the lines of a file by case.
func rawRows(t *testing.T, name string) map[string]raw {
	t.Helper()
	f, err := os.Open(filepath.Join(testdata, name))
	require.NoError(t, err)
	defer f.Close()
	out := map[string]raw{}
	in := bufio.NewScanner(f)
	for in.Scan() {
		var r raw
		require.NoError(t, json.Unmarshal(in.Bytes(), &r))
		if r["impl"] != nil {
			out[rawKey(r)] = r
		}
	}
	require.NoError(t, in.Err())
	return out
}

func rawKey(r raw) string {
	dropout, tuning := r["dropout"], r["tuning"]
	if dropout == nil {
		dropout = 0.0
	}
	if tuning == nil {
		tuning = ""
	}
	return fmt.Sprint(r["library"], r["impl"], r["dtype"], r["B"], r["H"], r["N"], r["D"], r["causal"], dropout, tuning)
}

func keyOf(r *result.Row) string {
	return fmt.Sprint(r.Library, r.Impl, r.DType, r.B, r.H, r.N, r.D, r.Causal, r.Dropout, r.Tuning)
}

// Every number of every figure is one of the file, or the ratio of two.
func TestNumbersAreThoseOfTheFile(t *testing.T) {
	files := rawRows(t, "synthetic.jsonl")
	column := map[string]string{"time-seq": "ms", "batch": "ms", "causal": "ms", "forward-backward": "ms", "tflops-seq": "tflops",
		"heads":     "tflops",
		"embedding": "tflops", "head-dim": "tflops", "map": "tflops", "memory-seq": "peak_MiB", "speedup-seq": ""}
	figures := Build(NewSources(read(t, "synthetic.jsonl")))
	require.Len(t, figures, 12)
	points := 0
	for i, f := range figures {
		require.Equal(t, IDs[i], f.ID)
		require.NotEmpty(t, f.Series, f.ID)
		require.NotEmpty(t, f.Others, f.ID)
		if f.ID == "summary" {
			continue
		}
		for _, s := range f.Series {
			require.NotEmpty(t, s.Points, "%s %s", f.ID, s.Name)
			for _, p := range s.Points {
				points++
				r, ok := files[keyOf(p.Row)]
				require.True(t, ok, "%s: %s is not in the file", f.ID, keyOf(p.Row))
				where := fmt.Sprintf("%s, %s, x = %g", f.ID, s.Name, p.X)
				switch f.ID {
				case "speedup-seq":
					base := files[keyOf(p.Base)]
					require.Equal(t, "standard", base["impl"], where)
					require.Equal(t, files[keyOf(figures[i].Series[0].Points[0].Base)]["library"], base["library"], where)
					require.InEpsilon(t, base["fwd_ms"].(float64)/r["fwd_ms"].(float64), p.Y, 1e-12, where)
				default:
					require.Nil(t, r["tuning"], where)
					require.Nil(t, r["dropout"], where)
					require.Equal(t, r[p.Pass+"_"+column[f.ID]], p.Y, where)
				}
				if column[f.ID] == "ms" && r[p.Pass+"_p20_ms"] != nil {
					lo, hi := r[p.Pass+"_p20_ms"].(float64), r[p.Pass+"_p80_ms"].(float64)
					rounds, _ := r[p.Pass+"_rounds_ms"].([]any)
					for _, v := range rounds {
						lo, hi = min(lo, v.(float64)), max(hi, v.(float64))
					}
					require.Equal(t, lo, p.Lo, where)
					require.Equal(t, hi, p.Hi, where)
				}
				x := map[string]any{"batch": r["B"], "heads": r["H"], "head-dim": r["D"], "embedding": r["H"].(float64) *
					r["D"].(float64)}[f.ID]
				if x == nil {
					x = r["N"]
				}
				require.Equal(t, x, p.X, where)
			}
		}
	}
	require.Greater(t, points, 150)
}

// The rows of the suite forward-backward make the figure of that name: each pass of each implementation at each length, at the
// reports' batch although other batches have rows too.
func TestForwardAndBackwardSideBySide(t *testing.T) {
	suite, err := result.FindSuite("forward-backward")
	require.NoError(t, err)
	jobs, err := suite.Jobs(false, result.Grid{})
	require.NoError(t, err)
	var rows []result.Row
	for i, j := range jobs {
		require.Equal(t, result.Passes{Fwd: true, Bwd: true}, j.Passes)
		ms := 1 + float64(i)/7
		rows = append(rows, result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: j.Case, Fwd: result.Pass{Ms: ms},
			Bwd: result.Pass{Ms: 3 * ms}})
	}
	tuned := rows[1] // another tile is no point of the figure
	tuned.Tuning, tuned.Bwd.Ms = "bc=16", 1000
	f := Get(Build([]Source{{Rows: append(rows, tuned)}}), "forward-backward")
	require.Equal(t, "float16, batch 16, 32 heads, head dimension 64, causal", f.Fixed)
	require.Len(t, f.Series, 4)
	points := 0
	for _, s := range f.Series {
		backward := strings.HasSuffix(s.Name, ", backward")
		require.True(t, backward || strings.HasSuffix(s.Name, ", forward"), s.Name)
		for i, p := range s.Points {
			points++
			require.Equal(t, 16, p.Row.B)
			require.Equal(t, []float64{512, 1024, 2048}[i], p.X)
			if backward {
				require.Equal(t, p.Row.Bwd.Ms, p.Y)
			} else {
				require.Equal(t, p.Row.Fwd.Ms, p.Y)
			}
		}
	}
	require.Equal(t, 12, points)
}

// Every row of the reports' sequence sweep that has figures is drawn, and the others are named.
func TestNoRowIsLost(t *testing.T) {
	drawn := map[string]bool{}
	f := Get(Build(NewSources(read(t, "synthetic.jsonl"))), "time-seq")
	for _, s := range f.Series {
		for _, p := range s.Points {
			drawn[keyOf(p.Row)] = true
		}
	}
	wanted, without := 0, 0
	for key, r := range rawRows(t, "synthetic.jsonl") {
		if r["B"] != 16.0 || r["H"] != 32.0 || r["D"] != 64.0 || r["causal"] != true {
			continue
		}
		if r["error"] != nil {
			without++
			continue
		}
		wanted++
		require.True(t, drawn[key], key)
	}
	require.Len(t, drawn, wanted)
	require.Positive(t, without)
	require.Len(t, f.Missing, without)
	require.Contains(t, f.Missing[0], "standard at sequence length 16k: no memory")
}

func TestSummaryIsTheGeometricMeanOfAllShapes(t *testing.T) {
	rows := rawRows(t, "synthetic.jsonl")
	var ratios []float64
	for _, r := range rows {
		if r["impl"] != "flash2" || r["tuning"] != nil {
			continue
		}
		base := raw{}
		for k, v := range r {
			base[k] = v
		}
		base["impl"] = "standard"
		if b := rows[rawKey(base)]; b != nil && b["fwd_ms"] != nil {
			ratios = append(ratios, b["fwd_ms"].(float64)/r["fwd_ms"].(float64))
		}
	}
	s := Get(Build(NewSources(read(t, "synthetic.jsonl"))), "summary").Series[0]
	require.Equal(t, "flash2", s.Name)
	require.Equal(t, len(ratios), s.Points[0].Shapes)
	require.InEpsilon(t, result.GeoMean(ratios), s.Points[0].Y, 1e-12)
	require.InEpsilon(t, slices.Min(ratios), s.Points[0].Lo, 1e-12)
	require.InEpsilon(t, slices.Max(ratios), s.Points[0].Hi, 1e-12)
}

func TestDrawings(t *testing.T) {
	for _, names := range [][]string{{"synthetic.jsonl"}, {"synthetic.jsonl", "synthetic_other.jsonl"}} {
		for _, f := range Build(NewSources(read(t, names...))) {
			svg, err := f.SVG()
			require.NoError(t, err, f.ID)
			var text []string
			in := xml.NewDecoder(bytes.NewReader(svg))
			for {
				token, err := in.Token()
				if err == io.EOF {
					break
				}
				require.NoError(t, err, f.ID)
				if c, ok := token.(xml.CharData); ok {
					text = append(text, string(c))
				}
			}
			all := strings.Join(text, "\n")
			for _, s := range f.Series {
				require.Contains(t, all, s.Name, f.ID)
			}
			require.Contains(t, all, strings.SplitN(f.Title, "%", 2)[0])

			data, err := f.PNG()
			require.NoError(t, err, f.ID)
			img, err := png.Decode(bytes.NewReader(data))
			require.NoError(t, err, f.ID)
			require.GreaterOrEqual(t, img.Bounds().Dx(), 1000, f.ID)

			inline, err := f.Inline()
			require.NoError(t, err, f.ID)
			require.True(t, strings.HasPrefix(inline, `<svg role="img"`), f.ID)
			for _, tone := range tones() {
				require.NotContains(t, inline, tone.light, "%s: colours are the page's", f.ID)
			}
		}
	}
}

func TestSourcesOverlay(t *testing.T) {
	f := read(t, "synthetic.jsonl", "synthetic_other.jsonl")
	time := Get(Build(NewSources(f)), "time-seq")
	var names []string
	for _, s := range time.Series {
		names = append(names, s.Name)
	}
	require.Contains(t, names, "flash2 · Synthetic GPU A")
	require.Contains(t, names, "flash2 · Synthetic GPU B")
	require.Contains(t, names, "fa2 (torch 2.11.0) · Synthetic GPU A")
	require.Len(t, Get(Build(NewSources(f)), "map").Series, 2)

	// One device, two versions; then nothing but the files' names.
	f[1].Headers[0].Device, f[1].Headers[0].VKAttn = f[0].Headers[0].Device, "9.9.9"
	require.Equal(t, "Synthetic GPU A 9.9.9", NewSources(f)[1].Label)
	f[1].Headers[0].VKAttn = f[0].Headers[0].VKAttn
	require.Equal(t, "synthetic_other", NewSources(f)[1].Label)
	require.Equal(t, "synthetic #2", NewSources(append(read(t, "synthetic.jsonl"), read(t, "synthetic.jsonl")...))[1].Label)
}

// small rows outside of the reports' grids, as a CPU driver measures them.
func small(impl string, n int, ms float64) result.Row {
	c := result.Case{Impl: impl, DType: "float16", B: 1, H: 4, Hkv: 4, Nq: n, N: n, D: 64, Dv: 64}
	return result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Fwd: result.Pass{Ms: ms, P20: ms * 0.9, P80: ms * 1.2,
		TFLOPS: c.ForwardFLOPs() / ms / 1e9}}
}

func TestOtherGridsThanTheReports(t *testing.T) {
	rows := []result.Row{small("standard", 128, 4), small("flash2", 128, 2), small("standard", 256, 20), small("flash2", 256, 8)}
	figures := Build([]Source{{Label: "x", Device: "CPU", Rows: rows}})
	f := Get(figures, "tflops-seq")
	require.Equal(t, "float16, batch 1, 4 heads, head dimension 64, not causal", f.Fixed)
	require.Equal(t, "forward, GFLOP/s", f.Y)
	require.Equal(t, 1000.0, f.Scale)
	require.Equal(t, rows[1].Fwd.TFLOPS, f.Series[0].Points[0].Y, "points hold what the rows do")
	require.Equal(t, 2.5, Get(figures, "speedup-seq").Series[0].Points[1].Y)
	for _, id := range []string{"batch", "heads", "head-dim", "map", "causal", "forward-backward"} {
		f := Get(figures, id)
		require.Empty(t, f.Series, id)
		require.NotEmpty(t, f.Empty, id)
	}
	for _, f := range figures {
		if len(f.Series) > 0 {
			_, err := f.SVG()
			require.NoError(t, err, f.ID)
		}
	}
}

func TestALaterRowCountsUnlessItFailed(t *testing.T) {
	failed := small("flash2", 256, 0)
	failed.Error, failed.Fwd = "no memory", result.Pass{}
	rows := []result.Row{small("flash2", 128, 2), small("flash2", 256, 8), small("flash2", 128, 3), failed}
	f := Get(Build([]Source{{Rows: rows}}), "time-seq")
	require.Len(t, f.Series[0].Points, 2)
	require.Equal(t, 3.0, f.Series[0].Points[0].Y)
	require.Equal(t, 8.0, f.Series[0].Points[1].Y)
	require.Empty(t, f.Missing)
}

func TestTicks(t *testing.T) {
	labels := func(lo, hi float64) (out []string) {
		for _, k := range logTicks(lo, hi) {
			if k.Label != "" {
				out = append(out, k.Label)
			}
		}
		return out
	}
	between := logTicks(1, 11)
	require.Len(t, between, 10, "1 to 9, and 10")
	require.Equal(t, 3.0, between[2].Value)
	require.Empty(t, between[2].Label)
	require.Contains(t, labels(1, 200000), "100,000")
	require.Equal(t, []string{"0.1", "0.2", "0.5", "1", "2"}, labels(0.09, 3))
	require.Equal(t, []string{"0.01", "0.1", "1", "10", "100"}, labels(0.008, 300))
	require.Len(t, labels(3.1, 3.9), 2)
	require.Equal(t, "0", evenTicks(400)[0].Label)
	require.LessOrEqual(t, len(evenTicks(400)), 7)
	for v, want := range map[float64]string{0: "0", 1234.4: "1,234", 123456: "123,456", 12.34: "12.3", 1.5: "1.5", 0.0123: "0.0123",
		20: "20"} {
		require.Equal(t, want, plain(v))
	}
	for v, want := range map[float64]string{512: "512", 1024: "1k", 1025: "1025", 16384: "16k"} {
		require.Equal(t, want, Number(v))
	}
}

func TestThePapersGridMakesSequenceFigures(t *testing.T) {
	var rows []result.Row
	for n := 512; n <= 4096; n *= 2 {
		for _, causal := range []bool{false, true} {
			r := small("flash2", n, float64(n))
			r.B, r.Causal = 16384/n, causal
			rows = append(rows, r)
		}
	}
	figures := Build([]Source{{Rows: rows}})
	f := Get(figures, "time-seq")
	require.Equal(t, "float16, 16k tokens (batch × sequence length), 4 heads, head dimension 64, not causal", f.Fixed)
	require.Len(t, f.Series[0].Points, 4)
	require.Len(t, Get(figures, "causal").Series, 2)
	require.Len(t, Get(figures, "causal").Series[0].Points, 4)
}

func TestMergeJoinsFilesThatCompleteOneAnother(t *testing.T) {
	header := result.Header{VKAttn: "1", Device: "GPU", Driver: "2"}
	file := func(path string, h result.Header, n ...int) *result.File {
		f := &result.File{Path: path, Headers: []result.Header{h}}
		for _, n := range n {
			f.Rows = append(f.Rows, small("flash2", n, 1))
		}
		return f
	}
	other := header
	other.Driver = "3"
	out := Merge([]*result.File{file("a", header, 128), file("b", header, 256), file("c", header, 256), file("d", other, 512)})
	require.Len(t, out, 3)
	require.Equal(t, "a, b", out[0].Path)
	require.Len(t, out[0].Rows, 2)
	require.Equal(t, "c", out[1].Path, "it has a row in common with b: another run")
	require.Equal(t, "d", out[2].Path)
}
