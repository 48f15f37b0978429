package report

import (
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// synthetic are result files that nobody measured: testdata/README.md.
func synthetic(t *testing.T, names ...string) []*result.File {
	t.Helper()
	var out []*result.File
	for _, name := range names {
		f, err := result.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		out = append(out, f)
	}
	return out
}

func writeSynthetic(t *testing.T, names ...string) (dir, path string, p *Page) {
	t.Helper()
	p, err := NewPage(synthetic(t, names...), nil)
	require.NoError(t, err)
	dir = t.TempDir()
	path, err = p.WritePage(dir, "html")
	require.NoError(t, err)
	return dir, path, p
}

func TestPageInABrowser(t *testing.T) {
	for _, set := range [][]string{{"synthetic.jsonl"}, {"synthetic.jsonl", "synthetic_other.jsonl"}} {
		t.Run(fmt.Sprint(len(set)), func(t *testing.T) {
			b := startBrowser(t)
			_, path, _ := writeSynthetic(t, set...)
			background := map[bool]string{}
			for _, view := range []struct {
				name          string
				width, height int
				dark          bool
			}{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"phone", 360, 740, false}, {"phone_dark", 360, 740, true}} {
				b.view(view.width, view.height, view.dark)
				require.Empty(t, trouble(b.open(path)), view.name)

				var figures []struct {
					ID            string
					Width, Height float64 // of the drawing
					Marks, Text   int
					Letters       float64 // height of the smallest text, in pixels of the screen
				}
				b.eval(`[...document.querySelectorAll("figure")].map(f => {
					const svg = f.querySelector("svg"), box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
					const text = svg ? [...svg.querySelectorAll("text")] : [];
					return {id: f.id, width: box.width, height: box.height, marks: svg ? svg.querySelectorAll("path").length : 0,
						text: text.length, letters: Math.min(...text.map(t => t.getBoundingClientRect().height))};
				})`, &figures)
				require.Len(t, figures, len(figure.IDs), view.name)
				for i, f := range figures {
					require.Equal(t, figure.IDs[i], f.ID)
					require.Greater(t, f.Width, float64(min(view.width, 400)-60), "%s: the drawing of %s fills its place", view.name, f.ID)
					require.Greater(t, f.Height, 40.0, f.ID)
					require.Greater(t, f.Marks, 3, f.ID)
					require.Greater(t, f.Text, 3, f.ID)
					require.Greater(t, f.Letters, 10.5, "%s: letters of %s can be read", view.name, f.ID)
				}
				var page struct {
					Scroll, Width   int
					Ink, Background string
					Scripts, Images int
				}
				b.eval(`({scroll: document.documentElement.scrollWidth, width: innerWidth, scripts: document.scripts.length,
					images: document.images.length, ink: getComputedStyle(document.body).color,
					background: getComputedStyle(document.body).backgroundColor})`, &page)
				require.LessOrEqual(t, page.Scroll, page.Width, "%s: the page is no wider than the screen", view.name)
				require.Zero(t, page.Scripts+page.Images)
				require.NotEqual(t, page.Ink, page.Background)
				background[view.dark] = page.Background

				// Colours of the drawings are the page's: ink is light on dark.
				var drawn string
				b.eval(`getComputedStyle(document.querySelector("figure svg text")).fill`, &drawn)
				require.Equal(t, page.Ink, drawn, view.name)
				b.screenshot(fmt.Sprintf("%s_%d", view.name, len(set)))
			}
			require.NotEqual(t, background[false], background[true])

			// The files beside the page open by themselves.
			for _, id := range figure.IDs {
				require.Empty(t, trouble(b.open(filepath.Join(filepath.Dir(path), "figures", id+".svg"))), id)
				var root string
				b.eval(`document.documentElement.nodeName`, &root)
				require.Equal(t, "svg", root, id)
			}
		})
	}
}

