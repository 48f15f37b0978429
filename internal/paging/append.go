package paging

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
)

// Request asks for room for new tokens of a sequence. The zero value asks for nothing, so that requests may be the rows of a batch, some of
// which have no sequence.
type Request struct {
	Sequence Sequence
	Tokens   int // ≥ 0
}

func (r *Request) none() bool { return *r == Request{} }

// Copy is rows 0 to Rows−1 of one page that the device has to copy to the same rows of another, in every layer, keys and values.
type Copy struct {
	From, To int32 // pages
	Rows     int   // from 1 to PageSize−1
}

// Placed is what a request got.
type Placed struct {
	First   int       // position of its first new token
	Changed attn.Span // entries of the sequence's table that are not what they were before
}

// Step is what Append gives: where new tokens stand, and what the device has to do before it writes them. It can be used again and keeps
// its memory.
type Step struct {
	Placed []Placed // of each request, in their order
	Copies []Copy   // one at most for each request; no page is written twice, none is read that another copy writes
}

// Append makes room for new tokens behind those of sequences, for all of them or for none: on any error nothing has changed, and the step
// is empty. The device then makes step's copies, and after them writes the rows that Rows gives, or that tables and lengths say.
//
// Of sequences that share a partly filled page and are all in the batch, the last one keeps it.
//
// The error is an *OutOfPagesError, one that matches ErrUnknownSequence, or an attn.ArgumentError: tokens below 0, a length beyond
// MaxLength, a sequence that two requests name.
func (m *Manager) Append(requests []Request, step *Step) error {
	step.Placed, step.Copies = step.Placed[:0], step.Copies[:0]
	if err := m.checkRequests(requests); err != nil {
		return err
	}
	// First what is needed. A page that is copied has a table less from then on, which decides whether the next that shares it needs a
	// copy.
	needed := 0
	for i := range requests {
		r := &requests[i]
		if r.none() {
			step.Placed = append(step.Placed, Placed{})
			continue
		}
		at := &m.slots[r.Sequence.slot]
		p := Placed{First: at.length, Changed: attn.Span{Begin: m.entries(at.length), End: m.entries(at.length + r.Tokens)}}
		if rows := at.length & (m.PageSize() - 1); r.Tokens > 0 && rows > 0 {
			if last := m.table(r.Sequence.slot)[p.Changed.Begin-1]; m.refs[last] > 1 {
				m.refs[last]--
				p.Changed.Begin--
				step.Copies = append(step.Copies, Copy{From: last, Rows: rows})
			}
		}
		needed += p.Changed.Len()
		step.Placed = append(step.Placed, p)
	}
	if free := len(m.free); needed > free {
		for _, c := range step.Copies {
			m.refs[c.From]++
		}
		step.Placed, step.Copies = step.Placed[:0], step.Copies[:0]
		return &OutOfPagesError{Needed: needed, Free: free}
	}
	// Then nothing can fail.
	copies := step.Copies
	for i := range requests {
		r, p := &requests[i], &step.Placed[i]
		if r.none() {
			continue
		}
		table := m.table(r.Sequence.slot)
		for j := p.Changed.Begin; j < p.Changed.End; j++ {
			table[j] = m.take()
		}
		if p.Changed.Begin < m.entries(p.First) { // what was its last page is copied: copies are in the order of their requests
			copies[0].To, copies = table[p.Changed.Begin], copies[1:]
		}
		m.slots[r.Sequence.slot].length += r.Tokens
	}
	return nil
}

// take takes a free page for one table; there is one.
func (m *Manager) take() int32 {
	n := len(m.free) - 1
	page := m.free[n]
	m.free = m.free[:n]
	m.refs[page] = 1
	return page
}

// checkRequests says what is wrong with a batch of them, whatever pages there are.
func (m *Manager) checkRequests(requests []Request) error {
	m.batches++
	for i := range requests {
		r := &requests[i]
		if r.none() {
			continue
		}
		at, err := m.find(r.Sequence, "requests")
		switch {
		case err != nil:
			return fmt.Errorf("%w, entry %d", err, i)
		case at.batch == m.batches:
			return attn.BadArgument(fmt.Sprintf("requests[%d].Sequence", i), r.Sequence, "must be among them once")
		case r.Tokens < 0 || r.Tokens > m.maxLength-at.length:
			return attn.BadArgument(fmt.Sprintf("requests[%d].Tokens", i), r.Tokens,
				"must be from 0 to %d, for a length of %d and %d at most",
				m.maxLength-at.length, at.length, m.maxLength)
		}
		at.batch = m.batches
	}
	return nil
}
