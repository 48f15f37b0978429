package pipeline

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
)

// chain records steps dependent dispatches that throw n words to and fro between two buffers.
func chain(t testing.TB, r *Recording, k *Kernel, a, b *Buffer, n uint32, steps int, spin uint32) {
	for s := range steps {
		args := mixArgs{n: n, add: uint32(s), spin: spin}
		require.NoError(t, r.Dispatch(k, []Access{{a.All(), Read}, {b.All(), Write}}, args.bytes(), groupsFor(n), "step"))
		a, b = b, a
	}
}

func chainWant(v []uint32, steps int, spin, mul uint32) []uint32 {
	a, b := append([]uint32{}, v...), make([]uint32, len(v))
	for s := range steps {
		mixArgs{n: uint32(len(v)), add: uint32(s), spin: spin}.apply(b, a, mul)
		a, b = b, a
	}
	return a
}

// TestChain runs dependent dispatches: any barrier left out gives wrong numbers sooner or later, and a message of the
// synchronisation validation at once.
func TestChain(t *testing.T) {
	c := newContext(t, Options{})
	const n, steps = 1000, 12
	a, b := alloc(t, c, "a", n), alloc(t, c, "b", n)
	k := mixKernel(t, c, 3)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: steps, MaxBindings: 2 * steps, Timestamps: true})
	for round := range 3 {
		in := pattern(n, uint32(round))
		upload(t, c, a, in)
		require.NoError(t, r.Reset())
		chain(t, r, k, a, b, n, steps, 0)
		runAndWait(t, c, r)
		assert.Equal(t, chainWant(in, steps, 0, 3), download(t, c, a, n))
		assert.Equal(t, steps+1, r.Barriers(), "one before each step and one at the end")
	}
}

// TestIndependentDispatchesNeedNoBarrier runs dispatches that share an input and nothing else, then one that needs two of
// their results.
func TestIndependentDispatchesNeedNoBarrier(t *testing.T) {
	c := newContext(t, Options{})
	const n, fan = 500, 6
	src := alloc(t, c, "src", n)
	in := pattern(n, 7)
	upload(t, c, src, in)
	k := mixKernel(t, c, 5)
	sum, err := c.Kernel(KernelInfo{Name: "sum", Code: testModule(t, "sum"), Spec: []vk.SpecConstant{{ID: 0, Value: groupSize}},
		Bindings: 3, PushBytes: 4})
	require.NoError(t, err)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: fan + 1, MaxBindings: 2*fan + 3})
	var outs []*Buffer
	for i := range fan {
		out := alloc(t, c, "out", n)
		outs = append(outs, out)
		args := mixArgs{n: n, add: uint32(i)}
		require.NoError(t, r.Dispatch(k, []Access{{src.All(), Read}, {out.All(), Write}}, args.bytes(), groupsFor(n), ""))
	}
	assert.Equal(t, 1, r.Barriers(), "only the one behind what came before")
	total := alloc(t, c, "total", n)
	require.NoError(t, r.Dispatch(sum, []Access{{outs[0].All(), Read}, {outs[fan-1].All(), Read}, {total.All(), Write}},
		[]byte{n & 255, n >> 8, 0, 0}, groupsFor(n), "sum"))
	assert.Equal(t, 2, r.Barriers())
	runAndWait(t, c, r)
	x, y := make([]uint32, n), make([]uint32, n)
	mixArgs{n: n}.apply(x, in, 5)
	mixArgs{n: n, add: fan - 1}.apply(y, in, 5)
	for i := range x {
		x[i] += y[i]
	}
	assert.Equal(t, x, download(t, c, total, n))
}

