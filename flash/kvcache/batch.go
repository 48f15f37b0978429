package kvcache

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/paging"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Batch brings sequences of a [Cache], a row each, with new tokens of each, to the device; [Cache.NewBatch] sets the most rows, and
// the most tokens of a row. A pass over new tokens is
//
//	Step      room for the tokens; what the device has to know is written to memory that it sees
//	Submit    the device takes it over, and copies shared pages that a sequence is about to write
//	          then for each layer: new keys and values are appended, and queries attend (see Problem and AppendProblem)
//
// Its tensors never move. Plans and recordings over them are made once and serve while sequences grow, are forked, end, and change rows;
// nothing is allocated in a pass. A cache can have several batches, one of many rows and one token for decoding, say, and one of few rows
// and many tokens for prompts.
//
// Memory for two steps is there, so that one can be made while the device is busy with the one before. Steps take effect in the order in
// which they are made, those of all batches of a cache: each is submitted before the next is made, and rows that are not in use are length
// 0. Between Step and the append of its tokens in all layers their sequences are neither truncated nor freed.
//
// A batch belongs to one goroutine at a time.
type Batch struct {
	cache        *Cache
	rows, tokens int
	width        int // entries of a row's table
	program      *pass.CacheStep

	words                       *flash.Tensor // all that steps edit: the table, then three numbers of each row
	lengthsAt, atAt, queriesAt  int           // words where those begin
	table, lengths, at, queries *flash.Tensor
	keyScales, valueScales      []*flash.Tensor // of each layer
	owned                       []*flash.Tensor // words and scales

	slots [2]stepSlot

	// What follows is guarded by cache.mu.
	now      int    // slot of the latest step
	stepped  bool   // there has been one
	written  uint64 // bytes of it that the device may not see yet
	foreign  bool   // commands are in command buffers of the caller's, of which nothing is known here
	known    []rowState
	requests []paging.Request
	step     paging.Step
	entries  []int32 // of a table
	closed   bool
}

// stepSlot is memory for a step, with the commands that take it over.
type stepSlot struct {
	*flash.Recording // nil until it is made
	staging          *pipeline.Buffer
}

// rowState is what the device knows of a row's sequence: its table as it is now, but for pages dropped since.
type rowState struct {
	sequence Sequence
	version  uint64
	first    int // position: what stands before it was dropped
}

// NewBatch makes the tensors of a batch of up to rows sequences, with up to tokens new tokens each, and the commands that keep them. The
// error is an [*flash.ArgumentError] or a [*flash.MemoryError].
func (c *Cache) NewBatch(rows, tokens int) (_ *Batch, err error) {
	defer within.During("NewBatch", &err)
	if err := c.lock(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	o := &c.options
	if rows < 1 || rows > o.MaxSequences {
		return nil, badArgument("rows", rows, "must be from 1 to %d, the sequences that there can be", o.MaxSequences)
	}
	if tokens < 1 || tokens > c.maxLength {
		return nil, badArgument("tokens", tokens, "must be from 1 to %d, the longest that a sequence can be", c.maxLength)
	}
	b := &Batch{cache: c, rows: rows, tokens: tokens, width: c.pages.Width(), known: make([]rowState, rows),
		requests: make([]paging.Request, rows)}
	b.step.Placed, b.step.Copies = make([]paging.Placed, 0, rows), make([]paging.Copy, 0, rows)
	b.entries = make([]int32, b.width)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.release())
		}
	}()
	if err := b.makeTensors(); err != nil {
		return nil, err
	}
	most := kernel.CacheStep{Copies: rows, Edits: rows * (b.width + 3)}
	if b.program, err = pass.NewCacheStep(c.env, most, c.copied()); err != nil {
		return nil, within.Fail(c.dev, err)
	}
	for i := range b.slots {
		if err := b.makeSlot(&b.slots[i]); err != nil {
			return nil, err
		}
	}
	c.batches[b] = struct{}{}
	return b, nil
}

