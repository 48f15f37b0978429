package flash

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// External is a Vulkan device that the caller made: handles as plain integers, and the features and extensions that it was
// created with, which Vulkan cannot be asked.
type External = vk.External

// Message is a message of the validation layers.
type Message = vk.Message

// Usage is device memory by label, with high-water marks.
type Usage = pipeline.Usage

// MemoryError is an allocation that cannot succeed: what was needed, what is there, and the limit met.
type MemoryError = pipeline.MemoryError

// Device is a Vulkan device with what attention needs on it. It may be used from several goroutines.
type Device struct {
	instance *vk.Instance // nil when attached
	dev      *vk.Device
	env      *kernel.Env // nil of a zero Device
	info     DeviceInfo
	fallback bool // a CPU that nobody asked for

	selections selections // what Plan chose before
	joint      joint      // of Submit

	// submitting is read-locked from where a recording's tensors are found open until they count as busy, and locked where one is
	// closed: so a tensor that is closed was either busy, and is waited for, or is no tensor that a submission begins to use.
	submitting sync.RWMutex

	mu     sync.Mutex
	closed bool
	live   map[owned]struct{} // tensors, plans and recordings that Close frees
}

// owned is something whose memory or pipelines a device frees when it is closed.
type owned interface{ release() error }

// DeviceOption sets up Open, Attach and Devices.
type DeviceOption func(*deviceOptions) error

type deviceOptions struct {
	device    string
	onMessage func(Message)
	sync      bool
	cacheDir  string
	noCache   bool
	cacheSize int64
	faults    *vk.Faults
	tiles     string // a file
	noCPU     bool
	copies    bool
	compile   bool // and do not run
}

// WithDevice chooses a device by its place in Devices ("0") or by part of its name, whatever the case ("h200", "4090"). One or
// two digits are always a place.
func WithDevice(name string) DeviceOption {
	return func(o *deviceOptions) error { o.device = name; return nil }
}

// WithCopyQueues opens queues that only copy beside the one that computes, where the device has such: what a mover of flash/hostmem does
// then runs beside kernels, by the device's copy engines. Buffers are shared by all of these queues. Attach ignores it.
func WithCopyQueues() DeviceOption {
	return func(o *deviceOptions) error { o.copies = true; return nil }
}

// WithoutCPU makes Open fail with [ErrNoDevice] where it would choose a CPU, whose driver computes on a few cores what a GPU does on
// thousands; without it Open takes one where there is no GPU, and [Device.Notices] says so. A device that WithDevice names is opened
// whatever it is.
func WithoutCPU() DeviceOption {
	return func(o *deviceOptions) error { o.noCPU = true; return nil }
}

// CompileOnly opens a device for looking at kernels: problems are planned and recorded, so that drivers compile, and nothing is submitted.
// Uploads are dropped, kernels count as having passed their self-checks, and what would run returns [ErrCompileOnly]. Where a fragment's
// elements lie, which a device is asked otherwise, is what its driver's source says, if that is known. Nothing is read from disk or kept
// there, and drivers are asked for statistics ([pipeline.Kernel.Stats]). So a driver without its hardware can be looked at, too.
func CompileOnly() DeviceOption {
	return func(o *deviceOptions) error { o.compile = true; return nil }
}

// WithValidation turns the validation layers on and hands every message to the callback, which may be called from any
// goroutine; but for those that an old loader or layer causes, whatever a program does ([vk.Message.NotOurs]). Opening fails with
// [vk.ErrLayerMissing] when the layers are not installed, or do not load.
func WithValidation(onMessage func(Message)) DeviceOption {
	return func(o *deviceOptions) error {
		if onMessage == nil {
			return badArgument("WithValidation", "nil", "must be a function")
		}
		o.onMessage = onMessage
		return nil
	}
}

// WithSyncValidation adds synchronisation validation, which is slow, to WithValidation.
func WithSyncValidation() DeviceOption {
	return func(o *deviceOptions) error { o.sync = true; return nil }
}

// WithCacheDir keeps compiled pipelines in this directory. The default is vkattn in the user's cache directory.
func WithCacheDir(dir string) DeviceOption {
	return func(o *deviceOptions) error {
		if dir == "" {
			return badArgument("WithCacheDir", `""`, "must name a directory; WithoutDiskCache turns the cache off")
		}
		o.cacheDir = dir
		return nil
	}
}

