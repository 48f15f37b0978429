// Package figure derives the twelve figures of the benchmark from result rows, and draws them.
//
// Build is the only place where a figure's numbers come from: drawings, the tables beside them and the tests read the same
// Points. Every point keeps the rows it was made of.
package figure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Kind is how a figure is drawn.
type Kind int

const (
	Lines    Kind = iota // a line for each series, over x
	Map                  // a heat map for each series: x sequence length, y batch
	Bars                 // a bar for each series
	Stacked              // a bar for each series, of parts
	Timeline             // a lane for each series, of spans over time
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
	// Absent are the sources that have rows for this figure, but none at its setting.
	Absent []string
	// Doubts are the points whose rounds disagree.
	Doubts []string
	// Others is what others measured, on their GPUs; numbers in brackets are of Citations.
	Others []string
	// Baseline names the series that values are divided by; "": none.
	Baseline string
	// Peer is the same figure against a peer's baseline, where both baselines were measured.
	Peer *Figure
	// Scale is what values are multiplied with to be shown in the unit of Y: 1000 where TFLOP/s are shown as GFLOP/s.
	Scale float64
	// Guides are lines of what values would be at best.
	Guides []Guide
	// Parts are what bars and lanes are made of: the X of points.
	Parts []string
}

// Series is one implementation of one source.
type Series struct {
	Name    string
	Impl    string
	Peer    bool    // another program's
	Mark    int     // shape of its points
	Colour  int     // its number among the colours, from 1; 0: its implementation's
	Rank    int     // of a timeline's lane
	Whole   float64 // what a bar, or a timeline, is as long as, in ms
	Variant Variant
	Points  []Point
}

// Point is one value with the rows that it was made of.
type Point struct {
	X, X2  float64 // X2: the other axis of a heat map
	Y      float64 // as in the row, or the ratio of two rows; in TFLOP/s, ms, MiB or times
	Lo, Hi float64 // Span of the same; worst and best for bars; beginning and end on a timeline; 0: not known
	Row    *result.Row
	Base   *result.Row // the row it is divided by, of the figure's baseline
	Pass   string      // "fwd" or "bwd"
	Shapes int         // bars: how many ratios
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
	CPU    bool // the device is one
	Rows   []result.Row
	Rings  []result.RingRow
}

// Merge joins files that complete one another: of one device, driver and version, without a row in common. Others stay
// apart, so that they show as series of their own.
func Merge(files []*result.File) []*result.File {
	var out []*result.File
	for _, f := range files {
		i := slices.IndexFunc(out, func(o *result.File) bool { return completes(o, f) })
		if i < 0 {
			out = append(out, f)
			continue
		}
		out[i] = &result.File{Path: out[i].Path + ", " + f.Path, Headers: slices.Concat(out[i].Headers, f.Headers),
			Other: slices.Concat(out[i].Other, f.Other), Rows: slices.Concat(out[i].Rows, f.Rows),
			Rings: slices.Concat(out[i].Rings, f.Rings)}
	}
	return out
}

func completes(a, b *result.File) bool {
	if len(a.Headers) == 0 || len(b.Headers) == 0 {
		return false
	}
	h, o := a.Headers[len(a.Headers)-1], b.Headers[len(b.Headers)-1]
	if h.Device != o.Device || h.Driver != o.Driver || h.VKAttn != o.VKAttn {
		return false
	}
	have := map[result.Case]bool{}
	for i := range a.Rows {
		if isOurs(&a.Rows[i]) {
			have[a.Rows[i].Case] = true
		}
	}
	return !slices.ContainsFunc(b.Rows, func(r result.Row) bool { return isOurs(&r) && have[r.Case] })
}

// NewSources labels files by device, where devices repeat by version, else by file name.
func NewSources(files []*result.File) []Source {
	out := make([]Source, len(files))
	version := make([]string, len(files))
	for i, f := range files {
		out[i] = Source{Device: deviceOf(f), CPU: onCPU(f), Rows: f.Rows, Rings: f.Rings}
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

// fileLabel is the name of a file without its folder and ending; of several that were merged, the first and how many more.
func fileLabel(path string) string {
	first, more, merged := strings.Cut(path, ", ")
	name := strings.TrimSuffix(first[strings.LastIndexAny(first, `/\`)+1:], ".jsonl")
	if merged {
		name += fmt.Sprintf(" and %d more", strings.Count(more, ", ")+1)
	}
	return name
}

// point is a row with the series that it belongs to.
type item struct {
	row    *result.Row
	source int
	series string
	peer   bool
}

// set is all rows, each case once in each series.
type set struct {
	sources []Source
	items   []item
	base    map[baseKey]*result.Row // standard attention, by its series
	marks   *marks
}

type baseKey struct {
	series string
	shape  result.Case
}

func newSet(sources []Source) *set {
	s := &set{sources: sources, base: map[baseKey]*result.Row{}, marks: newMarks(len(sources))}
	ours, devices := map[int]bool{}, map[string]bool{}
	for i := range sources {
		devices[sources[i].Device] = true
		for j := range sources[i].Rows {
			ours[i] = ours[i] || isOurs(&sources[i].Rows[j])
		}
	}
	type key struct {
		series string
		c      result.Case
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
			s.base[baseKey{it.series, it.row.Shape()}] = it.row
		}
	}
	return s
}

func isOurs(r *result.Row) bool { return strings.HasPrefix(r.Library, "vkattn") }

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

// baselines are the series of standard attention that others are measured against: ours, and a peer's. Of several the one with most
// shapes counts; "": there is none.
func (s *set) baselines() (ours, peers string) {
	shapes := map[string]int{}
	for _, it := range s.items {
		if s.base[baseKey{it.series, it.row.Shape()}] != it.row {
			continue
		}
		shapes[it.series]++
	}
	for _, it := range s.items { // in their order, so that equals are told apart
		best := &ours
		if it.peer {
			best = &peers
		}
		if shapes[it.series] > shapes[*best] {
			*best = it.series
		}
	}
	return ours, peers
}

// collect makes the series of the items that keep, sorted by x.
func (s *set) collect(f *Figure, keep func(item) bool, value func(item) (Point, bool), variant func(item) (suffix string, v Variant)) {
	at := map[string]int{}
	for _, it := range s.items {
		if !keep(it) {
			continue
		}
		p, ok := value(it)
		if !ok {
			continue
		}
		name, v := it.series, Usual
		if variant != nil {
			var suffix string
			suffix, v = variant(it)
			name += suffix
		}
		i, ok := at[name]
		if !ok {
			i = len(f.Series)
			at[name] = i
			f.Series = append(f.Series, Series{Name: name, Impl: it.row.Impl, Peer: it.peer, Mark: s.marks.mark(it), Variant: v})
		}
		f.Series[i].Points = append(f.Series[i].Points, p)
	}
	for i := range f.Series {
		slices.SortStableFunc(f.Series[i].Points, func(a, b Point) int {
			return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.X2, b.X2))
		})
	}
	slices.SortStableFunc(f.Series, func(a, b Series) int { return rank(a.Impl) - rank(b.Impl) })
	f.doubts()
}

// rank orders implementations: ours, the baseline, peers.
func rank(impl string) int {
	if i := slices.Index([]string{"flash2", "flash1", "blocksparse", "standard"}, impl); i >= 0 {
		return i
	}
	return 10
}
