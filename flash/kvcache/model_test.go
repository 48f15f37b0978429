package kvcache

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/internal/attn"
)

// cacheModel does the same to a cache and to lists of tokens. No two tokens have the same number, and rows of keys and values tell the
// number, the layer, the head and the column, so that contents say which token's they are.
type cacheModel struct {
	t      testing.TB
	r      *rand.Rand
	c      *Cache
	lanes  []*modelLane
	live   []*modelSequence
	freed  []Sequence
	next   float32
	seen   map[string]int
	strict bool // contents are compared after every step
}

type modelSequence struct {
	name    Sequence
	tokens  []float32
	dropped int // pages
}

// modelLane is a batch with a plan that appends, and tensors of new rows for each layer.
type modelLane struct {
	*Batch
	plan *rows.Plan
	recs []*rows.Recording
	k, v []*flash.Tensor
}

func newCacheModel(t testing.TB, d *flash.Device, o Options, lanes ...[2]int) *cacheModel {
	c, err := New(d, o)
	require.NoError(t, err)
	m := &cacheModel{t: t, r: rand.New(rand.NewPCG(uint64(o.Page), uint64(o.Pages))), c: c, seen: map[string]int{}, strict: true}
	for _, size := range lanes {
		m.lanes = append(m.lanes, m.lane(d, size[0], size[1]))
	}
	return m
}

func (m *cacheModel) lane(d *flash.Device, n, tokens int) *modelLane {
	b, err := m.c.NewBatch(n, tokens)
	require.NoError(m.t, err)
	l := &modelLane{Batch: b}
	l.plan, err = rows.PlanAppend(d, b.AppendProblem(rows.AppendProblem{}))
	require.NoError(m.t, err)
	o := m.c.Options()
	for layer := range o.Layers {
		k, err := d.NewTensorBNHD(o.DType, n, o.KeyHeads, tokens, o.HeadDim)
		require.NoError(m.t, err)
		v, err := d.NewTensor(o.DType, n, o.KeyHeads, tokens, o.ValueDim)
		require.NoError(m.t, err)
		rec, err := l.plan.NewRecording()
		require.NoError(m.t, err)
		require.NoError(m.t, rec.Append(b.Append(layer, rows.Append{K: k, V: v})))
		l.k, l.v, l.recs = append(l.k, k), append(l.v, v), append(l.recs, rec)
	}
	return l
}

// element is what column d of a token's row of keys or values is.
func element(token float32, layer, head, d int, value bool) float32 {
	x := token*8 + float32(layer*4+head*2)
	if value {
		x++
	}
	if d%2 == 1 {
		return -x
	}
	return x
}

// operate does one operation, and says which.
func (m *cacheModel) operate() {
	any := func() *modelSequence { return m.live[m.r.IntN(len(m.live))] }
	kind := m.r.IntN(20)
	var err error
	var what string
	switch {
	case kind == 0 || len(m.live) == 0:
		what = "add"
		var s Sequence
		if s, err = m.c.Add(); err == nil {
			m.live = append(m.live, &modelSequence{name: s})
		}
	case kind <= 2:
		what = "fork"
		from := any()
		var s Sequence
		if s, err = m.c.Fork(from.name); err == nil {
			m.live = append(m.live, &modelSequence{s, slices.Clone(from.tokens), from.dropped})
		}
	case kind <= 4:
		what = "truncate"
		s := any()
		first := s.dropped * m.c.Options().Page
		length := first + m.r.IntN(len(s.tokens)-first+2)
		if err = m.c.Truncate(s.name, length); err == nil {
			s.tokens = s.tokens[:length]
		}
	case kind == 5:
		what = "drop"
		s := any()
		before := m.r.IntN(len(s.tokens) + 2)
		if err = m.c.Drop(s.name, before); err == nil {
			s.dropped = max(s.dropped, before/m.c.Options().Page)
		}
	case kind == 6:
		what = "free"
		i := m.r.IntN(len(m.live))
		require.NoError(m.t, m.c.Free(m.live[i].name))
		m.freed = append(m.freed, m.live[i].name)
		m.live = slices.Delete(m.live, i, i+1)
	case kind == 7 && len(m.freed) > 0:
		what = "free again"
		err = m.c.Free(m.freed[m.r.IntN(len(m.freed))])
		require.ErrorIs(m.t, err, ErrFreedSequence)
	default:
		what = "step"
		err = m.stepOf(m.lanes[m.r.IntN(len(m.lanes))])
	}
	var out *OutOfPagesError
	switch {
	case err == nil:
	case errors.As(err, &out):
		what += " out of pages"
		require.Greater(m.t, out.Missing(), 0)
		for len(m.live) > 1 && m.r.IntN(2) == 0 { // else nothing would fit ever after
			require.NoError(m.t, m.c.Free(m.live[0].name))
			m.live = m.live[1:]
		}
	default:
		require.True(m.t, errors.Is(err, flash.ErrArgument) || errors.Is(err, ErrTooManySequences) || errors.Is(err, ErrUnknownSequence),
			"%s: %v", what, err)
		what += " refused"
	}
	m.seen[what]++
	for _, s := range m.live {
		n, err := m.c.Length(s.name)
		require.NoError(m.t, err)
		require.Equal(m.t, len(s.tokens), n)
	}
	require.Equal(m.t, len(m.live), m.c.Sequences())
}

