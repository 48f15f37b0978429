package ranks

import (
	"sync"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Alone remembers what problems took on one device, so that rows of one problem measure that once. The zero value has nothing.
type Alone struct {
	mu  sync.Mutex
	had map[ofProblem]alone
}

type ofProblem struct {
	device, problem string
	backward        bool
}

// alone is medians in ms, and bytes of the device.
type alone struct {
	fwd, bwd float64 // bwd 0: it was not measured
	memory   uint64
}

// Add takes what a row has.
func (a *Alone) Add(r *Result) {
	if r.Error == "" && r.Fwd.One > 0 {
		a.add(r.Device, r.Problem, alone{r.Fwd.One, r.Bwd.One, r.MemoryOne})
	}
}

// measured takes what was just measured for a row.
func (a *Alone) measured(r *Result, one passes) {
	x := alone{fwd: result.Median(one.fwd), memory: r.MemoryOne}
	if len(one.bwd) > 0 {
		x.bwd = result.Median(one.bwd)
	}
	a.add(r.Device, r.Problem, x)
}

// add keeps the first of a problem; forward passes alone have less in memory and nothing between them, so that they count by themselves.
func (a *Alone) add(device, problem string, x alone) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.had == nil {
		a.had = map[ofProblem]alone{}
	}
	of := ofProblem{device, problem, x.bwd > 0}
	if _, had := a.had[of]; !had {
		a.had[of] = x
	}
}

// use gives a row what is known of its problem, and says whether that is anything.
func (a *Alone) use(r *Result, backward bool) (one passes, known bool) {
	if a == nil {
		return one, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	had, known := a.had[ofProblem{r.Device, r.Problem, backward}]
	if !known {
		return one, false
	}
	r.Again, r.MemoryOne = true, had.memory
	one.fwd = []float64{had.fwd}
	if backward {
		one.bwd = []float64{had.bwd}
	}
	return one, true
}
