package pipeline

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/specialize"
	"github.com/vkattn/vkattn/vk"
)

// Options are the choices of a Context; the zero value is right for most programs.
type Options struct {
	// CacheDir is where compiled pipelines are kept between runs. Empty means vkattn/pipelines in os.UserCacheDir.
	CacheDir string
	// CacheBytes is how much may stay there, of all devices and drivers together; what was not used for the longest time goes first. 0
	// means 256 MiB.
	CacheBytes int64
	// NoDiskCache keeps compiled pipelines in memory only.
	NoDiskCache bool
	// CaptureStats asks the driver to keep its statistics of every kernel; see Kernel.Stats. It may cost compile time.
	CaptureStats bool
	// CompileOnly makes a context that compiles kernels and makes recordings, to be looked at, and submits nothing: uploads are dropped,
	// and all else that would submit is ErrCompileOnly. It captures statistics where the device has them, and keeps nothing on disk, so
	// that every kernel is compiled.
	CompileOnly bool
	// Specialize writes the values of a kernel's specialization constants into its module, and leaves out what cannot be reached then,
	// before the driver and validation layers see it: they take less time where modules are large. What kernels compute does not change. A
	// module that has what internal/specialize does not handle is an error of Context.Kernel: decorations by groups, switches on 64 bits,
	// values of specialization constants of other than 32 bits.
	Specialize bool
	// StagingBytes is the size of each of the staging buffers for uploads and for downloads. 0 means 16 MiB.
	StagingBytes uint64
}

// Context is a device with its kernels, its memory account and its staging buffers. It is safe for concurrent use.
type Context struct {
	dev     *vk.Device
	facts   *vk.Facts
	options Options

	memory  account
	kernels kernelTable
	disk    diskCache
	made    compilations
	upload  stagingRing
	down    stagingRing

	own struct { // points of the device's queue, made when first asked for
		mu sync.Mutex
		*timeline
	}

	flights flights // submissions of several recordings

	timestampBits uint32
	// life is read-locked by every use of what was made from the context and locked by Close, so that nothing is freed under a
	// use. Uses must not nest.
	life   sync.RWMutex
	closed atomic.Bool

	recordings sync.Map                       // *Recording → struct{}: what Close has to free
	lists      atomic.Pointer[func(*Listing)] // who is given listings; nil: nobody
}

// New makes a Context on a device. The device stays the caller's and must outlive the context.
func New(dev *vk.Device, o Options) (*Context, error) {
	if dev == nil {
		return nil, argErr("New", "dev", "nil", "it must be an open device")
	}
	if err := dev.Lost(); err != nil {
		return nil, err
	}
	if o.StagingBytes == 0 {
		o.StagingBytes = 16 << 20
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.CacheBytes < 0 {
		return nil, argErr("New", "CacheBytes", o.CacheBytes, "it must not be negative")
	}
	if o.StagingBytes%4 != 0 {
		return nil, argErr("New", "StagingBytes", o.StagingBytes, "it must be a multiple of 4")
	}
	if o.CompileOnly {
		o.NoDiskCache, o.CaptureStats = true, dev.Enabled().PipelineExecutableInfo
	}
	c := &Context{dev: dev, facts: dev.Facts(), options: o, timestampBits: dev.Queue().TimestampValidBits()}
	c.memory.labels = map[string]LabelUsage{}
	c.memory.alive = map[*Buffer]struct{}{}
	c.memory.perHeap = make([]uint64, max(1, len(c.facts.Heaps)))
	c.kernels.entries = map[kernelKey]*kernelEntry{}
	c.upload = stagingRing{ctx: c, kind: vk.Upload, label: "staging upload", sync: (*vk.Buffer).Flush}
	c.down = stagingRing{ctx: c, kind: vk.Readback, label: "staging download", sync: (*vk.Buffer).Invalidate}
	c.openDiskCache()
	return c, nil
}

// Device returns the device the context stands on.
func (c *Context) Device() *vk.Device {
	if c == nil {
		return nil
	}
	return c.dev
}

// Facts returns what is known of the device.
func (c *Context) Facts() *vk.Facts {
	if c == nil {
		return nil
	}
	return c.facts
}

// Specialized is the revision of what kernels' modules are specialized to before the driver sees them (Options.Specialize), or 0 where they
// are not.
func (c *Context) Specialized() int {
	if c == nil || !c.options.Specialize {
		return 0
	}
	return specialize.Revision
}

// CompileOnly says whether Options.CompileOnly is set.
func (c *Context) CompileOnly() bool { return c != nil && c.options.CompileOnly }

// runs is ErrCompileOnly where nothing may be submitted.
func (c *Context) runs() error {
	if c.options.CompileOnly {
		return ErrCompileOnly
	}
	return nil
}

// HasTimestamps says whether the queue can time operations.
func (c *Context) HasTimestamps() bool { return c != nil && c.timestampBits != 0 }

// usable returns why nothing can be done any more, or nil.
func (c *Context) usable() error {
	if c == nil || c.dev == nil || c.closed.Load() { // without a device no constructor made it
		return ErrClosed
	}
	return c.dev.Lost()
}

// enter begins a use of the context or of what was made from it: it fails when the context is closed or the device lost. leave
// must follow when it does not.
func (c *Context) enter() error {
	if c == nil {
		return ErrClosed
	}
	c.life.RLock()
	err := c.usable()
	if err != nil {
		c.life.RUnlock()
	}
	return err
}

func (c *Context) leave() { c.life.RUnlock() }

// Run calls f, which uses what was made from the context by way of the device itself, submits say: Close waits until it has
// returned. It must use no method of the context, or of a recording.
func (c *Context) Run(f func() error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return f()
}

// Close waits for the device, stores compiled kernels and frees everything that was made from the context, buffers, kernels and
// recordings included. Uses of these by other goroutines end before, or with ErrClosed. The device stays open. Kernels that cannot
// be stored are no error of Close: DiskCache says so. Closing again does nothing.
func (c *Context) Close() error {
	if c == nil || c.dev == nil || c.closed.Swap(true) {
		return nil
	}
	c.upload.close()
	c.down.close()
	c.life.Lock()
	defer c.life.Unlock()
	_ = c.disk.save()
	var err error
	idle := c.dev.WaitIdle()
	for try := 1; try < 3 && idle != nil; try++ {
		idle = c.dev.WaitIdle() // what is freed while the device uses it brings down more than a wait that failed
	}
	if !errors.Is(idle, vk.ErrDeviceLost) && !errors.Is(idle, vk.ErrClosed) {
		err = errors.Join(err, idle)
	}
	c.recordings.Range(func(r, _ any) bool {
		r.(*Recording).close()
		return true
	})
	err = errors.Join(err, c.flights.close(), c.own.timeline.close())
	c.kernels.close()
	c.closeBuffers()
	return err
}
