package paging

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

func newManager(t testing.TB, pages, page, sequences int) *Manager {
	t.Helper()
	m, err := New(Options{Pages: pages, Page: page, MaxSequences: sequences})
	require.NoError(t, err)
	return m
}

func add(t testing.TB, m *Manager) Sequence {
	t.Helper()
	s, err := m.Add()
	require.NoError(t, err)
	return s
}

func grow(t testing.TB, m *Manager, batch ...Request) Step {
	t.Helper()
	var step Step
	require.NoError(t, m.Append(batch, &step))
	require.NoError(t, m.check())
	return step
}

func tableOf(t testing.TB, m *Manager, s Sequence) []int32 {
	t.Helper()
	n, err := m.Length(s)
	require.NoError(t, err)
	table := make([]int32, m.entries(n))
	require.NoError(t, m.Entries(table, s, attn.Span{End: len(table)}))
	return table
}

// badArgument requires an argument error that names what is wrong.
func badArgument(t testing.TB, name string, err error) {
	t.Helper()
	var bad *attn.ArgumentError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, name, bad.Argument, "%v", err)
}

func TestOptions(t *testing.T) {
	for page := 1; page <= MaxPageSize; page *= 2 {
		m := newManager(t, 3, page, 2)
		require.Equal(t, page, m.PageSize())
		require.Equal(t, 3, m.FreePages())
		require.Equal(t, 3, m.Width())
		require.Zero(t, m.Sequences())
		require.NoError(t, m.check())
	}
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"Page", Options{4, 0, 1, 0}}, {"Page", Options{4, -16, 1, 0}}, {"Page", Options{4, 3, 1, 0}}, {"Page", Options{4, 1024, 1, 0}},
		{"Page", Options{4, math.MinInt, 1, 0}},
		{"Pages", Options{0, 16, 1, 0}}, {"Pages", Options{-1, 16, 1, 0}}, {"Pages", Options{math.MaxInt32/32 + 1, 16, 1, 0}},
		{"Pages", Options{math.MaxInt, 512, 1, 0}},
		{"MaxSequences", Options{4, 16, 0, 0}}, {"MaxSequences", Options{4, 16, -1, 0}},
		{"MaxSequences", Options{1, 16, MaxSequences + 1, 0}},
		{"MaxSequences", Options{1 << 20, 16, 257, 0}}, {"MaxSequences", Options{4, 16, math.MaxInt, 0}},
		{"MaxLength", Options{4, 16, 1, -1}}, {"MaxLength", Options{4, 16, 1, MaxTokens + 1}}, {"MaxLength", Options{4, 1, 1, MaxTokens}},
	} {
		m, err := New(c.o)
		require.Nil(t, m, "%+v", c.o)
		badArgument(t, "Options."+c.name, err)
	}
}

// TestPlaces: tokens stand where table and length say, pages are taken when they are reached and given back when none has them.
func TestPlaces(t *testing.T) {
	m := newManager(t, 4, 4, 2)
	a, b := add(t, m), add(t, m)
	require.NotEqual(t, a.Slot(), b.Slot())
	require.Equal(t, 4, m.FreePages())

	for _, c := range []struct {
		a, b            int // new tokens
		ofA, ofB        Placed
		tableA, tableB  []int32
		lengths, indptr []int32
		last            []int32
	}{
		{0, 0, Placed{}, Placed{}, []int32{}, []int32{}, []int32{0, 0}, []int32{0, 0, 0}, []int32{0, 0}},
		{3, 0, Placed{0, attn.Span{Begin: 0, End: 1}}, Placed{}, []int32{0}, []int32{}, []int32{3, 0}, []int32{0, 1, 1}, []int32{3, 0}},
		{1, 1, Placed{3, attn.Span{Begin: 1, End: 1}}, Placed{0, attn.Span{Begin: 0, End: 1}}, []int32{0}, []int32{1}, []int32{4, 1},
			[]int32{0, 1, 2}, []int32{4, 1}},
		{1, 3, Placed{4, attn.Span{Begin: 1, End: 2}}, Placed{1, attn.Span{Begin: 1, End: 1}}, []int32{0, 2}, []int32{1}, []int32{5, 4},
			[]int32{0, 2, 3}, []int32{1, 4}},
		{4, 0, Placed{5, attn.Span{Begin: 2, End: 3}}, Placed{4, attn.Span{Begin: 1, End: 1}}, []int32{0, 2, 3}, []int32{1}, []int32{9, 4},
			[]int32{0, 3, 4}, []int32{1, 4}},
	} {
		step := grow(t, m, Request{a, c.a}, Request{b, c.b})
		require.Equal(t, []Placed{c.ofA, c.ofB}, step.Placed)
		require.Empty(t, step.Copies)
		require.Equal(t, c.tableA, tableOf(t, m, a))
		require.Equal(t, c.tableB, tableOf(t, m, b))
		both := []Sequence{a, b}
		lengths, indptr, indices, last := make([]int32, 2), make([]int32, 3), make([]int32, 8), make([]int32, 2)
		require.NoError(t, m.Lengths(lengths, both))
		require.Equal(t, c.lengths, lengths)
		n, err := m.Compressed(indptr, indices, last, both)
		require.NoError(t, err)
		require.Equal(t, c.indptr, indptr)
		require.Equal(t, append(slices.Clone(c.tableA), c.tableB...), indices[:n])
		require.Equal(t, c.last, last)
	}
	rows := make([]int32, 9)
	require.NoError(t, m.Rows(rows, a, 0))
	require.Equal(t, []int32{0, 1, 2, 3, 8, 9, 10, 11, 12}, rows)
	dense := make([]int32, 8)
	require.NoError(t, m.Table(dense, 4, []Sequence{b, a}))
	require.Equal(t, []int32{1, -1, -1, -1, 0, 2, 3, -1}, dense)

	var step Step
	err := m.Append([]Request{{b, 5}, {a, 4}}, &step)
	require.Equal(t, &OutOfPagesError{Needed: 3, Free: 0}, err)
	require.EqualError(t, err, "flash: out of cache pages: 3 needed, 0 free, 3 missing")
	require.NoError(t, m.Truncate(a, 4))
	require.Equal(t, 2, m.FreePages())
	require.NoError(t, m.Free(b))
	require.Equal(t, 3, m.FreePages())
	require.NoError(t, m.check())
}

