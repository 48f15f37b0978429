package bench

import (
	"fmt"
	"math"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash/tune"
)

// Samples are the times of repeated runs.
type Samples struct {
	Ms   []float64 // of each run
	Last int       // runs of the last submission
	Note string    // what the reader of the times must know

	one time.Duration // what a run takes
}

// budget is what measuring may take; no limit: as long as it must.
type budget struct {
	limit time.Duration
	began time.Time
}

// fits says whether another piece of work that takes so long is within the budget.
func (b budget) fits(one time.Duration) bool {
	return b.limit == 0 || time.Since(b.began)+one < b.limit
}

// Sample times what run makes n runs of in one submission: as the rows of every suite are, warmed up first, and within Limit.
func (d *Device) Sample(run func(n int) (tune.RunTimes, error)) (Samples, error) {
	return d.sample(budget{d.Limit, time.Now()}, run)
}

func (d *Device) sample(b budget, run func(n int) (tune.RunTimes, error)) (s Samples, err error) {
	// One run for the estimate: the pipelines are built by now.
	res, err := run(1)
	if err != nil {
		return Samples{}, err
	}
	s.one = res.Mean()
	began, awake := time.Now(), time.Duration(0)
	if !d.cpu && b.began.Sub(d.busy) > leftAlone {
		awake = wakeUp
	}
	defer func() { d.busy = time.Now() }()
	for spent := s.one; (spent < warmUp || time.Since(began) < awake) && b.fits(s.one); {
		if res, err = run(batch(s.one)); err != nil {
			return Samples{}, err
		}
		s.one = res.Mean()
		spent += s.one * time.Duration(res.N)
	}
	var spent time.Duration
	began = time.Now()
	for len(s.Ms) == 0 || (spent < leastTime && time.Since(began) < enoughWall || len(s.Ms) < leastRuns) && b.fits(s.one) {
		n := batch(s.one)
		if b.limit > 0 && len(s.Ms) > 0 && !b.fits(s.one*time.Duration(n)) {
			n = 1
		}
		if res, err = run(n); err != nil {
			return Samples{}, err
		}
		for _, t := range res.Runs {
			spent += t
			s.Ms = append(s.Ms, float64(t)/1e6)
		}
		s.Last = n
	}
	if !res.OnDevice {
		s.Note = "wall time: the device has no timestamps"
	}
	if ms := result.Median(s.Ms); ms <= 0 || math.IsNaN(ms) {
		return Samples{}, fmt.Errorf("the device timed a run at %v ms", ms)
	}
	return s, nil
}

// batch is the number of runs of one submission, given what one takes.
func batch(one time.Duration) int {
	if one <= 0 {
		return batchRuns
	}
	return min(max(int(batchTime/one), 1), batchRuns)
}

// How a row is measured.
const (
	warmUp     = 25 * time.Millisecond  // of device time before anything counts
	leftAlone  = 800 * time.Millisecond // a GPU without work for so long may have slowed its clock down: an H200 from 1980 to 345 MHz
	wakeUp     = time.Second            // of work before anything counts then, of which an H200 takes half to come back
	leastTime  = 100 * time.Millisecond // of device time that counts
	enoughWall = time.Second            // of runs too short to fill leastTime sooner, where other processes use the device too
	leastRuns  = 10
	batchTime  = 20 * time.Millisecond // of runs in one submission
	batchRuns  = 256                   // at most
	wallRuns   = 10                    // at most, one submission each
	wallBudget = 100 * time.Millisecond
)
