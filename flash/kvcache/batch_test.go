package kvcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/vk"
)

// smallCache are options that suit most tests.
var smallCache = Options{Layers: 2, KeyHeads: 2, HeadDim: 4, Page: 4, Pages: 16, MaxSequences: 4, MaxLength: 40, DType: flash.F32}

func mustCache(t testing.TB, d *flash.Device, o Options) *Cache {
	t.Helper()
	c, err := New(d, o)
	require.NoError(t, err)
	return c
}

func mustBatch(t testing.TB, c *Cache, rows, tokens int) *Batch {
	t.Helper()
	b, err := c.NewBatch(rows, tokens)
	require.NoError(t, err)
	return b
}

func mustAdd(t testing.TB, c *Cache) Sequence {
	t.Helper()
	s, err := c.Add()
	require.NoError(t, err)
	return s
}

// take makes a step and waits for it.
func take(t testing.TB, b *Batch, requests ...Request) {
	t.Helper()
	require.NoError(t, b.Step(requests))
	require.NoError(t, b.Submit())
	require.NoError(t, b.Wait(bg))
}

// edits is the number of words that the latest step edits.
func (b *Batch) edits() int {
	return int(binary.NativeEndian.Uint32(b.slots[b.now].staging.Mapped()))
}

// TestStepMemoryClosed: where the device's Close was faster than a step, its memory is gone, and that is ErrClosed.
func TestStepMemoryClosed(t *testing.T) {
	d := testDevice(t)
	c := mustCache(t, d, smallCache)
	defer c.Close()
	b := mustBatch(t, c, 2, 2)
	r := []Request{{Sequence: mustAdd(t, c), Tokens: 1}}
	take(t, b, r...)
	b.slots[(b.now+1)%len(b.slots)].staging.Close()
	require.ErrorIs(t, b.Step(r), flash.ErrClosed)
}

// TestCacheOptions: what cannot be is refused with the option's name, and what can gives pools as it says.
func TestCacheOptions(t *testing.T) {
	d := testDevice(t)
	for argument, spoil := range map[string]func(o *Options){
		"Options.Layers":           func(o *Options) { o.Layers = 0 },
		"Options.KeyHeads":         func(o *Options) { o.KeyHeads = -1 },
		"Options.HeadDim":          func(o *Options) { o.HeadDim = flash.MaxHeadDim + 1 },
		"Options.ValueDim":         func(o *Options) { o.ValueDim = -1 },
		"Options.Page":             func(o *Options) { o.Page = 3 },
		"Options.Pages":            func(o *Options) { o.Pages = 0 },
		"Options.MaxSequences":     func(o *Options) { o.MaxSequences = 0 },
		"Options.MaxLength":        func(o *Options) { o.MaxLength = -1 },
		"Options.DType":            func(o *Options) { o.DType = flash.Int32 },
		"Options.KeyType":          func(o *Options) { o.KeyType = flash.BF16 },
		"Options.ValueType":        func(o *Options) { o.ValueType = flash.Bit },
		"Options.KeyScales":        func(o *Options) { o.KeyScales = []float32{1} },
		"len(Options.ValueScales)": func(o *Options) { o.ValueType, o.ValueScales = flash.F8E4M3, []float32{1, 1} },
		"len(Options.KeyScales)":   func(o *Options) { o.KeyType, o.KeyScales = flash.F8E5M2, []float32{1, 2, 3} },
		"Options.KeyScales[3]":     func(o *Options) { o.KeyType, o.KeyScales = flash.F8E4M3, []float32{1, 1, 1, float32(math.NaN())} },
	} {
		o := smallCache
		spoil(&o)
		_, err := New(d, o)
		requireRefused(t, argument, err)
	}
	blocks := smallCache
	blocks.ValueType, blocks.ValueDim = flash.Q8_0, 33
	_, err := New(d, blocks)
	requireRefused(t, "Options.ValueDim", err)
	huge := smallCache
	huge.Pages, huge.HeadDim = math.MaxInt32/8, flash.MaxHeadDim
	_, err = New(d, huge)
	requireRefused(t, "Options.HeadDim", err)
	large := smallCache
	large.Pages = int(envOf(t, d).Caps.Facts.Limits.MaxStorageBufferRange / 128)
	large.Pages += 1 - large.Pages%2
	if large.Pages*32 < math.MaxUint32 {
		_, err = New(d, large)
		requireRefused(t, "Options.Pages", err)
	}
	many := smallCache // layers for more memory than any device has
	many.Layers, many.Pages = mostLayers, 1<<19
	_, err = New(d, many)
	var memory *flash.MemoryError
	require.ErrorAs(t, err, &memory)
	_, err = New(nil, smallCache)
	requireRefused(t, "Device", err)

	before := d.Usage()
	c := mustCache(t, d, smallCache)
	k, v := c.Pools(1)
	require.Equal(t, [4]int{16, 2, 4, 4}, k.Shape())
	require.Equal(t, [4]int{32, 4, 8, 1}, k.Strides())
	require.Equal(t, k.Shape(), v.Shape())
	for _, layer := range []int{-1, 2} {
		k, v = c.Pools(layer)
		require.Nil(t, k)
		require.Nil(t, v)
	}
	require.Equal(t, smallCache.MaxLength, c.Options().MaxLength)
	require.Equal(t, flash.F32, c.Options().ValueType)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.Equal(t, before.Current, d.Usage().Current)
}