// TestMixedOperations goes through fills, copies and dispatches on parts of buffers.
func TestMixedOperations(t *testing.T) {
	c := newContext(t, Options{})
	const n = 256
	a, b := alloc(t, c, "a", 2*n), alloc(t, c, "b", 2*n)
	k := mixKernel(t, c, 1)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 8, MaxBindings: 8})
	require.NoError(t, r.Fill(a.All(), 0xdead, "fill a"))
	require.NoError(t, r.Fill(b.All(), 0xbeef, "fill b"))
	args := mixArgs{n: n, add: 1}
	require.NoError(t, r.Dispatch(k, []Access{{a.Range(0, 4*n), Read}, {b.Range(4*n, 4*n), Write}}, args.bytes(), groupsFor(n), "dispatch"))
	require.NoError(t, r.Copy(a.Range(4*n, 4*n), b.Range(4*n, 4*n), "copy"))
	require.NoError(t, r.Copy(a.Range(4, 4), b.Range(0, 4), "copy one word"))
	runAndWait(t, c, r)
	got := download(t, c, a, 2*n)
	for i, v := range got {
		want := uint32(0xdead)
		if i >= n {
			want = 0xdeae
		} else if i == 1 {
			want = 0xbeef
		}
		require.Equal(t, want, v, "word %d", i)
	}
}

// TestBindAligned reads and writes at every offset that is a multiple of the element size.
func TestBindAligned(t *testing.T) {
	c := newContext(t, Options{})
	const n, room = 100, 400
	src, dst := alloc(t, c, "src", room), alloc(t, c, "dst", room)
	in := pattern(room, 3)
	upload(t, c, src, in)
	k := mixKernel(t, c, 1)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 2, MaxBindings: 2})
	for _, off := range []uint64{0, 1, 2, 3, 15, 16, 63, 64, 65, 299} {
		s, srcOff, err := c.BindAligned(src.Buffer, 4*off, 4*n, 4)
		require.NoError(t, err)
		d, dstOff, err := c.BindAligned(dst.Buffer, 4*(room-n-off), 4*n, 4)
		require.NoError(t, err)
		args := mixArgs{n: n, srcOff: srcOff, dstOff: dstOff}
		require.NoError(t, r.Reset())
		require.NoError(t, r.Fill(dst.All(), 42, ""))
		require.NoError(t, r.Dispatch(k, []Access{{s, Read}, {d, Write}}, args.bytes(), groupsFor(n), ""))
		runAndWait(t, c, r)
		want := make([]uint32, room)
		for i := range want {
			want[i] = 42
		}
		mixArgs{n: n}.apply(want[room-n-off:], in[off:], 1)
		require.Equal(t, want, download(t, c, dst, room), "offset %d", off)
	}
	for _, bad := range []struct{ off, size, elem uint64 }{{2, 4, 4}, {0, 0, 4}, {0, 4 * 10000, 4}, {4 * room, 4, 4}, {0, 4, 3}, {0, 4, 32},
		{^uint64(3), 8, 4}} {
		_, _, err := c.BindAligned(src.Buffer, bad.off, bad.size, bad.elem)
		var arg *ArgumentError
		assert.ErrorAs(t, err, &arg, "%v", bad)
	}
	_, _, err := c.BindAligned(nil, 0, 4, 4)
	assert.Error(t, err)
}

// TestForeignCommandBuffer writes one recording three times into a command buffer that is not its own, between commands that
// are somebody else's.
func TestForeignCommandBuffer(t *testing.T) {
	c := newContext(t, Options{})
	dev := c.Device()
	const n, steps = 300, 4
	a, b := alloc(t, c, "a", n), alloc(t, c, "b", n)
	k := mixKernel(t, c, 7)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: steps, MaxBindings: 2 * steps, Timestamps: true})
	chain(t, r, k, a, b, n, steps, 0)

	pool, err := dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	own, err := pool.Allocate()
	require.NoError(t, err)
	cmd, err := vk.WrapCommandBuffer(dev, own.Handle())
	require.NoError(t, err)
	require.NoError(t, own.Begin(true))
	var before vk.Stream
	before.Fill(vk.BufferRange{Buffer: a.Buffer, Size: 4 * n}, 9)
	require.NoError(t, own.Execute(&before))
	const times = 3
	for range times {
		require.NoError(t, r.Record(cmd))
	}
	require.NoError(t, own.End())
	fence, err := dev.NewFence(false)
	require.NoError(t, err)
	defer fence.Close()
	require.NoError(t, dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{own}, Fence: fence}))
	require.NoError(t, fence.Wait(-1))

	want := make([]uint32, n)
	for i := range want {
		want[i] = 9
	}
	for range times {
		want = chainWant(want, steps, 0, 7)
	}
	assert.Equal(t, want, download(t, c, a, n))
	if r.HasTimestamps() {
		timings, err := r.Timings()
		require.NoError(t, err)
		assert.Len(t, timings, steps)
	}
}

