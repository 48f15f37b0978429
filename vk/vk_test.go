package vk_test

import (
	_ "embed"
	"encoding/binary"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

//go:embed testdata/affine.spv
var affineBytes []byte

// affine returns the SPIR-V of testdata/affine.comp.
func affine() []uint32 {
	code := make([]uint32, len(affineBytes)/4)
	for i := range code {
		code[i] = binary.LittleEndian.Uint32(affineBytes[4*i:])
	}
	return code
}

// affineInfo describes y = factor·x + add with workgroups of 64.
func affineInfo(factor uint32) vk.PipelineInfo {
	return vk.PipelineInfo{
		Name: "affine", Code: affine(), Bindings: 2, PushBytes: 8,
		Spec: []vk.SpecConstant{{ID: 0, Value: 64}, {ID: 1, Value: factor}},
	}
}

// words is the content of a mapped buffer.
func words(b *vk.Buffer) []uint32 {
	m := b.Mapped()
	return unsafe.Slice((*uint32)(unsafe.Pointer(&m[0])), len(m)/4)
}

func args(n, add uint32) []byte {
	var b [8]byte
	binary.NativeEndian.PutUint32(b[:], n)
	binary.NativeEndian.PutUint32(b[4:], add)
	return b[:]
}

// rig is a pipeline with buffers and all that it takes to run it.
type rig struct {
	dev      *vk.Device
	n        uint32
	x, y     *vk.Buffer // device-local
	up, down *vk.Buffer
	pipeline *vk.ComputePipeline
	pool     *vk.DescriptorPool
	set      vk.DescriptorSet
	commands *vk.CommandPool
	cmd      *vk.CommandBuffer
	fence    *vk.Fence
	queries  *vk.QueryPool
	stream   vk.Stream
}

func newRig(t testing.TB, dev *vk.Device, n, factor uint32) *rig {
	t.Helper()
	r, err := makeRig(dev, n, factor, nil)
	require.NoError(t, err)
	return r
}

func makeRig(dev *vk.Device, n, factor uint32, cache *vk.PipelineCache) (r *rig, err error) {
	r = &rig{dev: dev, n: n}
	size := uint64(4 * n)
	for _, b := range []struct {
		to   **vk.Buffer
		kind vk.MemoryKind
	}{{&r.x, vk.DeviceLocal}, {&r.y, vk.DeviceLocal}, {&r.up, vk.Upload}, {&r.down, vk.Readback}} {
		if *b.to, err = dev.NewBuffer(size, b.kind); err != nil {
			return nil, err
		}
	}
	w := words(r.up)
	for i := range n {
		w[i] = i
	}
	info := affineInfo(factor)
	info.Cache, info.CaptureStats = cache, cache != nil && dev.Enabled().PipelineExecutableInfo
	if r.pipeline, err = dev.NewComputePipeline(info); err != nil {
		return nil, err
	}
	if r.pool, err = dev.NewDescriptorPool(1, 2); err != nil {
		return nil, err
	}
	if r.set, err = r.pool.Allocate(r.pipeline); err != nil {
		return nil, err
	}
	if err = dev.UpdateDescriptors(r.set, []vk.BufferBinding{{Buffer: r.x, Size: r.x.Capacity()},
		{Buffer: r.y, Size: r.y.Capacity()}}); err != nil {
		return nil, err
	}
	if r.commands, err = dev.NewCommandPool(); err != nil {
		return nil, err
	}
	if r.cmd, err = r.commands.Allocate(); err != nil {
		return nil, err
	}
	if r.fence, err = dev.NewFence(false); err != nil {
		return nil, err
	}
	if dev.Queue().TimestampValidBits() > 0 {
		r.queries, err = dev.NewQueryPool(2)
	}
	return r, err
}

// encode fills the stream: upload, poison y, dispatch, download, with timestamps around the dispatch.
func (r *rig) encode(push []byte) {
	s := &r.stream
	s.Reset()
	s.Label("affine")
	size := uint64(4 * r.n)
	s.Copy(r.x, 0, r.up, 0, size)
	s.Fill(vk.BufferRange{Buffer: r.y, Size: vk.WholeSize}, 0xdeadbeef)
	s.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageCompute, vk.AccessShaderRead|vk.AccessShaderWrite,
		vk.BufferRange{Buffer: r.x, Size: vk.WholeSize}, vk.BufferRange{Buffer: r.y, Size: vk.WholeSize})
	if r.queries != nil {
		s.ResetQueries(r.queries, 0, 2)
		s.WriteTimestamp(r.queries, 0, vk.StageCompute)
	}
	s.Bind(r.pipeline, r.set)
	s.Push(push)
	s.Dispatch((r.n+63)/64, 1, 1)
	if r.queries != nil {
		s.WriteTimestamp(r.queries, 1, vk.StageCompute)
	}
	s.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageTransfer, vk.AccessTransferRead)
	s.Copy(r.down, 0, r.y, 0, size)
	s.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageHost, vk.AccessHostRead)
	s.EndLabel()
}