// WithCacheLimit says how many bytes of compiled pipelines may be kept in that directory, of all devices and drivers together; those that
// were not used for the longest time go first. The default is 256 MiB.
func WithCacheLimit(bytes int64) DeviceOption {
	return func(o *deviceOptions) error {
		if bytes < 1 {
			return badArgument("WithCacheLimit", bytes, "must be at least 1; WithoutDiskCache turns the cache off")
		}
		o.cacheSize = bytes
		return nil
	}
}

// WithoutDiskCache keeps no compiled pipelines between runs.
func WithoutDiskCache() DeviceOption {
	return func(o *deviceOptions) error { o.noCache = true; return nil }
}

// WithFaults makes calls of this device into the driver fail, so that a program can be tested against a driver that does; the
// environment variable VKATTN_FAULT does the same for a whole process. See [vk.Faults].
func WithFaults(f *vk.Faults) DeviceOption {
	return func(o *deviceOptions) error {
		if f == nil {
			return badArgument("WithFaults", "nil", "must be made by vk.NewFaults or vk.ParseFaults")
		}
		o.faults = f
		return nil
	}
}

func deviceOptionsOf(opts []DeviceOption) (o deviceOptions, err error) {
	for _, opt := range opts {
		if opt != nil {
			err = errors.Join(err, opt(&o))
		}
	}
	if o.sync && o.onMessage == nil {
		err = errors.Join(err, badArgument("WithSyncValidation", "given", "needs WithValidation too"))
	}
	return o, err
}