// TestDeclaredUses leaves all synchronisation to the caller, who says so and does it; the validation layer judges.
func TestDeclaredUses(t *testing.T) {
	c := newContext(t, Options{})
	dev := c.Device()
	const n = 200
	a, b, back := alloc(t, c, "a", n), alloc(t, c, "b", n), alloc(t, c, "back", n)
	k := mixKernel(t, c, 3)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 1, MaxBindings: 2})
	for _, x := range []*Buffer{a, b} {
		require.NoError(t, r.Prior(x.All(), Untouched))
		require.NoError(t, r.Next(x.All(), Untouched))
	}
	args := mixArgs{n: n, add: 4}
	require.NoError(t, r.Dispatch(k, []Access{{a.All(), Read}, {b.All(), Write}}, args.bytes(), groupsFor(n), ""))

	pool, err := dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	cmd, err := pool.Allocate()
	require.NoError(t, err)
	var before, after vk.Stream
	before.Fill(vk.BufferRange{Buffer: a.Buffer, Size: 4 * n}, 5)
	before.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageCompute, vk.AccessShaderRead)
	after.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageTransfer, vk.AccessTransferRead)
	after.Copy(back.Buffer, 0, b.Buffer, 0, 4*n)
	require.NoError(t, cmd.Begin(true))
	require.NoError(t, cmd.Execute(&before))
	require.NoError(t, r.Record(cmd))
	require.NoError(t, cmd.Execute(&after))
	require.NoError(t, cmd.End())
	assert.Zero(t, r.Barriers())
	require.NoError(t, dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd}}))
	require.NoError(t, dev.WaitIdle())
	for i, v := range download(t, c, back, n) {
		require.Equal(t, uint32(5*3+4), v, "word %d", i)
	}
}

// TestManyInFlight submits from several goroutines, each with several recordings of one kernel in flight.
func TestManyInFlight(t *testing.T) {
	c := newContext(t, Options{})
	const workers, each, rounds, n, steps = 6, 3, 4, 300, 5
	k := mixKernel(t, c, 3)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := func() error {
				type job struct {
					r    *Recording
					a, b *Buffer
					in   []uint32
					p    *Pending
				}
				jobs := make([]job, each)
				for i := range jobs {
					j := &jobs[i]
					var err error
					if j.r, err = c.NewRecording(RecordingInfo{MaxDispatches: steps, MaxBindings: 2 * steps}); err != nil {
						return err
					}
					defer j.r.Close()
					for _, buf := range []**Buffer{&j.a, &j.b} {
						if *buf, err = c.Alloc("worker", 4*n, vk.DeviceLocal); err != nil {
							return err
						}
						j.r.Own(*buf)
					}
				}
				for round := range rounds {
					for i := range jobs {
						j := &jobs[i]
						j.in = pattern(n, uint32(w*1000+i*100+round))
						if err := c.Upload(context.Background(), j.a.All(), asBytes(j.in)); err != nil {
							return err
						}
						if err := j.r.Reset(); err != nil {
							return err
						}
						chain(t, j.r, k, j.a, j.b, n, steps, 50)
						var err error
						if j.p, err = c.Submit(j.r); err != nil {
							return err
						}
					}
					for i := range jobs {
						j := &jobs[i]
						if err := j.p.Wait(context.Background()); err != nil {
							return err
						}
						got := make([]uint32, n)
						if err := c.Download(context.Background(), j.b.All(), asBytes(got)); err != nil {
							return err
						}
						if want := chainWant(j.in, steps, 50, 3); fmt.Sprint(want) != fmt.Sprint(got) {
							return fmt.Errorf("worker %d, recording %d, round %d: wrong result", w, i, round)
						}
					}
				}
				return nil
			}()
			assert.NoError(t, err)
		}()
	}
	wg.Wait()
	assert.Zero(t, c.Usage().ByLabel["worker"].Current)
}

