package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/vkattn/vkattn/internal/bench"
	"github.com/vkattn/vkattn/internal/report/figure"
)

// PageFormats lists what WritePage takes.
var PageFormats = []string{"html", "md"}

// Page is what a report shows: the figures of all files together, and each file's rows.
type Page struct {
	Title   string
	Figures []*figure.Figure
	Runs    []Run
	Ratios  []string
	Spread  Spread
}

// Run is one result file.
type Run struct {
	Label   string
	Path    string
	Lines   []string // device and peaks
	Facts   [][2]string
	More    [][2]string // what few look for
	Limits  [][2]string
	Extends []string // extensions
	Results *Results
}

// NewPage lays a report out. The rows of compare, a peer's or an earlier run's, stand beside those of the files.
func NewPage(files []*bench.File, compare *bench.File) (*Page, error) {
	for _, f := range append(slices.Clone(files), compare) {
		if f != nil && len(f.Rows) == 0 {
			return nil, fmt.Errorf("%s: it has no result rows", f.Path)
		}
	}
	all := figure.Merge(files)
	if compare != nil {
		all = append(all, compare)
	}
	sources := figure.NewSources(all)
	p := &Page{Title: "Attention on " + devices(sources), Figures: figure.Build(sources)}
	for i, f := range all {
		run := newRun(sources[i].Label, f)
		if compare != nil && f != compare {
			run.compareWith(compare.Rows)
		}
		p.Runs = append(p.Runs, run)
		for _, s := range Summaries(run.Results) {
			line := s.String()
			if len(all) > 1 {
				line = run.Label + ": " + line
			}
			p.Ratios = append(p.Ratios, line)
		}
		p.Spread.add(f.Rows)
	}
	p.Spread.finish()
	return p, nil
}

func devices(sources []figure.Source) string {
	var names []string
	for _, s := range sources {
		if !slices.Contains(names, s.Device) {
			names = append(names, s.Device)
		}
	}
	return strings.Join(names, ", ")
}

