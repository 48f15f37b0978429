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
	"github.com/vkattn/vkattn/internal/ref"
)

// cachedLane is a batch of one layer's cache with plans and tensors, and the same attention over keys that lie as tensors.
type cachedLane struct {
	*Batch
	device         *flash.Device
	append         *rows.Recording
	attend         *flash.Recording
	q, k, v, o     *flash.Tensor
	plain          *flash.Plan
	plainK, plainV *flash.Tensor
	lengths        *flash.Tensor
	queries        *flash.Tensor
	plainO         *flash.Tensor
}

// cachedSequence is a sequence with the rows that its tokens have, [KeyHeads·HeadDim] for each.
type cachedSequence struct {
	name Sequence
	k, v [][]float32
}

func (s *cachedSequence) fork(t *testing.T, c *Cache) *cachedSequence {
	f, err := c.Fork(s.name)
	require.NoError(t, err)
	return &cachedSequence{f, slices.Clone(s.k), slices.Clone(s.v)}
}

func newCachedLane(t *testing.T, d *flash.Device, c *Cache, p flash.Problem, n, tokens int) *cachedLane {
	o := c.Options()
	l := &cachedLane{device: d, Batch: mustBatch(t, c, n, tokens)}
	p = l.Problem(p)
	plan, err := d.Plan(p, flash.WithTier(flash.TierScalar))
	if errors.Is(err, flash.ErrUnsupported) && attn.DType(o.KeyType).Quantised() {
		t.Skip(err)
	}
	require.NoError(t, err)
	tensor := plainly(t, d)
	l.q, l.o, l.plainO = tensor(o.DType, p.QShape()), tensor(o.DType, p.OShape()), tensor(o.DType, p.OShape())
	l.k, l.v = tensor(o.DType, [4]int{n, o.KeyHeads, tokens, o.HeadDim}), tensor(o.DType, [4]int{n, o.KeyHeads, tokens, o.ValueDim})
	l.attend, err = plan.NewRecording()
	require.NoError(t, err)
	require.NoError(t, l.attend.Forward(l.Forward(0, flash.Forward{Q: l.q, O: l.o})))
	appending, err := rows.PlanAppend(d, l.AppendProblem(rows.AppendProblem{}))
	require.NoError(t, err)
	l.append, err = appending.NewRecording()
	require.NoError(t, err)
	require.NoError(t, l.append.Append(l.Append(0, rows.Append{K: l.k, V: l.v})))

	p.Pages = flash.Pages{}
	l.plain = mustPlan(t, d, p, flash.WithTier(flash.TierScalar), flash.WithTuning(plan.ForwardInfo().Tuning))
	require.Equal(t, plan.ForwardInfo().Kernel, l.plain.ForwardInfo().Kernel)
	l.plainK, l.plainV = tensor(o.KeyType, p.KShape()), tensor(o.ValueType, p.VShape())
	l.lengths, l.queries = tensor(flash.Int32, [4]int{1, 1, 1, n}), tensor(flash.Int32, [4]int{1, 1, 1, n})
	return l
}

// stored are rows as a cache of this type has them.
func stored(t flash.DType, rows []float32, dim int) []float32 {
	out := slices.Clone(rows)
	for at := 0; at < len(out); at += dim {
		raw := make([]byte, t.Bytes(dim))
		attn.Encode(attn.DType(t), raw, out[at:at+dim])
		attn.Decode(attn.DType(t), out[at:at+dim], raw)
	}
	return out
}

