package figure

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

const (
	// RoundsLeast is the time in ms from which rounds are compared: of shorter ones a step of the device's clock is percents.
	RoundsLeast = 0.1
	// RoundsLimit is how far the slowest round may be above the fastest one, as a share of it, for them to agree.
	RoundsLimit = 0.03
)

// Settle gives a file with the middle round as the time of every pass, as it is written today: older files hold the mean of the two
// in the middle of an even number of rounds, which may lie outside the percentiles.
func Settle(f *result.File) *result.File {
	out := *f
	out.Rows = slices.Clone(f.Rows)
	for i := range out.Rows {
		for _, p := range []*result.Pass{&out.Rows[i].Fwd, &out.Rows[i].Bwd} {
			if middle := result.Middle(p.Rounds); p.Ms > 0 && middle > 0 {
				p.TFLOPS *= p.Ms / middle
				p.Ms = middle
			}
		}
	}
	return &out
}

// Span is what the times of a pass lie between: the 20th and 80th percentile of its runs, widened to the medians of all rounds, which
// percentiles of most runs hide. 0 and 0: nothing is known but the time.
func Span(p result.Pass) (lo, hi float64) {
	known := slices.Clone(p.Rounds)
	if p.P20 > 0 && p.P80 > 0 {
		known = append(known, p.P20, p.P80)
	}
	if len(known) < 2 || p.Ms <= 0 {
		return 0, 0
	}
	return min(p.Ms, slices.Min(known)), max(p.Ms, slices.Max(known))
}

// Disagreement is the distance of the slowest round from the fastest one, as a share of it; false where there are not two rounds, or
// they are too short to compare.
func Disagreement(p result.Pass) (share float64, ok bool) {
	if len(p.Rounds) < 2 || p.Ms < RoundsLeast || slices.Min(p.Rounds) <= 0 {
		return 0, false
	}
	return slices.Max(p.Rounds)/slices.Min(p.Rounds) - 1, true
}

// pass is the pass that a point shows, of its own row or of the one that it is divided by.
func (p *Point) pass(row *result.Row) result.Pass {
	if p.Pass == "bwd" {
		return row.Bwd
	}
	return row.Fwd
}

// Doubtful says that the rounds which a point was made of disagree: drawings ring it.
func (p *Point) Doubtful() bool {
	for _, row := range []*result.Row{p.Row, p.Base} {
		if row != nil {
			if share, ok := Disagreement(p.pass(row)); ok && share > RoundsLimit {
				return true
			}
		}
	}
	return false
}

// doubts says in words which points are ringed, and why.
func (f *Figure) doubts() {
	for _, s := range f.Series {
		for i := range s.Points {
			p := &s.Points[i]
			for _, row := range []*result.Row{p.Row, p.Base} {
				if row == nil {
					continue
				}
				took := p.pass(row)
				if share, ok := Disagreement(took); ok && share > RoundsLimit {
					where := Number(p.X)
					if f.Kind == Map {
						where += ", batch " + Number(p.X2)
					}
					name := s.Name
					if row == p.Base {
						name += "'s baseline"
					}
					f.Doubts = append(f.Doubts, fmt.Sprintf("%s at %s: rounds took %s ms; drawn is %s ms", name, where, listed(took.Rounds),
						Shown(took.Ms)))
				}
			}
		}
	}
}

// listed reads "0.31, 0.32 and 1.46".
func listed(values []float64) string {
	out := ""
	for i, v := range values {
		switch {
		case i > 0 && i == len(values)-1:
			out += " and "
		case i > 0:
			out += ", "
		}
		out += Shown(v)
	}
	return out
}
