package kernel

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTogether: all is made, at the same time where there are processors for it, and the error is the first in order.
func TestTogether(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	require.NoError(t, Together())
	one, other := make(chan struct{}), make(chan struct{})
	require.NoError(t, Together( // each waits for the other
		func() error { close(one); <-other; return nil },
		func() error { close(other); <-one; return nil },
	))
	first, second := errors.New("first"), errors.New("second")
	var made, running atomic.Int32
	wait := make(chan struct{})
	var makes []func() error
	for i := range 9 {
		makes = append(makes, func() error {
			defer running.Add(-1)
			if running.Add(1) > 2 {
				t.Error("more at a time than there are processors")
			}
			made.Add(1)
			switch i {
			case 3:
				<-wait
				return first
			case 7:
				close(wait)
				return second
			}
			return nil
		})
	}
	require.Equal(t, first, Together(makes...))
	require.EqualValues(t, 9, made.Load())

	runtime.GOMAXPROCS(1) // one after the other
	made.Store(0)
	with := func(err error) func() error { return func() error { made.Add(1); return err } }
	require.Equal(t, second, Together(with(nil), with(second), with(first)))
	require.EqualValues(t, 3, made.Load())
}
