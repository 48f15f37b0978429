package vktest

import (
	"maps"
	"testing"

	"github.com/vkattn/vkattn/vk"
)

// Walk runs an operation again and again, each time with another call into the driver failing: the first call of a kind, the
// second, and so on until the operation makes no further one.
type Walk struct {
	Faults *vk.Faults
	Kind   string
	Result vk.Result // 0: the kind's own
	Stride int       // one call in this number fails; 0: every one

	// Run is the operation.
	Run func() error
	// Check looks at the outcome of a run in which a call failed, with the fault disarmed: err is what the operation returned. It
	// may be nil, for an operation that can do without the call.
	Check func(t testing.TB, n int, call string, err error)
}

// mostCalls is more than any operation makes.
const mostCalls = 20000

// Do walks and returns how many times a call failed.
func (w Walk) Do(t testing.TB) (fired int) {
	t.Helper()
	for n := 1; n <= mostCalls; n += max(w.Stride, 1) {
		if err := w.Faults.Arm(w.Kind, n, w.Result); err != nil {
			t.Fatal(err)
		}
		err := w.Run()
		call := w.Faults.Fired()
		w.Faults.Disarm()
		if call == "" {
			if err != nil {
				t.Fatalf("%s: no call failed, and yet: %v", w.Kind, err)
			}
			return fired
		}
		fired++
		w.Check(t, n, call, err)
		if t.Failed() {
			t.Fatalf("the failing call was number %d of kind %s, %s, with %v", n, w.Kind, call, w.Result)
		}
	}
	t.Fatalf("%s: still failing after %d calls", w.Kind, mostCalls)
	return fired
}

// Leaked says which objects there are more of, or fewer, than before: their types with the difference.
func Leaked(before, now map[string]int) map[string]int {
	leaked := maps.Clone(now)
	for name, n := range before {
		if leaked[name] -= n; leaked[name] == 0 {
			delete(leaked, name)
		}
	}
	return leaked
}
