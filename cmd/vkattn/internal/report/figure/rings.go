package figure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// RingIDs names the figures of several devices, in their order.
var RingIDs = []string{"rings-seq", "rings-ranks", "rings-split", "rings-forward", "rings-backward"}

// Guide is a line of what values would be at best, from end to end of the plot.
type Guide struct {
	Name     string
	Diagonal bool    // y = x
	Y        float64 // otherwise
}

// ringItem is a row of several devices, and whose it is.
type ringItem struct {
	row    *result.RingRow
	source int
}

// BuildRings derives the figures of several devices: nil where there are no rows of them.
func BuildRings(sources []Source) []*Figure {
	var all []ringItem
	for i := range sources {
		for j := range sources[i].Rings {
			r := &sources[i].Rings[j]
			if old := slices.IndexFunc(all, func(o ringItem) bool { return o.source == i && o.row.Same(r) }); old >= 0 {
				if r.Error == "" { // measured again
					all[old].row = r
				}
				continue
			}
			all = append(all, ringItem{r, i})
		}
	}
	if len(all) == 0 {
		return nil
	}
	failed := func(f *Figure) {
		for _, x := range all {
			if x.row.Error != "" {
				f.Missing = append(f.Missing, fmt.Sprintf("%s, %s tokens: %s", ringName(x, sources), Number(float64(x.row.Tokens)),
					strings.Join(strings.Fields(x.row.Error), " ")))
			}
		}
	}
	good := slices.DeleteFunc(slices.Clone(all), func(x ringItem) bool { return x.row.Error != "" })
	slices.SortStableFunc(good, func(a, b ringItem) int {
		return cmp.Or(a.source-b.source, strings.Compare(a.row.Over, b.row.Over), a.row.Ranks-b.row.Ranks,
			a.row.PerHost-b.row.PerHost, a.row.Tokens-b.row.Tokens)
	})
	// What a figure has in common is the shape that most rows have.
	counts := map[string]int{}
	shape := ""
	for _, x := range good {
		if counts[x.row.Shape()]++; counts[x.row.Shape()] > counts[shape] || shape == "" {
			shape = x.row.Shape()
		}
	}
	drawn := slices.DeleteFunc(slices.Clone(good), func(x ringItem) bool { return x.row.Shape() != shape })
	out := []*Figure{ringSeq(drawn, sources), ringRanks(drawn, sources), ringSplit(drawn, sources), ringTimeline(drawn, sources, false),
		ringTimeline(drawn, sources, true)}
	for _, f := range out {
		f.Fixed = strings.Trim(briefly(shape)+"; "+f.Fixed, "; ")
		if len(f.Series) == 0 {
			f.Fixed = ""
			continue
		}
		if n := len(good) - len(drawn); n > 0 && f.Kind == Lines {
			f.Missing = append(f.Missing, fmt.Sprintf("%d rows of other shapes: the table has them", n))
		}
		if f.Kind == Lines {
			failed(f)
		}
	}
	return out
}

// briefly leaves out of a shape what another word of it says already: as many key heads as heads, values as wide as keys.
func briefly(shape string) string {
	words := strings.Fields(shape)
	value := func(prefix string) string {
		for _, w := range words {
			if rest, ok := strings.CutPrefix(w, prefix); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
				return rest
			}
		}
		return ""
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return w == "Hk"+value("H") || w == "Dv"+value("D")
	}), " ")
}

// ringName tells series of devices apart: "2 ranks", "2 ranks, heads over devices", "keys from the host".
func ringName(x ringItem, sources []Source) string {
	name := fmt.Sprintf("%d ranks", x.row.Ranks)
	switch x.row.Over {
	case result.OverHost:
		name = "keys from the host"
	case result.OverHeads:
		name += ", heads"
	case result.OverBoth:
		name += fmt.Sprintf(", heads within hosts of %d", x.row.PerHost)
	}
	n := 0
	for _, s := range sources {
		n += min(1, len(s.Rings))
	}
	if n > 1 {
		name += " · " + sources[x.source].Label
	}
	return name
}