// newInstance makes an instance by options, and gives them.
func newInstance(opts []DeviceOption) (inst *vk.Instance, o deviceOptions, err error) {
	if o, err = deviceOptionsOf(opts); err != nil {
		return nil, o, err
	}
	if err := vk.Load(); err != nil {
		return nil, o, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	inst, err = vk.NewInstance(vk.InstanceOptions{
		AppName: "vkattn", Validation: o.onMessage != nil, SyncValidation: o.sync, OnMessage: o.onMessage, Faults: o.faults,
	})
	if errors.Is(err, vk.ErrIncompatibleDriver) { // what the loader says when there is none, too
		var call *vk.CallError
		if errors.As(err, &call) && call.Detail != "" {
			return nil, o, fmt.Errorf("%w: the Vulkan loader %s finds no driver that it can load: %w", ErrNoDevice, vk.LoaderName(), err)
		}
		return nil, o, fmt.Errorf("%w: the Vulkan loader %s finds no driver: %w", ErrNoDevice, vk.LoaderName(), err)
	}
	if err != nil {
		return nil, o, fmt.Errorf("flash: making a Vulkan instance: %w", err)
	}
	return inst, o, nil
}

// Devices lists the machine's devices in the order in which Open prefers them, with what each offers attention and the reason for its
// place. Options that choose a device are ignored; a file of WithTiles counts on the devices that it is for.
func Devices(opts ...DeviceOption) (_ []DeviceInfo, err error) {
	defer during("Devices", &err)
	inst, o, err := newInstance(opts)
	if err != nil {
		return nil, err
	}
	defer inst.Close()
	_, infos, err := enumerate(inst, &o)
	return infos, err
}

// Open opens the best device, or the one that WithDevice names: discrete GPUs before integrated ones, those before others, and a CPU last
// (see [Devices]). That it took a CPU is among [Device.Notices]; [WithoutCPU] refuses one. The error is [ErrNoDevice] where there is no
// Vulkan, no device, or none of that name.
func Open(opts ...DeviceOption) (_ *Device, err error) {
	defer during("Open", &err)
	inst, o, err := newInstance(opts)
	if err != nil {
		return nil, err
	}
	d, err := openOn(inst, &o)
	if err != nil {
		inst.Close()
		return nil, err
	}
	return d, nil
}

func openOn(inst *vk.Instance, o *deviceOptions) (*Device, error) {
	phys, infos, err := enumerate(inst, o)
	if err != nil {
		return nil, err
	}
	i, err := choose(infos, o.device)
	if err != nil {
		return nil, err
	}
	fallback := o.device == "" && infos[i].Facts.Type == vk.DeviceCPU
	if fallback && o.noCPU {
		return nil, fmt.Errorf("%w: there is no GPU, and WithoutCPU refuses %s", ErrNoDevice, infos[i].Name)
	}
	dev, err := phys[i].Open(vk.DeviceOptions{Copies: o.copies})
	if err != nil {
		return nil, fmt.Errorf("flash: opening %s: %w", infos[i].Name, err)
	}
	d, err := newDevice(dev, o)
	if err != nil {
		dev.Close()
		return nil, err
	}
	d.instance, d.fallback = inst, fallback
	d.info.Index, d.info.Chosen, d.info.Reason = infos[i].Index, true, infos[i].Reason
	return d, nil
}

// Attach uses a VkDevice that the caller owns; nothing of the caller's is ever destroyed, and the device must outlive what is
// made from it. Which kernels are at hand follows from the features that the caller enabled: Info says which are missing for
// which tier. Vulkan wants submissions to one queue one at a time: a caller that submits from other goroutines too gives
// External.QueueLock, which is held around every submission made here. Uploads, downloads, Forward, Backward and their Submit forms
// submit, and the first Plan of a kind does: kernels on matrices prove themselves on a small problem before they are used. The
// error is an [*ArgumentError] for a handle that is missing, and says which feature is claimed and not there.
func Attach(external External, opts ...DeviceOption) (_ *Device, err error) {
	defer during("Attach", &err)
	o, err := deviceOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	if o.device != "" {
		return nil, badArgument("WithDevice", fmt.Sprintf("%q", o.device), "cannot be used with Attach, which is given the device")
	}
	if o.onMessage != nil {
		return nil, badArgument("WithValidation", "given", "cannot be used with Attach: validation belongs to the caller's instance")
	}
	for _, h := range []struct {
		name  string
		value uintptr
	}{
		{"Instance", external.Instance}, {"PhysicalDevice", external.PhysicalDevice},
		{"Device", external.Device}, {"Queue", external.Queue},
	} {
		if h.value == 0 {
			return nil, badArgument("External."+h.name, 0, "must be a Vulkan handle")
		}
	}
	if external.GetInstanceProcAddr == 0 {
		if err := vk.Load(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoDevice, err)
		}
	}
	dev, err := vk.AttachWithFaults(external, o.faults)
	if err != nil {
		return nil, fmt.Errorf("flash: attaching to the device: %w", err)
	}
	d, err := newDevice(dev, &o)
	if err != nil {
		dev.Close()
		return nil, err
	}
	d.env.Attached = true
	d.info.Attached, d.info.Chosen, d.info.Reason = true, true, "attached by the caller"
	return d, nil
}

func newDevice(dev *vk.Device, o *deviceOptions) (*Device, error) {
	given, err := o.readTiles()
	if err != nil {
		return nil, err
	}
	caps := kernel.Capabilities{Facts: dev.Facts(), Enabled: dev.Enabled()}
	if caps.Tiles = caps.Family(); given != nil {
		if caps.Tiles, err = given.Over(caps.TilesDevice()); err != nil {
			return nil, fmt.Errorf("flash: tiles: %w", err)
		}
	}
	options := pipeline.Options{CacheDir: o.cacheDir, NoDiskCache: o.noCache, CacheBytes: o.cacheSize,
		CompileOnly: o.compile}
	if options.Specialize, err = specializes(); err != nil {
		return nil, err
	}
	ctx, err := pipeline.New(dev, options)
	if err != nil {
		return nil, fmt.Errorf("flash: %w", err)
	}
	d := &Device{dev: dev, live: map[owned]struct{}{}}
	d.env = &kernel.Env{Ctx: ctx, Dev: dev, Caps: caps}
	d.info = describe(&d.env.Caps)
	d.info.Compiles = o.compile
	return d, nil
}

// Info describes the device: its facts, the tiers it offers with what others lack, and why it was chosen.
func (d *Device) Info() DeviceInfo {
	if d == nil {
		return DeviceInfo{}
	}
	return d.info
}