// TestCopyOnWrite: whoever goes on first in a shared page that is filled partly gets its own; the last one keeps it; full pages stay
// shared.
func TestCopyOnWrite(t *testing.T) {
	m := newManager(t, 8, 4, 4)
	a := add(t, m)
	grow(t, m, Request{a, 6}) // pages 0 and 1
	b, err := m.Fork(a)
	require.NoError(t, err)
	c, err := m.Fork(b)
	require.NoError(t, err)
	require.Equal(t, 6, m.FreePages())

	step := grow(t, m, Request{b, 3}, Request{c, 0}, Request{a, 1}) // c keeps the page with none that is new
	require.Equal(t, []Copy{{From: 1, To: 2, Rows: 2}, {From: 1, To: 4, Rows: 2}}, step.Copies)
	require.Equal(t, []Placed{{6, attn.Span{Begin: 1, End: 3}}, {6, attn.Span{Begin: 2, End: 2}}, {6, attn.Span{Begin: 1, End: 2}}},
		step.Placed)
	require.Equal(t, []int32{0, 2, 3}, tableOf(t, m, b))
	require.Equal(t, []int32{0, 1}, tableOf(t, m, c))
	require.Equal(t, []int32{0, 4}, tableOf(t, m, a))
	require.Empty(t, grow(t, m, Request{c, 1}).Copies) // alone with it by now

	d, err := m.Fork(c) // of 7 tokens
	require.NoError(t, err)
	require.NoError(t, m.Truncate(d, 4)) // to the end of a page: nothing to copy
	require.Empty(t, grow(t, m, Request{d, 1}).Copies)
	require.Equal(t, []int32{0, 5}, tableOf(t, m, d))
	require.NoError(t, m.Truncate(d, 3)) // into a full page that all four share
	require.Equal(t, []Copy{{From: 0, To: 5, Rows: 3}}, grow(t, m, Request{d, 1}).Copies)

	for i, s := range []Sequence{a, b, c, d} {
		require.NoError(t, m.Free(s), i)
		require.NoError(t, m.check())
	}
	require.Equal(t, 8, m.FreePages())
}

// TestAllOrNothing: a batch that would fit but for its last request takes nothing, copies counted.
func TestAllOrNothing(t *testing.T) {
	m := newManager(t, 3, 4, 3)
	a := add(t, m)
	grow(t, m, Request{a, 2})
	b, err := m.Fork(a)
	require.NoError(t, err)
	c := add(t, m)
	before := m.state()
	step := Step{Placed: make([]Placed, 5), Copies: make([]Copy, 5)}
	err = m.Append([]Request{{a, 1}, {b, 1}, {c, 5}}, &step) // a copy, none, two pages
	require.Equal(t, &OutOfPagesError{Needed: 3, Free: 2}, err)
	require.ErrorIs(t, err, ErrOutOfPages)
	require.Empty(t, step.Placed)
	require.Empty(t, step.Copies)
	require.Equal(t, before, m.state())
	step = grow(t, m, Request{a, 1}, Request{b, 1}, Request{c, 4})
	require.Len(t, step.Copies, 1)
	require.Zero(t, m.FreePages())
}