func newRun(label string, f *bench.File) Run {
	r := &Results{}
	if n := len(f.Headers); n > 0 {
		r.Header = f.Headers[n-1]
	} else {
		r.Header.Device = label
	}
	seen := map[string]bool{}
	at := map[bench.Case]int{}
	for _, row := range f.Rows {
		if IsOurs(row) {
			if i, again := at[row.Case]; again {
				r.Rows[i] = row.After(r.Rows[i])
			} else {
				at[row.Case] = len(r.Rows)
				r.Rows = append(r.Rows, row)
			}
			continue
		}
		r.Peers = append(r.Peers, row)
		if !seen[row.Impl] {
			seen[row.Impl] = true
			r.PeerImpls = append(r.PeerImpls, row.Impl)
		}
	}
	if len(r.Rows) == 0 { // a peer's file by itself
		r.Rows, r.Peers, r.PeerImpls = r.Peers, nil, nil
	}
	run := Run{Label: label, Path: baseNames(f.Path), Results: r}
	h := r.Header
	if h.VKAttn != "" {
		run.Lines = HeaderLines(h)
	}
	add := func(name, value string) {
		if value != "" {
			run.Facts = append(run.Facts, [2]string{name, value})
		}
	}
	if label != h.Device {
		add("Device", h.Device)
	}
	add("Driver", h.Driver)
	add("Vulkan", h.API)
	add("Tiers", strings.Join(h.Tiers, ", "))
	if h.Peaks.MatrixTFLOPS > 0 {
		add("Matrix peak, measured", rate(h.Peaks.MatrixTFLOPS))
	}
	if h.Peaks.FP32TFLOPS > 0 {
		add("fp32 peak, measured", rate(h.Peaks.FP32TFLOPS))
	}
	if h.Peaks.CopyGBps > 0 {
		add("Copy, read and written, measured", Digits(h.Peaks.CopyGBps)+" GB/s")
	}
	add("vkattn", h.VKAttn)
	if !h.Started.IsZero() {
		add("Started", h.Started.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if h.Rounds > 1 {
		add("Rounds", fmt.Sprint(h.Rounds))
	}
	add("File", run.Path)
	for _, f := range [][2]string{{"Command", strings.Join(h.Command, " ")}, {"Host", h.Host}, {"Fragments", strings.Join(h.Matrices, "; ")}} {
		if f[1] != "" {
			run.More = append(run.More, f)
		}
	}
	for name, v := range h.Limits {
		run.Limits = append(run.Limits, [2]string{name, fmt.Sprint(v)})
	}
	sort.Slice(run.Limits, func(i, j int) bool { return run.Limits[i][0] < run.Limits[j][0] })
	run.Extends = h.Extensions
	return run
}

// baseNames takes the folders off the path of a file, or of several that were merged.
func baseNames(paths string) string {
	var names []string
	for _, p := range strings.Split(paths, ", ") {
		names = append(names, filepath.Base(p))
	}
	return strings.Join(names, ", ")
}

// compareWith sets rows of another file beside this run's.
func (r *Run) compareWith(rows []bench.Row) {
	have := map[peerKey]bool{}
	for _, p := range r.Results.Peers {
		have[peerKey{p.Shape(), p.Impl}] = true
	}
	for _, p := range rows {
		if have[peerKey{p.Shape(), p.Impl}] {
			continue
		}
		r.Results.Peers = append(r.Results.Peers, p)
		if !slices.Contains(r.Results.PeerImpls, p.Impl) {
			r.Results.PeerImpls = append(r.Results.PeerImpls, p.Impl)
		}
	}
}

// Spread says how well the rounds of a run agree: the distance of the slowest round's median from the fastest one's, over the
// rows of at least 0.1 ms that have several rounds.
type Spread struct {
	Rows   int
	Within int // rows whose rounds agree within 3 %
	Median float64
	P95    float64
	Worst  float64
	Case   bench.Case // of the worst

	all []float64
}

const (
	spreadLeast = 0.1 // ms
	spreadLimit = 0.03
)

func (s *Spread) add(rows []bench.Row) {
	for _, row := range rows {
		if len(row.Fwd.Rounds) < 2 || row.Fwd.Ms < spreadLeast {
			continue
		}
		d := slices.Max(row.Fwd.Rounds)/slices.Min(row.Fwd.Rounds) - 1
		s.Rows++
		if d <= spreadLimit {
			s.Within++
		}
		if d >= s.Worst {
			s.Worst, s.Case = d, row.Case
		}
		s.all = append(s.all, d)
	}
}

func (s *Spread) finish() {
	if s.Rows > 0 {
		s.Median, s.P95 = bench.Median(s.all), bench.Quantile(s.all, 0.95)
	}
}

// String is a sentence; "" without rounds.
func (s Spread) String() string {
	if s.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("Rounds: in %d of %d rows of at least %g ms (%.0f %%) the rounds' medians agree within %.0f %%; the median difference is %s %%, the 95th percentile %s %%, the largest %s %% (%s).",
		s.Within, s.Rows, spreadLeast, 100*float64(s.Within)/float64(s.Rows), 100*spreadLimit, percent(s.Median), percent(s.P95), percent(s.Worst), s.Case)
}

// percent writes a share with two digits at least.
func percent(v float64) string {
	if v >= 0.1 {
		return fmt.Sprintf("%.0f", 100*v)
	}
	return fmt.Sprintf("%.1f", 100*v)
}

//go:embed page.tmpl
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// htmlPage is a Page as its template takes it.
type htmlPage struct {
	*Page
	Light, Dark template.CSS
	Drawn       []htmlFigure
	Sections    []htmlSection
	Tables      []htmlTable
}

type htmlSection struct {
	Section
	Label string // of the run, where there are several
}

type htmlFigure struct {
	*figure.Figure
	SVG   template.HTML
	Table FigureTable
}

type htmlTable struct {
	Run     Run
	Columns []htmlColumn
	Rows    []htmlRow
	Shared  string
	Notes   []string
	Open    bool // short enough to be shown at once
}

type htmlColumn struct {
	Name string
	Left bool
}

type htmlRow struct {
	Peer, First bool // First: of its shape
	Cells       []string
}

// FigureTable is the numbers of a figure.
type FigureTable struct {
	Header []string
	Rows   [][]string
}

// Table lists the numbers of a figure, in the unit of its axis.
func Table(f *figure.Figure) FigureTable {
	t := FigureTable{Header: []string{"series", f.X, f.Y, "20th to 80th percentile", "kernel"}}
	switch f.Kind {
	case figure.Map:
		t.Header = []string{"series", f.X, f.Y, "value", "20th to 80th percentile", "kernel"}
	case figure.Bars:
		t.Header = []string{"series", f.X, "worst to best", "shapes"}
	}
	for _, s := range f.Series {
		for _, p := range s.Points {
			between, kernel := "", ""
			if p.Lo > 0 {
				between = exact(f.Value(p.Lo)) + " to " + exact(f.Value(p.Hi))
			}
			if p.Row != nil {
				kernel = p.Row.Kernel
			}
			switch f.Kind {
			case figure.Map:
				t.Rows = append(t.Rows, []string{s.Name, exact(p.X), exact(p.X2), exact(f.Value(p.Y)), between, kernel})
			case figure.Bars:
				t.Rows = append(t.Rows, []string{s.Name, exact(p.Y), between, fmt.Sprint(p.Shapes)})
			default:
				t.Rows = append(t.Rows, []string{s.Name, exact(p.X), exact(f.Value(p.Y)), between, kernel})
			}
		}
	}
	t.trim()
	return t
}

// exact keeps the six significant digits that result files have.
func exact(v float64) string { return fmt.Sprintf("%.6g", v) }

// ordered puts the figures that could not be drawn last.
func (p *Page) ordered() []*figure.Figure {
	out := slices.Clone(p.Figures)
	slices.SortStableFunc(out, func(a, b *figure.Figure) int { return min(1, len(b.Series)) - min(1, len(a.Series)) })
	return out
}

// HTML renders the page: one file that needs nothing else.
func (p *Page) HTML() ([]byte, error) {
	out := htmlPage{Page: p, Light: template.CSS(figure.Variables(false)), Dark: template.CSS(figure.Variables(true))}
	for _, f := range p.ordered() {
		h := htmlFigure{Figure: f}
		if len(f.Series) > 0 {
			svg, err := f.Inline()
			if err != nil {
				return nil, err
			}
			h.SVG, h.Table = template.HTML(svg), Table(f)
		}
		out.Drawn = append(out.Drawn, h)
	}
	for _, run := range p.Runs {
		for _, s := range run.sections() {
			h := htmlSection{Section: s}
			if len(p.Runs) > 1 {
				h.Label = run.Label
				h.ID += fmt.Sprintf("-%d", len(out.Sections))
			}
			out.Sections = append(out.Sections, h)
		}
		out.Tables = append(out.Tables, run.table())
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, out)
	return b.Bytes(), err
}

func (r Run) table() htmlTable {
	g := build(r.Results)
	t := htmlTable{Run: r, Shared: strings.Join(g.shared, " · "), Notes: g.notes, Open: len(g.cells) <= 40}
	for _, c := range g.columns {
		t.Columns = append(t.Columns, htmlColumn{c.Name, c.Left})
	}
	for i, cells := range g.cells {
		t.Rows = append(t.Rows, htmlRow{Peer: g.peer[i], First: i > 0 && g.groups[i] != g.groups[i-1], Cells: cells})
	}
	return t
}

// WritePage writes the report to a folder: the figures as figures/NAME.svg and .png, and index.html or README.md, which
// replaces a page of an earlier report and no other file. It returns the path of the latter.
func (p *Page) WritePage(dir, format string) (string, error) {
	var name string
	var text []byte
	var err error
	switch format {
	case "html":
		name = "index.html"
		text, err = p.HTML()
	case "md":
		name = "README.md"
		text = p.Markdown()
	default:
		return "", fmt.Errorf("format %q: it must be one of %s", format, strings.Join(PageFormats, ", "))
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if err := replaceable(path); err != nil {
		return "", err
	}
	figures := filepath.Join(dir, "figures")
	if err := os.MkdirAll(figures, 0o755); err != nil {
		return "", err
	}
	for _, f := range p.Figures {
		svg, png := filepath.Join(figures, f.ID+".svg"), filepath.Join(figures, f.ID+".png")
		if len(f.Series) == 0 { // none from an earlier report must stay
			for _, old := range []string{svg, png} {
				if err := os.Remove(old); err != nil && !os.IsNotExist(err) {
					return "", err
				}
			}
			continue
		}
		for path, draw := range map[string]func() ([]byte, error){svg: f.SVG, png: f.PNG} {
			data, err := draw()
			if err != nil {
				return "", err
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return "", err
			}
		}
	}
	return path, writePage(path, text)
}

// Markdown renders the page for a README; its figures are in the folder figures.
func (p *Page) Markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", p.Title)
	for _, run := range p.Runs {
		for _, line := range run.Lines {
			fmt.Fprintf(&b, "%s  \n", line)
		}
	}
	b.WriteString("\n")
	for _, r := range p.Ratios {
		fmt.Fprintf(&b, "- %s\n", escape(r))
	}
	if s := p.Spread.String(); s != "" {
		fmt.Fprintf(&b, "- %s\n", escape(s))
	}
	for _, f := range p.ordered() {
		fmt.Fprintf(&b, "\n## %s\n\n", f.Title)
		if f.Fixed != "" {
			fmt.Fprintf(&b, "%s\n\n", f.Fixed)
		}
		if len(f.Series) == 0 {
			fmt.Fprintf(&b, "%s\n", f.Empty)
		} else {
			fmt.Fprintf(&b, "![%s](figures/%s.svg)\n", f.Title, f.ID)
		}
		if len(f.Missing) > 0 {
			b.WriteString("\nNot in the figure:\n\n")
			for _, m := range f.Missing {
				fmt.Fprintf(&b, "- %s\n", escape(m))
			}
		}
		if len(f.Reports) > 0 {
			b.WriteString("\nThe course reports found:\n\n")
			for _, m := range f.Reports {
				fmt.Fprintf(&b, "> %s  \n", m)
			}
		}
	}
	for _, run := range p.Runs {
		for _, s := range run.sections() {
			s.markdown(&b, run.Label, len(p.Runs) > 1)
		}
	}
	for _, run := range p.Runs {
		fmt.Fprintf(&b, "\n## All rows: %s\n\n", run.Label)
		_ = writeMarkdown(&b, run.Results) // a buffer takes everything
	}
	return b.Bytes()
}

func (s Section) markdown(b *bytes.Buffer, label string, several bool) {
	title := s.Title
	if several {
		title += ": " + label
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if s.Fixed != "" {
		fmt.Fprintf(b, "%s\n\n", s.Fixed)
	}
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + escape(c) + " |")
		}
		b.WriteString("\n")
	}
	line(s.Table.Header)
	b.WriteString("|" + strings.Repeat(" --- |", len(s.Table.Header)) + "\n")
	for _, row := range s.Table.Rows {
		line(row)
	}
	for _, m := range s.Reports {
		fmt.Fprintf(b, "\n> %s\n", m)
	}
}
