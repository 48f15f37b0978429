package bench

import (
	"fmt"
	"math"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// telling is the least time in ms of a run whose rate predicts others: shorter
// ones do not fill the device.
const telling = 2

// rateKey is what rates are kept apart by.
type rateKey struct {
	impl, dtype string
	backward    bool
}

// reached is the rate of a row that was measured.
type reached struct {
	c          result.Case
	work, rate float64 // operations, and operations a second
}

// rates are those that a sweep has reached.
type rates map[rateKey][]reached

// learn notes the rates of a row that was measured.
func (s rates) learn(r result.Row) {
	note := func(backward bool, work, ms float64) {
		if k := (rateKey{r.Impl, r.DType, backward}); ms >= telling && work > 0 {
			s[k] = append(s[k], reached{r.Case, work, work / (ms / 1e3)})
		}
	}
	note(false, r.ForwardFLOPs(), r.Fwd.Ms)
	note(true, r.BackwardFLOPs(), r.Bwd.Ms)
}

// of is the rate of the measured row that is most like a case: rates fall where a size outgrows a cache, and differ between head
// dimensions. Of rows alike the last counts. 0: none was measured.
func (s rates) of(c result.Case, backward bool, work float64) (rate float64) {
	least := math.Inf(1)
	for _, r := range s[rateKey{c.Impl, c.DType, backward}] {
		if d := r.distance(c, work); d <= least {
			least, rate = d, r.rate
		}
	}
	return rate
}

// distance is how much a row has to do with a case: a factor of two of work counts 1, other things as much as they usually change rates.
func (r *reached) distance(c result.Case, work float64) float64 {
	d := math.Abs(math.Log2(work / r.work))
	for _, differs := range []bool{r.c.D != c.D, r.c.Causal != c.Causal, r.c.Tuning != c.Tuning, r.c.Density != c.Density,
		r.c.Nq != r.c.N != (c.Nq != c.N)} {
		if differs {
			d += 2
		}
	}
	return d
}

// tooSlow predicts the time of one run of all passes from the rates of rows
// measured before (or the device's ceiling when the implementation has not run
// for long, which no run is faster than) and says why the job is left out, or "".
func (s rates) tooSlow(j result.Job, limit time.Duration, ceiling float64) (why string, predictedSeconds float64) {
	if limit == 0 {
		return "", 0
	}
	work, backwardWork := j.Case.ForwardFLOPs(), j.Case.BackwardFLOPs()
	forward, backward := s.of(j.Case, false, work), s.of(j.Case, true, backwardWork)
	least, from := "", "at the rate of a row like it"
	if forward == 0 {
		forward = backward
	}
	if forward == 0 {
		forward = ceiling
		least = "at least "
		from = fmt.Sprintf("at the device's measured peak (no run of %s in %s that fills the device has been measured yet)", j.Case.Impl,
			j.Case.DType)
	}
	if backward == 0 {
		backward = forward // it is hardly faster
	}
	if forward == 0 {
		return "", 0 // no rate is known
	}
	what := "one run"
	seconds := work / forward
	if j.Passes.Bwd { // even alone it starts from a forward pass
		what = "one run forward and backward"
		seconds += backwardWork / backward
	}
	if seconds <= limit.Seconds() {
		return "", 0
	}
	return fmt.Sprintf("skipped: %s is predicted to take %s%.3g s %s, over the limit of %v", what, least, seconds, from, limit), seconds
}