// TestInFlightRules checks what may not be done to a recording that runs, and that a cancelled Wait waits nevertheless.
func TestInFlightRules(t *testing.T) {
	c := newContext(t, Options{})
	const n = 16 * 1024
	a, b := alloc(t, c, "a", n), alloc(t, c, "b", n)
	upload(t, c, a, pattern(n, 1))
	k := mixKernel(t, c, 3)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 8, MaxBindings: 16})
	chain(t, r, k, a, b, n, 4, 1000)
	p, err := c.Submit(r)
	require.NoError(t, err)
	assert.ErrorIs(t, r.Reset(), ErrInFlight)
	_, err = c.Submit(r)
	assert.ErrorIs(t, err, ErrInFlight)
	assert.ErrorIs(t, r.Fill(a.All(), 0, ""), ErrInFlight)
	_, err = p.Nanoseconds()
	assert.ErrorIs(t, err, ErrInFlight)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, p.Wait(ctx), context.Canceled)
	done, err := p.Done()
	require.NoError(t, err)
	assert.True(t, done, "the device has finished although the context was cancelled")
	assert.NoError(t, p.Wait(context.Background()))
	assert.Equal(t, chainWant(pattern(n, 1), 4, 1000, 3)[:100], download(t, c, a, 100))

	var arg *ArgumentError
	assert.ErrorAs(t, r.Fill(a.All(), 0, ""), &arg, "recorded already")
	_, err = c.Submit(r) // again, as it is
	require.NoError(t, err)
	require.NoError(t, r.Close(), "waits")
	assert.ErrorIs(t, r.Reset(), ErrClosed)
	_, err = c.Submit(r)
	assert.ErrorIs(t, err, ErrClosed)
}