// makeTensors makes the tensors, of rows without sequences.
func (b *Batch) makeTensors() error {
	o := &b.cache.options
	const apart = poolAlignment / 4
	each := attn.CeilDiv(b.rows, apart) * apart
	entries := uint64(b.rows) * uint64(b.width) // below 2^28: paging.MaxEntries
	b.lengthsAt = attn.CeilDiv(int(entries), apart) * apart
	b.atAt, b.queriesAt = b.lengthsAt+each, b.lengthsAt+2*each
	n := b.lengthsAt + 3*each
	staging := 8 * (entries + 4*uint64(b.rows) + 1) // what kernel.CacheStep.Bytes will be
	if most := b.cache.env.Caps.Facts.Limits.MaxStorageBufferRange; staging > most || 4*uint64(n) > most {
		return badArgument("rows", b.rows, "their tables, of %d pages each, pass the %d bytes that one binding can hold on this device",
			b.width, most)
	}
	initial := make([]byte, 0, 4*n)
	for i := range n {
		v := uint32(0)
		if i < b.lengthsAt {
			v = math.MaxUint32 // −1: no page
		}
		initial = binary.NativeEndian.AppendUint32(initial, v)
	}
	var err error
	if b.words, err = b.own("cache tables", flash.Int32, n, initial); err != nil {
		return err
	}
	for _, x := range []struct {
		to    **flash.Tensor
		at    int
		shape [4]int
	}{{&b.table, 0, [4]int{1, 1, b.rows, b.width}}, {&b.lengths, b.lengthsAt, [4]int{1, 1, 1, b.rows}},
		{&b.at, b.atAt, [4]int{1, 1, 1, b.rows}}, {&b.queries, b.queriesAt, [4]int{1, 1, 1, b.rows}}} {
		if *x.to, err = b.words.View(uint64(4*x.at), flash.Int32, x.shape, [4]int{}); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		t     flash.DType
		given []float32
		to    *[]*flash.Tensor
	}{{o.KeyType, o.KeyScales, &b.keyScales}, {o.ValueType, o.ValueScales, &b.valueScales}} {
		if attn.DType(x.t).Float8() {
			if *x.to, err = b.scales(x.given); err != nil {
				return err
			}
		}
	}
	return nil
}