// TestCacheMisuse: what cannot be done is refused, and nothing changes.
func TestCacheMisuse(t *testing.T) {
	d := testDevice(t)
	c := mustCache(t, d, smallCache)
	for _, n := range []int{0, 5} {
		_, err := c.NewBatch(n, 1)
		requireRefused(t, "rows", err)
	}
	for _, n := range []int{0, 41} {
		_, err := c.NewBatch(1, n)
		requireRefused(t, "tokens", err)
	}
	b, other := mustBatch(t, c, 3, 30), mustBatch(t, c, 1, 1)
	s, f := mustAdd(t, c), mustAdd(t, c)
	take(t, b, Request{s, 30}, Request{f, 30}) // all pages
	length := func(want int) {
		t.Helper()
		n, err := c.Length(s)
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.Zero(t, c.FreePages())
	}
	length(30)

	requireRefused(t, "Batch", b.Submit()) // again
	requireRefused(t, "len(requests)", b.Step(make([]Request, 4)))
	requireRefused(t, "requests[1].Tokens", b.Step([]Request{{}, {s, 31}}))
	requireRefused(t, "requests[0].Tokens", b.Step([]Request{{s, -1}}))
	requireRefused(t, "requests[2].Tokens", b.Step([]Request{{}, {}, {s, 11}})) // beyond MaxLength
	requireRefused(t, "requests[2].Sequence", b.Step([]Request{{s, 1}, {}, {s, 1}}))
	require.ErrorIs(t, b.Step([]Request{{Sequence{}, 1}}), ErrUnknownSequence)
	var out *OutOfPagesError
	err := b.Step([]Request{{s, 2}, {f, 7}}) // there is room for what s asks for
	require.ErrorIs(t, err, ErrOutOfPages)
	require.ErrorAs(t, err, &out)
	require.Equal(t, OutOfPagesError{Needed: 2, Free: 0}, *out)
	length(30)
	requireRefused(t, "length", c.Truncate(s, 31))
	requireRefused(t, "before", c.Drop(s, 31))

	unused, err := c.NewBatch(1, 1)
	require.NoError(t, err)
	requireRefused(t, "Batch", unused.Record(1))

	require.NoError(t, b.Step([]Request{{s, 1}}))
	requireRefused(t, "Cache", b.Step([]Request{{s, 1}}))
	requireRefused(t, "Cache", other.Step([]Request{{s, 1}}))
	requireRefused(t, "Batch", other.Submit())
	requireRefused(t, "cmd", b.Record(0))
	require.NoError(t, b.Submit())
	length(31)

	require.NoError(t, c.Free(f))
	require.ErrorIs(t, c.Free(f), ErrFreedSequence)
	require.ErrorIs(t, c.Free(f), ErrUnknownSequence)
	for range 3 {
		mustAdd(t, c)
	}
	_, err = c.Add()
	require.ErrorIs(t, err, ErrTooManySequences)
	_, err = c.Fork(s)
	require.ErrorIs(t, err, ErrTooManySequences)
	_, err = mustCache(t, d, smallCache).Length(s)
	require.ErrorIs(t, err, ErrUnknownSequence)

	require.NoError(t, other.Close())
	require.NoError(t, other.Close())
	require.ErrorIs(t, other.Step(nil), flash.ErrClosed)
	require.NoError(t, c.Close())
	for name, err := range map[string]error{"Step": b.Step(nil), "Submit": b.Submit(), "Free": c.Free(s), "Truncate": c.Truncate(s, 0),
		"Drop":  c.Drop(s, 0),
		"Close": b.Close()} {
		if name == "Close" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, flash.ErrClosed, name)
	}
	_, err = c.Add()
	require.ErrorIs(t, err, flash.ErrClosed)
	_, err = c.NewBatch(1, 1)
	require.ErrorIs(t, err, flash.ErrClosed)
	require.Zero(t, c.FreePages())
}

