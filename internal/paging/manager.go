package paging

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
)

const (
	// MaxPageSize is the most tokens of a page.
	MaxPageSize = 512
	// MaxTokens is the most tokens of a sequence, and the most rows of all pages: a tensor's length at most.
	MaxTokens = math.MaxInt32 / 2
	// MaxSequences is the most sequences that there can be at a time.
	MaxSequences = 1 << 20
	// MaxEntries is the most entries that the tables of all sequences have together: 1 GiB of them.
	MaxEntries = 1 << 28
	// Dropped stands in a table for a page that was given back early, and behind the last page.
	Dropped = -1
)

// Options sets up a Manager.
type Options struct {
	Pages        int // ≥ 1; Pages·Page is at most MaxTokens
	Page         int // tokens of a page, PageSize elsewhere: a power of two from 1 to MaxPageSize
	MaxSequences int // that there are at a time, ≥ 1
	// of a sequence, in tokens, dropped ones among them, up to MaxTokens; 0 means Pages·Page, which only dropping gets past
	MaxLength int
}

// Sequence names a sequence of one Manager. The zero value names none. No two sequences have the same name, one that was freed and one that
// has its slot now neither.
type Sequence struct {
	manager    uint32 // which Manager's; the first is 1
	slot       int32
	generation uint64 // of the slot, which counts its sequences; the first is 1
}

// Slot is from 0 to MaxSequences−1, and no two sequences that there are at a time have the same: tables of the caller's can be kept by it.
func (s Sequence) Slot() int { return int(s.slot) }

// String is for errors.
func (s Sequence) String() string { return fmt.Sprintf("sequence %d of slot %d", s.generation, s.slot) }

// slot is where a sequence is kept.
type slot struct {
	generation uint64
	used       bool
	batch      uint64 // the latest Append that named it
	length     int    // tokens, dropped ones among them
	dropped    int    // entries of its table, from the first on, whose pages were given back
}

// Manager owns pages and sequences. It comes from New.
type Manager struct {
	id        uint32
	shift     int // PageSize = 1 << shift
	maxLength int
	width     int // entries of a table at most

	refs      []int32 // for each page: tables that name it
	free      []int32 // pages that no table names; the last is given out next
	slots     []slot
	freeSlots []int32
	tables    []int32 // [MaxSequences, width], by slot
	batches   uint64  // Appends so far
}

var managers atomic.Uint32

// New makes a Manager whose pages are all free. The error is an attn.ArgumentError that names a field, as one of kvcache.Options.
func New(o Options) (*Manager, error) {
	bad := func(field string, value int, rule string, a ...any) (*Manager, error) {
		return nil, attn.BadArgument("Options."+field, value, rule, a...)
	}
	if o.Page < 1 || o.Page > MaxPageSize || o.Page&(o.Page-1) != 0 {
		return bad("Page", o.Page, "must be a power of two from 1 to %d", MaxPageSize)
	}
	if most := MaxTokens / o.Page; o.Pages < 1 || o.Pages > most {
		return bad("Pages", o.Pages, "must be from 1 to %d, for pages of %d tokens", most, o.Page)
	}
	if o.MaxLength < 0 || o.MaxLength > MaxTokens {
		return bad("MaxLength", o.MaxLength, "must be from 1 to %d, or 0 for the tokens of all pages", MaxTokens)
	}
	if o.MaxLength == 0 {
		o.MaxLength = o.Pages * o.Page
	}
	m := &Manager{shift: bits.TrailingZeros(uint(o.Page)), maxLength: o.MaxLength}
	m.width = m.entries(o.MaxLength)
	if m.width > MaxEntries {
		return bad("MaxLength", o.MaxLength, "must be at most %d, for pages of %d tokens", MaxEntries*o.Page, o.Page)
	}
	if most := min(MaxSequences, MaxEntries/m.width); o.MaxSequences < 1 || o.MaxSequences > most {
		return bad("MaxSequences", o.MaxSequences, "must be from 1 to %d, with tables of %d pages each", most, m.width)
	}
	m.id = managers.Add(1)
	m.refs, m.free = make([]int32, o.Pages), make([]int32, o.Pages)
	m.slots, m.freeSlots = make([]slot, o.MaxSequences), make([]int32, o.MaxSequences)
	m.tables = make([]int32, o.MaxSequences*m.width)
	for i := range m.free { // the first ones are given out first
		m.free[i] = int32(o.Pages - 1 - i)
	}
	for i := range m.freeSlots {
		m.freeSlots[i] = int32(o.MaxSequences - 1 - i)
	}
	return m, nil
}

// entries is the number of pages that length tokens take.
func (m *Manager) entries(length int) int { return (length + m.PageSize() - 1) >> m.shift }

// table is the table of a slot, up to its longest.
func (m *Manager) table(slot int32) []int32 {
	return m.tables[int(slot)*m.width : (int(slot)+1)*m.width]
}

