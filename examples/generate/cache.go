package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/flash/rows"
)

// cache keeps keys and values of all layers on the device, in pages of some characters each. A pass over new characters of some sequences
// is a begin, and then an attend for each layer in order, which adds their keys and values to what is there and attends over all of it.
//
// A page of a kvcache.Cache holds its characters' keys and values of all of that cache's layers, so that it can be given back when no layer
// looks at it any more. So layers with a window have a cache of their own, and keep a few pages however long a text gets; those that see
// all keep all.
type cache struct {
	config
	cacheOptions
	owned
	groups          []*group // first the one without a window: the only one whose pages can run out
	of              []place  // of each layer
	decode, prefill *lane    // one new character of up to batch sequences; a chunk of one
	now             *lane    // of the pass that began latest
	parts           []part
	host            []float32
	index           *index // with keep
}

// cacheOptions are sizes of a cache.
type cacheOptions struct {
	dtype  flash.DType // of what the layers compute with
	stored flash.DType // of keys and values in pages, where it is not dtype: flash.Q8_0
	batch  int         // sequences that go forward at a time
	room   int         // characters of the longest sequence
	page   int         // characters of a page
	pages  int         // that all sequences share, for layers without a window
	keep   int         // keys that a new character attends to in layers without a window, chosen by an index; 0: all
}

// chunk is how many characters of a prompt are taken in at once.
const chunk = 32

// sequence is a sequence of each group, all of one length.
type sequence []kvcache.Sequence

// part is n new characters of a sequence.
type part struct {
	sequence
	n int
}

// group is the layers with one window.
type group struct {
	window int // keys that a query sees, itself among them; 0: all
	layers int
	cache  *kvcache.Cache
	most   int // pages in use at once, so far
}

// place is where a layer's keys and values are.
type place struct{ group, layer int }

// lane is tensors and plans for passes over up to tokens new characters of each of up to rows sequences. Two of them serve everything:
// which pages a sequence has, how long it is and how much of it is new are numbers in device memory, so that no plan is made while text is
// generated.
type lane struct {
	rows, tokens int
	qkv          packed
	out, o       *flash.Tensor
	batches      []*kvcache.Batch // of each group, as the plans
	appending    []*rows.Plan
	attending    []*flash.Plan
	requests     []kvcache.Request
	lists        *flash.Tensor // of keys, in layers without a window; nil: they see all
}