var outside = regexp.MustCompile(`(?i)(src|href)\s*=\s*"([^"]*)"|url\(([^)]*)\)|@import`)

func TestPageNeedsNothingElse(t *testing.T) {
	_, path, _ := writeSynthetic(t, "synthetic.jsonl")
	html, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, m := range outside.FindAllStringSubmatch(string(html), -1) {
		link := m[2]
		if link == "data:," || slices.ContainsFunc(figure.Citations, func(c figure.Citation) bool { return c.URL == link }) {
			continue
		}
		require.Regexp(t, `^figures/[a-z-]+\.(svg|png)$`, link, "only links to the files beside it, which the page does not load")
		require.FileExists(t, filepath.Join(filepath.Dir(path), link))
	}
	require.NotContains(t, string(html), "<script")
	require.NotContains(t, string(html), "<img")
}

func TestNamesOfDevicesAreEscaped(t *testing.T) {
	f := synthetic(t, "synthetic.jsonl")
	f[0].Headers[0].Device = `<script>alert("1")</script>`
	g := synthetic(t, "synthetic_other.jsonl") // two files, so that names stand in the drawings too
	p, err := NewPage(append(f, g...), nil)
	require.NoError(t, err)
	html, err := p.HTML()
	require.NoError(t, err)
	require.NotContains(t, string(html), "<script")
	require.Contains(t, string(html), "&lt;script&gt;")
}

func TestPageOfTooFewRows(t *testing.T) {
	dir, _, _ := writeSynthetic(t, "synthetic.jsonl")
	stale := filepath.Join(dir, "figures", "batch.svg")
	require.FileExists(t, stale)
	f := synthetic(t, "synthetic.jsonl")
	f[0].Rows = f[0].Rows[:1]
	p, err := NewPage(f, nil)
	require.NoError(t, err)
	path, err := p.WritePage(dir, "html")
	require.NoError(t, err)
	html, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(html), "vkattn bench --suite batch measures them")
	require.Contains(t, string(html), "bench --suite forward-backward measures them")
	require.NoFileExists(t, stale, "no figure of an earlier report stays")

	f[0].Rows = nil
	_, err = NewPage(f, nil)
	require.ErrorContains(t, err, "synthetic.jsonl: it has no result rows")
	_, err = p.WritePage(dir, "pdf")
	require.ErrorContains(t, err, `format "pdf": it must be one of html, md`)
}

func TestPageComparesWithAnotherFile(t *testing.T) {
	f := synthetic(t, "synthetic.jsonl", "synthetic_other.jsonl")
	peer := f[0]
	peer.Headers = nil
	own := peer.Rows[:0:0]
	for _, r := range peer.Rows {
		if !IsOurs(r) {
			own = append(own, r)
		}
	}
	peer.Rows = own
	p, err := NewPage(f[1:], peer)
	require.NoError(t, err)
	require.Len(t, p.Runs, 2)
	require.Contains(t, fmt.Sprint(p.Ratios), "torch 2.11.0+cu130 fa2")
	require.NotNil(t, p.Runs[0].Results.Peers)
}

// A file beside itself is an earlier run of the same speed, each implementation and pass, and takes no peer's name.
func TestPageOfAFileBesideItself(t *testing.T) {
	f := recorded(t, "h200-reports.jsonl")
	p, err := NewPage([]*result.File{f}, f)
	require.NoError(t, err)
	alone, err := NewPage([]*result.File{f}, nil)
	require.NoError(t, err)
	earlier := 0
	var others []Summary
	for _, r := range p.Ratios {
		switch {
		case strings.HasPrefix(r.Against, "the earlier run"):
			earlier++
			require.Equal(t, "the earlier run (vkattn 0.1.0)", r.Against)
			require.InDelta(t, 1, r.Worst, 1e-12, "%s", r)
			require.InDelta(t, 1, r.Best, 1e-12, "%s", r)
		case r.Run == p.Runs[0].Label:
			others = append(others, r.Summary)
		}
	}
	require.Equal(t, 5, earlier, "three forward, two backward")
	var want []Summary
	for _, r := range alone.Ratios {
		want = append(want, r.Summary)
	}
	require.Equal(t, want, others, "peers are compared with as they are without")
	require.Equal(t, alone.Runs[0].sections(), p.Runs[0].sections())
}