// ringPasses are what lines are drawn of: forward, and both together.
var ringPasses = []struct {
	name    string
	variant Variant
	speed   func(r *result.RingRow) float64
}{
	{"forward", Usual, func(r *result.RingRow) float64 { return r.Fwd.Speed }},
	{"forward and backward", Backward, func(r *result.RingRow) float64 { return r.Both }},
}

const ringAxis = "× the speed of one device"

// ringLines makes a series for each name and pass.
func ringLines(f *Figure, rows []ringItem, name func(x ringItem) string, at func(r *result.RingRow) float64) {
	var names []string
	for _, x := range rows {
		if n := name(x); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for i, n := range names {
		for _, pass := range ringPasses {
			s := Series{Name: n + ", " + pass.name, Mark: i % len(shapes), Variant: pass.variant, Colour: i%len(series) + 1,
				Peer: pass.variant != Usual}
			for _, x := range rows {
				if y := pass.speed(x.row); name(x) == n && y > 0 {
					s.Points = append(s.Points, Point{X: at(x.row), Y: y})
				}
			}
			slices.SortStableFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
			if len(s.Points) > 0 {
				f.Series = append(f.Series, s)
			}
		}
	}
}

// ringSeq is the speed-up against the tokens.
func ringSeq(rows []ringItem, sources []Source) *Figure {
	f := &Figure{ID: "rings-seq", Title: "Speed-up of several devices against tokens", X: "tokens", Y: ringAxis, LogX: true,
		One: true, Scale: 1}
	ringLines(f, rows, func(x ringItem) string { return ringName(x, sources) },
		func(r *result.RingRow) float64 { return float64(r.Tokens) })
	ideal := map[int]bool{}
	for _, x := range rows {
		ideal[x.row.Ranks] = true
	}
	for _, n := range slices.Sorted(maps.Keys(ideal)) {
		if n > 1 {
			f.Guides = append(f.Guides, Guide{Name: fmt.Sprintf("ideal, %d ranks", n), Y: float64(n)})
		}
	}
	if len(f.Series) == 0 {
		f.Empty = "No row of several devices has a time. vkattn bench --suite ring measures them."
	}
	return f
}

// ringRanks is the speed-up against the ranks.
func ringRanks(rows []ringItem, sources []Source) *Figure {
	f := &Figure{ID: "rings-ranks", Title: "Speed-up against the number of devices", X: "ranks", Y: ringAxis, LogX: true,
		LogY: true, Scale: 1}
	rows = slices.DeleteFunc(slices.Clone(rows), func(x ringItem) bool { return x.row.Over == result.OverHost })
	ranks := map[int]bool{}
	for _, x := range rows {
		ranks[x.row.Ranks] = true
	}
	if len(ranks) < 2 {
		f.Empty = "The files have no two numbers of ranks. vkattn bench --ranks N --out FILE --append adds another."
		return f
	}
	ringLines(f, rows, func(x ringItem) string {
		name := Number(float64(x.row.Tokens)) + " tokens"
		if _, rest, ok := strings.Cut(ringName(x, sources), " ranks"); ok {
			name += rest
		}
		return name
	}, func(r *result.RingRow) float64 { return float64(r.Ranks) })
	f.Guides = []Guide{{Name: "ideal", Diagonal: true}}
	return f
}

// RingParts are what a pass is split into.
var RingParts = []string{"kernels", "sums", "waiting for blocks", "nothing to do"}

// mostSplit is how many bars a figure has.
const mostSplit = 16

// ringSplit shows what the time of each row goes into.
func ringSplit(rows []ringItem, sources []Source) *Figure {
	f := &Figure{ID: "rings-split", Title: "Where the time of several devices goes", X: "% of a pass, mean of the ranks", Kind: Stacked,
		Parts: RingParts, Scale: 1}
	for _, backward := range []bool{false, true} {
		for _, x := range rows {
			p, pass := &x.row.Fwd, "forward"
			if backward {
				p, pass = &x.row.Bwd, "backward"
			}
			t := p.Traced
			if t == nil {
				continue
			}
			s := Series{Name: fmt.Sprintf("%s, %s tokens, %s", ringName(x, sources), Number(float64(x.row.Tokens)), pass), Whole: t.Ms}
			for i, v := range []float64{t.Kernels, t.Sums, t.Waiting, t.Idle - t.Waiting} {
				s.Points = append(s.Points, Point{X: float64(i), Y: max(0, v)})
			}
			f.Series = append(f.Series, s)
		}
	}
	if n := len(f.Series) - mostSplit; n > 0 { // those of most tokens stay
		f.Series = keepLongest(f.Series, mostSplit)
		f.Missing = append(f.Missing, fmt.Sprintf("%d shorter passes", n))
	}
	if len(f.Series) == 0 {
		f.Empty = "No row of several devices was traced."
	}
	return f
}

// keepLongest keeps the n series that took longest, in their order.
func keepLongest(all []Series, n int) []Series {
	times := make([]float64, len(all))
	for i, s := range all {
		times[i] = s.Whole
	}
	slices.Sort(times)
	least := times[len(times)-n]
	kept := slices.DeleteFunc(slices.Clone(all), func(s Series) bool { return s.Whole < least })
	return kept[:min(n, len(kept))]
}

// TimelineParts are what lanes show.
var TimelineParts = []string{"kernels of step", "sums", "copies out", "copies in"}

// mostTimelineRanks is how many ranks a timeline shows.
const mostTimelineRanks = 8

// ringTimeline is what every device did in one pass: of the row with most tokens, and of those the one of several devices with fewest
// ranks, which is the easiest to read.
func ringTimeline(rows []ringItem, sources []Source, backward bool) *Figure {
	f := &Figure{ID: "rings-forward", Title: "What devices did in a forward pass", X: "ms", Kind: Timeline, Parts: TimelineParts, Scale: 1}
	of := func(x ringItem) *result.RingTrace { return x.row.Fwd.Traced }
	if backward {
		f.ID, f.Title = "rings-backward", "What devices did in a backward pass"
		of = func(x ringItem) *result.RingTrace { return x.row.Bwd.Traced }
	}
	traced := slices.DeleteFunc(slices.Clone(rows), func(x ringItem) bool { return of(x) == nil || len(of(x).Lanes) == 0 })
	if len(traced) == 0 {
		f.Empty = "No such pass was traced."
		return f
	}
	best := slices.MinFunc(traced, func(a, b ringItem) int {
		return cmp.Or(min(b.row.Ranks, 2)-min(a.row.Ranks, 2), b.row.Tokens-a.row.Tokens, a.row.Ranks-b.row.Ranks)
	})
	t := of(best)
	f.Fixed = fmt.Sprintf("%s, %s tokens", ringName(best, sources), Number(float64(best.row.Tokens)))
	if t.Copies > 0 {
		f.X = fmt.Sprintf("ms (%s %% of the time of copies is hidden)", plain(100*t.Hidden))
	}
	most := t.Ms
	for _, l := range t.Lanes {
		lane := slices.Index(result.RingLanes, l.Lane)
		if l.Rank >= mostTimelineRanks || lane < 0 {
			continue
		}
		s := Series{Name: l.Lane, Rank: l.Rank}
		for _, x := range l.Spans {
			part := 0
			switch {
			case l.Lane == result.LaneOut:
				part = 2
			case l.Lane == result.LaneIn:
				part = 3
			case x.What == result.WhatSums:
				part = 1
			}
			s.Points = append(s.Points, Point{X: float64(part), X2: float64(x.Step), Y: x.End - x.Begin, Lo: x.Begin, Hi: x.End})
			most = max(most, x.End)
		}
		s.Whole = most
		f.Series = append(f.Series, s)
	}
	for i := range f.Series {
		f.Series[i].Whole = most
	}
	if best.row.Ranks > mostTimelineRanks {
		f.Missing = append(f.Missing, fmt.Sprintf("ranks %d to %d", mostTimelineRanks, best.row.Ranks-1))
	}
	return f
}
