package rows

import "github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"

// Result is a case with its figures, or with the reason why there are none.
type Result struct {
	result.Origin
	Case

	result.Pass         // of device time; the least that is moved is Case.Bytes
	GBps        float64 `json:"GBps,omitempty"`     // 10⁹ of them a second
	Copy        float64 `json:"pct_copy,omitempty"` // of the bandwidth of copying that was measured in the same run, in percent

	result.Check        // of all elements written, against a model; all other rows of a cache are compared with what they were
	Note         string `json:"note,omitempty"`
	result.Failure
}

// settle fills in what follows from the times of runs, in ms, with the digits that files keep. copied is the bandwidth of copying in bytes
// a second, 0 where it is not known.
func (r *Result) settle(runs []float64, copied float64) {
	r.Timed(runs)
	r.LeastBytes = r.Case.Bytes()
	rate := r.LeastBytes / r.Ms * 1e3
	r.GBps = rate / 1e9
	if copied > 0 {
		r.Copy = 100 * rate / copied
	}
	for _, v := range []*float64{&r.Ms, &r.P20, &r.P80, &r.LeastBytes, &r.GBps, &r.Copy, r.MaxErr} {
		*v = result.Round(*v)
	}
}
