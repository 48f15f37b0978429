// Package figure derives the twelve figures of the benchmark from result rows, and draws them.
//
// Build is the only place where a figure's numbers come from: drawings, the tables beside them and the tests read the same
// Points. Every point keeps the rows it was made of.
package figure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/bench"
)

// Kind is how a figure is drawn.
type Kind int

const (
	Lines Kind = iota // a line for each series, over x
	Map               // a heat map for each series: x sequence length, y batch
	Bars              // a bar for each series
)

// Figure is one figure with its numbers.
type Figure struct {
	ID    string // file name without extension: "time-seq"
	Title string
	X, Y  string // what the axes are, with units
	Kind  Kind
	LogX  bool
	LogY  bool
	One   bool // draw a line at y = 1
	Fixed string
	// Series are in the order of the legend. A figure without series has no rows to be made of, and Empty says which.
	Series []Series
	Empty  string
	// Missing are rows of the sweep that have no figures, with the reason.
	Missing []string
	// Reports is what the course reports found, on their GPUs.
	Reports []string
	// Scale is what values are multiplied with to be shown in the unit of Y: 1000 where TFLOP/s are shown as GFLOP/s.
	Scale float64
}

// Series is one implementation of one source.
type Series struct {
	Name   string
	Impl   string
	Source int  // index of the source, which chooses the marker
	Dashed bool // a variant: causal, backward, or a peer's
	Points []Point
}

// Point is one value with the rows that it was made of.
type Point struct {
	X, X2  float64 // X2: the other axis of a heat map
	Y      float64 // as in the row, or the ratio of two rows; in TFLOP/s, ms, MiB or times
	Lo, Hi float64 // 20th and 80th percentile of the same; worst and best for bars; 0: not known
	Row    *bench.Row
	Base   *bench.Row // the row it is divided by: standard attention's
	Pass   string     // "fwd" or "bwd"
	Shapes int        // bars: how many ratios
}

// Value is the value in the unit shown.
func (f *Figure) Value(y float64) float64 {
	if f.Scale == 0 {
		return y
	}
	return y * f.Scale
}

// Source is the rows of one file.
type Source struct {
	Label  string // tells it from the others
	Device string
	Rows   []bench.Row
}

// Merge joins files that complete one another: of one device, driver and version, without a row in common. Others stay
// apart, so that they show as series of their own.
func Merge(files []*bench.File) []*bench.File {
	var out []*bench.File
	for _, f := range files {
		i := slices.IndexFunc(out, func(o *bench.File) bool { return completes(o, f) })
		if i < 0 {
			out = append(out, f)
			continue
		}
		out[i] = &bench.File{Path: out[i].Path + ", " + f.Path, Headers: slices.Concat(out[i].Headers, f.Headers),
			Other: slices.Concat(out[i].Other, f.Other), Rows: slices.Concat(out[i].Rows, f.Rows)}
	}
	return out
}

func completes(a, b *bench.File) bool {
	if len(a.Headers) == 0 || len(b.Headers) == 0 {
		return false
	}
	h, o := a.Headers[len(a.Headers)-1], b.Headers[len(b.Headers)-1]
	if h.Device != o.Device || h.Driver != o.Driver || h.VKAttn != o.VKAttn {
		return false
	}
	have := map[bench.Case]bool{}
	for i := range a.Rows {
		if isOurs(&a.Rows[i]) {
			have[a.Rows[i].Case] = true
		}
	}
	return !slices.ContainsFunc(b.Rows, func(r bench.Row) bool { return isOurs(&r) && have[r.Case] })
}

// NewSources labels files by device, where devices repeat by version, else by file name.
func NewSources(files []*bench.File) []Source {
	out := make([]Source, len(files))
	version := make([]string, len(files))
	for i, f := range files {
		out[i] = Source{Device: deviceOf(f), Rows: f.Rows}
		if n := len(f.Headers); n > 0 {
			version[i] = f.Headers[n-1].VKAttn
		}
	}
	labels := func(of func(i int) string) bool {
		seen := map[string]bool{}
		for i := range out {
			if out[i].Label = of(i); seen[out[i].Label] {
				return false
			}
			seen[out[i].Label] = true
		}
		return true
	}
	switch {
	case labels(func(i int) string { return out[i].Device }):
	case labels(func(i int) string { return strings.TrimSpace(out[i].Device + " " + version[i]) }):
	case labels(func(i int) string { return fileLabel(files[i].Path) }):
	default:
		labels(func(i int) string { return fmt.Sprintf("%s #%d", fileLabel(files[i].Path), i+1) })
	}
	return out
}