func TestMarkdownPage(t *testing.T) {
	p, err := NewPage(synthetic(t, "synthetic.jsonl"), nil)
	require.NoError(t, err)
	dir := t.TempDir()
	path, err := p.WritePage(dir, "md")
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, id := range figure.IDs {
		require.Contains(t, string(text), "(figures/"+id+".svg)")
		require.FileExists(t, filepath.Join(dir, "figures", id+".svg"))
		require.FileExists(t, filepath.Join(dir, "figures", id+".png"))
	}
	require.Contains(t, string(text), "> FlashAttention-1 course report [2], Tesla T4:")
	for i, c := range figure.Citations {
		require.Contains(t, string(text), fmt.Sprintf("- [%d] %s\n", i+1, c.Text))
	}
}

func TestSpread(t *testing.T) {
	rows := []result.Row{row("vkattn 1", "flash2", 512, false, 2), row("vkattn 1", "flash2", 1024, false, 4),
		row("vkattn 1", "flash2", 2048, false, 0.05), row("vkattn 1", "flash2", 4096, false, 9)}
	rows[0].Fwd.Rounds = []float64{2, 2.02, 2.04}
	rows[0].Bwd = result.Pass{Ms: 3, Rounds: []float64{3, 4.5}}
	rows[1].Fwd.Rounds = []float64{4, 5}
	rows[2].Fwd.Rounds = []float64{0.05, 0.5} // too short to count
	var s Spread
	s.add(rows)
	s.finish()
	require.Equal(t, 3, s.Timings, "of both passes")
	require.Equal(t, 1, s.Backward)
	require.Equal(t, 1, s.Within)
	require.InDelta(t, 0.5, s.Worst, 1e-12)
	require.Equal(t, 512, s.Case.N)
	require.Equal(t, "backward", s.Pass)
	require.InDelta(t, 0.25, s.Median, 1e-12)
	require.Contains(t, s.String(), "in 1 of 3 timings of at least 0.1 ms (33.3 %; 2 forward, 1 backward)")
	require.Contains(t, s.String(), "N512 D64, backward).")
	require.Empty(t, Spread{}.String())
}

// recorded is a file of testdata/results.
func recorded(t *testing.T, name string) *result.File {
	t.Helper()
	f, err := result.ReadFile(filepath.Join("..", "..", "..", "..", "testdata", "results", name))
	require.NoError(t, err)
	return f
}

// The recorded sweeps have one backward timing whose two rounds took 0.307 and 1.46 ms. The page draws and ranks a time that was
// measured, rings it, says so, and counts it among the timings.
func TestRoundsThatDisagreeAreTold(t *testing.T) {
	p, err := NewPage([]*result.File{recorded(t, "h200-reports.jsonl")}, nil)
	require.NoError(t, err)
	require.Equal(t, p.Spread.Timings-1, p.Spread.Within)
	require.Equal(t, 52, p.Spread.Backward)
	require.Contains(t, p.Spread.String(), "(99.6 %;", "not all of them")
	f := figure.Get(p.Figures, "forward-backward")
	require.Equal(t, []string{"flash2, backward at 512: rounds took 1.462 and 0.3074 ms; drawn is 0.3074 ms"}, f.Doubts)
	for _, s := range f.Series {
		if s.Name == "flash2, backward" {
			require.Equal(t, 0.307392, s.Points[0].Y)
			require.Equal(t, 1.46176, s.Points[0].Hi)
			require.True(t, s.Points[0].Doubtful())
		}
	}
	html, err := p.HTML()
	require.NoError(t, err)
	require.Contains(t, string(html), "<li>"+f.Doubts[0]+"</li>")
	require.Contains(t, string(p.Markdown()), "- "+f.Doubts[0]+"\n")
	for _, r := range p.Ratios {
		if r.Backward && r.Impl == "flash2" {
			require.Greater(t, r.Worst, 0.95, "%s: the round that was disturbed is not what is compared", r)
		}
	}
}

