package report

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// Spread says how well the rounds of a run agree: the distance of the slowest round's median from the fastest one's, over all timings,
// forward and backward, that have several rounds and are long enough to compare: figure.Disagreement.
type Spread struct {
	Timings  int // of both passes
	Backward int // of these
	Within   int // whose rounds agree
	Median   float64
	P95      float64
	Worst    float64
	Case     result.Case // of the worst
	Pass     string      // "forward" or "backward", of the worst

	all []float64
}

func (s *Spread) add(rows []result.Row) {
	for _, row := range rows {
		for _, pass := range []struct {
			name string
			result.Pass
		}{{"forward", row.Fwd}, {"backward", row.Bwd}} {
			d, ok := figure.Disagreement(pass.Pass)
			if !ok {
				continue
			}
			s.Timings++
			if pass.name == "backward" {
				s.Backward++
			}
			if d <= figure.RoundsLimit {
				s.Within++
			}
			if d >= s.Worst {
				s.Worst, s.Case, s.Pass = d, row.Case, pass.name
			}
			s.all = append(s.all, d)
		}
	}
}

func (s *Spread) finish() {
	if s.Timings > 0 {
		s.Median, s.P95 = result.Median(s.all), result.Quantile(s.all, 0.95)
	}
}

// String is a sentence; "" without rounds.
func (s Spread) String() string {
	if s.Timings == 0 {
		return ""
	}
	// Rounded down: 100 % is said of all alone.
	share := math.Floor(1000*float64(s.Within)/float64(s.Timings)) / 10
	return fmt.Sprintf("Rounds: in %d of %d timings of at least %g ms (%g %%; %d forward, %d backward) the rounds' medians agree within "+
		"%.0f %%; "+
		"the median difference is %s %%, the 95th percentile %s %%, the largest %s %% (%s, %s).",
		s.Within, s.Timings, figure.RoundsLeast, share, s.Timings-s.Backward, s.Backward, 100*figure.RoundsLimit,
		percent(s.Median), percent(s.P95), percent(s.Worst), s.Case, s.Pass)
}

// percent writes a share with two digits at least.
func percent(v float64) string {
	if v >= 0.1 {
		return fmt.Sprintf("%.0f", 100*v)
	}
	return fmt.Sprintf("%.1f", 100*v)
}