func newCache(dev *flash.Device, m config, o cacheOptions) (c *cache, err error) {
	c = &cache{config: m, cacheOptions: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	c.group()
	if c.keep > 0 {
		c.index = &index{config: m, keep: c.keep, keys: map[kvcache.Sequence][][]float32{}}
	}
	for _, g := range c.groups {
		g.cache, err = kvcache.New(dev, kvcache.Options{Layers: g.layers, KeyHeads: m.keyHeads, HeadDim: m.dim, Page: o.page,
			Pages:        c.pagesOf(g),
			MaxSequences: o.batch + 1, MaxLength: o.room, DType: o.dtype, KeyType: o.stored, ValueType: o.stored})
		if err != nil {
			return c, err
		}
		c.owned = append(c.owned, g.cache)
	}
	if c.decode, err = c.newLane(dev, o.batch, 1); err != nil {
		return c, err
	}
	c.prefill, err = c.newLane(dev, 1, min(chunk, o.room))
	return c, err
}

// group puts layers with the same window together.
func (c *cache) group() {
	c.of = make([]place, c.layers)
	for _, window := range []int{0, c.window} {
		g := &group{window: window}
		for i := range c.layers {
			if c.seen(i) == window {
				c.of[i] = place{len(c.groups), g.layers}
				g.layers++
			}
		}
		if g.layers > 0 {
			c.groups = append(c.groups, g)
		}
	}
}

// pagesOf is the pages of a group. A sequence never has more of layers with a window than the window before a chunk and the chunk lie in,
// so that there can be enough for all that run and a prompt.
func (c *cache) pagesOf(g *group) int {
	if g.window == 0 {
		return c.pages
	}
	seen := min(g.window-1+chunk, c.room)
	return (c.batch + 1) * (c.pagesFor(seen-1) + 1)
}

// pagesFor is the pages that so many characters take.
func (c *cache) pagesFor(characters int) int { return (characters + c.page - 1) / c.page }

func (c *cache) newLane(dev *flash.Device, sequences, tokens int) (l *lane, err error) {
	l = &lane{rows: sequences, tokens: tokens}
	if l.qkv, err = c.packed(dev, c.dtype, c.config, sequences, tokens); err != nil {
		return l, err
	}
	if l.out, err = c.rows(dev, c.dtype, sequences, tokens, c.heads*c.dim); err != nil {
		return l, err
	}
	if l.o, err = headsOf(l.out, 0, c.heads, c.dim); err != nil {
		return l, err
	}
	if c.keep > 0 && tokens == 1 {
		if l.lists, err = dev.NewTensor(flash.Int32, sequences, c.keyHeads, 1, c.keep); err != nil {
			return l, err
		}
		c.owned = append(c.owned, l.lists)
	}
	for _, g := range c.groups {
		b, err := g.cache.NewBatch(sequences, tokens)
		if err != nil {
			return l, err
		}
		problem := flash.Problem{Heads: c.heads, Causal: flash.CausalBottomRight, Window: windowOf(g.window)}
		if l.lists != nil && g.window == 0 {
			problem.Lists = flash.Lists{Keys: c.keep, PerHead: true}
		}
		attending, err := c.plan(dev, b.Problem(problem))
		if err != nil {
			return l, err
		}
		// Keys are turned by their positions on their way into the cache, once, not whenever they are read; queries in the same dispatch.
		appending, err := rows.PlanAppend(dev, b.AppendProblem(rows.AppendProblem{Heads: c.heads, Rotary: &rows.Rotary{}}))
		if err != nil {
			return l, err
		}
		c.owned = append(c.owned, appending)
		l.batches, l.attending, l.appending = append(l.batches, b), append(l.attending, attending), append(l.appending, appending)
	}
	return l, nil
}

// add begins an empty sequence.
func (c *cache) add() (sequence, error) {
	s, err := c.each(func(i int, g *group) (kvcache.Sequence, error) { return g.cache.Add() })
	c.index.fork(s, nil)
	return s, err
}

// fork begins a sequence with the characters of another, and without a page of its own: pages are shared until one of the two goes on in
// one, which it gets a copy of then.
func (c *cache) fork(s sequence) (sequence, error) {
	forked, err := c.each(func(i int, g *group) (kvcache.Sequence, error) { return g.cache.Fork(s[i]) })
	c.index.fork(forked, s)
	return forked, err
}

// each begins a sequence in each group.
func (c *cache) each(begin func(i int, g *group) (kvcache.Sequence, error)) (sequence, error) {
	var s sequence
	for i, g := range c.groups {
		begun, err := begin(i, g)
		if err != nil {
			return nil, errors.Join(err, c.free(s))
		}
		s = append(s, begun)
	}
	return s, nil
}

// free ends a sequence and gives its pages back, but for those that others share.
func (c *cache) free(s sequence) (err error) {
	for i := range s {
		err = errors.Join(err, c.groups[i].cache.Free(s[i]))
	}
	c.index.free(s)
	return err
}

// fits says whether there are pages for so many characters of a new sequence, and another page for each of those that run.
func (c *cache) fits(characters, running int) bool {
	g := c.groups[0]
	return g.window > 0 || c.pagesFor(characters)+running <= g.cache.FreePages()
}

// begin says which characters the next pass is over, one part for each row of the lane, and makes room for them. After an error that is
// kvcache.ErrOutOfPages all is as it was before.
func (c *cache) begin(l *lane, parts []part) error {
	c.now, c.parts = l, parts
	for i, g := range c.groups {
		l.requests = l.requests[:0]
		for _, p := range parts {
			if err := g.leave(p.sequence[i]); err != nil {
				return err
			}
			l.requests = append(l.requests, kvcache.Request{Sequence: p.sequence[i], Tokens: p.n})
		}
		if err := l.batches[i].Step(l.requests); err != nil {
			if i > 0 { // those before have made room: this cannot be tried again
				return fmt.Errorf("layers with a window: %v", err)
			}
			return err
		}
		if err := l.batches[i].Submit(); err != nil {
			return err
		}
		g.most = max(g.most, g.used())
	}
	return nil
}

// leave gives back the pages that the window of the next character has left behind.
func (g *group) leave(s kvcache.Sequence) error {
	if g.window == 0 {
		return nil
	}
	n, err := g.cache.Length(s)
	if err != nil {
		return err
	}
	return g.cache.Drop(s, n-(g.window-1))
}

// used is the pages that sequences have now.
func (g *group) used() int { return g.cache.Options().Pages - g.cache.FreePages() }

// attend implements attention for the parts of the pass, one after the other.
func (c *cache) attend(ctx context.Context, layer int, qkv, o []float32) error {
	l, at := c.now, c.of[layer]
	if err := l.qkv.all.Upload(ctx, c.spread(qkv, c.columns())); err != nil {
		return err
	}
	b := l.batches[at.group]
	if err := l.appending[at.group].Append(ctx, b.Append(at.layer, rows.Append{Q: l.qkv.q, K: l.qkv.k, V: l.qkv.v})); err != nil {
		return err
	}
	lists, err := c.list(ctx, at, qkv)
	if err != nil {
		return err
	}
	if err := l.attending[at.group].Forward(ctx, b.Forward(at.layer, flash.Forward{Q: l.qkv.q, O: l.o, Lists: lists})); err != nil {
		return err
	}
	cols := c.heads * c.dim
	c.host = append(c.host[:0], make([]float32, l.rows*l.tokens*cols)...)
	if err := l.out.Download(ctx, c.host); err != nil {
		return err
	}
	for i, p := range c.parts {
		copy(o[:p.n*cols], c.host[i*l.tokens*cols:])
		o = o[p.n*cols:]
	}
	return nil
}

// spread puts the parts, which lie one after the other, into the lane's rows.
func (c *cache) spread(rows []float32, cols int) []float32 {
	l := c.now
	c.host = append(c.host[:0], make([]float32, l.rows*l.tokens*cols)...)
	for i, p := range c.parts {
		copy(c.host[i*l.tokens*cols:], rows[:p.n*cols])
		rows = rows[p.n*cols:]
	}
	return c.host
}

// bytes is what a character takes in a group.
func (c *cache) bytes(g *group) int {
	stored := g.cache.Options()
	return g.layers * c.keyHeads * (stored.KeyType.Bytes(c.dim) + stored.ValueType.Bytes(c.dim))
}
