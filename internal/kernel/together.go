package kernel

import (
	"runtime"
	"sync"
)

// Together makes things beside one another, pipelines above all: a driver compiles one on one core. So many at a time as there are processors for
// this program (GOMAXPROCS). All of them are made, or tried, when it returns; the error is that of the first in order that could not be.
func Together(makes ...func() error) error {
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	errs := make([]error, len(makes))
	if cap(free) == 1 || len(makes) == 1 {
		for _, m := range makes {
			if err := m(); err != nil {
				return err
			}
		}
		return nil
	}
	var all sync.WaitGroup
	for i, m := range makes {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			errs[i] = m()
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
