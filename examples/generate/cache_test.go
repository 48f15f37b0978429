package main

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/internal/attn"
)

func newTestCache(t *testing.T, dev *flash.Device, m *model, kind string, o cacheOptions) *cache {
	t.Helper()
	o.dtype, o.stored = kinds[kind].dtype, kinds[kind].stored
	c, err := newCache(dev, m.config, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.close()) })
	return c
}

// requireEmpty: no sequence is left, and no page in use.
func requireEmpty(t *testing.T, c *cache) {
	t.Helper()
	for _, g := range c.groups {
		require.Zero(t, g.cache.Sequences())
		require.Zero(t, g.used())
	}
}

// some gives characters of the text that the model knows.
func some(t *testing.T, m *model, from, n int) []int {
	tokens, err := m.encode(sonnets.Text[from : from+n])
	require.NoError(t, err)
	return tokens
}

// rounded is attention over whole sequences in fp32 whose queries, keys, values and outputs are rounded on the host as a cache and its
// layers store them.
type rounded struct {
	*wholeAttention
	cacheOptions
}

func (a *rounded) round(t flash.DType, rows []float32, cols, first, heads int) {
	raw := make([]byte, t.Bytes(heads*a.dim))
	for at := first * a.dim; at < len(rows); at += cols {
		x := rows[at : at+heads*a.dim]
		attn.Encode(attn.DType(t), raw, x)
		attn.Decode(attn.DType(t), x, raw)
	}
}

func (a *rounded) attend(ctx context.Context, layer int, qkv, o []float32) error {
	l, x := &a.layers[layer], slices.Clone(qkv)
	a.round(a.dtype, x, a.columns(), 0, a.heads+2*a.keyHeads)
	if err := l.all.Upload(ctx, x); err != nil {
		return err
	}
	if err := a.turn.Rotate(ctx, rows.Rotation{X: l.turned}); err != nil {
		return err
	}
	if err := l.all.Download(ctx, x); err != nil {
		return err
	}
	stored := a.stored
	if stored == 0 {
		stored = a.dtype
	}
	a.round(a.dtype, x, a.columns(), 0, a.heads)
	a.round(stored, x, a.columns(), a.heads, 2*a.keyHeads)
	if err := l.all.Upload(ctx, x); err != nil {
		return err
	}
	if err := a.plans[layer].Forward(ctx, flash.Forward{Q: l.q, K: l.k, V: l.v, O: l.o}); err != nil {
		return err
	}
	err := l.rows.Download(ctx, o)
	a.round(a.dtype, o, a.heads*a.dim, 0, a.heads)
	return err
}

// farthest is the largest difference of two rows of logits.
func farthest(a, b []float32) (worst float64) {
	for i := range a {
		worst = math.Max(worst, math.Abs(float64(a[i]-b[i])))
	}
	return worst
}

// reference is the logits of a forward pass over all of a text in fp32, and how far rounding moves them, that of
// queries, keys, values and outputs alone.
func reference(t *testing.T, dev *flash.Device, m *model, o cacheOptions, tokens []int) (*pass, float64) {
	ctx := context.Background()
	a, err := newWholeAttention(dev, m.config, 1, len(tokens), 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.close()) }()
	want, err := m.forward(ctx, a, tokens)
	require.NoError(t, err)
	moved, err := m.forward(ctx, &rounded{a, o}, tokens)
	require.NoError(t, err)
	return want, farthest(want.logits, moved.logits)
}

// taker takes texts into a cache and keeps the logits of each character.
type taker struct {
	*testing.T
	m *model
	c *cache
}

// pass takes new characters of sequences in, and gives their logits.
func (k *taker) pass(l *lane, parts []part, tokens []int) [][]float32 {
	k.Helper()
	require.NoError(k, k.c.begin(l, parts))
	p, err := k.m.forward(context.Background(), k.c, tokens)
	require.NoError(k, err)
	var out [][]float32
	for i := range tokens {
		out = append(out, k.m.row(p, i))
	}
	return out
}

// add takes a prompt in as the program does.
func (k *taker) add(tokens []int) (s sequence, out [][]float32) {
	k.Helper()
	s, err := k.c.add()
	require.NoError(k, err)
	for piece := range slices.Chunk(tokens, chunk) {
		out = append(out, k.pass(k.c.prefill, []part{{s, len(piece)}}, piece)...)
	}
	return s, out
}