// scales makes the tensors of the scales of all layers, [1, 1, rows, KeyHeads] with the same numbers in each row; nil means 1.
func (b *Batch) scales(given []float32) ([]*flash.Tensor, error) {
	o := &b.cache.options
	const apart = poolAlignment / 4
	pitch := attn.CeilDiv(b.rows*o.KeyHeads, apart) * apart
	words := make([]byte, 4*pitch*o.Layers)
	for layer := range o.Layers {
		for i := range b.rows * o.KeyHeads {
			scale := float32(1)
			if given != nil {
				scale = given[layer*o.KeyHeads+i%o.KeyHeads]
			}
			binary.NativeEndian.PutUint32(words[4*(layer*pitch+i):], math.Float32bits(scale))
		}
	}
	all, err := b.own("cache scales", flash.F32, pitch*o.Layers, words)
	if err != nil {
		return nil, err
	}
	out := make([]*flash.Tensor, o.Layers)
	for layer := range out {
		if out[layer], err = all.View(uint64(4*pitch*layer), flash.F32, [4]int{1, 1, b.rows, o.KeyHeads}, [4]int{}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// own makes a tensor of n words that release closes.
func (b *Batch) own(label string, dtype flash.DType, n int, words []byte) (*flash.Tensor, error) {
	t, err := within.Allocate(b.cache.dev, label, attn.DType(dtype), [4]int{1, 1, 1, n})
	if err != nil {
		return nil, err
	}
	b.owned = append(b.owned, t)
	return t, t.UploadBytes(context.Background(), words)
}

// makeSlot makes a step's memory and commands.
func (b *Batch) makeSlot(s *stepSlot) error {
	c := b.cache
	tensors := []*flash.Tensor{b.words}
	for _, buffer := range c.buffers {
		tensors = append(tensors, buffer.whole)
	}
	operands := []*kernel.Operand{{}}
	for _, t := range tensors {
		operands = append(operands, &kernel.Operand{Binding: within.Bound(t)})
	}
	info := kernel.RecordingInfo(b.program.Dispatches(), false)
	rec, err := within.NewRecording(c.dev, access.Commands[*flash.Tensor]{Name: "Batch", Tensors: tensors, Info: info,
		Write: func(w *kernel.Recorder) (err error) {
			if s.staging, err = c.env.Ctx.Alloc("cache steps", b.program.Bytes(), vk.Upload); err != nil {
				return err
			}
			w.Rec.Own(s.staging)
			operands[0].Binding = s.staging.All()
			return b.program.Record(w, operands)
		}}, "")
	if err != nil {
		return err
	}
	s.Recording = rec
	return within.Rewrite(rec, func() error { return nil })
}

// made says why a batch that no cache made cannot be used.
func (b *Batch) made() error {
	if b == nil || b.cache == nil {
		return badArgument("Batch", "nil or zero", "must come from Cache.NewBatch")
	}
	return nil
}

// Table is the table of pages, Int32 [1, 1, rows, ⌈MaxLength/Page⌉]: PageTable of [flash.Forward]. Entries behind a sequence's last page
// have no meaning.
func (b *Batch) Table() *flash.Tensor { return b.views()[0] }

// Lengths are the lengths of the rows' sequences after the step, Int32 [1, 1, 1, rows]: KeyLengths of [flash.Forward]. Rows without a
// sequence have 0.
func (b *Batch) Lengths() *flash.Tensor { return b.views()[1] }

// At are the lengths before the step, and so the positions of the first new tokens, Int32 [1, 1, 1, rows]: At of [rows.Append]. Rows
// without a sequence have 0.
func (b *Batch) At() *flash.Tensor { return b.views()[2] }

// Queries are the numbers of new tokens, Int32 [1, 1, 1, rows]: QueryLengths of [flash.Forward] and Counts of [rows.Append]. Rows without
// a sequence have 0.
func (b *Batch) Queries() *flash.Tensor { return b.views()[3] }

// views are the tensors of a batch that was made.
func (b *Batch) views() [4]*flash.Tensor {
	if b.made() != nil {
		return [4]*flash.Tensor{}
	}
	return [4]*flash.Tensor{b.table, b.lengths, b.at, b.queries}
}

// Problem completes a problem for queries of the new tokens over all that the cache has of their sequences: batch, key heads, dimensions,
// lengths, types and pages. Heads, the mask and scores are the caller's.
func (b *Batch) Problem(p flash.Problem) flash.Problem {
	if b.made() != nil {
		return p
	}
	o := &b.cache.options
	p.Batch, p.KeyHeads, p.QueryLen, p.KeyLen, p.HeadDim, p.ValueDim = b.rows, o.KeyHeads, b.tokens, b.cache.maxLength,
		o.HeadDim, o.ValueDim
	p.DType, p.KeyType, p.ValueType = o.DType, o.KeyType, o.ValueType
	p.KeyLengths, p.QueryLengths, p.Pages = true, true, b.pages()
	return p
}

func (b *Batch) pages() flash.Pages {
	return flash.Pages{Size: b.cache.options.Page, Count: b.cache.options.Pages, PerSequence: b.width}
}

// Forward completes the tensors of a pass of [Batch.Problem] for a layer. Q, O and LSE are the caller's: [rows, Heads, tokens, ·], of
// which the first new tokens of each row are used.
func (b *Batch) Forward(layer int, f flash.Forward) flash.Forward {
	if b.made() != nil {
		return f
	}
	f.K, f.V = b.cache.Pools(layer)
	f.KeyLengths, f.QueryLengths, f.PageTable = b.lengths, b.queries, b.table
	f.KeyScales, f.ValueScales = scalesOf(b.keyScales, layer), scalesOf(b.valueScales, layer)
	return f
}

// AppendProblem completes a problem that writes the new tokens' keys and values into the cache. Rotary, and Heads of queries to be turned
// with the keys, are the caller's: positions are those in the sequences.
func (b *Batch) AppendProblem(p rows.AppendProblem) rows.AppendProblem {
	if b.made() != nil {
		return p
	}
	o := &b.cache.options
	p.Batch, p.KeyHeads, p.Rows, p.HeadDim, p.ValueDim = b.rows, o.KeyHeads, b.tokens, o.HeadDim, o.ValueDim
	p.DType, p.KeyType, p.ValueType = o.DType, o.KeyType, o.ValueType
	p.Counts, p.Pages = true, b.pages()
	return p
}

// Append completes the tensors of a pass of [Batch.AppendProblem] for a layer. K, V, Q and tables of angles are the caller's: [rows,
// heads, tokens, ·], of which the first new tokens of each row are used.
func (b *Batch) Append(layer int, a rows.Append) rows.Append {
	if b.made() != nil {
		return a
	}
	a.KeyCache, a.ValueCache = b.cache.Pools(layer)
	a.At, a.Counts, a.PageTable = b.at, b.queries, b.table
	a.KeyScales, a.ValueScales = scalesOf(b.keyScales, layer), scalesOf(b.valueScales, layer)
	return a
}

// scalesOf are those of a layer, nil where there are none.
func scalesOf(all []*flash.Tensor, layer int) *flash.Tensor {
	if layer < 0 || layer >= len(all) {
		return nil
	}
	return all[layer]
}

// release frees the tensors and the commands, after waiting for what is in flight.
func (b *Batch) release() (err error) {
	for i := range b.slots {
		if s := &b.slots[i]; s.Recording != nil {
			err = errors.Join(err, s.Close())
		}
	}
	for _, t := range b.owned {
		err = errors.Join(err, t.Close())
	}
	return err
}

// Close frees the batch's tensors, after waiting for work of this library that uses them. Sequences stay; those of a step that was not
// submitted have no keys and values then where pages should have been copied. Closing again does nothing.
func (b *Batch) Close() (err error) {
	defer within.During("Batch.Close", &err)
	if b == nil || b.cache == nil {
		return nil
	}
	c := b.cache
	c.mu.Lock()
	closed := b.closed || c.closed // a cache that was closed has closed its batches
	b.closed = true
	delete(c.batches, b)
	if c.staged == b {
		c.staged = nil
	}
	c.mu.Unlock()
	if closed {
		return nil
	}
	return b.release()
}
