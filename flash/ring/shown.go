package ring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash/hostmem"
)

// What ranks of one host exchange is not sent: each copies it into memory of the host that it shows to the others, whose devices copy from
// there, and a message says only that it is there. Ranks of one process show the memory itself, those of several a descriptor by which it
// is mapped.

// mapsMemory says whether ranks that are processes show memory, of all of them alike. It is a variable for tests.
var mapsMemory = true

// shared is memory of the host that a rank shows to the others.
type shared struct {
	memory [slots]*hostmem.Memory // those that there are
	direct bool                   // the rank's device imports it
}

// memoryShown is memoryOf of what show is given: other processes can map it where ranks are some.
func (p *Plan) memoryShown(name string, bytes int) (*hostmem.Memory, error) {
	if sharer(p.ring.comm) != nil || !mapsMemory {
		return p.memoryOf(name, bytes)
	}
	return p.memoryBy(hostmem.NewShared, name, bytes)
}

// show shows this rank's memory of a name to the others, where all are on one host and all devices import it; nil otherwise: bytes are
// sent then. It is called by every rank.
func (w *pass) show(name string, mine [slots]*hostmem.Memory) ([]shared, error) {
	if w.err != nil {
		return nil, w.err
	}
	if all, known := w.peers[name]; known {
		return all, nil
	}
	showTo := w.showProcesses
	if s := sharer(w.ring.comm); s != nil {
		showTo = func(mine [slots]*hostmem.Memory) ([]shared, error) { return w.showGoroutines(s, mine) }
	}
	all, err := showTo(mine)
	if err != nil {
		return nil, err
	}
	w.peers[name] = all
	return all, nil
}

// showGoroutines shows memory to ranks of this process.
func (w *pass) showGoroutines(s Sharer, mine [slots]*hostmem.Memory) ([]shared, error) {
	own := shared{memory: mine, direct: !records(w.ring.comm)}
	for _, m := range mine {
		own.direct = own.direct && (m == nil || w.mover.Imports(m))
	}
	values, err := s.Share(w.ctx, own)
	if err != nil {
		return nil, err
	}
	all, err := valuesOf[shared](w.ring, values)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if !x.direct {
			return nil, nil
		}
	}
	return all, nil
}

// showProcesses shows memory to ranks that are processes.
func (w *pass) showProcesses(mine [slots]*hostmem.Memory) ([]shared, error) {
	if !mapsMemory {
		return nil, nil
	}
	var those []*hostmem.Memory
	for _, m := range mine {
		if m != nil {
			those = append(those, m)
		}
	}
	theirs, err := ShowMemory(w.ctx, w.ring.comm, w.mover.Mover, those...)
	if theirs == nil || err != nil {
		return nil, err
	}
	all := make([]shared, len(theirs))
	for rank, x := range theirs {
		copy(all[rank].memory[:], x)
		if all[rank].direct = true; rank != w.ring.Rank() {
			w.opened = append(w.opened, x...)
		}
	}
	return all, nil
}

// announcement is what a rank tells other processes of its memory.
type announcement struct {
	Direct bool // its device imports it, and others can map it
	Memory []hostmem.Descriptor
}

// ShowMemory maps memory of [hostmem.NewShared] that ranks show one another, in processes of one host or in one. Every rank calls it with
// as many, in the same order, and gets those of all, by rank, its own among them; those of others are the caller's to close. Errors are the
// communicator's, and a [*RankError] for a rank that makes another call.
//
// The result is nil for every rank where one of them is on another host, maps none, has a device that cannot import its own memory or
// another's (hostmem.Mover.Imports), or is a [Recorder]. All gather twice, whatever they find: what each has, and whether each can copy
// from all of it.
func ShowMemory(ctx context.Context, c Comm, by *hostmem.Mover, mine ...*hostmem.Memory) ([][]*hostmem.Memory, error) {
	own := announcement{Direct: !records(c)}
	for _, m := range mine {
		d := m.Descriptor()
		if d == nil || !by.Imports(m) {
			own = announcement{}
			break
		}
		own.Memory = append(own.Memory, *d)
	}
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	gathered, err := c.AllGather(ctx, raw)
	if err != nil {
		return nil, err
	}
	theirs := make([]announcement, len(gathered))
	for rank, raw := range gathered {
		if err := json.Unmarshal(raw, &theirs[rank]); err != nil {
			return nil, &RankError{Rank: (&Ring{comm: c}).name(rank), Err: fmt.Errorf("it shows no memory where others do: %w", err)}
		}
	}
	all := make([][]*hostmem.Memory, len(theirs))
	good := alike(theirs, len(mine))
	for rank := range theirs {
		if rank == c.Rank() {
			all[rank] = mine
		} else if good {
			all[rank], good = openAll(by, theirs[rank].Memory)
		}
	}
	good, err = allHave(ctx, c, good)
	if err == nil && good {
		return all, nil
	}
	for rank, x := range all {
		for _, m := range x {
			if rank != c.Rank() {
				err = errors.Join(err, m.Close())
			}
		}
	}
	return nil, err
}

// alike says whether all ranks show n memories, on one host.
func alike(theirs []announcement, n int) bool {
	host := ""
	for _, x := range theirs {
		if !x.Direct || len(x.Memory) != n {
			return false
		}
		for _, d := range x.Memory {
			if host == "" {
				host = d.Host
			}
			if d.Host != host {
				return false
			}
		}
	}
	return true
}

// openAll opens what a rank shows, up to the first that cannot be opened, or not be copied from.
func openAll(by *hostmem.Mover, theirs []hostmem.Descriptor) (opened []*hostmem.Memory, good bool) {
	for _, d := range theirs {
		m, err := hostmem.Open(d)
		if err != nil {
			return opened, false
		}
		if opened = append(opened, m); !by.Imports(m) {
			return opened, false
		}
	}
	return opened, true
}

// allHave says whether all ranks have something.
func allHave(ctx context.Context, c Comm, mine bool) (bool, error) {
	said := []byte{0}
	if mine {
		said[0] = 1
	}
	all, err := c.AllGather(ctx, said)
	for _, x := range all {
		mine = mine && len(x) == 1 && x[0] == 1
	}
	return mine, err
}

// sharer is what ranks of one process share values by; nil where they are in several. One that writes down what is sent takes part like
// those who do not, with nothing to show.
func sharer(c Comm) Sharer {
	switch c := c.(type) {
	case Sharer:
		return c
	case *Recorder:
		return sharer(c.Comm)
	case *subset:
		if of := sharer(c.of); of != nil {
			return &sharingSubset{&subset{of: of, ranks: c.ranks, mine: c.mine, tags: c.tags}}
		}
	}
	return nil
}

// valuesOf are the values that ranks share in a call of all of them. One whose value is of another type is in another call.
func valuesOf[T any](r *Ring, values []any) ([]T, error) {
	all := make([]T, len(values))
	for rank, v := range values {
		of, same := v.(T)
		if !same {
			return nil, &RankError{Rank: r.name(rank),
				Err: errors.New("it is in another call, or has a Comm that is no Sharer where others have one")}
		}
		all[rank] = of
	}
	return all, nil
}

// records says whether a communicator writes down what is sent: then it is sent.
func records(c Comm) bool {
	switch c := c.(type) {
	case *Recorder:
		return true
	case *subset:
		return records(c.of)
	}
	return false
}
