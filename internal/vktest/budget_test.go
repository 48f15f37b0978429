package vktest

import (
	"strings"
	"testing"
	"time"
)

func TestBudgetOf(t *testing.T) {
	for value, want := range map[string]time.Duration{"": defaultBudget, "0": 0, "90s": 90 * time.Second, "1h": time.Hour} {
		if got, err := budgetOf(value); err != nil || got != want {
			t.Errorf("%q is %v, %v: want %v", value, got, err, want)
		}
	}
	for _, bad := range []string{"5", "-1s", "soon"} {
		if _, err := budgetOf(bad); err == nil || !strings.Contains(err.Error(), BudgetVariable+" is \""+bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A budget ends before go test's own limit does, whatever was asked for, and running out of it is said in the same words every time.
func TestBudgetEndsBeforeTheTimeout(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct{ limit, timeout, want time.Duration }{
		{20 * m, 60 * m, 20 * m}, {90 * m, 60 * m, 58 * m}, {0, 60 * m, 58 * m}, {20 * m, 10 * m, 8 * m}, {20 * m, 2 * m, m},
	} {
		if got := within(c.limit, c.timeout); got != c.want {
			t.Errorf("%v within %v is %v, want %v", c.limit, c.timeout, got, c.want)
		}
	}
	if why := spent(m, 2*m); why != "" {
		t.Error(why)
	}
	if why := spent(1000*m, 0); why != "" {
		t.Error(why)
	}
	why := spent(2*m, 2*m)
	if !strings.HasPrefix(why, LeftOut) || !strings.Contains(why, BudgetVariable+"=4m") || why != spent(3*m, 2*m) {
		t.Error(why)
	}
}

// What skips says why; with VKATTN_REQUIRE_ALL=1 it fails instead.
func TestBudgetSkipsOrFails(t *testing.T) {
	t.Setenv(BudgetVariable, "1ns")
	for _, required := range []string{"", "1"} {
		t.Setenv(RequireAll, required)
		r := &recordingTB{TB: t}
		func() {
			defer func() { _ = recover() }()
			Budget(r)
		}()
		if failed := required == "1"; r.failed != failed || r.skipped == failed {
			t.Errorf("required %q: failed %v, skipped %v", required, r.failed, r.skipped)
		}
	}
}

// recordingTB notes how a test ends.
type recordingTB struct {
	testing.TB
	failed, skipped bool
}

func (r *recordingTB) Helper()               {}
func (r *recordingTB) Fatalf(string, ...any) { r.failed = true; panic("ended") }
func (r *recordingTB) Skip(...any)           { r.skipped = true; panic("ended") }