// TestWindow: a sequence far longer than all pages, of which a window is kept.
func TestWindow(t *testing.T) {
	const window, page, length = 10, 4, 1000
	m, err := New(Options{Pages: 4, Page: page, MaxSequences: 2, MaxLength: length})
	require.NoError(t, err)
	s := add(t, m)
	for n := range length {
		gone, err := m.Drop(s, n+1-window) // the query to come sees itself and window−1 keys before it
		require.NoError(t, err)
		require.Equal(t, attn.Span{Begin: max(n-window, 0) / page, End: max(n+1-window, 0) / page}, gone)
		grow(t, m, Request{s, 1})
		first, err := m.First(s)
		require.NoError(t, err)
		require.LessOrEqual(t, first, max(n+1-window, 0))
		require.LessOrEqual(t, 4-m.FreePages(), attn.CeilDiv(window+page-1, page))
	}
	require.NoError(t, m.check())
	table := tableOf(t, m, s)
	require.Equal(t, length/page, len(table))
	require.Equal(t, slices.Repeat([]int32{Dropped}, 247), table[:247])
	require.NotContains(t, table[247:], int32(Dropped))
	rows := make([]int32, 8)
	require.NoError(t, m.Rows(rows, s, 984))
	require.Equal(t, []int32{-1, -1, -1, -1}, rows[:4])
	require.NotContains(t, rows[4:], int32(Dropped))

	f, err := m.Fork(s)
	require.NoError(t, err)
	for _, bad := range []int{-1, 0, 987, 1001, math.MaxInt, math.MinInt} {
		badArgument(t, "length", m.Truncate(f, bad))
	}
	require.NoError(t, m.Truncate(f, 988)) // to nothing
	require.Equal(t, []Placed{{988, attn.Span{Begin: 247, End: 248}}}, grow(t, m, Request{f, 1}).Placed)
	gone, err := m.Drop(s, length) // all there is
	require.NoError(t, err)
	require.Equal(t, attn.Span{Begin: 247, End: 250}, gone)
	require.Equal(t, 3, m.FreePages())
	gone, err = m.Drop(s, math.MinInt)
	require.NoError(t, err)
	require.Zero(t, gone.Len())
	_, err = m.Drop(s, length+1)
	badArgument(t, "before", err)
	var step Step
	badArgument(t, "requests[0].Tokens", m.Append([]Request{{s, 1}}, &step))
	require.NoError(t, m.Free(s))
	require.NoError(t, m.Free(f))
	require.NoError(t, m.check())
	require.Equal(t, 4, m.FreePages())
}

// TestRequestsForNothing: rows of a batch without a sequence take nothing, wherever they stand.
func TestRequestsForNothing(t *testing.T) {
	m := newManager(t, 4, 4, 3)
	a, b := add(t, m), add(t, m)
	grow(t, m, Request{a, 2})
	f, err := m.Fork(a)
	require.NoError(t, err)
	var step Step
	require.NoError(t, m.Append([]Request{{}, {f, 1}, {}, {b, 5}, {}}, &step))
	none := Placed{}
	require.Equal(t, []Placed{none, {First: 2, Changed: attn.Span{End: 1}}, none, {Changed: attn.Span{End: 2}}, none}, step.Placed)
	require.Equal(t, []Copy{{From: 0, To: 1, Rows: 2}}, step.Copies)
	require.ErrorIs(t, m.Append([]Request{{}, {Sequence{}, 1}}, &step), ErrUnknownSequence)
	require.NoError(t, m.check())
}

