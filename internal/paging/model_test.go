package paging

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
)

// tester is a test or a check of rapid's.
type tester interface {
	require.TestingT
	Helper()
	Fatalf(format string, args ...any)
}

// modelPage is a page of the model, which has no numbers: it is free when no sequence reaches it.
type modelPage struct{ _ byte }

// modelSequence is a sequence as its user sees it.
type modelSequence struct {
	name   Sequence
	tokens []int32      // what was appended
	pages  []*modelPage // nil: given back
}

const poison = -7 // in rows that no sequence may read

// machine does the same to a Manager and to the model, with a device between that knows of a Manager what a device is told: the numbers of
// Rows, copies, and changes of tables. After each step contents of all sequences, as the device finds them, are those of the model.
type machine struct {
	t       tester
	pick    func(n int) int // from 0 to n−1
	options Options
	m       *Manager
	other   *Manager // names of its sequences are unknown to m
	live    []*modelSequence
	freed   []Sequence
	step    Step

	next   int32          // token, no two are alike
	pool   []int32        // a row for each token of each page
	tables [][]int32      // on the device, by slot
	seen   map[string]int // outcomes

}

func newMachine(t tester, o Options, pick func(int) int) *machine {
	m, err := New(o)
	require.NoError(t, err)
	other, err := New(o)
	require.NoError(t, err)
	x := &machine{t: t, pick: pick, options: o, m: m, other: other, pool: slices.Repeat([]int32{poison}, o.Pages*o.Page),
		seen: map[string]int{}}
	for range o.MaxSequences {
		x.tables = append(x.tables, slices.Repeat([]int32{1 << 30}, m.Width()))
	}
	return x
}

// distinct counts the pages of the model that sequences reach.
func distinct(live []*modelSequence) int {
	pages := map[*modelPage]bool{}
	for _, s := range live {
		for _, p := range s.pages {
			if p != nil {
				pages[p] = true
			}
		}
	}
	return len(pages)
}

// update puts entries of a sequence's table on the device.
func (x *machine) update(s Sequence, of attn.Span) {
	require.NoError(x.t, x.m.Entries(x.tables[s.Slot()][of.Begin:of.End], s, of))
}

// operate does one operation.
func (x *machine) operate() {
	before := x.m.state()
	var err error
	var what string
	any := func() *modelSequence { return x.live[x.pick(len(x.live))] }
	kind := x.pick(16)
	switch {
	case kind == 0 || len(x.live) == 0:
		what, err = "add", x.add()
	case kind == 1:
		what, err = "fork", x.fork(any())
	case kind == 2:
		what, err = "truncate", x.truncate(any())
	case kind <= 4:
		what, err = "drop", x.drop(any())
	case kind == 5:
		what, err = "free", x.freeOne(x.pick(len(x.live)))
	case kind == 6:
		what, err = "misuse", x.misuse()
	default:
		what, err = "append", x.append()
	}
	if err != nil {
		require.Equal(x.t, before, x.m.state(), "%s failed with %v and changed something", what, err)
		what += " refused"
	}
	x.seen[what]++
	x.verify()
}

func (x *machine) add() error {
	full := len(x.live) == x.options.MaxSequences
	s, err := x.m.Add()
	if full {
		require.ErrorIs(x.t, err, ErrTooManySequences)
		return err
	}
	require.NoError(x.t, err)
	x.live = append(x.live, &modelSequence{name: s})
	return nil
}

func (x *machine) fork(from *modelSequence) error {
	full := len(x.live) == x.options.MaxSequences
	s, err := x.m.Fork(from.name)
	if full {
		require.ErrorIs(x.t, err, ErrTooManySequences)
		return err
	}
	require.NoError(x.t, err)
	x.update(s, attn.Span{End: len(from.pages)})
	x.live = append(x.live, &modelSequence{name: s, tokens: slices.Clone(from.tokens), pages: slices.Clone(from.pages)})
	return nil
}

// first is the first position that a sequence of the model has.
func (x *machine) first(s *modelSequence) int {
	n := 0
	for n < len(s.pages) && s.pages[n] == nil {
		n++
	}
	return n * x.options.Page
}