// Times stand between the ends that are shown beside them, in every row of every recorded file.
func TestTimesLieWithinTheirSpans(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "testdata", "results", "*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		f := figure.Settle(recorded(t, filepath.Base(path)))
		for _, r := range f.Rows {
			for _, p := range []result.Pass{r.Fwd, r.Bwd} {
				if lo, hi := figure.Span(p); lo > 0 {
					require.LessOrEqual(t, lo, p.Ms, "%s: %s", path, r.Case)
					require.GreaterOrEqual(t, hi, p.Ms, "%s: %s", path, r.Case)
				}
			}
		}
		for _, figure := range figure.Build(figure.NewSources([]*result.File{f})) {
			for _, view := range views(figure) {
				for _, s := range view.Series {
					for _, p := range s.Points {
						if p.Lo > 0 {
							require.LessOrEqual(t, p.Lo, p.Y*(1+1e-9), "%s: %s, %s at %g", path, view.ID, s.Name, p.X)
							require.GreaterOrEqual(t, p.Hi, p.Y*(1-1e-9), "%s: %s, %s at %g", path, view.ID, s.Name, p.X)
						}
					}
				}
			}
		}
	}
}

// The numbers of a backward series name the kernel that ran backward.
func TestNumbersNameTheKernelOfTheirPass(t *testing.T) {
	r := []result.Row{row("vkattn 1", "flash2", 512, false, 2), row("vkattn 1", "flash2", 1024, false, 4)}
	for i := range r {
		r[i].Bwd, r[i].BwdKernel = result.Pass{Ms: 5 * r[i].Fwd.Ms}, "scalar_backward 32x32"
	}
	p, err := NewPage([]*result.File{{Path: "a", Rows: r}}, nil)
	require.NoError(t, err)
	table := Table(figure.Get(p.Figures, "forward-backward"))
	at := slices.Index(table.Header, "kernel")
	require.Positive(t, at)
	for _, line := range table.Rows {
		want := "scalar_forward 64x32"
		if strings.HasSuffix(line[0], "backward") {
			want = "scalar_backward 32x32"
		}
		require.Equal(t, want, line[at], line[0])
	}
}

// No two columns of the recorded sweeps have one name.
func TestColumnsHaveNamesOfTheirOwn(t *testing.T) {
	p, err := NewPage([]*result.File{recorded(t, "h200-reports.jsonl")}, nil)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, c := range p.Runs[0].table().Columns {
		require.False(t, seen[c.Name], c.Name)
		seen[c.Name] = true
	}
	require.True(t, seen["bwd × standard"] && seen["bwd × peer's standard"], seen)
}

// What went wrong is told once on the page, however many figures lack the row.
func TestLongReasonsStandOnce(t *testing.T) {
	p, err := NewPage([]*result.File{recorded(t, "h200-reports.jsonl")}, nil)
	require.NoError(t, err)
	html, err := p.HTML()
	require.NoError(t, err)
	errors := map[string]bool{}
	for _, r := range recorded(t, "h200-reports.jsonl").Rows {
		if r.Error != "" {
			errors[r.Error] = true
		}
	}
	require.Len(t, errors, 3)
	for text := range errors {
		require.Equal(t, 1, strings.Count(string(html), template.HTMLEscapeString(text)), text)
	}
	require.Contains(t, string(html), "standard (torch 2.11.0) at sequence length 16k: no memory")
}