// TestNames: a name is good for one sequence of one Manager, while it is there.
func TestNames(t *testing.T) {
	m, other := newManager(t, 4, 4, 2), newManager(t, 4, 4, 2)
	a, b := add(t, m), add(t, m)
	_, err := m.Add()
	require.ErrorIs(t, err, ErrTooManySequences)
	_, err = m.Fork(a)
	require.ErrorIs(t, err, ErrTooManySequences)
	require.NoError(t, m.Free(a))
	require.ErrorIs(t, m.Free(a), ErrFreedSequence)
	again := add(t, m)
	require.Equal(t, a.Slot(), again.Slot())
	require.NotEqual(t, a, again)
	require.ErrorIs(t, m.Free(a), ErrFreedSequence)
	foreign := add(t, other)

	uses := map[string]func(s Sequence) error{
		"Free":     m.Free,
		"Fork":     func(s Sequence) error { _, err := m.Fork(s); return err },
		"Truncate": func(s Sequence) error { return m.Truncate(s, 0) },
		"Drop":     func(s Sequence) error { _, err := m.Drop(s, 0); return err },
		"Length":   func(s Sequence) error { _, err := m.Length(s); return err },
		"First":    func(s Sequence) error { _, err := m.First(s); return err },
		"Entries":  func(s Sequence) error { return m.Entries(nil, s, attn.Span{}) },
		"Rows":     func(s Sequence) error { return m.Rows(nil, s, 0) },
		"Append":   func(s Sequence) error { return m.Append([]Request{{b, 1}, {s, 1}}, new(Step)) },
		"Table":    func(s Sequence) error { return m.Table(nil, 0, []Sequence{b, s}) },
		"Lengths":  func(s Sequence) error { return m.Lengths(make([]int32, 2), []Sequence{b, s}) },
		"Compressed": func(s Sequence) error {
			_, err := m.Compressed(make([]int32, 3), nil, make([]int32, 2), []Sequence{b, s})
			return err
		},
	}
	before := m.state()
	for name, use := range uses {
		for what, s := range map[string]Sequence{"freed": a, "foreign": foreign, "zero": {}, "slot beyond": {m.id, 2, 1},
			"slot below":         {m.id, -1, 1},
			"generation to come": {m.id, int32(a.Slot()), again.generation + 1}} {
			err := use(s)
			require.ErrorIs(t, err, ErrUnknownSequence, "%s of %s", name, what)
			require.Equal(t, what == "freed", errors.Is(err, ErrFreedSequence), "%s of %s: %v", name, what, err)
		}
	}
	require.Equal(t, before, m.state())
	require.Error(t, new(Manager).Free(Sequence{}))
	_, err = new(Manager).Add()
	require.ErrorIs(t, err, ErrTooManySequences)
}

// TestBadArguments: what is wrong is named, and nothing is done.
func TestBadArguments(t *testing.T) {
	m := newManager(t, 4, 4, 2)
	a, b := add(t, m), add(t, m)
	grow(t, m, Request{a, 9}, Request{b, 1})
	before := m.state()
	both := []Sequence{a, b}
	three := func() []int32 { return []int32{9, 9, 9} }
	dst, step := three(), Step{}
	compressed := func(indptr, indices, last int) error {
		_, err := m.Compressed(make([]int32, indptr), make([]int32, indices), make([]int32, last), both)
		return err
	}
	for _, c := range []struct {
		name string
		err  error
	}{
		{"length", m.Truncate(a, 10)},
		{"length", m.Truncate(a, -1)},
		{"requests[1].Sequence", m.Append([]Request{{a, 1}, {a, 1}}, &step)},
		{"requests[1].Tokens", m.Append([]Request{{a, 1}, {b, -1}}, &step)},
		{"requests[0].Tokens", m.Append([]Request{{a, 8}}, &step)},
		{"requests[0].Tokens", m.Append([]Request{{a, math.MaxInt}}, &step)},
		{"width", m.Table(make([]int32, 4), 2, both)},
		{"width", m.Table(nil, -1, nil)},
		{"width", m.Table(make([]int32, 10), 5, both)},
		{"len(dst)", m.Table(make([]int32, 7), 4, both)},
		{"len(dst)", m.Lengths(dst, both)},
		{"len(indptr)", compressed(2, 4, 2)},
		{"len(last)", compressed(3, 4, 3)},
		{"len(indices)", compressed(3, 3, 2)},
		{"of", m.Entries(dst, a, attn.Span{Begin: 2, End: 5})},
		{"of", m.Entries(nil, a, attn.Span{Begin: 2, End: 1})},
		{"of", m.Entries(dst, a, attn.Span{Begin: -1, End: 2})},
		{"len(dst)", m.Entries(dst, a, attn.Span{Begin: 0, End: 4})},
		{"first", m.Rows(dst, a, 7)},
		{"first", m.Rows(dst, a, -1)},
		{"first", m.Rows(dst, b, 0)},
		{"first", m.Rows(dst, a, math.MaxInt)},
	} {
		badArgument(t, c.name, c.err)
		require.Equal(t, three(), dst)
	}
	require.Empty(t, step.Placed)
	require.Equal(t, before, m.state())
	grow(t, m, Request{a, 1}, Request{b, 1}) // sequences of batches that were refused may be named again
}