// stepOf appends new tokens of some sequences, in rows of any order, some of which are empty.
func (m *cacheModel) stepOf(l *modelLane) error {
	o := m.c.Options()
	in := slices.Clone(m.live)
	m.r.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	requests, of := make([]Request, m.r.IntN(l.rows)+1), make([]*modelSequence, l.rows)
	for i := range requests {
		if len(in) == 0 || m.r.IntN(6) == 0 {
			continue
		}
		of[i], in = in[0], in[1:]
		requests[i] = Request{of[i].name, m.r.IntN(l.tokens + 1)}
	}
	free := m.c.FreePages()
	err := l.Step(requests)
	for errors.Is(err, flash.ErrInFlight) {
		m.seen["in flight"]++
		require.NoError(m.t, l.Wait(nil))
		err = l.Step(requests)
	}
	if err != nil {
		require.Equal(m.t, free, m.c.FreePages())
		return err
	}
	require.NoError(m.t, l.Submit())
	news := make([][]float32, l.rows)
	for i, s := range of {
		if s == nil {
			continue
		}
		for range requests[i].Tokens {
			m.next++
			news[i] = append(news[i], m.next)
		}
		s.tokens = append(s.tokens, news[i]...)
	}
	for layer := range o.Layers {
		k, v := make([]float32, l.k[0].Elements()), make([]float32, l.v[0].Elements())
		fill := func(to []float32, dim int, value bool) {
			for at := range to {
				d, i, h, b := at%dim, at/dim%l.tokens, at/dim/l.tokens%o.KeyHeads, at/dim/l.tokens/o.KeyHeads
				if to[at] = -1; i < len(news[b]) {
					to[at] = element(news[b][i], layer, h, d, value)
				}
			}
		}
		fill(k, o.HeadDim, false)
		fill(v, o.ValueDim, true)
		require.NoError(m.t, within.Wait(l.recs[layer].Commands(), nil))
		require.NoError(m.t, l.k[layer].Upload(bg, k))
		require.NoError(m.t, l.v[layer].Upload(bg, v))
		_, err := l.recs[layer].Submit()
		require.NoError(m.t, err)
	}
	if m.strict || m.r.IntN(8) == 0 {
		m.compare(l, of, requests)
	}
	return nil
}

// compare compares what the device has with the model: the batch's tensors, and the contents of all sequences through tables.
func (m *cacheModel) compare(l *modelLane, of []*modelSequence, requests []Request) {
	m.seen["compared"]++
	o := m.c.Options()
	table, lengths, at, queries := download(m.t, l.Table()), download(m.t, l.Lengths()), download(m.t, l.At()), download(m.t, l.Queries())
	pools := make([][2][]float32, o.Layers)
	for layer := range pools {
		k, v := m.c.Pools(layer)
		pools[layer] = [2][]float32{download(m.t, k), download(m.t, v)}
	}
	width := l.Table().Shape()[3]
	for i := range l.rows {
		length, tokens := 0, 0
		if of[i] != nil {
			length, tokens = len(of[i].tokens), requests[i].Tokens
		}
		require.Equal(m.t, [3]float32{float32(length), float32(length - tokens), float32(tokens)},
			[3]float32{lengths[i], at[i], queries[i]}, "row %d", i)
	}
	for _, s := range m.live {
		pages := make([]int32, width) // as the host has them
		require.NoError(m.t, m.c.pages.Entries(pages, s.name, attn.Span{End: width}))
		used := attn.CeilDiv(len(s.tokens), o.Page)
		if row := slices.Index(of, s); row >= 0 {
			for j, page := range pages[:used] {
				require.Equal(m.t, float32(page), table[row*width+j], "row %d, entry %d", row, j)
			}
		}
		for j := range s.dropped {
			require.EqualValues(m.t, -1, pages[j])
		}
		for p := s.dropped * o.Page; p < len(s.tokens); p++ {
			m.compareToken(&o, pools, s.tokens[p], int(pages[p/o.Page]), p%o.Page)
		}
	}
}

func (m *cacheModel) compareToken(o *Options, pools [][2][]float32, token float32, page, row int) {
	for layer := range pools {
		for x, dim := range [2]int{o.HeadDim, o.ValueDim} {
			for h := range o.KeyHeads {
				got := pools[layer][x][((page*o.KeyHeads+h)*o.Page+row)*dim:][:dim]
				for d := range got {
					if want := element(token, layer, h, d, x == 1); got[d] != want {
						m.t.Fatalf("token %v of layer %d, head %d, column %d (values: %v), in row %d of page %d, is %v, not %v",
							token, layer, h, d, x == 1, row, page, got[d], want)
					}
				}
			}
		}
	}
}

// TestCacheModel: random operations on a cache, against lists of tokens: what sequences hold, and what the device is told of them.
func TestCacheModel(t *testing.T) {
	for name, o := range map[string]Options{
		"NHD": {Layers: 2, KeyHeads: 2, HeadDim: 3, ValueDim: 1, Page: 4, Pages: 24, MaxSequences: 6, MaxLength: 50, DType: flash.F32},
		"HND": {Layers: 3, KeyHeads: 1, HeadDim: 2, Page: 2, Pages: 40, MaxSequences: 7, DType: flash.F32, HND: true},
	} {
		t.Run(name, func(t *testing.T) {
			steps := 10000
			if testing.Short() {
				steps = 300
			}
			m := newCacheModel(t, testDevice(t), o, [2]int{4, 1}, [2]int{3, 9})
			for i := range steps {
				m.strict = i%4 == 0
				m.operate()
			}
			t.Log(m.seen)
			for _, what := range []string{"add", "fork", "truncate", "drop", "free", "free again refused", "step", "compared",
				"step out of pages"} {
				require.Positive(t, m.seen[what], what)
			}
			require.NoError(t, m.c.Close())
		})
	}
}
