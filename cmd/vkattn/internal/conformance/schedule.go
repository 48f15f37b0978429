package conformance

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// group is work that shares what prepare makes: a case, with one run for each target.
type group struct {
	shared  int64   // bytes held from prepare to release
	runs    []int64 // bytes that each run holds beside them
	prepare func()  // called once, before the first run
	run     func(i int) error
	release func() // called once, after the last run
}

// schedule works on groups, as many preparations and runs at once as there are workers while they hold no more than budget bytes together;
// what holds more by itself runs alone. They begin in the order of groups and of runs, the runs of prepared groups before further
// preparations, so that few groups are held at a time. Nothing begins any more after an error or once the context is cancelled; schedule
// returns when what had begun has ended, with the first error. One worker is the calling goroutine.
func schedule(ctx context.Context, workers int, budget int64, groups []group) error {
	s := &scheduler{ctx: ctx, groups: groups, budget: budget, left: make([]int, len(groups))}
	s.changed.L = &s.mu
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})()
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(s.work)
	}
	s.work()
	others.Wait()
	if s.panicked != nil {
		panic(s.panicked)
	}
	if s.err != nil {
		return s.err
	}
	return ctx.Err()
}

type scheduler struct {
	ctx    context.Context
	groups []group
	budget int64

	mu       sync.Mutex
	changed  sync.Cond
	next     int    // the first group that was not begun
	ready    []unit // of prepared groups, in order
	left     []int  // runs of each group that have not ended
	busy     int    // preparations and runs at this moment
	held     int64  // bytes
	err      error
	panicked any
}

// unit is one run of a group.
type unit struct{ group, run int }

// work takes what is next until nothing is left.
func (s *scheduler) work() {
	for {
		do := s.take()
		if do == nil {
			return
		}
		s.do(do)
	}
}

// take waits for something to do and gives it, nil when there is nothing any more.
func (s *scheduler) take() func() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.panicked == nil && s.ctx.Err() == nil {
		switch {
		case len(s.ready) > 0:
			if u := s.ready[0]; s.hold(s.groups[u.group].runs[u.run]) {
				s.ready = s.ready[1:]
				return func() error { return s.runUnit(u) }
			}
		case s.next < len(s.groups):
			if n := s.next; s.hold(s.groups[n].shared) {
				s.next++
				return func() error { s.prepareGroup(n); return nil }
			}
		case s.busy == 0:
			s.changed.Broadcast() // others may still wait for this
			return nil
		}
		s.changed.Wait()
	}
	return nil
}

// hold takes bytes for something that begins now, if there is room, or nothing else under way that could make room.
func (s *scheduler) hold(bytes int64) bool {
	if s.busy > 0 && s.held+bytes > s.budget {
		return false
	}
	s.held += bytes
	s.busy++
	return true
}

func (s *scheduler) prepareGroup(n int) {
	g := &s.groups[n]
	g.prepare()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[n] = len(g.runs)
	for i := range g.runs {
		s.ready = append(s.ready, unit{n, i})
	}
	slices.SortFunc(s.ready, func(a, b unit) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.run, b.run)) })
}

func (s *scheduler) runUnit(u unit) error {
	g := &s.groups[u.group]
	err := g.run(u.run)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= g.runs[u.run]
	s.left[u.group]--
	if s.left[u.group] == 0 {
		g.release()
		s.held -= g.shared
	}
	return err
}

// do does what take gave. A panic ends the others' work, and is the calling goroutine's.
func (s *scheduler) do(f func() error) {
	var err error
	defer func() {
		p := recover()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
		if s.panicked == nil {
			s.panicked = p
		}
		if s.err == nil {
			s.err = err
		}
		s.changed.Broadcast()
	}()
	err = f()
}