// TestCacheAfterItsDevice: a device that is closed frees what its caches have.
func TestCacheAfterItsDevice(t *testing.T) {
	d := testDevice(t)
	c := mustCache(t, d, smallCache)
	b := mustBatch(t, c, 1, 1)
	require.NoError(t, b.Step([]Request{{mustAdd(t, c), 1}}))
	require.NoError(t, b.Submit())
	require.NoError(t, d.Close())
	require.ErrorIs(t, b.Step(nil), flash.ErrClosed)
	require.ErrorIs(t, b.Submit(), flash.ErrClosed)
	_, err := c.Add()
	require.ErrorIs(t, err, flash.ErrClosed)
	require.NoError(t, b.Close())
	require.NoError(t, c.Close())
}

// TestCacheStepInFlight: a step can be made while the device has the one before, and no third one until it is done with the first.
func TestCacheStepInFlight(t *testing.T) {
	d := testDevice(t)
	c := mustCache(t, d, smallCache)
	b := mustBatch(t, c, 1, 1)
	s := mustAdd(t, c)
	gate, err := envOf(t, d).Dev.NewTimelineSemaphore(0)
	require.NoError(t, err)
	defer gate.Close()
	pool, err := envOf(t, d).Dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	cmd, err := pool.Allocate()
	require.NoError(t, err)
	require.NoError(t, cmd.Begin(false))
	require.NoError(t, cmd.End())
	fence, err := envOf(t, d).Dev.NewFence(false)
	require.NoError(t, err)
	defer fence.Close()
	request := []Request{{s, 1}}
	// A queue that waits begins nothing that comes later.
	require.NoError(t, envOf(t, d).Dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd},
		Wait: []vk.TimelinePoint{{Semaphore: gate, Value: 1}}, Fence: fence}))
	for range 2 {
		require.NoError(t, b.Step(request))
		require.NoError(t, b.Submit())
	}
	require.ErrorIs(t, b.Step(request), flash.ErrInFlight)
	n, err := c.Length(s)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, gate.Signal(1))
	cancelled, cancel := context.WithCancel(bg)
	cancel()
	require.ErrorIs(t, b.Wait(cancelled), context.Canceled)
	require.NoError(t, fence.Wait(-1))
	require.NoError(t, b.Step(request))
	require.NoError(t, b.Submit())
	require.NoError(t, b.Wait(bg))
	require.Equal(t, []float32{3}, download(t, b.Lengths()))
}

