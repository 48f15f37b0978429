package kvcache

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/paging"
)

// Options sets up a Cache. It takes, for each layer, a pool of Pages·KeyHeads·Page rows of HeadDim elements and one of as many rows of
// ValueDim.
type Options struct {
	Layers, KeyHeads  int
	HeadDim, ValueDim int // ValueDim 0 means HeadDim
	Page              int // tokens of a page, a power of two from 1 to 512; kernels are fast from 16 on
	Pages             int // that all sequences share
	MaxSequences      int // at a time
	// of a sequence, in tokens, dropped ones among them; 0 means Pages·Page. Kernels are chosen for it: as large as need be, no larger
	MaxLength          int
	DType              flash.DType
	KeyType, ValueType flash.DType // of the pools, where they are quantised: flash.Q8_0 or a type after it; 0 means DType
	HND                bool        // memory of a page is [KeyHeads, Page, ·]; else [Page, KeyHeads, ·] (NHD)

	// Of types F8E4M3 and F8E5M2 an element stands for itself times the scale of its layer and key head, [Layers, KeyHeads] in row-major
	// order: the same one for all sequences, for they share pages. nil means 1.
	KeyScales, ValueScales []float32
}

// Sequence names a sequence of a Cache. The zero value names none. A name is good until Free, and never comes again.
type Sequence = paging.Sequence

// OutOfPagesError says how many pages a step needs and how many are free.
type OutOfPagesError = paging.OutOfPagesError

// Sentinel errors of a Cache; match them with errors.Is.
var (
	// ErrOutOfPages means that too few pages are free. The error itself is an *OutOfPagesError.
	ErrOutOfPages = paging.ErrOutOfPages
	// ErrUnknownSequence means that the cache has no such sequence: it is another cache's, the zero value, or was freed.
	ErrUnknownSequence = paging.ErrUnknownSequence
	// ErrFreedSequence is the ErrUnknownSequence of a sequence that the cache had and that was freed.
	ErrFreedSequence = paging.ErrFreedSequence
	// ErrTooManySequences means that the cache has as many sequences as it can have, Options.MaxSequences.
	ErrTooManySequences = paging.ErrTooManySequences
)

// Cache keeps keys and values of sequences of tokens, those of all layers, in pages of pools on a device (Kwon et al., "Efficient Memory
// Management for Large Language Model Serving with PagedAttention", 2023, section 4; [flash.Pages]). A sequence takes a page only when it
// reaches it. Forked sequences share pages; one that writes into a shared page gets a copy of it first. A page is free as soon as no
// sequence has it.
//
// A Cache says which page holds which tokens; a [Batch] brings that to the device, in tensors that plans take. Neither makes memory,
// plans or pipelines once they are there: one plan and one recording serve sequences of all lengths.
//
// Pages are given out again as soon as they are free, for what is submitted takes effect in order on one queue. A program that submits to
// several waits before it frees, truncates or drops what another queue may be reading.
//
// A Cache may be used from several goroutines.
type Cache struct {
	dev       *flash.Device
	env       *kernel.Env
	options   Options // with defaults filled in
	pools     []poolTensors
	buffers   []poolBuffer
	maxLength int

	mu       sync.Mutex
	pages    *paging.Manager
	versions []uint64 // by slot of a sequence: how often entries of its table became others, but by Drop
	staged   *Batch   // whose step has not been submitted
	batches  map[*Batch]struct{}
	closed   bool
}

// poolTensors are the pools of a layer.
type poolTensors struct{ k, v *flash.Tensor }

// poolBuffer is pools of several layers, of keys or of values, in one buffer, of which they are views.
type poolBuffer struct {
	whole *flash.Tensor
	pools kernel.CachePools
}

// copied lists the buffers for the kernel that copies pages.
func (c *Cache) copied() (out []kernel.CachePools) {
	for _, b := range c.buffers {
		out = append(out, b.pools)
	}
	return out
}

// mostLayers is the workgroups that every device allows in one dimension.
const mostLayers = 65535

