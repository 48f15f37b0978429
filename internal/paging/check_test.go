package paging

import (
	"fmt"
	"slices"
)

// check says which invariant does not hold:
//
//   - a page is counted by as many as there are tables that name it, and is free, once, iff there are none;
//   - a table has Dropped for the pages that were given back, which come first and were full, then pages, each of which is there once;
//   - a page that several tables name stands at the same entry of all of them;
//   - a slot is used or free, and free once.
func (m *Manager) check() error {
	refs, entry := make([]int32, len(m.refs)), make([]int, len(m.refs))
	for i := range m.slots {
		at := &m.slots[i]
		if free := slices.Contains(m.freeSlots, int32(i)); free == at.used {
			return fmt.Errorf("slot %d: used %v, free %v", i, at.used, free)
		}
		if !at.used {
			continue
		}
		if at.length < 0 || at.length > m.maxLength || at.dropped < 0 || at.dropped > at.length>>m.shift {
			return fmt.Errorf("slot %d: %d tokens of %d, %d pages given back", i, at.length, m.maxLength, at.dropped)
		}
		for j, page := range m.table(int32(i))[:m.entries(at.length)] {
			switch {
			case (page == Dropped) != (j < at.dropped):
				return fmt.Errorf("slot %d: entry %d is %d, %d pages given back", i, j, page, at.dropped)
			case page == Dropped:
				continue
			case page < 0 || int(page) >= len(m.refs):
				return fmt.Errorf("slot %d: entry %d is %d", i, j, page)
			case refs[page] > 0 && entry[page] != j:
				return fmt.Errorf("page %d stands at entry %d and, in slot %d, %d", page, entry[page], i, j)
			}
			refs[page]++
			entry[page] = j
		}
	}
	if !slices.Equal(refs, m.refs) {
		return fmt.Errorf("pages are named by %v tables, and counted %v", refs, m.refs)
	}
	free := 0
	for page, n := range refs {
		times := 0
		for _, f := range m.free {
			if int(f) == page {
				times++
			}
		}
		if (n == 0) != (times == 1) || times > 1 {
			return fmt.Errorf("page %d: named by %d tables, free %d times", page, n, times)
		}
		free += times
	}
	if free != len(m.free) {
		return fmt.Errorf("%d pages are free, and %d kept as such", free, len(m.free))
	}
	slots := slices.Sorted(slices.Values(m.freeSlots))
	if len(slices.Compact(slots)) != len(m.freeSlots) {
		return fmt.Errorf("slots are free twice: %v", m.freeSlots)
	}
	return nil
}

// state is a copy of all that a Manager knows of pages and sequences.
type state struct {
	refs, free, freeSlots, tables []int32
	slots                         []slot
}

func (m *Manager) state() state {
	s := state{slices.Clone(m.refs), slices.Clone(m.free), slices.Clone(m.freeSlots), slices.Clone(m.tables), slices.Clone(m.slots)}
	for i := range s.slots {
		s.slots[i].batch = 0
	}
	return s
}
