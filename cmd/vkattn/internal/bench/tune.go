package bench

import (
	"cmp"
	"context"
	"fmt"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// How tunings are compared.
const (
	leastGain    = 1.02 // a tile must be this much faster than the built-in one to replace it, as a factor
	secondChance = 1.25 // after the first round, tiles slower than the best by more are out
)

// Tuned is a candidate with what was measured of it.
type Tuned struct {
	tune.Candidate
	result.Row         // its kernel, times and error
	Gain       float64 // time of the built-in choice over this one's; 0 when it has no time
	Best       bool    // the one to take: the fastest, or the built-in choice when nothing is clearly faster
}

// tuned is what tiles are of: a pass, the candidates for it, and how a plan takes one.
type tuned struct {
	passes     result.Passes
	candidates func(d *flash.Device, p flash.Problem, opts ...flash.PlanOption) ([]tune.Candidate, error)
	with       func(values map[string]int) flash.PlanOption
	pass       func(r *result.Row) (p *result.Pass, failure string)
}

var (
	tunedForward = tuned{result.Passes{Fwd: true}, tune.Candidates, flash.WithTuning,
		func(r *result.Row) (*result.Pass, string) { return &r.Fwd, r.Error }}
	tunedBackward = tuned{result.Passes{Bwd: true}, tune.BackwardCandidates, flash.WithBackwardTuning,
		func(r *result.Row) (*result.Pass, string) { return &r.Bwd, cmp.Or(r.Error, r.BwdFailure.Error) }}
)

// Tune measures the tiles that the device offers for a case, interleaved over
// rounds, each output checked. The built-in choice comes first. A tile whose
// output is wrong, or that fails, has no time and never wins.
func (d *Device) Tune(ctx context.Context, c result.Case, rounds int, progress func(step, total int, what string)) ([]Tuned, error) {
	return d.tune(ctx, c, rounds, progress, &tunedForward)
}

// TuneBackward does so for the backward pass: tiles of its two kernels, one of them at a time, the other as built in. Each was compared
// with the oracle when its plan was made.
func (d *Device) TuneBackward(ctx context.Context, c result.Case, rounds int,
	progress func(step, total int, what string)) ([]Tuned, error) {
	return d.tune(ctx, c, rounds, progress, &tunedBackward)
}

func (d *Device) tune(ctx context.Context, c result.Case, rounds int, progress func(step, total int, what string),
	of *tuned) ([]Tuned, error) {
	impl, err := result.Implementation(c.Impl)
	if err != nil {
		return nil, err
	}
	problem, err := c.Problem()
	if err != nil {
		return nil, err
	}
	candidates, err := of.candidates(d.dev, problem, append([]flash.PlanOption{flash.WithImplementation(impl)}, d.opts...)...)
	if err != nil {
		return nil, err
	}
	j := result.Job{Case: c, Passes: of.passes}
	shape, err := d.Shape(ctx, c, j.Passes)
	if err != nil {
		return nil, err
	}
	defer shape.Close()
	s := shape.(*deviceShape)

	measured := make([][]result.Row, len(candidates))
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
			row := s.measureWith(ctx, j, round == 0, flash.WithoutStoredTuning(), of.with(t.Tuning))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			measured[i] = append(measured[i], row)
			pass, failure := of.pass(&row)
			out[i] = failure != ""
			if !out[i] && (best == 0 || pass.Ms < best) {
				best = pass.Ms
			}
		}
		if round == 0 {
			for i, rows := range measured {
				if pass, _ := of.pass(&rows[0]); i > 0 && pass.Ms > secondChance*best {
					out[i] = true
				}
			}
		}
	}
	return of.rank(candidates, measured), nil
}

// rank merges the rounds and finds the tile to take.
func (of *tuned) rank(candidates []tune.Candidate, measured [][]result.Row) []Tuned {
	var all []Tuned
	best := 0
	ms := func(t *Tuned) float64 { p, _ := of.pass(&t.Row); return p.Ms }
	for i, c := range candidates {
		all = append(all, Tuned{Candidate: c, Row: result.MergeRounds(measured[i])})
		if base, own := ms(&all[0]), ms(&all[i]); own > 0 && base > 0 {
			all[i].Gain = base / own
		}
		if all[i].Gain > max(all[best].Gain, leastGain) && of.everyRound(measured[i], measured[0]) {
			best = i
		}
	}
	all[best].Best = ms(&all[best]) > 0
	return all
}

// everyRound says whether a was faster than b in each round: a difference that
// a repeat does not show is none.
func (of *tuned) everyRound(a, b []result.Row) bool {
	for i := range a {
		if i < len(b) {
			x, _ := of.pass(&a[i])
			if y, _ := of.pass(&b[i]); x.Ms >= y.Ms {
				return false
			}
		}
	}
	return true
}
