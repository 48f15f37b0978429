package kernel

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Together makes things beside one another, pipelines above all: a driver compiles one on one core. So many at a time as there are
// processors for this program (GOMAXPROCS). All of them are made, or tried, when it returns; the error is that of the first in order that
// could not be.
func Together(makes ...func() error) error {
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	errs := make([]error, len(makes))
	for i, m := range makes {
		all.Go(func() error {
			errs[i] = m()
			return nil // the rest is made all the same
		})
	}
	_ = all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