// TestCacheUploadsChanges: what a row's table has already is not written again, and what was dropped is gone with the next step.
func TestCacheUploadsChanges(t *testing.T) {
	d := testDevice(t)
	c := mustCache(t, d, smallCache)
	b, other := mustBatch(t, c, 2, 20), mustBatch(t, c, 2, 20)
	s := mustAdd(t, c)
	const always = 2 * 3 // numbers of each row
	step := func(b *Batch, entries int, requests ...Request) []float32 {
		t.Helper()
		take(t, b, requests...)
		require.Equal(t, entries, b.edits()-always)
		return download(t, b.Table())[:10]
	}
	table := step(b, 2, Request{s, 8})
	require.Equal(t, []float32{0, 1, -1, -1, -1, -1, -1, -1, -1, -1}, table)
	step(b, 1, Request{s, 1})
	require.Equal(t, []float32{0, 1, 2}, step(b, 0, Request{s, 3})[:3])
	step(b, 0) // without it
	step(b, 2, Request{s, 8})
	require.NoError(t, c.Drop(s, 11))
	require.Equal(t, []float32{-1, -1, 2, 3, 4}, step(b, 2, Request{s, 0})[:5])
	step(b, 0, Request{s, 0})

	require.Equal(t, []float32{-1, -1, 2, 3, 4}, step(other, 5, Request{s, 0})[:5]) // another batch knows nothing of it yet
	step(other, 1, Request{s, 1})
	require.Equal(t, []float32{-1, -1, 2, 3, 4}, step(b, 6, Request{s, 0})[:5]) // and changed it
	f, err := c.Fork(s)
	require.NoError(t, err)
	step(b, 12, Request{f, 1}, Request{s, 0}) // both are new in their rows
	step(b, 1, Request{f, 0}, Request{s, 4})
}

// TestCacheRecordings: commands in command buffers of the caller's, one for each memory of a step, serve all steps.
func TestCacheRecordings(t *testing.T) {
	d := testDevice(t)
	c := mustCache(t, d, smallCache)
	b := mustBatch(t, c, 2, 3)
	s := mustAdd(t, c)
	pool, err := envOf(t, d).Dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	fence, err := envOf(t, d).Dev.NewFence(false)
	require.NoError(t, err)
	defer fence.Close()
	var commands [2]*vk.CommandBuffer
	for i := range 9 {
		require.NoError(t, b.Step([]Request{{}, {s, 3}}))
		if i < 2 {
			commands[i], err = pool.Allocate()
			require.NoError(t, err)
			require.NoError(t, commands[i].Begin(false))
			require.NoError(t, b.Record(commands[i].Handle()))
			require.NoError(t, commands[i].End())
		}
		require.NoError(t, envOf(t, d).Dev.Queue().Submit(vk.Submission{Commands: commands[i%2 : i%2+1], Fence: fence}))
		require.NoError(t, fence.Wait(-1))
		require.NoError(t, fence.Reset())
		require.Equal(t, []float32{0, float32(3 * (i + 1))}, download(t, b.Lengths()))
		require.Equal(t, []float32{0, float32(3 * i)}, download(t, b.At()))
		require.Equal(t, []float32{0, 3}, download(t, b.Queries()))
	}
	requireRefused(t, "Batch", b.Submit())
}

