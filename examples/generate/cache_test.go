package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
)

func newTestSlots(t *testing.T, dev *flash.Device, m *model, kind flash.DType, n int) *slots {
	t.Helper()
	cache, err := newSlots(dev, m.config, kind, n, 256)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cache.close()) })
	return cache
}

// bounds of a logit's difference between a pass over a cache and one over the whole sequence in fp32. Logits are some units large. fp16 rounds
// queries, keys, values and outputs of three layers to 11 bits.
var bounds = map[flash.DType]float64{flash.F32: 1e-4, flash.F16: 2e-2}

// TestCachedLogits: a text that goes into a cache in pieces, a prompt of more than one chunk and then token by token, past the window, has the logits of
// a forward pass over all of it; so has another in the slot beside it, which comes later and goes sooner.
func TestCachedLogits(t *testing.T) {
	dev, ctx, m := open(t), context.Background(), saved(t)
	tokens, err := m.encode(sonnets.Text[:150])
	require.NoError(t, err)
	const from = 700
	other, err := m.encode(sonnets.Text[from : from+40])
	require.NoError(t, err)
	full := func(tokens []int) *pass {
		a, err := newWholeAttention(dev, m.config, 1, len(tokens), 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, a.close()) }()
		p, err := m.forward(ctx, a, tokens)
		require.NoError(t, err)
		return p
	}
	want, wantOther := full(tokens), full(other)
	for _, kind := range []flash.DType{flash.F16, flash.F32} {
		worst := 0.0
		cache := newTestSlots(t, dev, m, kind, 3)
		same := func(want *pass, at int, got *pass, row int) {
			for c, x := range m.row(got, row) {
				worst = math.Max(worst, math.Abs(float64(x-m.row(want, at)[c])))
			}
			require.LessOrEqual(t, worst, bounds[kind], "%v, token %d", kind, at)
		}
		gone, err := cache.add() // its slot holds what the next sequence must not see
		require.NoError(t, err)
		a, err := cache.add()
		require.NoError(t, err)
		prompt := chunk + 8
		pass := func(rows []int, batch ...part) *pass {
			require.NoError(t, cache.begin(ctx, batch))
			p, err := m.forward(ctx, cache, rows)
			require.NoError(t, err)
			return p
		}
		pass(tokens[50:50+chunk], part{gone, chunk})
		cache.remove(gone)
		p := pass(tokens[:chunk], part{a, chunk})
		for i := range chunk {
			same(want, i, p, i)
		}
		p = pass(tokens[chunk:prompt], part{a, prompt - chunk})
		for i := range prompt - chunk {
			same(want, chunk+i, p, i)
		}
		b := -1
		const enters, leaves = 60, 90
		for i := prompt; i < len(tokens); i++ {
			if i == enters {
				b, err = cache.add()
				require.NoError(t, err)
				require.Equal(t, gone, b)
				p = pass(other[:10], part{b, 10})
				for j := range 10 {
					same(wantOther, j, p, j)
				}
			}
			if i == leaves {
				cache.remove(b)
				b = -1
			}
			if b < 0 {
				same(want, i, pass(tokens[i:i+1], part{a, 1}), 0)
				continue
			}
			at := 10 + i - enters
			p = pass([]int{other[at], tokens[i]}, part{b, 1}, part{a, 1}) // in any order
			same(wantOther, at, p, 0)
			same(want, i, p, 1)
		}
		t.Logf("%v: logits differ by up to %.2g (bound %g)", kind, worst, bounds[kind])
	}
}

// TestBatchTellsNoDifference: texts that are written together, more than there are slots, of different lengths, are those written alone. The same
// seed gives the same text, another seed another.
func TestBatchTellsNoDifference(t *testing.T) {
	dev, ctx, m := open(t), context.Background(), saved(t)
	by := sampling{temperature: 0.8, topK: 20}
	cache := newTestSlots(t, dev, m, flash.F16, 2)
	queue := []request{
		{"Shall I compare thee to a summer's day?\nThou art", 40, 1}, // more than a chunk
		{"My", 7, 2},
		{"And yet, by heaven", 70, 3}, // past the window
		{"O no! it is an ever-fixed", 0, 4},
		{"Love", 25, 5},
	}
	together, steps, err := m.generate(ctx, cache, 2, by, queue)
	require.NoError(t, err)
	require.Len(t, together, len(queue))
	said := 0
	for i, r := range queue {
		require.True(t, strings.HasPrefix(together[i], r.prompt))
		said += len(together[i]) - len(r.prompt)
		alone, _, err := m.generate(ctx, cache, 2, by, queue[i:i+1])
		require.NoError(t, err)
		require.Equal(t, alone[0], together[i], "prompt %d", i)
	}
	require.Less(t, steps, said*2/3, "two at a time")
	last := queue[2]
	last.seed++
	changed, _, err := m.generate(ctx, cache, 2, by, []request{last})
	require.NoError(t, err)
	require.NotEqual(t, together[2], changed[0])
	require.Equal(t, []bool{false, false}, cache.used)
}

// TestBadCacheUse: the cache refuses what has no place in it.
func TestBadCacheUse(t *testing.T) {
	dev, ctx, m := open(t), context.Background(), saved(t)
	cache := newTestSlots(t, dev, m, flash.F16, 1)
	require.ErrorContains(t, cache.begin(ctx, []part{{0, 1}}), "no sequence 0")
	s, err := cache.add()
	require.NoError(t, err)
	_, err = cache.add()
	require.ErrorContains(t, err, "all of the 1 slots are in use")
	require.ErrorContains(t, cache.begin(ctx, []part{{s, chunk + 1}}), fmt.Sprint("at most ", chunk))
	for range 256 / chunk {
		require.NoError(t, cache.begin(ctx, []part{{s, chunk}}))
	}
	require.ErrorContains(t, cache.begin(ctx, []part{{s, 1}}), "room for 256")
}
