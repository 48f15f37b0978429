package pipeline

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

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

// TestDiskCache stores kernels, each in a file of its own, finds those that are asked for again, and survives damage.
func TestDiskCache(t *testing.T) {
	dir := t.TempDir()
	open := func() *Context {
		c, err := New(testDevice(t), Options{CacheDir: dir})
		require.NoError(t, err)
		return c
	}
	files := func(c *Context) (paths []string) {
		paths, err := filepath.Glob(filepath.Join(c.DiskCache().Path, "*"))
		require.NoError(t, err)
		return paths
	}
	c := open()
	require.Equal(t, dir, filepath.Dir(c.DiskCache().Path))
	require.NoError(t, c.DiskCache().Err)
	mixKernel(t, c, 3)
	require.NoError(t, c.SaveCache())
	stored := files(c)
	require.Len(t, stored, 1)
	require.Equal(t, 1, c.Compilations().Kernels)
	require.Zero(t, c.Compilations().FromDisk)
	require.Positive(t, c.Compilations().Time)
	require.NoError(t, c.Close())

	// Two contexts at once, as two processes: each finds what was there and keeps what the other adds.
	a, b := open(), open()
	mixKernel(t, a, 3)
	info, err := os.Stat(stored[0])
	require.NoError(t, err)
	words := packWords(nil, mixInfo(t, 3).Code)
	assert.EqualValues(t, int(info.Size())-cacheHeaderSize-len(words), a.DiskCache().Loaded)
	require.Equal(t, 1, a.Compilations().FromDisk)
	mixKernel(t, a, 4)
	mixKernel(t, b, 5)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Len(t, files(a), 3)

	// Damage costs the kernel and nothing else.
	sound, err := os.ReadFile(stored[0])
	require.NoError(t, err)
	for _, damage := range [][]byte{{}, []byte("rubbish"), sound[:len(sound)/2], append([]byte{}, sound...)} {
		if len(damage) == len(sound) {
			damage[len(damage)-1] ^= 1
		}
		require.NoError(t, os.WriteFile(stored[0], damage, 0o600))
		c := open()
		mixKernel(t, c, 3)
		assert.Zero(t, c.DiskCache().Loaded)
		assert.ErrorContains(t, c.DiskCache().Err, stored[0])
		require.NoError(t, c.Close())
		c = open()
		mixKernel(t, c, 3)
		assert.NoError(t, c.DiskCache().Err)
		assert.Positive(t, c.DiskCache().Loaded)
		require.NoError(t, c.Close())
	}
	_, err = New(testDevice(t), Options{CacheBytes: -1})
	require.ErrorContains(t, err, "CacheBytes")
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

// TestSlowCompiler: a driver that takes too long is left to it, and what it makes is found by a later call.
func TestSlowCompiler(t *testing.T) {
	c := newContext(t, Options{NoDiskCache: true})
	held := make(chan struct{})
	info := mixInfo(t, 77)
	code := info.Code
	info.Code, info.Identity = nil, "slow"
	info.Load = func() ([]uint32, error) {
		<-held
		return code, nil
	}
	before := mostCompiling
	t.Cleanup(func() { mostCompiling = before })
	mostCompiling = 30 * time.Millisecond
	for range 2 { // whoever comes later waits no longer
		began := time.Now()
		_, err := c.Kernel(info)
		require.ErrorIs(t, err, ErrCompiling)
		require.ErrorContains(t, err, `kernel "mix"`)
		require.Less(t, time.Since(began), 10*time.Second)
	}
	require.Empty(t, c.Kernels())
	close(held)
	mostCompiling = before
	k, err := c.Kernel(info)
	require.NoError(t, err)
	require.Equal(t, []*Kernel{k}, c.Kernels())
}
