package pipeline

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
)

func TestKernelMemo(t *testing.T) {
	c := newContext(t, Options{})
	k := mixKernel(t, c, 3)
	assert.Equal(t, "mix", k.Name())
	assert.Equal(t, 2, k.Bindings())
	assert.Equal(t, 20, k.PushBytes())

	same := mixInfo(t, 3)
	same.Name = "another name"
	same.Spec[0], same.Spec[1] = same.Spec[1], same.Spec[0]
	k2, err := c.Kernel(same)
	require.NoError(t, err)
	assert.Same(t, k, k2, "neither the name nor the order of constants makes another kernel")
	assert.NotSame(t, k, mixKernel(t, c, 4))

	named := mixInfo(t, 3)
	named.Buffers = map[string]uint32{"Y": 1}
	k3, err := c.Kernel(named)
	require.NoError(t, err)
	assert.NotSame(t, k, k3, "one that knows no names of its buffers is another")
	at, ok := k3.Buffer("Y")
	assert.True(t, ok)
	assert.Equal(t, 1, at)
	_, ok = k.Buffer("Y")
	assert.False(t, ok)

	var wg sync.WaitGroup
	got := make([]*Kernel, 16)
	for i := range got {
		wg.Add(1)
		go func() {
			defer wg.Done()
			k, err := c.Kernel(mixInfo(t, 100+uint32(i%2)))
			assert.NoError(t, err)
			got[i] = k
		}()
	}
	wg.Wait()
	for i := range got {
		assert.Same(t, got[i%2], got[i])
	}
}

func TestKernelArguments(t *testing.T) {
	c := newContext(t, Options{})
	l := c.Facts().Limits
	for _, tc := range []struct {
		rule   string
		change func(*KernelInfo)
	}{
		{"SPIR-V module", func(i *KernelInfo) { i.Code = nil }},
		{"SPIR-V module", func(i *KernelInfo) { i.Code[0]++ }},
		{"Bindings is -1", func(i *KernelInfo) { i.Bindings = -1 }},
		{"limit of storage buffers", func(i *KernelInfo) { i.Bindings = int(min(l.MaxStorageBuffersPerStage, 1<<30)) + 1 }},
		{"PushBytes is 6", func(i *KernelInfo) { i.PushBytes = 6 }},
		{"PushBytes", func(i *KernelInfo) { i.PushBytes = int(l.MaxPushConstants) + 4 }},
		{"ID 1 twice", func(i *KernelInfo) { i.Spec = append(i.Spec, vk.SpecConstant{ID: 1}) }},
		{"", func(i *KernelInfo) { i.SubgroupSize = 7 }},
	} {
		info := mixInfo(t, 1)
		tc.change(&info)
		_, err := c.Kernel(info)
		assert.ErrorContains(t, err, tc.rule)
	}
	_, err := c.Kernel(mixInfo(t, 1))
	assert.NoError(t, err)
}

// TestDiskCache stores pipelines, finds them again, merges two contexts, and survives damage.
func TestDiskCache(t *testing.T) {
	dir := t.TempDir()
	open := func() *Context {
		c, err := New(testDevice(t), Options{CacheDir: dir})
		require.NoError(t, err)
		return c
	}
	c := open()
	path := c.DiskCache().Path
	require.Equal(t, dir, filepath.Dir(path))
	assert.Zero(t, c.DiskCache().Loaded)
	require.NoError(t, c.DiskCache().Err)
	mixKernel(t, c, 3)
	require.NoError(t, c.SaveCache())
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, c.SaveCache())
	require.NoError(t, c.Close())
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, first, again, "nothing new, nothing stored")

	// Two contexts that both read the first state, as two processes would: the second store keeps what the first added.
	a, b := open(), open()
	assert.Equal(t, len(first)-cacheHeaderSize, a.DiskCache().Loaded)
	mixKernel(t, a, 4)
	mixKernel(t, b, 5)
	require.NoError(t, a.Close())
	afterA, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	afterB, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(afterA), len(first))
	assert.GreaterOrEqual(t, len(afterB), len(afterA))

	// Damage costs the content and nothing else.
	for _, damage := range [][]byte{{}, []byte("rubbish"), afterB[:len(afterB)/2], append([]byte{}, afterB...)} {
		if len(damage) == len(afterB) {
			damage[len(damage)-1] ^= 1
		}
		require.NoError(t, os.WriteFile(path, damage, 0o600))
		c := open()
		assert.Zero(t, c.DiskCache().Loaded)
		assert.Error(t, c.DiskCache().Err)
		mixKernel(t, c, 3)
		require.NoError(t, c.Close())
		c = open()
		assert.NoError(t, c.DiskCache().Err)
		assert.Positive(t, c.DiskCache().Loaded)
		require.NoError(t, c.Close())
	}
}

