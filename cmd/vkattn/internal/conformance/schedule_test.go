package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash"
)

// trace notes what a schedule does, and checks what must hold at every moment.
type trace struct {
	mu       sync.Mutex
	began    []unit
	prepared map[int]bool
	released map[int]bool
	runs     map[int]int    // ended, of each group
	held     map[unit]int64 // of each preparation (run −1) and run under way, and of what is prepared
	busy     int
	most     int // busy at once
	budget   int64
	faults   []string
}

func newTrace(budget int64) *trace {
	return &trace{prepared: map[int]bool{}, released: map[int]bool{}, runs: map[int]int{}, held: map[unit]int64{}, budget: budget}
}

func (r *trace) begin(u unit, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = append(r.began, u)
	r.held[u] = bytes
	r.busy++
	r.most = max(r.most, r.busy)
	var sum int64
	for _, b := range r.held {
		sum += b
	}
	if sum > r.budget && r.busy > 1 {
		r.faults = append(r.faults, fmt.Sprintf("%d bytes of %d held by %v", sum, r.budget, r.held))
	}
	if u.run >= 0 && (!r.prepared[u.group] || r.released[u.group]) {
		r.faults = append(r.faults, fmt.Sprintf("%v runs while it is not prepared", u))
	}
}

func (r *trace) end(u unit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	if u.run < 0 {
		r.prepared[u.group] = true
		return
	}
	r.runs[u.group]++
	delete(r.held, u)
}

// group is one whose steps take a while.
func (r *trace) group(n int, shared int64, runs []int64, takes func(u unit) time.Duration) group {
	step := func(u unit, bytes int64) {
		r.begin(u, bytes)
		time.Sleep(takes(u))
		r.end(u)
	}
	return group{
		shared: shared, runs: runs,
		prepare: func() { step(unit{n, -1}, shared) },
		run:     func(i int) error { step(unit{n, i}, runs[i]); return nil },
		release: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.runs[n] != len(runs) {
				r.faults = append(r.faults, fmt.Sprintf("group %d is released after %d of %d runs", n, r.runs[n], len(runs)))
			}
			r.released[n] = true
			delete(r.held, unit{n, -1})
		},
	}
}

// Whatever takes how long and needs how much: everything runs once, between its preparation and its release, with no more workers than
// there are, and no more memory than there is unless it is one alone.
func TestScheduleKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := func(low, high int, what string) int { return rapid.IntRange(low, high).Draw(rt, what) }
		workers, budget := n(1, 6, "workers"), int64(n(1, 100, "budget"))
		r := newTrace(budget)
		total := 0
		var groups []group
		for i := range n(0, 8, "groups") {
			runs := make([]int64, n(1, 5, "runs"))
			takes := map[unit]time.Duration{{i, -1}: time.Duration(n(0, 50, "ms"))}
			for j := range runs {
				runs[j] = int64(n(0, 60, "bytes"))
				takes[unit{i, j}] = time.Duration(n(0, 50, "ms"))
			}
			total += len(runs) + 1
			groups = append(groups, r.group(i, int64(n(0, 60, "shared")), runs,
				func(u unit) time.Duration { return takes[u] * time.Millisecond }))
		}
		var err error
		synctest.Test(t, func(*testing.T) { err = schedule(context.Background(), workers, budget, groups) })
		if err != nil || len(r.faults) > 0 || r.most > workers || len(r.began) != total || len(r.released) != len(groups) {
			rt.Fatalf("%v, %v, %d at once with %d workers, %d steps of %d, %d groups of %d released", err, r.faults, r.most, workers,
				len(r.began), total, len(r.released), len(groups))
		}
	})
}