func TestRecordingArguments(t *testing.T) {
	c := newContext(t, Options{})
	k := mixKernel(t, c, 1)
	a, b := alloc(t, c, "a", 64), alloc(t, c, "b", 64)
	good := []Access{{a.All(), Read}, {b.All(), Write}}
	push := make([]byte, 20)
	one := [3]uint32{1, 1, 1}
	limits := c.Facts().Limits
	closed, err := c.Alloc("closed", 256, vk.DeviceLocal)
	require.NoError(t, err)
	closed.Close()
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 2, MaxBindings: 4})
	cases := []struct {
		what string
		call func() error
	}{
		{"k is nil", func() error { return r.Dispatch(nil, good, push, one, "x") }},
		{"len(access) is 1", func() error { return r.Dispatch(k, good[:1], push, one, "x") }},
		{"len(push) is 16", func() error { return r.Dispatch(k, good, push[:16], one, "x") }},
		{"groups is [0 1 1]", func() error { return r.Dispatch(k, good, push, [3]uint32{0, 1, 1}, "x") }},
		{"groups is", func() error { return r.Dispatch(k, good, push, [3]uint32{1, limits.MaxWorkgroupCount[1] + 1, 1}, "x") }},
		{"access[0].Buffer is nil", func() error { return r.Dispatch(k, []Access{{}, good[1]}, push, one, "x") }},
		{"access[1].Buffer is nil or closed", func() error {
			return r.Dispatch(k, []Access{good[0], {Binding{closed.Buffer, 0, 256}, Read}}, push, one, "x")
		}},
		{"access[1].Offset, Size is [0 300]", func() error {
			return r.Dispatch(k, []Access{good[0], {b.Range(0, 300), Write}}, push,
				one, "x")
		}},
		{"access[1].Offset is 1", func() error { return r.Dispatch(k, []Access{good[0], {b.Range(1, 4), Write}}, push, one, "x") }},
		{"access[1].Mode is 9", func() error { return r.Dispatch(k, []Access{good[0], {b.All(), 9}}, push, one, "x") }},
		{"dst.Size is 8", func() error { return r.Copy(a.Range(0, 8), b.Range(0, 4), "x") }},
		{"src.Offset, Size is", func() error { return r.Copy(a.Range(0, 8), b.Range(252, 8), "x") }},
		{"dst.Offset is 2", func() error { return r.Fill(a.Range(2, 4), 0, "x") }},
		{"dst.Size is 6", func() error { return r.Fill(a.Range(0, 6), 0, "x") }},
		{"Stages is 0", func() error { return r.Prior(a.All(), Use{Accesses: vk.AccessShaderRead}) }},
		{"Next: Buffer is nil", func() error { return r.Next(Binding{}, DefaultNext) }},
		{"operation is 3", func() error {
			_ = r.Fill(a.All(), 0, "1")
			_ = r.Fill(a.All(), 0, "2")
			return r.Fill(a.All(), 0, "3")
		}},
		{"must not overlap", func() error { return r.Copy(a.Range(0, 8), a.Range(4, 8), "x") }},
	}
	for _, tc := range cases {
		require.NoError(t, r.Reset())
		err := tc.call()
		require.ErrorContains(t, err, tc.what)
		assert.Equal(t, err, r.Err(), "the error sticks")
		_, err = c.Submit(r)
		assert.ErrorContains(t, err, tc.what)
	}
	require.NoError(t, r.Reset())
	require.NoError(t, r.Dispatch(k, good, push, one, "x"), "and Reset forgets it")

	small := newRecording(t, c, RecordingInfo{MaxDispatches: 2, MaxBindings: 1})
	assert.ErrorContains(t, small.Dispatch(k, good, push, one, "x"), "bindings is 2")
	for _, i := range []RecordingInfo{{}, {MaxDispatches: -1}, {MaxDispatches: 1, MaxBindings: -1}} {
		_, err := c.NewRecording(i)
		assert.Error(t, err)
	}
	assert.Error(t, r.Record(nil))
	other := newContext(t, Options{})
	_, err = other.Submit(r)
	assert.Error(t, err)
	theirs := newRecording(t, other, RecordingInfo{MaxDispatches: 1, MaxBindings: 2})
	assert.ErrorContains(t, theirs.Dispatch(k, good, push, one, "x"), "recording's context")
}

// TestDescriptorReuse records different shapes one after the other with one recording, so that sets are reused, rewritten and
// added, and closes a buffer in between whose place a new one takes.
func TestDescriptorReuse(t *testing.T) {
	c := newContext(t, Options{})
	const n = 128
	k := mixKernel(t, c, 1)
	sum, err := c.Kernel(KernelInfo{Name: "sum", Code: testModule(t, "sum"), Spec: []vk.SpecConstant{{ID: 0, Value: groupSize}},
		Bindings: 3, PushBytes: 4})
	require.NoError(t, err)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 3, MaxBindings: 9})
	src := alloc(t, c, "src", n)
	in := pattern(n, 5)
	upload(t, c, src, in)
	for round := range 12 {
		dst, err := c.Alloc("dst", 4*n, vk.DeviceLocal)
		require.NoError(t, err)
		require.NoError(t, r.Reset())
		want := make([]uint32, n)
		for i := range 3 {
			if (round+i)%2 == 0 {
				args := mixArgs{n: n, add: uint32(i)}
				require.NoError(t, r.Dispatch(k, []Access{{src.All(), Read}, {dst.All(), Write}}, args.bytes(), groupsFor(n), ""))
				args.apply(want, in, 1)
				continue
			}
			require.NoError(t, r.Dispatch(sum, []Access{{src.All(), Read}, {src.All(), Read}, {dst.All(), Write}}, []byte{n, 0, 0, 0},
				groupsFor(n), ""))
			for j := range want {
				want[j] = 2 * in[j]
			}
		}
		runAndWait(t, c, r)
		require.Equal(t, want, download(t, c, dst, n), "round %d", round)
		dst.Close()
	}
}