func (x *machine) truncate(s *modelSequence) error {
	length := x.pick(len(s.tokens)+3) - 1
	err := x.m.Truncate(s.name, length)
	if length < x.first(s) || length > len(s.tokens) {
		require.ErrorIs(x.t, err, attn.ErrArgument)
		return err
	}
	require.NoError(x.t, err)
	s.tokens = s.tokens[:length]
	s.pages = s.pages[:attn.CeilDiv(length, x.options.Page)]
	return nil
}

func (x *machine) drop(s *modelSequence) error {
	before := x.pick(len(s.tokens)+3) - 1
	gone, err := x.m.Drop(s.name, before)
	if before > len(s.tokens) {
		require.ErrorIs(x.t, err, attn.ErrArgument)
		return err
	}
	require.NoError(x.t, err)
	x.update(s.name, gone)
	for i := range s.pages {
		if (i+1)*x.options.Page <= before {
			s.pages[i] = nil
		}
	}
	if gone.Len() > 0 {
		x.seen["pages dropped"]++
	}
	return nil
}

func (x *machine) freeOne(i int) error {
	s := x.live[i]
	x.live = slices.Delete(x.live, i, i+1)
	x.freed = append(x.freed, s.name)
	require.NoError(x.t, x.m.Free(s.name))
	return nil
}

// misuse names sequences that there are not, wherever one is named.
func (x *machine) misuse() (err error) {
	var s Sequence
	want := ErrUnknownSequence
	switch x.pick(3) {
	case 0:
		if s, err = x.other.Add(); err != nil {
			x.other, err = New(x.options)
			require.NoError(x.t, err)
			s, err = x.other.Add()
			require.NoError(x.t, err)
		}
	case 1:
		if len(x.freed) > 0 {
			s, want = x.freed[x.pick(len(x.freed))], ErrFreedSequence
		}
	}
	one := []Sequence{s}
	switch x.pick(8) {
	case 0:
		_, err = x.m.Fork(s)
	case 1:
		err = x.m.Truncate(s, 0)
	case 2:
		_, err = x.m.Drop(s, 0)
	case 3:
		err = x.m.Free(s)
	case 4: // behind one that there is
		batch := []Request{{x.live[0].name, 0}, {s, 1}}
		err = x.m.Append(batch, &x.step)
		require.Empty(x.t, x.step.Placed)
	case 5:
		err = x.m.Table(make([]int32, x.m.Width()), x.m.Width(), one)
	case 6:
		_, err = x.m.Compressed(make([]int32, 2), make([]int32, x.m.Width()), make([]int32, 1), one)
	case 7:
		_, err = x.m.Length(s)
	}
	require.ErrorIs(x.t, err, ErrUnknownSequence)
	require.ErrorIs(x.t, err, want)
	require.Equal(x.t, want == ErrFreedSequence, errors.Is(err, ErrFreedSequence))
	return err
}