// New allocates all that a cache needs. The error is an [*flash.ArgumentError] that names an option, a [*flash.MemoryError] where there is
// no room for the pools, an [*flash.UnsupportedError] where the device cannot have rows of such a type.
func New(d *flash.Device, o Options) (_ *Cache, err error) {
	defer within.During("kvcache.New", &err)
	if o.ValueDim == 0 {
		o.ValueDim = o.HeadDim
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	pages, err := paging.New(paging.Options{Pages: o.Pages, Page: o.Page, MaxSequences: o.MaxSequences, MaxLength: o.MaxLength})
	if err != nil {
		return nil, within.Public(err)
	}
	env, err := within.Env(d)
	if err != nil {
		return nil, err
	}
	rows := kernel.Rows{DType: attn.DType(o.DType), KeyType: attn.DType(o.KeyType), ValueType: attn.DType(o.ValueType)}
	if why := env.Caps.LacksRows(&rows); why != "" {
		return nil, &flash.UnsupportedError{What: fmt.Sprintf("Cache of %v", o.DType), Reasons: []string{why}}
	}
	o.KeyScales, o.ValueScales = slices.Clone(o.KeyScales), slices.Clone(o.ValueScales)
	c := &Cache{dev: d, env: env, options: o, pages: pages, maxLength: pages.MaxLength(), pools: make([]poolTensors, o.Layers),
		versions: make([]uint64, o.MaxSequences), batches: map[*Batch]struct{}{}}
	keys, err := o.pool(env, "HeadDim", o.KeyType, o.HeadDim)
	if err != nil {
		return nil, err
	}
	values, err := o.pool(env, "ValueDim", o.ValueType, o.ValueDim)
	if err != nil {
		return nil, err
	}
	if err := within.RoomFor(d, "cache", append(keys.sizes(), values.sizes()...)); err != nil {
		return nil, err
	}
	err = c.allocate(&keys, func(layer int, t *flash.Tensor) { c.pools[layer].k = t })
	if err == nil {
		err = c.allocate(&values, func(layer int, t *flash.Tensor) { c.pools[layer].v = t })
	}
	if err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

// check checks the fields that are not internal/paging's.
func (o *Options) check() error {
	for _, f := range []struct {
		name        string
		value, most int
	}{{"Layers", o.Layers, mostLayers}, {"KeyHeads", o.KeyHeads, math.MaxInt32 / 2}, {"HeadDim", o.HeadDim, flash.MaxHeadDim},
		{"ValueDim", o.ValueDim, flash.MaxHeadDim}} {
		if f.value < 1 || f.value > f.most {
			return badArgument("Options."+f.name, f.value, "must be from 1 to %d", f.most)
		}
	}
	if o.DType > flash.BF16 {
		return badArgument("Options.DType", uint8(o.DType), "must be F32, F16 or BF16")
	}
	for _, x := range []struct {
		name    string
		t       *flash.DType
		dimName string
		dim     int
		scales  []float32
	}{{"Key", &o.KeyType, "HeadDim", o.HeadDim, o.KeyScales}, {"Value", &o.ValueType, "ValueDim", o.ValueDim, o.ValueScales}} {
		err := attn.CheckStored("Options."+x.name+"Type", attn.DType(*x.t), attn.DType(o.DType), "Options."+x.dimName, x.dim)
		if err != nil {
			return within.Public(err)
		}
		if !attn.DType(*x.t).Quantised() {
			*x.t = o.DType
		}
		name := "Options." + x.name + "Scales"
		if x.scales != nil && !attn.DType(*x.t).Float8() {
			return badArgument(name, len(x.scales), "must be nil where %sType is neither F8E4M3 nor F8E5M2", x.name)
		}
		if x.scales != nil && (o.Layers > len(x.scales) || len(x.scales)%o.Layers != 0 || len(x.scales)/o.Layers != o.KeyHeads) {
			return badArgument("len("+name+")", len(x.scales), "must be Layers·KeyHeads = %d·%d", o.Layers, o.KeyHeads)
		}
		for i, s := range x.scales {
			if !(s > 0 && s <= math.MaxFloat32) {
				return badArgument(fmt.Sprintf("%s[%d]", name, i), s, "must be above 0 and finite")
			}
		}
	}
	return nil
}

// poolLayout is where the pools of keys, or of values, lie: in buffers of several, those of one layer behind those of another.
type poolLayout struct {
	dtype          flash.DType
	shape, strides [4]int
	pool           kernel.CachePools // Pools is how many there are in a buffer, less in the last one
	layers         int
}

// poolAlignment is what every device lets a binding begin at.
const poolAlignment = 256

// pool lays out the pools of rows of dim elements. A buffer holds as many as one binding may, so that the copying of pages needs few
// dispatches.
func (o *Options) pool(env *kernel.Env, dimName string, t flash.DType, dim int) (poolLayout, error) {
	l := poolLayout{dtype: t, shape: [4]int{o.Pages, o.KeyHeads, o.Page, dim}, layers: o.Layers}
	dtype, inPage := attn.DType(t), [4]int{1, o.KeyHeads, o.Page, dim}
	page, ok := attn.Elements(inPage)
	for ok && page <= math.MaxUint32 && dtype.Bytes(int(page))%kernel.PoolUnit != 0 {
		page += uint64(dtype.Block())
	}
	if !ok || page > math.MaxUint32 || page*uint64(o.Pages) > math.MaxUint32 {
		return l, badArgument("Options."+dimName, dim, "a pool of %v pages would have more than 2³²−1 elements", l.shape)
	}
	if l.strides = attn.ContiguousBNHD(inPage); o.HND {
		l.strides = attn.Contiguous(inPage)
	}
	l.strides[0] = int(page)
	bytes := uint64(dtype.Bytes(int(page)))
	l.pool.PageBytes, l.pool.PoolBytes = bytes, (bytes*uint64(o.Pages)+poolAlignment-1)/poolAlignment*poolAlignment
	limits := &env.Caps.Facts.Limits
	most := limits.MaxStorageBufferRange
	for _, n := range []uint64{limits.MaxBufferSize, limits.MaxAllocationSize} {
		if n != 0 {
			most = min(most, n)
		}
	}
	if l.pool.PoolBytes > most {
		return l, badArgument("Options.Pages", o.Pages, "a pool of %d bytes passes the %d bytes that one binding can hold on this "+
			"device",
			l.pool.PoolBytes, most)
	}
	l.pool.Pools = int(min(most/l.pool.PoolBytes, uint64(o.Layers)))
	return l, nil
}

// sizes are those of the buffers.
func (l *poolLayout) sizes() (bytes []uint64) {
	for layer := 0; layer < l.layers; layer += l.pool.Pools {
		bytes = append(bytes, uint64(min(l.pool.Pools, l.layers-layer))*l.pool.PoolBytes)
	}
	return bytes
}

// allocate allocates the buffers and makes the tensor of each layer's pool.
func (c *Cache) allocate(l *poolLayout, put func(layer int, t *flash.Tensor)) error {
	layer := 0
	for _, size := range l.sizes() {
		whole, err := within.Allocate(c.dev, "cache", attn.Int32, [4]int{1, 1, 1, int(size / 4)})
		if err != nil {
			return err
		}
		buffer := poolBuffer{whole: whole, pools: l.pool}
		buffer.pools.Pools = int(size / l.pool.PoolBytes)
		c.buffers = append(c.buffers, buffer)
		for i := range buffer.pools.Pools {
			t, err := whole.View(uint64(i)*l.pool.PoolBytes, l.dtype, l.shape, l.strides)
			if err != nil {
				return err
			}
			put(layer, t)
			layer++
		}
	}
	return nil
}

// Pools are the pools of a layer, K and V of [flash.Forward], KeyCache and ValueCache of [rows.Append]: of shape [Pages, KeyHeads, Page,
// ·]. A page has one number in the pools of all layers. They are nil for a layer out of range. The cache closes them.
func (c *Cache) Pools(layer int) (k, v *flash.Tensor) {
	if c == nil || layer < 0 || layer >= len(c.pools) {
		return nil, nil
	}
	return c.pools[layer].k, c.pools[layer].v
}

// Options are those that the cache was made with, defaults filled in.
func (c *Cache) Options() Options {
	if c == nil {
		return Options{}
	}
	o := c.options
	o.MaxLength = c.maxLength
	o.KeyScales, o.ValueScales = slices.Clone(o.KeyScales), slices.Clone(o.ValueScales)
	return o
}

// lock says why nothing can be done with the cache, or locks it.
func (c *Cache) lock() error {
	if c == nil || c.dev == nil {
		return badArgument("Cache", "nil or zero", "must come from kvcache.New")
	}
	c.mu.Lock()
	_, err := within.Env(c.dev)
	if c.closed {
		err = fmt.Errorf("%w: Cache", flash.ErrClosed)
	}
	if err != nil {
		c.mu.Unlock()
	}
	return err
}

// Close closes the cache's batches and frees its pools, after waiting for work of this library that uses them. Closing again does nothing.
func (c *Cache) Close() (err error) {
	defer within.During("Cache.Close", &err)
	if c == nil || c.dev == nil {
		return nil
	}
	c.mu.Lock()
	closed, batches := c.closed, c.batches
	c.closed, c.batches, c.staged = true, nil, nil
	c.mu.Unlock()
	if closed {
		return nil
	}
	for b := range batches {
		err = errors.Join(err, b.release())
	}
	return errors.Join(err, c.release())
}

// release frees the pools.
func (c *Cache) release() (err error) {
	for _, b := range c.buffers {
		err = errors.Join(err, b.whole.Close())
	}
	return err
}
