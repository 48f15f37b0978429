package bench

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// How tunings are compared.
const (
	leastGain    = 1.02 // a tile must be this much faster than the built-in one to replace it, as a factor
	secondChance = 1.25 // after the first round, tiles slower than the best by more are out
)

// Tuned is a candidate with what was measured of it.
type Tuned struct {
	flash.Candidate
	Row          // its kernel, times and error
	Gain float64 // time of the built-in choice over this one's; 0 when it has no time
	Best bool    // the one to take: the fastest, or the built-in choice when nothing is clearly faster
}

// Tune measures the tiles that the device offers for a case, interleaved over
// rounds, each output checked. The built-in choice comes first. A tile whose
// output is wrong, or that fails, has no time and never wins.
func (d *Device) Tune(ctx context.Context, c Case, rounds int, progress func(step, total int, what string)) ([]Tuned, error) {
	impl, err := Implementation(c.Impl)
	if err != nil {
		return nil, err
	}
	problem, err := c.Problem()
	if err != nil {
		return nil, err
	}
	candidates, err := d.dev.Candidates(problem, append([]flash.PlanOption{flash.WithImplementation(impl)}, d.opts...)...)
	if err != nil {
		return nil, err
	}
	j := Job{Case: c, Passes: Passes{Fwd: true}}
	shape, err := d.Shape(ctx, c, j.Passes)
	if err != nil {
		return nil, err
	}
	defer shape.Close()
	s := shape.(*deviceShape)

	measured := make([][]Row, len(candidates))
	out := make([]bool, len(candidates))
	for round := range max(rounds, 1) {
		best := 0.0
		for i, t := range candidates {
			if progress != nil {
				progress(round*len(candidates)+i+1, max(rounds, 1)*len(candidates), fmt.Sprintf("%s, tile %s", c, t.Tile))
			}
			if out[i] {
				continue
			}
			row := s.measureWith(ctx, j, round == 0, flash.WithoutStoredTuning(), flash.WithTuning(t.Tuning))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			measured[i] = append(measured[i], row)
			out[i] = row.Error != ""
			if !out[i] && (best == 0 || row.Fwd.Ms < best) {
				best = row.Fwd.Ms
			}
		}
		if round == 0 {
			for i, rows := range measured {
				if ms := rows[0].Fwd.Ms; i > 0 && ms > secondChance*best {
					out[i] = true
				}
			}
		}
	}
	return rank(candidates, measured), nil
}

// rank merges the rounds and finds the tile to take.
func rank(candidates []flash.Candidate, measured [][]Row) []Tuned {
	var all []Tuned
	best := 0
	for i, c := range candidates {
		all = append(all, Tuned{Candidate: c, Row: mergeRounds(measured[i])})
		if base := all[0].Fwd.Ms; all[i].Fwd.Ms > 0 && base > 0 {
			all[i].Gain = base / all[i].Fwd.Ms
		}
		if all[i].Gain > max(all[best].Gain, leastGain) && everyRound(measured[i], measured[0]) {
			best = i
		}
	}
	all[best].Best = all[best].Fwd.Ms > 0
	return all
}

// everyRound says whether a was faster than b in each round: a difference that
// a repeat does not show is none.
func everyRound(a, b []Row) bool {
	for i := range a {
		if i < len(b) && a[i].Fwd.Ms >= b[i].Fwd.Ms {
			return false
		}
	}
	return true
}