// pass gives sequences, one for each row, nil for none, so many new tokens each, and compares attention of new queries over all of it.
func (l *cachedLane) pass(t *testing.T, r *rand.Rand, p flash.Problem, of []*cachedSequence, tokens int) {
	t.Helper()
	o := l.cache.Options()
	p = l.Problem(p)
	requests := make([]Request, len(of))
	for i, s := range of {
		if s != nil {
			requests[i] = Request{s.name, tokens}
		}
	}
	require.NoError(t, l.Step(requests))
	require.NoError(t, l.Submit())
	q, k, v := randomValues(r, o.DType, l.q.Shape()), randomValues(r, o.DType, l.k.Shape()), randomValues(r, o.DType, l.v.Shape())
	require.NoError(t, errors.Join(l.q.Upload(bg, q), l.k.Upload(bg, k), l.v.Upload(bg, v)))
	pending, err := l.device.Submit(l.append, l.attend)
	require.NoError(t, err)
	require.NoError(t, errors.Join(pending.Wait(bg), l.Wait(bg)))
	got := download(t, l.o)

	// row gives a token's row of a batch's tensor.
	row := func(x []float32, b, i, dim int) (out []float32) {
		for h := range o.KeyHeads {
			out = append(out, x[((b*o.KeyHeads+h)*l.tokens+i)*dim:][:dim]...)
		}
		return out
	}
	plainK, plainV := make([]float32, l.plainK.Elements()), make([]float32, l.plainV.Elements())
	lengths, queries := make([]float32, l.rows), make([]float32, l.rows)
	inK, inV := tensorAt(p.KeyLen, o.HeadDim), tensorAt(p.KeyLen, o.ValueDim)
	for b, s := range of {
		if s == nil {
			continue
		}
		for i := range tokens {
			s.k = append(s.k, stored(o.KeyType, row(k, b, i, o.HeadDim), o.HeadDim))
			s.v = append(s.v, stored(o.ValueType, row(v, b, i, o.ValueDim), o.ValueDim))
		}
		lengths[b], queries[b] = float32(len(s.k)), float32(tokens)
		in := ref.Problem{Q: ref.NewTensor(1, p.Heads, tokens, o.HeadDim), K: ref.NewTensor(1, o.KeyHeads, len(s.k), o.HeadDim),
			V: ref.NewTensor(1, o.KeyHeads, len(s.k), o.ValueDim)}
		in.Causal = ref.BottomRight
		if left, right := p.Window.Reach(); left >= 0 {
			in.Window = &ref.Window{Left: left, Right: right}
		}
		for h := range p.Heads {
			for i := range tokens {
				copy(in.Q.Row(0, h, i), q[((b*p.Heads+h)*l.tokens+i)*o.HeadDim:][:o.HeadDim])
			}
		}
		for h := range o.KeyHeads {
			for j := range s.k {
				copy(in.K.Row(0, h, j), s.k[j][h*o.HeadDim:][:o.HeadDim])
				copy(in.V.Row(0, h, j), s.v[j][h*o.ValueDim:][:o.ValueDim])
				copy(plainK[inK(b*o.KeyHeads+h, j):][:o.HeadDim], s.k[j][h*o.HeadDim:])
				copy(plainV[inV(b*o.KeyHeads+h, j):][:o.ValueDim], s.v[j][h*o.ValueDim:])
			}
		}
		want, _, err := ref.Forward(in)
		require.NoError(t, err)
		yard, _, err := ref.PlainForward(in, ref.DType(o.DType))
		require.NoError(t, err)
		var mine []float64
		for h := range p.Heads {
			for i := range l.tokens {
				of := got[((b*p.Heads+h)*l.tokens+i)*o.ValueDim:][:o.ValueDim]
				if i < tokens {
					mine = append(mine, doubles(of)...)
				} else {
					require.Equal(t, make([]float32, o.ValueDim), of, "a query that is not there")
				}
			}
		}
		if v := ref.CheckOutput(mine, want.Data, yard.Data, ref.DType(o.DType)); !v.OK {
			t.Errorf("row %d, %d keys: %v", b, len(s.k), v)
		}
	}
	require.NoError(t, errors.Join(l.plainK.Upload(bg, plainK), l.plainV.Upload(bg, plainV), l.lengths.Upload(bg, lengths),
		l.queries.Upload(bg, queries)))
	require.NoError(t, l.plain.Forward(bg, flash.Forward{Q: l.q, K: l.plainK, V: l.plainV, O: l.plainO, KeyLengths: l.lengths,
		QueryLengths: l.queries}))
	require.Equal(t, download(t, l.plainO), got, "the same bits as over keys that lie as tensors")
}

// tensorAt gives the element where a row of a tensor of so many rows of a head begins.
func tensorAt(rows, dim int) func(head, row int) int {
	return func(head, row int) int { return (head*rows + row) * dim }
}

