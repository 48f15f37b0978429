package door

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/flash/rows"
)

// CacheOptions is vkattn_cache_options.
type CacheOptions struct {
	DType                                uint32
	Layers, Heads, KeyHeads              uint32
	HeadDim, ValueDim                    uint32
	Page, Pages, MaxSequences, MaxLength uint32
	Rows, Tokens                         uint32 // of a step: sequences, and new tokens of each
}

// Request is vkattn_request: new tokens of a sequence in a step.
type Request struct {
	Sequence uint64 // 0: the row has none
	Tokens   uint32
}

// cache is what a cache's handle names. Calls on one take turns: a step and its layers belong together.
type cache struct {
	mu        sync.Mutex
	device    *device
	options   CacheOptions
	cache     *kvcache.Cache
	batch     *kvcache.Batch
	appending *rows.Plan
	staged    bool // a step was made, and its submission failed
	stepped   bool // a step was submitted, and its sequences are as they were then
	step      []Request
	sequences map[uint64]kvcache.Sequence
	last      uint64
}

var caches = handles[*cache]{kind: "cache"}

// NewCache is vkattn_cache_create.
func NewCache(h Handle, o CacheOptions) (_ Handle, err error) {
	d, err := devices.find(h)
	if err != nil {
		return 0, err
	}
	switch {
	case o.DType > uint32(flash.BF16):
		return 0, bad("options.dtype", o.DType, "must be VKATTN_F32, VKATTN_F16 or VKATTN_BF16")
	case o.Heads == 0 || o.KeyHeads == 0 || o.Heads%o.KeyHeads != 0:
		return 0, bad("options.heads", o.Heads, "must be a multiple of key_heads, %d", o.KeyHeads)
	}
	for _, n := range []struct {
		name string
		n    uint32
	}{{"layers", o.Layers}, {"heads", o.Heads}, {"head_dim", o.HeadDim}, {"value_dim", o.ValueDim}, {"page", o.Page}, {"pages", o.Pages},
		{"max_sequences", o.MaxSequences}, {"max_length", o.MaxLength}, {"rows", o.Rows}, {"tokens", o.Tokens}} {
		if n.n > most {
			return 0, bad("options."+n.name, n.n, "must be at most 2³¹−1")
		}
	}
	if o.ValueDim == 0 {
		o.ValueDim = o.HeadDim
	}
	c := &cache{device: d, options: o, sequences: map[uint64]kvcache.Sequence{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	c.cache, err = kvcache.New(d.Device, kvcache.Options{
		Layers: int(o.Layers), KeyHeads: int(o.KeyHeads), HeadDim: int(o.HeadDim), ValueDim: int(o.ValueDim), Page: int(o.Page),
		Pages: int(o.Pages), MaxSequences: int(o.MaxSequences), MaxLength: int(o.MaxLength), DType: flash.DType(o.DType),
	})
	if err != nil {
		return 0, err
	}
	if c.batch, err = c.cache.NewBatch(int(o.Rows), int(o.Tokens)); err != nil {
		return 0, err
	}
	if c.appending, err = rows.PlanAppend(d.Device, c.batch.AppendProblem(rows.AppendProblem{})); err != nil {
		return 0, err
	}
	return caches.add(c), nil
}

// close frees what there is; the batch is the cache's.
func (c *cache) close() (err error) {
	if c.appending != nil {
		err = c.appending.Close()
	}
	if c.cache != nil {
		err = errors.Join(err, c.cache.Close())
	}
	return err
}

// CloseCache is vkattn_cache_close.
func CloseCache(h Handle) error {
	c, err := caches.take(h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.close()
}

// locked calls f with a cache that nobody else uses meanwhile.
func locked(h Handle, f func(c *cache) error) error {
	c, err := caches.find(h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c)
}

// sequence gives the cache's name of a sequence.
func (c *cache) sequence(n uint64) (kvcache.Sequence, error) {
	s, found := c.sequences[n]
	if !found {
		return s, fmt.Errorf("%w: %d", kvcache.ErrUnknownSequence, n)
	}
	return s, nil
}

// name gives a sequence a number, none of which comes twice.
func (c *cache) name(s kvcache.Sequence) uint64 {
	c.last++
	c.sequences[c.last] = s
	return c.last
}

// changed ends the step of a sequence that was truncated or freed: others may have the pages that its passes would write.
func (c *cache) changed(n uint64) {
	if slices.ContainsFunc(c.step, func(r Request) bool { return r.Sequence == n }) {
		c.stepped, c.step = false, nil
	}
}

// AddSequence is vkattn_cache_add.
func AddSequence(h Handle) (n uint64, err error) {
	err = locked(h, func(c *cache) error {
		s, err := c.cache.Add()
		if err == nil {
			n = c.name(s)
		}
		return err
	})
	return n, err
}

// ForkSequence is vkattn_cache_fork.
func ForkSequence(h Handle, of uint64) (n uint64, err error) {
	err = locked(h, func(c *cache) error {
		s, err := c.sequence(of)
		if err != nil {
			return err
		}
		if s, err = c.cache.Fork(s); err == nil {
			n = c.name(s)
		}
		return err
	})
	return n, err
}

// FreeSequence is vkattn_cache_free.
func FreeSequence(h Handle, n uint64) error {
	return locked(h, func(c *cache) error {
		s, err := c.sequence(n)
		if err != nil {
			return err
		}
		if err := c.cache.Free(s); err != nil {
			return err
		}
		delete(c.sequences, n)
		c.changed(n)
		return nil
	})
}

// TruncateSequence is vkattn_cache_truncate.
func TruncateSequence(h Handle, n, length uint64) error {
	return locked(h, func(c *cache) error {
		s, err := c.sequence(n)
		if err != nil {
			return err
		}
		if length > most {
			return bad("length", length, "must be at most the sequence's")
		}
		if err := c.cache.Truncate(s, int(length)); err != nil {
			return err
		}
		c.changed(n)
		return nil
	})
}

// SequenceLength is vkattn_cache_length.
func SequenceLength(h Handle, n uint64) (length uint64, err error) {
	err = locked(h, func(c *cache) error {
		s, err := c.sequence(n)
		if err != nil {
			return err
		}
		tokens, err := c.cache.Length(s)
		length = uint64(tokens)
		return err
	})
	return length, err
}

// Step is vkattn_cache_step.
func Step(h Handle, requests []Request) error {
	return locked(h, func(c *cache) error {
		if len(requests) > int(c.options.Rows) {
			return bad("requests", len(requests), "must be at most options.rows, %d", c.options.Rows)
		}
		wanted := make([]kvcache.Request, len(requests))
		for i, r := range requests {
			if r.Tokens > c.options.Tokens {
				return bad("requests.tokens", r.Tokens, "must be at most options.tokens, %d", c.options.Tokens)
			}
			if r.Sequence == 0 {
				if r.Tokens > 0 {
					return bad("requests.tokens", r.Tokens, "must be 0 of a row without a sequence")
				}
				continue
			}
			s, err := c.sequence(r.Sequence)
			if err != nil {
				return err
			}
			wanted[i] = kvcache.Request{Sequence: s, Tokens: int(r.Tokens)}
		}
		if c.staged { // it goes first: pages that it copies are its sequences' own by now
			if err := c.batch.Submit(); err != nil {
				return err
			}
			c.staged = false
		}
		// A step without passes has not been waited for, and there is memory for two.
		if err := c.batch.Wait(never); err != nil {
			return err
		}
		before := make([]int, len(wanted))
		for i, w := range wanted {
			if w.Tokens == 0 {
				continue
			}
			var err error
			if before[i], err = c.cache.Length(w.Sequence); err != nil {
				return err
			}
		}
		if err := c.batch.Step(wanted); err != nil {
			return err
		}
		c.staged, c.stepped, c.step = true, false, nil
		if err := c.batch.Submit(); err != nil {
			for i, w := range wanted { // none gets room
				if w.Tokens > 0 {
					err = errors.Join(err, c.cache.Truncate(w.Sequence, before[i]))
				}
			}
			return err
		}
		c.staged, c.stepped, c.step = false, true, slices.Clone(requests)
		return nil
	})
}

// Attend is vkattn_cache_attend.
func Attend(h Handle, layer uint32, o Options, f Forward) error {
	return locked(h, func(c *cache) (err error) {
		if layer >= c.options.Layers {
			return bad("layer", layer, "must be below options.layers, %d", c.options.Layers)
		}
		if !c.stepped {
			return bad("cache", h, "needs a step first (vkattn_cache_step), whose sequences are neither truncated nor freed until "+
				"all layers are done")
		}
		p := &pass{device: c.device, bnhd: o.Layout == uint32(flash.BNHD)}
		defer func() { err = errors.Join(err, p.close()) }()
		out := flash.Forward{Seed: o.Seed, Offset: o.Offset}
		var k, v *flash.Tensor
		if err := p.all(
			argument{"forward.q", f.Q, &out.Q, input, true},
			argument{"forward.k", f.K, &k, input, true},
			argument{"forward.v", f.V, &v, input, true},
			argument{"forward.o", f.O, &out.O, result, true},
			argument{"forward.lse", f.LSE, &out.LSE, resultOf, false},
			argument{"forward.max_logit", f.MaxLogit, &out.MaxLogit, resultOf, false},
			argument{"forward.sinks", f.Sinks, &out.Sinks, statistics, false},
		); err != nil {
			return err
		}
		for _, n := range []struct {
			name   string
			tensor *Tensor
		}{{"forward.bias", f.Bias}, {"forward.mask", f.Mask}, {"forward.query_lengths", f.QueryLengths},
			{"forward.key_lengths", f.KeyLengths}} {
			if n.tensor != nil {
				return bad(n.name, "given", "must be null: the cache knows lengths, and has neither bias nor mask")
			}
		}
		problem := flash.Problem{Heads: int(c.options.Heads), Sinks: f.Sinks != nil, MaxLogit: f.MaxLogit != nil}
		if err := o.apply(&problem); err != nil {
			return err
		}
		plan, err := c.device.Plan(c.batch.Problem(problem))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, plan.Close()) }()
		// All is checked before the cache is written to, so that a call that was refused can be made again.
		if err := c.check(plan, &out, k, v); err != nil {
			return err
		}
		if err := c.appending.Append(never, c.batch.Append(int(layer), rows.Append{K: k, V: v})); err != nil {
			return err
		}
		if err := plan.Forward(never, c.batch.Forward(int(layer), out)); err != nil {
			return err
		}
		return p.deliver()
	})
}

// check compares shapes with those of the plan's problem.
func (c *cache) check(plan *flash.Plan, f *flash.Forward, k, v *flash.Tensor) error {
	p, o := plan.Problem(), &c.options
	for _, n := range []struct {
		name   string
		tensor *flash.Tensor
		want   [4]int
	}{
		{"forward.q", f.Q, p.QShape()}, {"forward.o", f.O, p.OShape()},
		{"forward.k", k, [4]int{int(o.Rows), int(o.KeyHeads), int(o.Tokens), int(o.HeadDim)}},
		{"forward.v", v, [4]int{int(o.Rows), int(o.KeyHeads), int(o.Tokens), int(o.ValueDim)}},
	} {
		if n.tensor.Shape() != n.want || n.tensor.DType() != p.DType {
			return bad(n.name, n.tensor, "must be %v of shape %v", p.DType, n.want)
		}
	}
	return nil
}