// Handle is the VkDevice; 0 of a zero Device.
func (d *Device) Handle() uintptr {
	if d == nil {
		return 0
	}
	return d.dev.Handle()
}

// External gives the device's own handles, for a program that wants to add its own work to it.
func (d *Device) External() External {
	if d == nil {
		return External{}
	}
	return d.dev.External()
}

// Usage gives the bytes allocated on the device by label, with high-water marks since ResetPeak.
func (d *Device) Usage() Usage {
	if d == nil || d.env == nil {
		return Usage{}
	}
	return d.env.Ctx.Usage()
}

// ResetPeak sets the high-water marks to the current use.
func (d *Device) ResetPeak() {
	if d != nil && d.env != nil {
		d.env.Ctx.ResetPeak()
	}
}

// Heaps gives the device's memory heaps as they are now.
func (d *Device) Heaps() (_ []vk.Heap, err error) {
	defer during("Heaps", &err)
	if err := d.usable(); err != nil {
		return nil, err
	}
	h, err := d.dev.HeapBudget()
	return h, d.fail(err)
}

// WaitIdle waits until the device has nothing left to do.
func (d *Device) WaitIdle() (err error) {
	defer during("WaitIdle", &err)
	if err := d.usable(); err != nil {
		return err
	}
	return d.fail(d.dev.WaitIdle())
}

// Lost gives the error that lost the device, nil while it works.
func (d *Device) Lost() error {
	if d == nil {
		return nil
	}
	if err := d.dev.Lost(); err != nil {
		return fmt.Errorf("%w: %w", ErrDeviceLost, err)
	}
	return nil
}

// usable says whether calls make sense: the device is neither closed nor lost.
func (d *Device) usable() error {
	if d == nil || d.dev == nil {
		return badArgument("Device", "nil or zero", "must come from Open or Attach")
	}
	if d.isClosed() {
		return errDeviceClosed
	}
	return d.Lost()
}

// errDeviceClosed is what everything made on a device returns after the device's Close.
var errDeviceClosed = fmt.Errorf("%w: the Device was closed", ErrClosed)

func (d *Device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// fail makes an error of the layers below one of this package's; it keeps nil.
func (d *Device) fail(err error) error {
	if err == nil {
		return nil
	}
	switch err = public(err); {
	case !errors.Is(err, ErrClosed) && d.isClosed(): // whatever was met when things had gone
		return fmt.Errorf("%w: %w", errDeviceClosed, err)
	case errors.Is(err, ErrDeviceLost), errors.Is(err, ErrClosed), errors.Is(err, ErrArgument), errors.Is(err, ErrUnsupported):
		return err // one of this package's already
	case errors.Is(err, vk.ErrDeviceLost):
		return fmt.Errorf("%w: %w", ErrDeviceLost, err)
	case errors.Is(err, vk.ErrClosed), errors.Is(err, pipeline.ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return fmt.Errorf("flash: %w", err)
}

// adopt notes something that Close frees. It fails when the device was closed meanwhile.
func (d *Device) adopt(o owned) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errDeviceClosed
	}
	d.live[o] = struct{}{}
	return nil
}

// disown forgets something that its own Close frees.
func (d *Device) disown(o owned) {
	d.mu.Lock()
	delete(d.live, o)
	d.mu.Unlock()
}

// Close waits for the device, frees every tensor, plan and recording made on it, then the device itself unless it is attached; the error of
// a lost one says that it is lost. What other goroutines do with them meanwhile ends before, or with an error that is ErrClosed. Closing
// again does nothing.
func (d *Device) Close() (err error) {
	defer during("Close", &err)
	if d == nil || d.dev == nil {
		return nil
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	live := d.live
	d.live = nil
	d.mu.Unlock()

	// The context first: it lets nobody begin anything, waits for those who have begun and then for the device, and frees what
	// they used. For the others only their own books are left to close.
	err = d.env.Ctx.Close()
	for o := range live {
		err = errors.Join(err, o.release())
	}
	err = errors.Join(err, d.dev.Close())
	if d.instance != nil {
		err = errors.Join(err, d.instance.Close())
	}
	if lost := d.Lost(); lost != nil {
		return lost
	}
	if err != nil {
		return fmt.Errorf("flash: closing the device: %w", err)
	}
	return nil
}