// TestCachedLogits: a text that goes into a cache in pieces, a prompt of more than one chunk and then character by character, past the
// window, has the logits of a forward pass over all of it in fp32, each one; so has another beside it, which comes later and goes sooner,
// and a fork that goes on differently. Pages that were given back hold what others left.
//
// The bound is twice what rounding queries, keys, values and outputs on the host to the types of the cache moves the logits of that forward
// pass, the largest of all characters, and at least 1e-4, for sums in another order. Logits are some units large.
func TestCachedLogits(t *testing.T) {
	dev, m := open(t), saved(t)
	n, enters, forks, leaves := 150, 60, 75, 90
	if testing.Short() {
		n, enters, forks, leaves = 80, 50, 60, 70
	}
	tokens, other := some(t, m, 0, n), some(t, m, 700, 10+leaves-enters)
	forked := slices.Concat(tokens[:forks], some(t, m, 1200, n-forks))
	prompt := chunk + 8
	// What the bound comes to at the most: 0.014 of f16, 0.13 of q8_0 and 0.81 of q5_1, as measured, and a little more.
	for kind, stated := range map[string]float64{"f16": 0.02, "q8_0": 0.15, "q5_1": 0.85, "f32": 1e-4} {
		t.Run(kind, func(t *testing.T) {
			c := newTestCache(t, dev, m, kind, cacheOptions{batch: 3, room: 256, page: 16, pages: 24})
			k := &taker{t, m, c}
			bound, worst := 1e-4, 0.0
			type followed struct {
				sequence
				tokens []int
				at     int
				want   *pass
			}
			follow := func(tokens []int) *followed {
				f := &followed{tokens: tokens}
				var moved float64
				f.want, moved = reference(t, dev, m, c.cacheOptions, tokens)
				bound = math.Max(bound, 2*moved)
				return f
			}
			a, b, fork := follow(tokens), follow(other), follow(forked)
			require.LessOrEqual(t, bound, stated)
			same := func(f *followed, got [][]float32) {
				for _, x := range got {
					worst = math.Max(worst, farthest(x, m.row(f.want, f.at)))
					require.LessOrEqual(t, worst, bound, "character %d", f.at)
					f.at++
				}
			}
			gone, _ := k.add(tokens[50 : 50+2*chunk])
			require.NoError(t, c.free(gone))
			var got [][]float32
			a.sequence, got = k.add(tokens[:prompt])
			same(a, got)
			running := []*followed{a}
			for a.at < n {
				switch a.at {
				case enters:
					b.sequence, got = k.add(other[:10])
					same(b, got)
					running = []*followed{b, a} // in any order
				case forks:
					var err error
					fork.sequence, err = c.fork(a.sequence)
					require.NoError(t, err)
					fork.at = a.at
					running = append(running, fork)
				case leaves:
					require.NoError(t, c.free(b.sequence))
					running = slices.DeleteFunc(running, func(f *followed) bool { return f == b })
				}
				var parts []part
				var latest []int
				for _, f := range running {
					parts, latest = append(parts, part{f.sequence, 1}), append(latest, f.tokens[f.at])
				}
				for i, x := range k.pass(c.decode, parts, latest) {
					same(running[i], [][]float32{x})
				}
			}
			require.Equal(t, n, fork.at)
			require.NoError(t, c.free(a.sequence))
			require.NoError(t, c.free(fork.sequence))
			requireEmpty(t, c)
			t.Logf("logits differ by up to %.2g, bound %.2g", worst, bound)
		})
	}
}

// TestForkAndTruncate: after a fork, both go on as sequences with those characters that were begun anew, to the bit; so does one whose
// latest characters were taken back.
func TestForkAndTruncate(t *testing.T) {
	dev, m := open(t), saved(t)
	for _, kind := range []string{"f16", "q8_0"} {
		t.Run(kind, func(t *testing.T) {
			c := newTestCache(t, dev, m, kind, cacheOptions{batch: 3, room: 96, page: 16, pages: 24})
			k := &taker{t, m, c}
			const prompt = 45
			text, second, draft := some(t, m, 0, 60), some(t, m, 300, 20), some(t, m, 500, 5)
			one := func(s sequence, tokens []int) (out [][]float32) {
				for i := range tokens {
					out = append(out, k.pass(c.decode, []part{{s, 1}}, tokens[i:i+1])...)
				}
				return out
			}
			anew := func(tokens []int) [][]float32 {
				s, _ := k.add(text[:prompt])
				defer func() { require.NoError(t, c.free(s)) }()
				return one(s, tokens)
			}
			first, _ := k.add(text[:prompt])
			fork, err := c.fork(first)
			require.NoError(t, err)
			for _, g := range c.groups {
				require.LessOrEqual(t, g.used(), 3, "all are shared")
			}
			var got [2][][]float32
			for i := range 12 {
				p := k.pass(c.decode, []part{{fork, 1}, {first, 1}}, []int{second[i], text[prompt+i]})
				got[0], got[1] = append(got[0], p[0]), append(got[1], p[1])
			}
			require.Equal(t, anew(second[:12]), got[0])
			require.Equal(t, anew(text[prompt:prompt+12]), got[1])
			require.NotEqual(t, got[0][5], got[1][5])

			one(fork, draft)
			for i, g := range c.groups {
				// Pages that the window left behind cannot be taken back. Between 47 and 62 characters it leaves the same one.
				require.NoError(t, g.cache.Truncate(fork[i], prompt+12))
			}
			require.Equal(t, anew(second)[12:], one(fork, second[12:]))
			require.NoError(t, c.free(fork))
			require.NoError(t, c.free(first))
			requireEmpty(t, c)
		})
	}
}