func fileLabel(path string) string {
	path = path[strings.LastIndexAny(path, `/\`)+1:]
	return strings.TrimSuffix(path, ".jsonl")
}

// point is a row with the series that it belongs to.
type item struct {
	row    *bench.Row
	source int
	series string
	peer   bool
}

// set is all rows, each case once in each series.
type set struct {
	sources []Source
	items   []item
	base    map[baseKey]*bench.Row // standard attention, by who measured it
}

type baseKey struct {
	source  int
	library string
	shape   bench.Case
}

func newSet(sources []Source) *set {
	s := &set{sources: sources, base: map[baseKey]*bench.Row{}}
	ours, devices := map[int]bool{}, map[string]bool{}
	for i := range sources {
		devices[sources[i].Device] = true
		for j := range sources[i].Rows {
			ours[i] = ours[i] || isOurs(&sources[i].Rows[j])
		}
	}
	type key struct {
		series string
		c      bench.Case
	}
	at := map[key]int{}
	for i := range sources {
		for j := range sources[i].Rows {
			row := &sources[i].Rows[j]
			if row.Density > 0 { // another amount of work than the rest of its sweep
				continue
			}
			it := item{row: row, source: i, peer: !isOurs(row)}
			it.series = row.Impl
			switch {
			case it.peer:
				it.series += " (" + shortLibrary(row.Library) + ")"
				if len(devices) > 1 && sources[i].Device != "" {
					it.series += " · " + sources[i].Device
				}
			case len(ours) > 1:
				it.series += " · " + sources[i].Label
			}
			k := key{it.series, row.Case}
			if old, ok := at[k]; ok { // measured again: the later row counts, unless it has no figures
				if row.Error == "" && s.items[old].source == i {
					both := row.After(*s.items[old].row)
					it.row = &both
					s.items[old] = it
				}
			} else {
				at[k] = len(s.items)
				s.items = append(s.items, it)
			}
		}
	}
	for _, it := range s.items {
		if it.row.Impl == "standard" && it.row.Fwd.Ms > 0 {
			s.base[baseKey{it.source, it.row.Library, it.row.Shape()}] = it.row
		}
	}
	return s
}

func isOurs(r *bench.Row) bool { return strings.HasPrefix(r.Library, "vkattn") }

// shortLibrary is "torch 2.11.0" of "torch 2.11.0+cu130".
func shortLibrary(s string) string {
	if i := strings.IndexByte(s, '+'); i > 0 {
		s = s[:i]
	}
	if s == "" {
		return "unknown library"
	}
	return s
}

// baseOf is standard attention's row for the shape of it, measured by the same program.
func (s *set) baseOf(it item) *bench.Row {
	return s.base[baseKey{it.source, it.row.Library, it.row.Shape()}]
}

// collect makes the series of the items that keep, sorted by x.
func (s *set) collect(f *Figure, keep func(item) bool, value func(item) (Point, bool), variant func(item) (suffix string, dashed bool)) {
	at := map[string]int{}
	for _, it := range s.items {
		if !keep(it) {
			continue
		}
		p, ok := value(it)
		if !ok {
			continue
		}
		name, dashed := it.series, it.peer
		if variant != nil {
			suffix, d := variant(it)
			name, dashed = name+suffix, d
		}
		i, ok := at[name]
		if !ok {
			i = len(f.Series)
			at[name] = i
			f.Series = append(f.Series, Series{Name: name, Impl: it.row.Impl, Source: it.source, Dashed: dashed})
		}
		f.Series[i].Points = append(f.Series[i].Points, p)
	}
	for i := range f.Series {
		slices.SortStableFunc(f.Series[i].Points, func(a, b Point) int {
			switch {
			case a.X != b.X:
				return less(a.X, b.X)
			default:
				return less(a.X2, b.X2)
			}
		})
	}
	slices.SortStableFunc(f.Series, func(a, b Series) int { return rank(a.Impl) - rank(b.Impl) })
}

func less(a, b float64) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// rank orders implementations: ours, the baseline, peers.
func rank(impl string) int {
	if i := slices.Index([]string{"flash2", "flash1", "blocksparse", "standard"}, impl); i >= 0 {
		return i
	}
	return 10
}
