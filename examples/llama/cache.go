package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/flash/rows"
)

// cacheOptions are sizes and types of a cache.
type cacheOptions struct {
	room  int    // tokens that there can be
	page  int    // tokens of a page
	chunk int    // tokens of a prompt that are taken in at once
	as    string // what keys and values are stored as
}

// stores are the types of caches by name: that of queries, new keys, values and outputs, and that of rows in the cache.
var stores = func() map[string][2]flash.DType {
	all := map[string][2]flash.DType{"f32": {flash.F32, flash.F32}, "f16": {flash.F16, flash.F16}, "bf16": {flash.BF16, flash.BF16}}
	for _, t := range []flash.DType{flash.Q8_0, flash.Q4_0, flash.Q4_1, flash.Q5_0, flash.Q5_1, flash.IQ4_NL, flash.F8E4M3, flash.F8E5M2} {
		all[t.String()] = [2]flash.DType{flash.F16, t}
	}
	return all
}()

func storeNames() string { return strings.Join(slices.Sorted(maps.Keys(stores)), ", ") }

// cache keeps keys and values of a text, in all layers, in pages on the device, and attends over them.
type cache struct {
	*config
	cacheOptions
	owned
	store           *kvcache.Cache
	text            kvcache.Sequence
	decode, prefill *lane // one new token; a chunk of a prompt
	now             *lane
	tokens          int // of the latest step
}

// owned closes what was made on the device, the latest first.
type owned []interface{ Close() error }

func (o *owned) close() (err error) {
	for _, x := range slices.Backward(*o) {
		err = errors.Join(err, x.Close())
	}
	*o = nil
	return err
}

// lane is tensors and plans for up to so many new tokens. What is in the cache already is numbers in device memory: no plan is made while
// text is generated.
type lane struct {
	tokens     int
	q, k, v, o packed
	batch      *kvcache.Batch
	appending  *rows.Plan
	attending  map[int]*flash.Plan // by the keys that a query sees
	host       []float32
}

// packed is rows that hold one head after the other, and the same memory as heads: attention takes any strides.
type packed struct{ rows, heads *flash.Tensor }

func (o *owned) packed(dev *flash.Device, t flash.DType, tokens, heads, dim int) (p packed, err error) {
	if p.rows, err = dev.NewTensor(t, 1, 1, tokens, heads*dim); err != nil {
		return p, err
	}
	*o = append(*o, p.rows)
	p.heads, err = p.rows.View(0, t, [4]int{1, heads, tokens, dim}, [4]int{tokens * heads * dim, dim, heads * dim, 1})
	return p, err
}

func newCache(dev *flash.Device, m *config, o cacheOptions) (c *cache, err error) {
	types, known := stores[o.as]
	if !known {
		return nil, fmt.Errorf("-cache %q: must be one of %s", o.as, storeNames())
	}
	c = &cache{config: m, cacheOptions: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	options := kvcache.Options{Layers: m.layers, KeyHeads: m.keyHeads, HeadDim: m.dim, ValueDim: m.valueDim, Page: o.page,
		Pages: (o.room + o.page - 1) / o.page, MaxSequences: 1, MaxLength: o.room, DType: types[0]}
	if types[1] != types[0] {
		options.KeyType, options.ValueType = types[1], types[1]
	}
	if c.store, err = kvcache.New(dev, options); err != nil {
		return c, err
	}
	c.owned = append(c.owned, c.store)
	if c.text, err = c.store.Add(); err != nil {
		return c, err
	}
	if c.decode, err = c.newLane(dev, types[0], 1); err != nil {
		return c, err
	}
	c.prefill, err = c.newLane(dev, types[0], min(o.chunk, o.room))
	return c, err
}

func (c *cache) newLane(dev *flash.Device, t flash.DType, tokens int) (l *lane, err error) {
	l = &lane{tokens: tokens, attending: map[int]*flash.Plan{}}
	for _, part := range []struct {
		to         *packed
		heads, dim int
	}{{&l.q, c.heads, c.dim}, {&l.k, c.keyHeads, c.dim}, {&l.v, c.keyHeads, c.valueDim}, {&l.o, c.heads, c.valueDim}} {
		if *part.to, err = c.packed(dev, t, tokens, part.heads, part.dim); err != nil {
			return l, err
		}
	}
	if l.batch, err = c.store.NewBatch(1, tokens); err != nil {
		return l, err
	}
	for layer := range c.layers {
		if seen := c.seen(layer); l.attending[seen] == nil {
			plan, err := dev.Plan(l.batch.Problem(c.problem(layer)))
			if err != nil {
				return l, err
			}
			c.owned, l.attending[seen] = append(c.owned, plan), plan
		}
	}
	// Keys are turned once, on their way into the cache, and queries in the same dispatch.
	l.appending, err = rows.PlanAppend(dev, l.batch.AppendProblem(rows.AppendProblem{Heads: c.heads, Rotary: &c.rotary}))
	if err == nil {
		c.owned = append(c.owned, l.appending)
	}
	return l, err
}

// length is the tokens that the cache has.
func (c *cache) length() int {
	n, _ := c.store.Length(c.text) // of a sequence that there is
	return n
}

// begin makes room for new tokens.
func (c *cache) begin(n int) error {
	if has := c.length(); has+n > c.room {
		return fmt.Errorf("%d tokens and %d more: -room is %d", has, n, c.room)
	}
	c.now, c.tokens = c.prefill, n
	if n == 1 {
		c.now = c.decode
	}
	if err := c.now.batch.Step([]kvcache.Request{{Sequence: c.text, Tokens: n}}); err != nil {
		return err
	}
	return c.now.batch.Submit()
}

// attend implements attention for the tokens that begin made room for.
func (c *cache) attend(ctx context.Context, layer int, q, k, v []float32) ([]float32, error) {
	l := c.now
	for _, part := range []struct {
		to   packed
		from []float32
	}{{l.q, q}, {l.k, k}, {l.v, v}} {
		if err := part.to.rows.Upload(ctx, l.padded(part.from, part.to.rows.Elements())); err != nil {
			return nil, err
		}
	}
	if err := l.appending.Append(ctx, l.batch.Append(layer, rows.Append{Q: l.q.heads, K: l.k.heads, V: l.v.heads})); err != nil {
		return nil, err
	}
	forward := l.batch.Forward(layer, flash.Forward{Q: l.q.heads, O: l.o.heads})
	if err := l.attending[c.seen(layer)].Forward(ctx, forward); err != nil {
		return nil, err
	}
	o := l.padded(nil, l.o.rows.Elements())
	if err := l.o.rows.Download(ctx, o); err != nil {
		return nil, err
	}
	return slices.Clone(o[:c.tokens*c.heads*c.valueDim]), nil
}

// padded gives n numbers that begin with those of x; it is good until it is called again.
func (l *lane) padded(x []float32, n int) []float32 {
	l.host = append(l.host[:0], x...)
	l.host = append(l.host, make([]float32, n-len(x))...)
	return l.host
}

// bytes is what a token takes in all layers.
func (c *cache) bytes() int {
	t := stores[c.as][1]
	return c.layers * c.keyHeads * (t.Bytes(c.dim) + t.Bytes(c.valueDim))
}
