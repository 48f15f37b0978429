package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/flash/kvcache"
)

var (
	drawn = draw.By{Temperature: 0.8, TopK: 20}
	queue = []request{
		{"Shall I compare thee to a summer's day?\nThou art", 40, 1}, // more than a chunk
		{"Shall I compare thee to a summer's day?\nThou art", 40, 2}, // from one prompt
		{"Shall I compare thee to a summer's day?\nThou art", 45, 3},
		{"My", 7, 2},
		{"And yet, by heaven", 70, 3}, // past the window
		{"O no! it is an ever-fixed", 0, 4},
		{"Love", 25, 5},
	}
)

func mustGenerate(t *testing.T, m *model, c *cache, requests ...request) *generator {
	t.Helper()
	g, err := m.generate(context.Background(), c, drawn, requests)
	require.NoError(t, err)
	require.Len(t, g.texts, len(requests))
	for i, r := range requests {
		require.Equal(t, r.prompt, g.texts[i][:len(r.prompt)])
	}
	requireEmpty(t, c)
	return g
}

// TestBatchTellsNoDifference: texts that are written together, more than run at a time, of different lengths, some forks of one prompt, are
// those written alone. The same seed gives the same text, another seed another.
func TestBatchTellsNoDifference(t *testing.T) {
	dev, m := open(t), saved(t)
	for _, kind := range []string{"f16", "q8_0"} {
		t.Run(kind, func(t *testing.T) {
			c := newTestCache(t, dev, m, kind, cacheOptions{batch: 3, room: 96, page: 16, pages: 24})
			together := mustGenerate(t, m, c, queue...)
			require.Zero(t, together.gaveWay)
			require.Equal(t, 6, together.chunks, "of five prompts, one of two chunks")
			said := 0
			for i, r := range queue {
				said += len(together.texts[i]) - len(r.prompt)
				require.Equal(t, mustGenerate(t, m, c, r).texts[0], together.texts[i], "prompt %d", i)
			}
			require.Less(t, together.passes, said*2/3, "several at a time")
			require.NotEqual(t, together.texts[0], together.texts[1])
			last := queue[4]
			last.seed++
			require.NotEqual(t, together.texts[4], mustGenerate(t, m, c, last).texts[0])
		})
	}
}

// TestPagesRunOut: with pages for one and a half texts, texts wait and give way to those that began before them, and all say what they
// would have. One that can never have enough pages is refused before anything runs.
func TestPagesRunOut(t *testing.T) {
	dev, ctx, m := open(t), context.Background(), saved(t)
	enough := newTestCache(t, dev, m, "f16", cacheOptions{batch: 3, room: 128, page: 8, pages: 40})
	few := newTestCache(t, dev, m, "f16", cacheOptions{batch: 3, room: 128, page: 8, pages: 12})
	want, got := mustGenerate(t, m, enough, queue...), mustGenerate(t, m, few, queue...)
	require.Zero(t, want.gaveWay)
	require.Positive(t, got.gaveWay)
	require.Greater(t, got.passes, want.passes)
	require.Equal(t, want.texts, got.texts)
	require.Equal(t, 12, few.groups[0].most)
	require.LessOrEqual(t, got.gaveWay, 4, "who gave way waits for as many pages as it had")

	// Prompts for which there are no pages wait: nobody gives way.
	long := request{queue[0].prompt + queue[0].prompt[:30], 10, 6}
	waiting := mustGenerate(t, m, few, long, request{"x" + long.prompt[1:], 10, 7})
	require.Zero(t, waiting.gaveWay)
	require.Equal(t, 6, waiting.chunks)
	require.GreaterOrEqual(t, waiting.passes, 18, "one after the other")

	_, err := m.generate(ctx, few, drawn, []request{{"Love", 5, 1}, {long.prompt, 25, 1}})
	require.ErrorContains(t, err, "which take 13 pages of 8, and -pages is 12")
	requireEmpty(t, few)

	// What check has ruled out, here because something else has the pages, is an error all the same.
	other, _ := (&taker{t, m, few}).add(some(t, m, 0, 11*8))
	for _, prompt := range []int{8, 9} { // the text has no second page, or its prompt
		g := &generator{model: m, cache: few, by: drawn, texts: make([]string, 1)}
		g.queue = []*text{{request: request{tokens: 9}, given: some(t, m, 0, prompt)}}
		for err = nil; err == nil; {
			require.Positive(t, len(g.queue)+len(g.running))
			err = g.step(ctx)
		}
		require.ErrorIs(t, err, kvcache.ErrOutOfPages)
		require.NoError(t, g.end())
	}
	require.NoError(t, few.free(other))
	requireEmpty(t, few)
}

// TestPagesInUse: texts from one prompt share its pages, and layers with a window keep no more than the window lies in.
func TestPagesInUse(t *testing.T) {
	dev, m := open(t), saved(t)
	c := newTestCache(t, dev, m, "q8_0", cacheOptions{batch: 4, room: 160, page: 8, pages: 80})
	whole, windowed := c.groups[0], c.groups[1]
	require.Equal(t, []int{0, 32}, []int{whole.window, windowed.window})
	require.Equal(t, 2*2*(32+2), c.bytes(whole), "keys and values of two heads of 32 bytes and a scale")
	prompt := queue[0].prompt + "\n" // 49 characters, 7 pages
	var four []request
	for i := range 4 {
		four = append(four, request{prompt, 6, uint64(i)})
	}
	mustGenerate(t, m, c, four...)
	require.Equal(t, 7+3, whole.most, "six full pages, and the seventh in four copies: the last text keeps the prompt's")

	whole.most, windowed.most = 0, 0
	mustGenerate(t, m, c, request{queue[0].prompt, 100, 1})
	require.Equal(t, (48+100-1+7)/8, whole.most)
	// A chunk is 32 characters and sees 31 before: with pages of 8, 9 at most.
	require.LessOrEqual(t, windowed.most, 9)
}
