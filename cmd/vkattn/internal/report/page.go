package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// PageFormats lists what WritePage takes.
var PageFormats = []string{"html", "md"}

// Page is what a report shows: the figures of all files together, and each file's rows.
type Page struct {
	Title   string
	Figures []*figure.Figure
	Runs    []Run
	Ratios  []Ratio
	Spread  Spread
	Maps    []Picture // that vkattn map added to the files
}

// Picture is one of a file, as a page shows it.
type Picture struct {
	result.Picture
	ID string // of its file among the figures
}

// Ratio is a line of what a page says in short.
type Ratio struct {
	Run string // whose it is, where there are several
	Summary
}

// String is a sentence.
func (r Ratio) String() string {
	if r.Run == "" {
		return r.Summary.String()
	}
	return r.Run + ": " + r.Summary.String()
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
	Rings   []result.RingRow // of several devices
}

// NewPage lays a report out. The rows of compare, a peer's or an earlier run's, stand beside those of the files.
func NewPage(files []*result.File, compare *result.File) (*Page, error) {
	for _, f := range append(slices.Clone(files), compare) {
		if f != nil && len(f.Rows)+len(f.Rings) == 0 {
			return nil, fmt.Errorf("%s: it has no result rows", f.Path)
		}
	}
	settled := make([]*result.File, len(files))
	for i, f := range files {
		settled[i] = figure.Settle(f)
	}
	all := figure.Merge(settled)
	if compare != nil {
		compare = figure.Settle(compare)
		all = append(all, compare)
	}
	sources := figure.NewSources(all)
	p := &Page{Title: "Attention on " + devices(sources)}
	if rings := figure.BuildRings(sources); slices.ContainsFunc(all, func(f *result.File) bool { return len(f.Rows) > 0 }) {
		p.Figures = append(figure.Build(sources), rings...)
	} else {
		p.Figures = rings
	}
	for i, f := range all {
		run := newRun(sources[i].Label, f)
		if compare != nil && f != compare {
			run.compareWith(compare.Rows)
		}
		p.Runs = append(p.Runs, run)
		for _, s := range Summaries(run.Results) {
			ratio := Ratio{Summary: s}
			if len(all) > 1 {
				ratio.Run = run.Label
			}
			p.Ratios = append(p.Ratios, ratio)
		}
		p.Spread.add(f.Rows)
	}
	p.Spread.finish()
	for _, f := range files {
		for _, m := range f.Maps {
			p.Maps = append(p.Maps, Picture{m, fmt.Sprintf("attention-%d", len(p.Maps)+1)})
		}
	}
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

func newRun(label string, f *result.File) Run {
	r := &Results{}
	if n := len(f.Headers); n > 0 {
		r.Header = f.Headers[n-1]
	} else {
		r.Header.Device = label
	}
	seen := map[string]bool{}
	at := map[result.Case]int{}
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
	run := Run{Label: label, Path: baseNames(f.Path), Results: r, Rings: f.Rings}
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
	matrix, fp32 := PeakRates(h.CPU, h.Peaks)
	add("Matrix peak, measured", matrix)
	add("fp32 peak, measured", fp32)
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
	for _, f := range [][2]string{{"Command", strings.Join(h.Command, " ")}, {"Host", h.Host},
		{"Fragments", strings.Join(h.Matrices, "; ")}} {
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

// compareWith sets rows of another file beside this run's: ours, and of others those that this run's file has not.
func (r *Run) compareWith(rows []result.Row) {
	have := map[peerKey]bool{}
	for _, p := range r.Results.Peers {
		have[peerKey{p.Shape(), p.Impl}] = true
	}
	for _, p := range rows {
		ours := IsOurs(p)
		if !ours && have[peerKey{p.Shape(), p.Impl}] {
			continue
		}
		r.Results.Peers = append(r.Results.Peers, p)
		if !ours && !slices.Contains(r.Results.PeerImpls, p.Impl) {
			r.Results.PeerImpls = append(r.Results.PeerImpls, p.Impl)
		}
	}
}

// ordered puts the figures that could not be drawn last.
func (p *Page) ordered() []*figure.Figure {
	out := slices.Clone(p.Figures)
	slices.SortStableFunc(out, func(a, b *figure.Figure) int { return min(1, len(b.Series)) - min(1, len(a.Series)) })
	return out
}

// WritePage writes the report to a folder: the figures as figures/NAME.svg and .png, and index.html or README.md. They replace the page
// and the figures of an earlier report, and no other file. It returns the path of the page.
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
	drawn, err := p.pictures()
	if err != nil {
		return "", err
	}
	return path, writeReport(dir, path, text, drawn)
}

// pictures are the figures and what vkattn map added, by the names of their files.
func (p *Page) pictures() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, f := range p.Figures {
		for _, view := range views(f) {
			for ending, draw := range map[string]func() ([]byte, error){".svg": view.SVG, ".png": view.PNG} {
				data, err := draw()
				if err != nil {
					return nil, err
				}
				out[view.ID+ending] = data
			}
		}
	}
	for _, m := range p.Maps {
		out[m.ID+".png"] = m.PNG
	}
	return out, nil
}