// What was measured on a CPU is told in GFLOP/s all over the page, whatever the peaks are.
func TestPageOfACPU(t *testing.T) {
	f := synthetic(t, "synthetic.jsonl")[0]
	h := &f.Headers[len(f.Headers)-1]
	h.CPU, h.Peaks = true, result.Peaks{MatrixTFLOPS: 0.276, FP32TFLOPS: 0.0783, CopyGBps: 20}
	tuned := f.Rows[slices.IndexFunc(f.Rows, func(r result.Row) bool { return r.Impl == "flash2" && r.Fwd.TFLOPS > 1 })]
	tuned.Tuning = "bc=32,br=64"
	f.Rows = append(f.Rows, tuned)
	f.Rows = slices.DeleteFunc(f.Rows, func(r result.Row) bool { return !IsOurs(r) })
	p, err := NewPage([]*result.File{f}, nil)
	require.NoError(t, err)
	require.Contains(t, p.Runs[0].Facts, [2]string{"Matrix peak, measured", "276.0 GFLOP/s"})
	require.Contains(t, p.Runs[0].Facts, [2]string{"fp32 peak, measured", "78.30 GFLOP/s"})
	html, err := p.HTML()
	require.NoError(t, err)
	others := regexp.MustCompile(`(?s)<details class="others">.*?</details>`) // of other devices
	require.NotContains(t, string(others.ReplaceAll(html, nil)), "TFLOP")
	require.Contains(t, string(html), "<th>GFLOP/s</th>")
	require.Contains(t, string(html), "forward, GFLOP/s")
}

// The recorded page at the widths of a desk and of a telephone: no table loses a column, and figures come first.
func TestRecordedPageInABrowser(t *testing.T) {
	b := startBrowser(t)
	p, err := NewPage([]*result.File{recorded(t, "h200-reports.jsonl")}, nil)
	require.NoError(t, err)
	path, err := p.WritePage(t.TempDir(), "html")
	require.NoError(t, err)
	var page struct {
		Lost    []string // sections whose table is wider than its place
		First   float64  // where the first drawing begins
		Letters float64
		Beside  bool // the two views of the speed-up
		Wide    float64
	}
	look := func(width int) {
		b.view(width, 900, false)
		require.Empty(t, trouble(b.open(path)))
		b.eval(`({lost: [...document.querySelectorAll("section .scroll")].filter(s => s.scrollWidth > s.clientWidth).map(s => s.closest("section").id),
			wide: document.querySelector("main").getBoundingClientRect().width,
			first: document.querySelector("figure svg").getBoundingClientRect().top,
			letters: Math.min(...[...document.querySelectorAll("figure svg text")].map(t => parseFloat(getComputedStyle(t).fontSize) * t.closest("svg").getScreenCTM().a)),
			beside: (([a, b]) => a.getBoundingClientRect().top == b.getBoundingClientRect().top)([...document.querySelectorAll("#speedup-seq svg")])})`, &page)
		b.screenshot(fmt.Sprintf("recorded_%d", width))
	}
	look(1400)
	require.Empty(t, page.Lost)
	require.True(t, page.Beside)
	require.Greater(t, page.Wide, 1350.0, "no blank margins")
	// All rows stand in a box that scrolls by itself, under the names of their columns.
	var rows struct {
		Height, Content     float64
		Before, After, Head float64
	}
	b.eval(`(() => {
		const details = document.querySelector("details.rows"), box = details.querySelector(".scroll");
		const before = document.documentElement.scrollHeight - details.scrollHeight;
		details.open = true;
		const after = document.documentElement.scrollHeight - details.scrollHeight;
		box.scrollTop = 1000;
		const head = box.querySelector("th").getBoundingClientRect().top - box.getBoundingClientRect().top;
		return {height: box.clientHeight, content: box.scrollHeight, before, after, head};
	})()`, &rows)
	require.LessOrEqual(t, rows.Height, 0.86*900)
	require.Greater(t, rows.Content, 2*rows.Height)
	require.InDelta(t, rows.Before, rows.After, 20, "the page grew by the box alone")
	require.InDelta(t, 0, rows.Head, 3, "the head stays")
	b.screenshot("recorded_rows")
	look(400)
	require.Less(t, page.First, 500.0)
	require.Greater(t, page.Letters, 10.5)
	require.False(t, page.Beside, "one below the other")
}