// find gives the slot of a sequence; argument is what the caller calls it.
func (m *Manager) find(s Sequence, argument string) (*slot, error) {
	if s.manager == m.id && uint(s.slot) < uint(len(m.slots)) {
		at := &m.slots[s.slot]
		if at.used && at.generation == s.generation {
			return at, nil
		}
		if s.generation <= at.generation {
			return nil, fmt.Errorf("%w: %s, %v", ErrFreedSequence, argument, s)
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknownSequence, argument)
}

// release counts a table less that names a page.
func (m *Manager) release(page int32) {
	if m.refs[page]--; m.refs[page] == 0 {
		m.free = append(m.free, page) // never past its capacity, which is that of all pages
	}
}

// PageSize is the number of tokens of a page.
func (m *Manager) PageSize() int { return 1 << m.shift }

// Width is the number of entries of the longest table that a sequence can have.
func (m *Manager) Width() int { return m.width }

// MaxLength is the most tokens that a sequence can have, dropped ones among them.
func (m *Manager) MaxLength() int { return m.maxLength }

// FreePages is the number of pages that no sequence has.
func (m *Manager) FreePages() int { return len(m.free) }

// Sequences is the number of sequences that there are.
func (m *Manager) Sequences() int { return len(m.slots) - len(m.freeSlots) }

// Length is the number of tokens of a sequence, dropped ones among them.
func (m *Manager) Length(s Sequence) (int, error) {
	at, err := m.find(s, "sequence")
	if err != nil {
		return 0, err
	}
	return at.length, nil
}

// First is the first position of a sequence that is kept: 0, or what Drop left.
func (m *Manager) First(s Sequence) (int, error) {
	at, err := m.find(s, "sequence")
	if err != nil {
		return 0, err
	}
	return at.dropped << m.shift, nil
}

// Add makes a sequence without tokens. It takes no page. The error matches ErrTooManySequences.
func (m *Manager) Add() (Sequence, error) {
	n := len(m.freeSlots) - 1
	if n < 0 {
		return Sequence{}, fmt.Errorf("%w: there are %d", ErrTooManySequences, len(m.slots))
	}
	i := m.freeSlots[n]
	m.freeSlots = m.freeSlots[:n]
	at := &m.slots[i]
	*at = slot{generation: at.generation + 1, used: true, batch: at.batch}
	return Sequence{manager: m.id, slot: i, generation: at.generation}, nil
}

// Fork makes a sequence with the tokens of another. It takes no page: they share all. Which of the two goes on first in a last page that is
// filled partly gets its own then. The error matches ErrUnknownSequence or ErrTooManySequences.
func (m *Manager) Fork(s Sequence) (Sequence, error) {
	from, err := m.find(s, "sequence")
	if err != nil {
		return Sequence{}, err
	}
	f, err := m.Add()
	if err != nil {
		return Sequence{}, err
	}
	to := &m.slots[f.slot]
	to.length, to.dropped = from.length, from.dropped
	n := m.entries(from.length)
	table := m.table(f.slot)[:n]
	copy(table, m.table(s.slot)[:n])
	for _, page := range table[to.dropped:] {
		m.refs[page]++
	}
	return f, nil
}

// Truncate takes back the tokens of a sequence from position length on, and pages that hold no others of it. length is from First to
// Length. The error matches ErrUnknownSequence or attn.ErrArgument.
func (m *Manager) Truncate(s Sequence, length int) error {
	at, err := m.find(s, "sequence")
	if err != nil {
		return err
	}
	if first := at.dropped << m.shift; length < first || length > at.length {
		return attn.BadArgument("length", length, "must be from %d, the first position that is kept, to %d, the sequence's length",
			first, at.length)
	}
	for _, page := range m.table(s.slot)[m.entries(length):m.entries(at.length)] {
		m.release(page)
	}
	at.length = length
	return nil
}

// Drop gives back the pages of a sequence whose tokens all stand before a position, for instance before the window of all queries to come.
// Other positions stay what they were; before ≤ 0 and a position before First drop nothing. It says which entries of the table are Dropped
// now and were not: kernels may load, and mask, rows before a window, so that the device's table has to say it before the pages are written
// again. The error matches ErrUnknownSequence or attn.ErrArgument, for a position beyond the length.
func (m *Manager) Drop(s Sequence, before int) (attn.Span, error) {
	at, err := m.find(s, "sequence")
	if err != nil {
		return attn.Span{}, err
	}
	if before > at.length {
		return attn.Span{}, attn.BadArgument("before", before, "must be at most %d, the sequence's length", at.length)
	}
	gone := attn.Span{Begin: at.dropped, End: max(at.dropped, before>>m.shift)}
	table := m.table(s.slot)[gone.Begin:gone.End]
	for i, page := range table {
		m.release(page)
		table[i] = Dropped
	}
	at.dropped = gone.End
	return gone, nil
}

// Free ends a sequence and gives back its pages but for those that others share. Freeing again gives an error that matches
// ErrFreedSequence, whether or not the slot has another sequence by then; other errors match ErrUnknownSequence.
func (m *Manager) Free(s Sequence) error {
	at, err := m.find(s, "sequence")
	if err != nil {
		return err
	}
	for _, page := range m.table(s.slot)[at.dropped:m.entries(at.length)] {
		m.release(page)
	}
	at.used = false
	m.freeSlots = append(m.freeSlots, s.slot)
	return nil
}
