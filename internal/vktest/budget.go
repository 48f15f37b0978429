package vktest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// A package of tests has a budget of time. Once it is used up, tests and cases that ask for it skip, and say so; none is cut off in the
// middle, and go test never comes to its -timeout, whose panic tells nothing of what was left.
const (
	// BudgetVariable holds a package's time as Go writes durations, 30m for example; 0 is no limit.
	BudgetVariable = "VKATTN_TEST_BUDGET"
	// RequireAll is the variable that makes running out of time a failure.
	RequireAll = "VKATTN_REQUIRE_ALL"

	defaultBudget = 20 * time.Minute
	// timeoutMargin is what is kept free before -timeout: a case that began in time may take as long on a busy machine.
	timeoutMargin = 2 * time.Minute
)

var began = time.Now()

// LeftOut begins the reason of every skip that Budget makes.
const LeftOut = "left out for lack of time"

// Budget skips the test when its package has run out of time, or fails it where VKATTN_REQUIRE_ALL=1.
func Budget(t testing.TB) {
	t.Helper()
	limit, err := budgetOf(os.Getenv(BudgetVariable))
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok {
			limit = within(limit, at.Sub(began))
		}
	}
	if why := spent(time.Since(began), limit); why != "" {
		if os.Getenv(RequireAll) == "1" {
			t.Fatalf("%s=1: %s", RequireAll, why)
		}
		t.Skip(why)
	}
}

// Long skips a test or a case that go test -short leaves out, where instead says what stands for it there. What runs keeps to the budget.
func Long(t testing.TB, instead string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short (make test-all runs it): " + instead)
	}
	Budget(t)
}

// budgetOf reads the variable; 0 is no limit.
func budgetOf(value string) (time.Duration, error) {
	if value == "" {
		return defaultBudget, nil
	}
	limit, err := time.ParseDuration(value)
	if err != nil || limit < 0 {
		return 0, fmt.Errorf("%s is %q: it must be a duration such as 30m, or 0 for no limit", BudgetVariable, value)
	}
	return limit, nil
}

// within keeps a limit below go test's timeout.
func within(limit, timeout time.Duration) time.Duration {
	most := max(timeout-timeoutMargin, timeout/2)
	if limit == 0 || limit > most {
		return most
	}
	return limit
}

// spent gives the reason not to begin anything more, "" while there is time. The same words every time, so that skips can be counted.
func spent(ran, limit time.Duration) string {
	if limit == 0 || ran < limit {
		return ""
	}
	return fmt.Sprintf("%s: its package has %v (%s=%v gives it more, and go test -timeout must be above that)",
		LeftOut, limit.Round(time.Second), BudgetVariable, 2*limit.Round(time.Second))
}

// Tag marks a test as one of a kernel family on a tier, for the summary of tools/test.sh.
func Tag(t testing.TB, family, tier, dtype string) {
	t.Attr("family", family)
	t.Attr("tier", tier)
	t.Attr("dtype", dtype)
}