func TestDiskCacheWithoutAPlace(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	c, err := New(testDevice(t), Options{CacheDir: filepath.Join(blocked, "x")})
	require.NoError(t, err, "a cache that cannot be used is no reason to stop")
	mixKernel(t, c, 3)
	assert.Error(t, c.DiskCache().Err)
	assert.Error(t, c.SaveCache())
	c.Close()
}

func TestClosedContext(t *testing.T) {
	c, err := New(testDevice(t), Options{NoDiskCache: true})
	require.NoError(t, err)
	k := mixKernel(t, c, 3)
	buf, err := c.Alloc("left over", 64, vk.DeviceLocal)
	require.NoError(t, err)
	r, err := c.NewRecording(RecordingInfo{MaxDispatches: 1, MaxBindings: 2})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "again")
	assert.Zero(t, c.Usage().Current, "Close frees what was left")
	_, err = c.Alloc("x", 64, vk.DeviceLocal)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = c.Kernel(mixInfo(t, 3))
	assert.ErrorIs(t, err, ErrClosed)
	_, err = c.NewRecording(RecordingInfo{MaxDispatches: 1})
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, r.Reset(), ErrClosed)
	_, err = c.Submit(r)
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, c.Upload(t.Context(), Binding{}, nil), ErrClosed)
	assert.ErrorIs(t, c.SaveCache(), ErrClosed)
	_, err = k.Stats()
	assert.ErrorIs(t, err, ErrClosed)
	buf.Close()
	r.Close()
	for _, o := range []Options{{StagingBytes: 3}} {
		_, err = New(testDevice(t), o)
		assert.Error(t, err)
	}
	_, err = New(nil, Options{})
	assert.Error(t, err)
}

// TestDeviceClosedFirst closes the device under a context with work in flight, which is wrong but must not crash.
func TestDeviceClosedFirst(t *testing.T) {
	dev := testDevice(t)
	c, err := New(dev, Options{NoDiskCache: true})
	require.NoError(t, err)
	a, err := c.Alloc("a", 256, vk.DeviceLocal)
	require.NoError(t, err)
	b, err := c.Alloc("b", 256, vk.DeviceLocal)
	require.NoError(t, err)
	r, err := c.NewRecording(RecordingInfo{MaxDispatches: 2, MaxBindings: 4, Timestamps: true})
	require.NoError(t, err)
	k := mixKernel(t, c, 3)
	chain(t, r, k, a, b, 64, 2, 100)
	p, err := c.Submit(r)
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	assert.ErrorIs(t, p.Wait(t.Context()), vk.ErrClosed)
	assert.Error(t, c.Upload(t.Context(), a.All(), make([]byte, 256)))
	_, err = c.Submit(r)
	assert.Error(t, err)
	_, err = c.Kernel(mixInfo(t, 9))
	assert.ErrorIs(t, err, vk.ErrClosed)
	_, err = c.Alloc("x", 64, vk.DeviceLocal)
	assert.ErrorIs(t, err, vk.ErrClosed)
	a.Close()
	assert.NotPanics(t, func() { c.Close() })
	assert.Zero(t, c.Usage().Current)
}