// With one worker everything happens in order; more finish the sooner the more they are, as long as there is memory.
func TestScheduleTakesItsWorkers(t *testing.T) {
	second := func(unit) time.Duration { return time.Second }
	for _, test := range []struct {
		workers int
		budget  int64
		want    time.Duration
	}{{1, 100, 16 * time.Second}, {2, 100, 8 * time.Second}, {4, 100, 4 * time.Second}, {4, 2, 16 * time.Second},
		{4, 0, 16 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r := newTrace(test.budget)
			var groups []group
			for i := range 4 {
				groups = append(groups, r.group(i, 2, []int64{1, 1, 1}, second))
			}
			start := time.Now()
			require.NoError(t, schedule(context.Background(), test.workers, test.budget, groups))
			require.Equal(t, test.want, time.Since(start), "%d workers, %d bytes", test.workers, test.budget)
			require.Empty(t, r.faults)
			if test.workers == 1 {
				for i, u := range r.began {
					require.Equal(t, unit{i / 4, i%4 - 1}, u)
				}
			}
		})
	}
}

// An error, a cancelled context or a panic ends the work: what runs is waited for, nothing begins, no goroutine is left (synctest
// fails where one is).
func TestScheduleStops(t *testing.T) {
	broken := errors.New("the device is gone")
	for name, stop := range map[string]func(cancel func()) error{
		"error":  func(func()) error { return broken },
		"cancel": func(cancel func()) error { cancel(); return nil },
		"panic":  func(func()) error { panic("a fault") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				r := newTrace(100)
				var groups []group
				for i := range 20 {
					groups = append(groups, r.group(i, 10, []int64{1}, func(u unit) time.Duration { return time.Second }))
				}
				run := groups[4].run
				groups[4].run = func(i int) error {
					return errors.Join(run(i), stop(cancel))
				}
				start := time.Now()
				var err error
				caught := func() (p any) {
					defer func() { p = recover() }()
					err = schedule(ctx, 3, 100, groups)
					return nil
				}()
				require.LessOrEqual(t, time.Since(start), 6*time.Second)
				require.Less(t, len(r.began), 15)
				require.Zero(t, r.busy, "what had begun has ended")
				switch name {
				case "error":
					require.ErrorIs(t, err, broken)
				case "cancel":
					require.ErrorIs(t, err, context.Canceled)
				case "panic":
					require.Equal(t, "a fault", caught)
				}
			})
		})
	}
	// Workers that wait for memory or for preparations hear of it too.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		r := newTrace(1)
		groups := []group{r.group(0, 1, []int64{1, 1}, func(unit) time.Duration { return time.Second }), r.group(1, 1, []int64{1}, nil)}
		require.ErrorIs(t, schedule(ctx, 8, 1, groups), context.DeadlineExceeded)
		require.Len(t, r.began, 2)
	})
}

// Results come in the order of cases, whichever ends first, and each as soon as those before it are there.
func TestResultsKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const n = 9
		var told []string
		a := &collected{slots: make([]slot, n), progress: func(done, total int, r Result) {
			if done != len(told)+1 || total != n {
				rt.Fatalf("done %d of %d after %v", done, total, told)
			}
			told = append(told, r.Case)
		}}
		ended := map[int]bool{}
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7, 8}).Draw(rt, "order") {
			a.begin(i, &Case{Name: fmt.Sprint(i)}, Target{Tier: flash.TierScalar})
			a.end(i, Result{Case: fmt.Sprint(i)})
			ended[i] = true
			first := 0
			for ended[first] {
				first++
			}
			if len(told) != first {
				rt.Fatalf("told of %v, and %v have ended", told, ended)
			}
			if len(a.results()) != len(ended) {
				rt.Fatalf("%d results of %d", len(a.results()), len(ended))
			}
		}
		for i, r := range a.results() {
			if r.Case != fmt.Sprint(i) || told[i] != r.Case {
				rt.Fatalf("result %d is %s, told %v", i, r.Case, told)
			}
		}
	})
	a := &collected{slots: make([]slot, 4)}
	for i := range 3 {
		a.begin(i, &Case{Name: fmt.Sprint("case ", i)}, Target{Implementation: flash.Flash, Tier: flash.TierScalar})
	}
	a.end(0, Result{})
	a.end(1, Result{})
	require.Equal(t, "one of these, which ran at once: case 1 on flash2/scalar, case 2 on flash2/scalar", a.underWay(1))
	a.end(2, Result{})
	require.Equal(t, "case 2 on flash2/scalar", a.underWay(2))
}
