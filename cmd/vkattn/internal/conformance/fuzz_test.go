package conformance

import (
	"context"
	"testing"
)

// FuzzTargets draws a problem from the input's bytes and wants every target to be as close to the
// oracle, and so to each other, as the bounds ask. Without -fuzz it runs the seeds below and the corpus
// in testdata/fuzz.
func FuzzTargets(f *testing.F) {
	if testing.Short() { // each compiles kernels of all targets
		f.Skip("not with -short (make test-all runs it): TestRandomProblems draws problems in the same way")
	}
	f.Add([]byte{0})
	f.Add([]byte{0, 0, 3, 40, 90, 1, 0, 1, 2, 3, 3, 0, 1})
	f.Add([]byte{2, 1, 255, 7, 200, 2, 0, 2, 0, 1, 9, 9, 1, 2, 3, 4})
	f.Add([]byte{1, 2, 119, 119, 2, 2, 1, 3, 1, 3, 0, 150, 0, 1, 4})
	f.Fuzz(func(t *testing.T, choices []byte) {
		dev := device(t)
		at := 0
		c := Draw(func(low, high int) int {
			if at == len(choices) {
				return low
			}
			x := int(choices[at]) * 0x01010101 // so that wide ranges are reached too
			at++
			return low + x%(high-low+1)
		}, true)
		c.Name = c.Problem.String() + " " + c.Layouts.String()
		// Kernels of matrix fragments take a CPU seconds to compile, the more the larger the dimension.
		c.Core = max(c.Problem.HeadDim, c.Problem.ValueDim) <= 16
		for _, target := range Targets(dev, Options{}) {
			r := c.Run(context.Background(), dev, target)
			if r.Skipped == "" && !r.Pass {
				t.Errorf("%s on %v: %s", c.Name, target, r.Failure)
			}
		}
		if m := takeMessages(); len(m) > 0 {
			t.Errorf("%s: the validation layers object: %v", c.Name, m)
		}
	})
}