// append appends to some sequences, as a batch, when the model says that pages are there for all.
func (x *machine) append() error {
	page := x.options.Page
	chosen := slices.Clone(x.live)
	for i := range chosen { // any of them, in any order
		j := i + x.pick(len(chosen)-i)
		chosen[i], chosen[j] = chosen[j], chosen[i]
	}
	chosen = chosen[:1+x.pick(len(chosen))]
	var batch []Request
	tooLong := false
	for _, s := range chosen {
		n := x.pick(3)
		if x.pick(4) == 0 {
			n = x.pick(3*page + 2)
		}
		tooLong = tooLong || len(s.tokens)+n > x.m.maxLength
		batch = append(batch, Request{s.name, n})
	}
	if x.pick(20) == 0 {
		batch = append(batch, batch[x.pick(len(batch))])
		require.ErrorIs(x.t, x.m.Append(batch, &x.step), attn.ErrArgument)
		x.seen["twice in a batch"]++
		return attn.ErrArgument
	}
	err := x.m.Append(batch, &x.step)
	if tooLong {
		require.ErrorIs(x.t, err, attn.ErrArgument)
		x.seen["too long"]++
		return err
	}

	// What the model makes of it: a partly filled page that another sequence reaches too is left for one of its own.
	had := distinct(x.live)
	type change struct {
		pages  []*modelPage
		copied bool
	}
	changes, old := make([]change, len(chosen)), make([][]*modelPage, len(chosen))
	for i, s := range chosen {
		old[i] = s.pages
		pages := slices.Clone(s.pages)
		if n := len(s.tokens); batch[i].Tokens > 0 && n%page > 0 {
			for _, o := range x.live {
				if o != s && slices.Contains(o.pages, pages[n/page]) {
					changes[i].copied = true
				}
			}
			if changes[i].copied {
				pages[n/page] = new(modelPage)
			}
		}
		for len(pages) < attn.CeilDiv(len(s.tokens)+batch[i].Tokens, page) {
			pages = append(pages, new(modelPage))
		}
		s.pages, changes[i].pages = pages, pages
	}
	has := distinct(x.live)
	if has > x.options.Pages {
		for i, s := range chosen {
			s.pages = old[i]
		}
		var out *OutOfPagesError
		require.ErrorAs(x.t, err, &out)
		require.ErrorIs(x.t, err, ErrOutOfPages)
		require.Equal(x.t, OutOfPagesError{Needed: has - had, Free: x.options.Pages - had}, *out)
		require.Equal(x.t, has-x.options.Pages, out.Missing())
		require.Empty(x.t, x.step.Placed)
		require.Empty(x.t, x.step.Copies)
		x.seen["out of pages"]++
		return err
	}
	require.NoError(x.t, err)
	require.Len(x.t, x.step.Placed, len(batch))
	copies := 0
	for i, s := range chosen {
		p := x.step.Placed[i]
		n := len(s.tokens)
		from := attn.CeilDiv(n, page)
		if changes[i].copied {
			from--
			require.Equal(x.t, n%page, x.step.Copies[copies].Rows)
			require.Equal(x.t, x.tables[s.name.Slot()][n/page], x.step.Copies[copies].From)
			copies++
		}
		require.Equal(x.t, Placed{First: n, Changed: attn.Span{Begin: from, End: attn.CeilDiv(n+batch[i].Tokens, page)}}, p)
	}
	require.Len(x.t, x.step.Copies, copies)
	x.seen["copies"] += copies
	x.copyPages()
	for i, s := range chosen {
		x.update(s.name, x.step.Placed[i].Changed)
		rows := make([]int32, batch[i].Tokens)
		require.NoError(x.t, x.m.Rows(rows, s.name, x.step.Placed[i].First))
		for _, row := range rows {
			x.next++
			x.pool[row] = x.next
			s.tokens = append(s.tokens, x.next)
		}
	}
	return nil
}

// copyPages makes the copies of a step all at once, as a device may.
func (x *machine) copyPages() {
	page := x.options.Page
	was := slices.Clone(x.pool)
	written := map[int32]bool{}
	for _, c := range x.step.Copies {
		require.False(x.t, written[c.To], "page %d is copied to twice", c.To)
		written[c.To] = true
		copy(x.pool[int(c.To)*page:][:c.Rows], was[int(c.From)*page:][:c.Rows])
	}
	for _, c := range x.step.Copies {
		require.False(x.t, written[c.From], "page %d is copied from and to", c.From)
	}
}

// verify compares what the device has with the model.
func (x *machine) verify() {
	page := x.options.Page
	if err := x.m.check(); err != nil {
		x.t.Fatalf("%v", err)
	}
	require.Equal(x.t, x.options.Pages-distinct(x.live), x.m.FreePages())
	require.Equal(x.t, len(x.live), x.m.Sequences())
	for _, p := range x.m.free {
		for i := range page {
			x.pool[int(p)*page+i] = poison
		}
	}
	names := make([]Sequence, len(x.live))
	for i, s := range x.live {
		names[i] = s.name
		first, err := x.m.First(s.name)
		require.NoError(x.t, err)
		if first != x.first(s) {
			x.t.Fatalf("%v begins at %d, the model at %d", s.name, first, x.first(s))
		}
		table := x.tables[s.name.Slot()]
		for p := first; p < len(s.tokens); p++ {
			if got := x.pool[int(table[p/page])*page+p%page]; got != s.tokens[p] {
				x.t.Fatalf("%v, position %d of %d: token %d, in place of %d", s.name, p, len(s.tokens), got, s.tokens[p])
			}
		}
	}
	x.verifyTables(names)
}