// run records the stream, submits it and waits.
func (r *rig) run() error {
	if err := r.cmd.Begin(true); err != nil {
		return err
	}
	if err := r.cmd.Execute(&r.stream); err != nil {
		return err
	}
	if err := r.cmd.End(); err != nil {
		return err
	}
	cmds := [1]*vk.CommandBuffer{r.cmd}
	if err := r.dev.Queue().Submit(vk.Submission{Commands: cmds[:], Fence: r.fence}); err != nil {
		return err
	}
	if err := r.fence.Wait(time.Minute); err != nil {
		return err
	}
	return r.fence.Reset()
}

func (r *rig) check(t testing.TB, factor, add uint32) {
	t.Helper()
	require.NoError(t, r.down.Invalidate(0, vk.WholeSize))
	got := words(r.down)
	for i := range r.n {
		if want := factor*i + add; got[i] != want {
			t.Fatalf("element %d is %d, want %d", i, got[i], want)
		}
	}
}

func (r *rig) upload(t testing.TB) {
	t.Helper()
	w := words(r.up)
	for i := range r.n {
		w[i] = i
	}
	require.NoError(t, r.up.Flush(0, vk.WholeSize))
}

// TestIndirectDispatch: as many workgroups run as memory says when the device comes to it, none among them.
func TestIndirectDispatch(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{SyncValidation: true})
	r := newRig(t, dev, 256, 3)
	r.upload(t)
	groups, err := dev.NewBuffer(32, vk.DeviceLocal)
	require.NoError(t, err)
	for _, x := range []uint32{4, 0, 1} {
		const poison, offset = 0xdeadbeef, 8
		s := &r.stream
		s.Reset()
		s.Copy(r.x, 0, r.up, 0, uint64(4*r.n))
		s.Fill(vk.BufferRange{Buffer: r.y, Size: vk.WholeSize}, poison)
		s.Fill(vk.BufferRange{Buffer: groups, Offset: offset, Size: 4}, x)
		s.Fill(vk.BufferRange{Buffer: groups, Offset: offset + 4, Size: 8}, 1)
		s.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageCompute|vk.StageIndirect, vk.AccessShaderRead|vk.AccessShaderWrite|
			vk.AccessIndirectRead)
		s.Bind(r.pipeline, r.set)
		s.Push(args(r.n, 1))
		s.DispatchIndirect(groups, offset)
		s.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageTransfer, vk.AccessTransferRead)
		s.Copy(r.down, 0, r.y, 0, uint64(4*r.n))
		s.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageHost, vk.AccessHostRead)
		require.NoError(t, s.Err())
		require.NoError(t, r.run())
		require.NoError(t, r.down.Invalidate(0, vk.WholeSize))
		for i, have := range words(r.down)[:r.n] {
			want := 3*uint32(i) + 1
			if uint32(i) >= 64*x {
				want = poison
			}
			require.Equal(t, want, have, "element %d of %d workgroups of 64", i, x)
		}
	}
}

func TestRun(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{SyncValidation: true})
	r := newRig(t, dev, 1001, 7)
	r.upload(t)
	for i := range uint32(3) {
		r.encode(args(r.n, i))
		require.NoError(t, r.stream.Err())
		require.NoError(t, r.run())
		r.check(t, 7, i)
	}
	if r.queries != nil {
		var ticks [2]uint64
		require.NoError(t, r.queries.Results(0, ticks[:]))
		ns := r.queries.Nanoseconds(ticks[0], ticks[1])
		require.Positive(t, ns)
		require.Less(t, ns, 1e10)
	}
}