// A page of several devices: drawings are as wide as their places, can be read on a telephone and in the dark, and nothing says that it
// lacks sweeps.
func TestRingsPageInABrowser(t *testing.T) {
	p, err := NewPage(synthetic(t, "rings.jsonl"), nil)
	require.NoError(t, err)
	require.Len(t, p.Figures, len(figure.RingIDs))
	dir := t.TempDir()
	path, err := p.WritePage(dir, "html")
	require.NoError(t, err)
	for _, id := range figure.RingIDs {
		require.FileExists(t, filepath.Join(dir, "figures", id+".svg"))
	}
	markdown := string(p.Markdown())
	require.Contains(t, markdown, "## Several devices beside one")
	require.NotContains(t, markdown, "All rows")
	both, err := NewPage(synthetic(t, "synthetic.jsonl", "rings.jsonl"), nil)
	require.NoError(t, err)
	require.Len(t, both.Figures, len(figure.IDs)+len(figure.RingIDs))
	b := startBrowser(t)
	for _, view := range []struct {
		name  string
		width int
		dark  bool
	}{{"light", 1280, false}, {"dark", 1280, true}, {"phone", 360, false}, {"phone_dark", 360, true}} {
		b.view(view.width, 900, view.dark)
		require.Empty(t, trouble(b.open(path)), view.name)
		var page struct {
			Scroll, Width int
			Figures       []struct {
				ID            string
				Width, Letter float64
				Cut           []string // texts that reach out of the drawing
			}
		}
		b.eval(`({scroll: document.documentElement.scrollWidth, width: innerWidth, figures: [...document.querySelectorAll("figure")].map(f => {
			const svg = f.querySelector("svg"), box = svg.getBoundingClientRect(), text = [...svg.querySelectorAll("text")];
			const out = t => { const r = t.getBoundingClientRect(); return r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1; };
			return {id: f.id, width: box.width, letter: Math.min(...text.map(t => t.getBoundingClientRect().height)), cut: text.filter(out).map(t => t.textContent)};
		})})`, &page)
		require.LessOrEqual(t, page.Scroll, page.Width, "%s: the page is no wider than the screen", view.name)
		require.Len(t, page.Figures, len(figure.RingIDs))
		for _, f := range page.Figures {
			require.Greater(t, f.Width, float64(min(view.width, 400)-60), "%s: %s", view.name, f.ID)
			require.Greater(t, f.Letter, 10.5, "%s: letters of %s can be read", view.name, f.ID)
			require.Empty(t, f.Cut, "%s: %s", view.name, f.ID)
		}
		b.screenshot("rings_" + view.name)
	}
}

// The browser's test is only worth what it notices.
func TestTheBrowserNoticesTrouble(t *testing.T) {
	b := startBrowser(t)
	path := filepath.Join(t.TempDir(), "page.html")
	for want, html := range map[string]string{
		"missing.png":             `<!doctype html><img src="missing.png">`,
		"http://127.0.0.1:9/":     `<!doctype html><link rel="stylesheet" href="http://127.0.0.1:9/x.css">`,
		"Runtime.exceptionThrown": `<!doctype html><script>throw new Error("no")</script>`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(html), 0o644))
		require.Contains(t, strings.Join(trouble(b.open(path)), "\n"), want)
	}
	require.NoError(t, os.WriteFile(path, []byte(`<!doctype html><title>good</title><link rel="icon" href="data:,">`), 0o644))
	require.Empty(t, trouble(b.open(path)))
}