// TestCacheAttention: attention over the cache is attention over keys that lie as tensors, to the bit, and the oracle's within its bound,
// while sequences grow, are forked, truncated and freed, and change rows.
func TestCacheAttention(t *testing.T) {
	for name, o := range map[string]Options{
		"fp16": {Layers: 1, KeyHeads: 2, HeadDim: 32, Page: 16, Pages: 24, MaxSequences: 4, MaxLength: 96, DType: flash.F16},
		"fp32, HND": {Layers: 1, KeyHeads: 1, HeadDim: 8, ValueDim: 12, Page: 1, Pages: 200, MaxSequences: 4, MaxLength: 70,
			DType: flash.F32, HND: true},
		"q8_0": {Layers: 1, KeyHeads: 2, HeadDim: 32, Page: 16, Pages: 24, MaxSequences: 4, MaxLength: 96, DType: flash.F16,
			KeyType: flash.Q8_0, ValueType: flash.Q8_0},
		"q5_0 and iq4_nl": {Layers: 1, KeyHeads: 1, HeadDim: 32, Page: 1, Pages: 200, MaxSequences: 4, MaxLength: 70, DType: flash.F16,
			KeyType: flash.Q5_0, ValueType: flash.IQ4_NL},
		"q5_1 and q4_1": {Layers: 1, KeyHeads: 2, HeadDim: 32, ValueDim: 64, Page: 16, Pages: 24, MaxSequences: 4, MaxLength: 96,
			DType: flash.F32, KeyType: flash.Q5_1, ValueType: flash.Q4_1, HND: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := decodeDevice(t)
			c := mustCache(t, d, o)
			p := flash.Problem{Heads: 2 * o.KeyHeads, Causal: flash.CausalBottomRight}
			many, one := newCachedLane(t, d, c, p, 2, 4), newCachedLane(t, d, c, p, 3, 1)
			r := rand.New(rand.NewPCG(11, 12))
			a := &cachedSequence{name: mustAdd(t, c)}
			for range 5 {
				many.pass(t, r, p, []*cachedSequence{a}, 4)
			}
			b := a.fork(t, c)
			one.pass(t, r, p, []*cachedSequence{b, nil, a}, 1)
			f := b.fork(t, c)
			many.pass(t, r, p, []*cachedSequence{f, a}, 3)
			one.pass(t, r, p, []*cachedSequence{a, b, f}, 1)
			require.NoError(t, c.Truncate(a.name, 18))
			a.k, a.v = a.k[:18], a.v[:18]
			require.NoError(t, c.Free(b.name))
			for range 3 {
				one.pass(t, r, p, []*cachedSequence{f, a}, 1)
			}
			again := &cachedSequence{name: mustAdd(t, c)}
			many.pass(t, r, p, []*cachedSequence{again, f}, 4)
			one.pass(t, r, p, []*cachedSequence{again, a, f}, 1)
		})
	}
}

// TestCacheBehindAWindow: pages that a window has left behind are dropped and taken by other sequences, and attention stays what it is over
// all keys.
func TestCacheBehindAWindow(t *testing.T) {
	d := decodeDevice(t)
	const left = 9
	// Two sequences of 70 tokens take at most four pages each at a time.
	c := mustCache(t, d, Options{Layers: 1, KeyHeads: 1, HeadDim: 8, Page: 4, Pages: 8, MaxSequences: 2, MaxLength: 80, DType: flash.F32})
	p := flash.Problem{Heads: 2, Window: flash.SlidingWindow(left, 0)}
	l := newCachedLane(t, d, c, p, 2, 3)
	r := rand.New(rand.NewPCG(13, 14))
	a, b := &cachedSequence{name: mustAdd(t, c)}, &cachedSequence{name: mustAdd(t, c)}
	for i := range 24 {
		of := []*cachedSequence{a, b}
		if i%5 == 4 {
			of[1] = nil // b falls behind
		}
		l.pass(t, r, p, of, 1+i%3)
		for _, s := range of {
			if s != nil {
				require.NoError(t, c.Drop(s.name, len(s.k)-left))
			}
		}
	}
}

// TestCacheSteadyState: a hundred steps of growing sequences take one plan, allocate nothing, and make no pipeline, whether recordings are
// made anew or submitted again.
func TestCacheSteadyState(t *testing.T) {
	d := decodeDevice(t)
	x := newDecoding(t, d, Options{Layers: 1, KeyHeads: 2, HeadDim: 32, Page: 4, Pages: 240, MaxSequences: 4, MaxLength: 240,
		DType: flash.F16})
	for range 2 {
		x.token(t, true)
		x.wait(t)
	}
	before := d.Usage()
	for _, fresh := range []bool{false, true} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			x.token(t, fresh)
			x.wait(t)
		}))
	}
	require.Equal(t, before, d.Usage())
	n, err := x.cache.Length(x.requests[3].Sequence)
	require.NoError(t, err)
	require.Equal(t, 2+2*101, n)
}