// TestCacheCopiesPages: a page that two sequences share is copied when one of them goes on in it, in every layer, keys and values of all
// types and layouts, to the byte, and nothing else is touched, wherever pools lie.
func TestCacheCopiesPages(t *testing.T) {
	d := testDevice(t)
	most := envOf(t, d).Caps.Facts.Limits.MaxStorageBufferRange
	defer func() { envOf(t, d).Caps.Facts.Limits.MaxStorageBufferRange = most }()
	r := rand.New(rand.NewPCG(3, 4))
	for _, o := range []Options{
		{Layers: 3, KeyHeads: 2, HeadDim: 4, ValueDim: 3, Page: 8, DType: flash.F16},
		{Layers: 1, KeyHeads: 1, HeadDim: 1, Page: 2, DType: flash.BF16, HND: true},
		{Layers: 4, KeyHeads: 3, HeadDim: 32, ValueDim: 64, Page: 4, DType: flash.F16, KeyType: flash.Q8_0, ValueType: flash.Q4_0},
		{Layers: 2, KeyHeads: 1, HeadDim: 3, ValueDim: 5, Page: 2, DType: flash.F32, KeyType: flash.F8E4M3, HND: true},
		{Layers: 3, KeyHeads: 1, HeadDim: 32, Page: 2, DType: flash.F16, KeyType: flash.Q5_0, ValueType: flash.Q4_1},
		{Layers: 2, KeyHeads: 4, HeadDim: 128, Page: 32, DType: flash.F16, HND: true},
	} {
		for _, narrow := range []bool{false, true} {
			envOf(t, d).Caps.Facts.Limits.MaxStorageBufferRange = most
			o.Pages, o.MaxSequences = 6, 4
			keys, err := o.pool(envOf(t, d), "HeadDim", o.KeyType, o.HeadDim)
			require.NoError(t, err)
			if narrow { // to two pools of keys a buffer
				envOf(t, d).Caps.Facts.Limits.MaxStorageBufferRange = max(2*keys.pool.PoolBytes, 1<<13)
			}
			c, err := New(d, o)
			require.NoError(t, err)
			b := mustBatch(t, c, 4, 3)
			a := mustAdd(t, c)
			take(t, b, Request{a, 1})
			f, err := c.Fork(a)
			require.NoError(t, err)
			g, err := c.Fork(a)
			require.NoError(t, err)
			var pools []*flash.Tensor
			var contents [][]byte
			for layer := range o.Layers {
				k, v := c.Pools(layer)
				for _, x := range []*flash.Tensor{k, v} {
					raw := make([]byte, x.Bytes())
					for i := range raw {
						raw[i] = byte(r.Uint32())
					}
					require.NoError(t, x.UploadBytes(bg, raw))
					pools, contents = append(pools, x), append(contents, raw)
				}
			}
			take(t, b, Request{}, Request{f, 1}, Request{a, 0}, Request{g, 1})
			for i, x := range pools {
				page := int(flash.DType(x.DType()).Bytes(x.Strides()[0]))
				last := contents[i][:min(page, len(contents[i]))]
				for _, to := range []int{1, 2} {
					copy(contents[i][to*page:], last)
				}
				got := make([]byte, x.Bytes())
				require.NoError(t, x.DownloadBytes(bg, got))
				require.True(t, bytes.Equal(contents[i], got), "%v, narrow %v: pool %d, %v", o, narrow, i, x)
			}
			require.NoError(t, c.Close())
		}
	}
}

// TestCacheScales: of fp8 the scales of a layer's key heads stand in every row.
func TestCacheScales(t *testing.T) {
	d := testDevice(t)
	o := smallCache
	o.KeyType, o.ValueType, o.KeyScales = flash.F8E4M3, flash.F8E5M2, []float32{1, 2, 3, 4}
	b := mustBatch(t, mustCache(t, d, o), 3, 1)
	f := b.Forward(1, flash.Forward{})
	require.Equal(t, []float32{3, 4, 3, 4, 3, 4}, download(t, f.KeyScales))
	require.Equal(t, []float32{1, 1, 1, 1, 1, 1}, download(t, f.ValueScales))
	require.Equal(t, []float32{1, 2, 1, 2, 1, 2}, download(t, b.Append(0, rows.Append{}).KeyScales))
	require.Nil(t, mustBatch(t, mustCache(t, d, smallCache), 3, 1).Forward(1, flash.Forward{}).KeyScales)
}

// TestCacheGoroutines: a cache may be used from several goroutines.
func TestCacheGoroutines(t *testing.T) {
	d := testDevice(t)
	o := smallCache
	o.MaxSequences, o.Pages = 16, 64
	c := mustCache(t, d, o)
	b := mustBatch(t, c, 4, 2)
	var wg sync.WaitGroup
	fail := make(chan error, 4)
	for range 3 {
		wg.Go(func() {
			for range 200 {
				s, err := c.Add()
				if err != nil {
					fail <- err
					return
				}
				f, err := c.Fork(s)
				_, lengthErr := c.Length(f)
				c.FreePages()
				if err := errors.Join(err, lengthErr, c.Truncate(s, 0), c.Drop(s, 0), c.Free(s), c.Free(f)); err != nil {
					fail <- err
					return
				}
			}
		})
	}
	s := mustAdd(t, c)
	for range 20 {
		take(t, b, Request{s, 2})
	}
	wg.Wait()
	select {
	case err := <-fail:
		t.Fatal(err)
	default:
	}
	require.Equal(t, 1, c.Sequences())
	require.Equal(t, []float32{40, 0, 0, 0}, download(t, b.Lengths()))
}