// verifyTables compares the forms of tables with the device's tables and the model.
func (x *machine) verifyTables(names []Sequence) {
	width, total := 0, 0
	for _, s := range x.live {
		width = max(width, len(s.pages))
		total += len(s.pages)
	}
	dense, lengths := make([]int32, len(names)*width), make([]int32, len(names))
	require.NoError(x.t, x.m.Table(dense, width, names))
	require.NoError(x.t, x.m.Lengths(lengths, names))
	indptr, indices, last := make([]int32, len(names)+1), make([]int32, total), make([]int32, len(names))
	n, err := x.m.Compressed(indptr, indices, last, names)
	require.NoError(x.t, err)
	require.Equal(x.t, total, n)
	for i, s := range x.live {
		row, pages := dense[i*width:(i+1)*width], x.tables[s.name.Slot()][:len(s.pages)]
		if !slices.Equal(row[:len(pages)], pages) || !slices.Equal(indices[indptr[i]:indptr[i+1]], pages) {
			x.t.Fatalf("%v: table %v, compressed %v, and on the device %v", s.name, row, indices[indptr[i]:indptr[i+1]], pages)
		}
		for _, beyond := range row[len(pages):] {
			if beyond != Dropped {
				x.t.Fatalf("%v: table %v of %d pages", s.name, row, len(pages))
			}
		}
		length := 0 // as FlashInfer has it
		if len(pages) > 0 {
			length = (len(pages)-1)*x.options.Page + int(last[i])
		}
		if int(lengths[i]) != len(s.tokens) || length != len(s.tokens) || (len(pages) == 0) != (last[i] == 0) {
			x.t.Fatalf("%v: %d tokens, %d in the last page of %d, in place of %d", s.name, lengths[i], last[i], len(pages), len(s.tokens))
		}
	}
}

// TestOperations: a long life of a Manager, 10,000 operations of each kind of cache.
func TestOperations(t *testing.T) {
	for _, o := range []Options{
		{Pages: 9, Page: 1, MaxSequences: 4},
		{Pages: 40, Page: 2, MaxSequences: 7, MaxLength: 60},
		{Pages: 24, Page: 16, MaxSequences: 6},
		{Pages: 5, Page: 512, MaxSequences: 4, MaxLength: 5000},
	} {
		random := rand.New(rand.NewPCG(uint64(o.Pages), uint64(o.Page)))
		x := newMachine(t, o, random.IntN)
		for range 10_000 {
			x.operate()
		}
		for _, what := range []string{"add", "fork", "truncate", "drop", "free", "append", "add refused", "fork refused",
			"truncate refused",
			"drop refused", "misuse refused", "append refused", "out of pages", "pages dropped", "twice in a batch"} {
			require.Greater(t, x.seen[what], 20, "%+v: %s", o, what)
		}
		if o.Page > 1 {
			require.Greater(t, x.seen["copies"], 100, "%+v", o)
		}
		if o.MaxLength > 0 {
			require.Positive(t, x.seen["too long"], "%+v", o)
		}
		t.Logf("%+v: %v", o, x.seen)
	}
}

// TestOperationsInSmallCaches: short lives in caches of all kinds, which rapid shrinks to the shortest that fails.
func TestOperationsInSmallCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Pages: rapid.IntRange(1, 12).Draw(t, "pages"), Page: 1 << rapid.IntRange(0, 3).Draw(t, "page"),
			MaxSequences: rapid.IntRange(1, 5).Draw(t, "sequences"), MaxLength: rapid.IntRange(0, 100).Draw(t, "length")}
		x := newMachine(t, o, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") })
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			x.operate()
		}
	})
}

// FuzzOperations: the same, with operations that a fuzzer finds.
func FuzzOperations(f *testing.F) {
	f.Add(byte(4), byte(1), byte(2), []byte{0, 0, 7, 0, 0, 2, 1, 1, 0, 7, 0, 1, 2, 1, 2, 1})
	f.Add(byte(9), byte(0), byte(4), []byte{0, 7, 0, 0, 0, 9, 1, 3, 5, 4, 0, 9, 6, 1, 0, 3})
	f.Add(byte(3), byte(4), byte(3), []byte("add fork append truncate drop free"))
	f.Fuzz(func(t *testing.T, pages, page, sequences byte, data []byte) {
		o := Options{Pages: 1 + int(pages)%32, Page: 1 << (page % 10), MaxSequences: 1 + int(sequences)%8}
		left := data[:min(len(data), 500)]
		x := newMachine(t, o, func(n int) int {
			if n < 1 || len(left) == 0 {
				return 0
			}
			v := int(left[0])
			left = left[1:]
			if n > 256 && len(left) > 0 {
				v = v<<8 | int(left[0])
				left = left[1:]
			}
			return v % n
		})
		for len(left) > 0 {
			x.operate()
		}
	})
}
