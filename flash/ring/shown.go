package ring

import (
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
	if _, together := p.ring.comm.(Sharer); together || !mapsMemory {
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
	own := shared{memory: mine, direct: true}
	for _, m := range mine {
		own.direct = own.direct && (m == nil || w.mover.Imports(m))
	}
	showTo := w.showProcesses
	if s, together := w.ring.comm.(Sharer); together {
		showTo = func(own shared) ([]shared, error) { return w.showGoroutines(s, own) }
	}
	all, err := showTo(own)
	if err != nil {
		return nil, err
	}
	w.peers[name] = all
	return all, nil
}

// showGoroutines shows memory to ranks of this process.
func (w *pass) showGoroutines(s Sharer, own shared) ([]shared, error) {
	values, err := s.Share(w.ctx, own)
	if err != nil {
		return nil, err
	}
	all := make([]shared, len(values))
	for i, v := range values {
		all[i] = v.(shared)
	}
	for _, x := range all {
		if !x.direct {
			return nil, nil
		}
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

// announcement is what a rank tells other processes of its memory.
type announcement struct {
	Direct bool // its device imports it, and others can map it
	Memory []hostmem.Descriptor
}

// showProcesses shows memory to ranks that are processes. All gather twice, whatever they find: what each has, and whether each can copy
// from all of it. Where one cannot, nobody does, so that senders and receivers agree.
func (w *pass) showProcesses(own shared) ([]shared, error) {
	if !mapsMemory {
		return nil, nil
	}
	mine := announcement{Direct: own.direct && !records(w.ring.comm)}
	for _, m := range own.memory {
		if m == nil {
			continue
		}
		d := m.Descriptor()
		if d == nil {
			mine = announcement{}
			break
		}
		mine.Memory = append(mine.Memory, *d)
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	gathered, err := w.ring.comm.AllGather(w.ctx, raw)
	if err != nil {
		return nil, err
	}
	theirs := make([]announcement, len(gathered))
	for rank, raw := range gathered {
		if err := json.Unmarshal(raw, &theirs[rank]); err != nil {
			return nil, &RankError{Rank: w.ring.name(rank), Err: fmt.Errorf("it shows no memory where others do: %w", err)}
		}
	}
	all, opened := w.openAll(theirs, own, len(mine.Memory))
	good, err := w.allHave(all != nil)
	if err == nil && good {
		w.opened = append(w.opened, opened...)
		return all, nil
	}
	for _, m := range opened {
		err = errors.Join(err, m.Close())
	}
	return nil, err
}

// openAll opens what ranks have announced, n each; all is nil where one cannot be opened, or not be copied from.
func (w *pass) openAll(theirs []announcement, own shared, n int) (all []shared, opened []*hostmem.Memory) {
	for _, x := range theirs {
		if !x.Direct || len(x.Memory) != n {
			return nil, nil
		}
		for i, d := range x.Memory { // before any is mapped
			if d.Host != theirs[w.ring.Rank()].Memory[i].Host {
				return nil, nil
			}
		}
	}
	all = make([]shared, len(theirs))
	for rank, x := range theirs {
		if rank == w.ring.Rank() {
			all[rank] = own
			continue
		}
		for i, d := range x.Memory {
			m, err := hostmem.Open(d)
			if err != nil {
				return nil, opened
			}
			opened = append(opened, m)
			if !w.mover.Imports(m) {
				return nil, opened
			}
			all[rank].memory[i] = m
		}
		all[rank].direct = true
	}
	return all, opened
}

// allHave says whether all ranks have something.
func (w *pass) allHave(mine bool) (bool, error) {
	said := []byte{0}
	if mine {
		said[0] = 1
	}
	all, err := w.ring.comm.AllGather(w.ctx, said)
	for _, x := range all {
		mine = mine && len(x) == 1 && x[0] == 1
	}
	return mine, err
}
