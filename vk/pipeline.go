package vk

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk/internal/abi"
)

// PipelineCache is a VkPipelineCache. It is safe for concurrent use.
type PipelineCache struct {
	object // used alone while data is read or merged; creating pipelines is synchronized by the driver
}

// NewPipelineCache makes a cache, filled with what Data returned earlier on the same device and driver, or empty. Drivers
// are not all careful with data that is not theirs: check its header before (VkPipelineCacheHeaderVersionOne).
func (d *Device) NewPipelineCache(data []byte) (*PipelineCache, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	var h uintptr
	if err := d.check("vkCreatePipelineCache", d.table.createCache(data, &h)); err != nil {
		return nil, err
	}
	c := &PipelineCache{}
	c.init(d, h)
	d.track(c)
	return c, nil
}

func (c *PipelineCache) enter() error {
	if c == nil {
		return ErrClosed
	}
	return c.enterAlone()
}

func (c *PipelineCache) leave() { c.leaveAlone() }

// Data returns the cache's content, to be given to NewPipelineCache later.
func (c *PipelineCache) Data() ([]byte, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	for {
		var size uintptr
		if err := c.dev.check("vkGetPipelineCacheData", c.dev.table.cacheData(c.handle.Load(), nil, &size)); err != nil {
			return nil, err
		}
		if size == 0 {
			return nil, nil
		}
		data := make([]byte, size)
		r := c.dev.table.cacheData(c.handle.Load(), data, &size)
		if err := c.dev.check("vkGetPipelineCacheData", r); err != nil {
			return nil, err
		}
		if Result(r) != Incomplete { // it grew between the two calls
			return data[:size], nil
		}
	}
}

// Merge adds the content of other caches of the same device.
func (c *PipelineCache) Merge(others ...*PipelineCache) error {
	for _, o := range others {
		if o == nil || o == c || o.dev != c.dev {
			return argErr("PipelineCache.Merge", "others", "nil, the cache itself or of another device",
				"each must be another cache of the same device")
		}
		if err := c.merge(o); err != nil {
			return err
		}
	}
	return nil
}

func (c *PipelineCache) merge(o *PipelineCache) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if o.handle.Load() == 0 {
		return ErrClosed
	}
	return c.dev.check("vkMergePipelineCaches", c.dev.table.mergeCache(c.handle.Load(), o.handle.Load()))
}

// Close destroys the cache; pipelines made with it stay. A second call does nothing.
func (c *PipelineCache) Close() error {
	if c != nil {
		c.dev.release(c)
	}
	return nil
}

func (c *PipelineCache) destroy() {
	handle, done := c.take()
	defer done()
	c.dev.table.destroyHandle(callDestroyPipelineCache, handle)
}

// SpecConstant is the value of one 32-bit specialization constant.
type SpecConstant struct{ ID, Value uint32 }

// PipelineInfo describes a compute pipeline. All its descriptors are storage buffers of set 0.
type PipelineInfo struct {
	Name          string         // shown by debuggers and in errors
	Code          []uint32       // SPIR-V
	Entry         string         // the entry point; "" means main
	Spec          []SpecConstant // those not given keep the shader's defaults
	Bindings      int            // storage buffers at bindings 0 to Bindings-1
	PushBytes     int            // size of the push constant block, a multiple of 4
	SubgroupSize  uint32         // required, a power of two within Subgroup.Min..Max; 0: the driver's choice
	FullSubgroups bool           // require that all subgroups are full
	Cache         *PipelineCache // may be nil
	CaptureStats  bool           // so that Stats has something to return
}

// ComputePipeline is a compute pipeline with its layout.
type ComputePipeline struct {
	object
	name      string
	layout    uintptr
	sets      uintptr // VkDescriptorSetLayout
	bindings  int
	pushBytes int
	stats     bool
}

// requiresSubgroups says whether a pipeline can require a subgroup size.
func (d *Device) requiresSubgroups() bool {
	return d.enabled.SubgroupSizeControl && d.facts.Subgroup.RequiredSizeCompute
}

func (d *Device) checkPipeline(i *PipelineInfo) error {
	const call = "NewComputePipeline"
	lim, sub := &d.facts.Limits, &d.facts.Subgroup
	switch {
	case len(i.Code) < spirv.HeaderWords || i.Code[0] != spirv.Magic:
		return argErr(call, "Code", fmt.Sprintf("%d words", len(i.Code)), "it must be a SPIR-V module in this machine's byte order")
	case i.Bindings < 0 || uint32(i.Bindings) > min(lim.MaxStorageBuffersPerSet, lim.MaxStorageBuffersPerStage):
		return argErr(call, "Bindings", i.Bindings,
			fmt.Sprintf("it must be between 0 and %d", min(lim.MaxStorageBuffersPerSet, lim.MaxStorageBuffersPerStage)))
	case i.PushBytes < 0 || i.PushBytes%4 != 0 || uint32(i.PushBytes) > lim.MaxPushConstants:
		return argErr(call, "PushBytes", i.PushBytes, fmt.Sprintf("it must be a multiple of 4 between 0 and %d", lim.MaxPushConstants))
	case i.SubgroupSize != 0 && !sub.Single() && !d.requiresSubgroups():
		return fmt.Errorf("vk: %s: SubgroupSize %d is required, but the device has no subgroup size control for compute: %w", call,
			i.SubgroupSize, ErrUnsupported)
	case i.SubgroupSize != 0 && (i.SubgroupSize&(i.SubgroupSize-1) != 0 || i.SubgroupSize < sub.Min || i.SubgroupSize > sub.Max):
		return argErr(call, "SubgroupSize", i.SubgroupSize, fmt.Sprintf("it must be a power of two between %d and %d", sub.Min, sub.Max))
	case i.FullSubgroups && !d.enabled.ComputeFullSubgroups:
		return fmt.Errorf("vk: %s: FullSubgroups is required, but the feature ComputeFullSubgroups is not enabled: %w", call,
			ErrUnsupported)
	case i.CaptureStats && !d.enabled.PipelineExecutableInfo:
		return fmt.Errorf("vk: %s: CaptureStats needs the feature PipelineExecutableInfo: %w", call, ErrUnsupported)
	case i.Cache != nil && i.Cache.dev != d:
		return argErr(call, "Cache", "of another device", "it must be of the same device")
	case i.Cache != nil && i.Cache.handle.Load() == 0:
		return fmt.Errorf("vk: %s: Cache: %w", call, ErrClosed)
	}
	seen := make(map[uint32]bool, len(i.Spec))
	for _, s := range i.Spec {
		if seen[s.ID] {
			return argErr(call, "Spec", s.ID, "each constant may be given once")
		}
		seen[s.ID] = true
	}
	return nil
}

// NewComputePipeline compiles a pipeline. It may be called from several goroutines at once, with one cache too.
func (d *Device) NewComputePipeline(i PipelineInfo) (*ComputePipeline, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if err := d.checkPipeline(&i); err != nil {
		return nil, err
	}
	if i.Entry == "" {
		i.Entry = "main"
	}
	if !d.requiresSubgroups() { // the size is the only one then: checkPipeline
		i.SubgroupSize = 0
	}
	var cache uintptr
	if i.Cache != nil {
		// Not alone, and so not through enter: several pipelines may be made with one cache at once.
		i.Cache.use.RLock()
		defer i.Cache.use.RUnlock()
		if cache = i.Cache.handle.Load(); cache == 0 {
			return nil, fmt.Errorf("vk: NewComputePipeline: Cache: %w", ErrClosed)
		}
	}
	p := &ComputePipeline{name: i.Name, bindings: i.Bindings, pushBytes: i.PushBytes, stats: i.CaptureStats}
	var made nativePipeline
	if failed, r := d.table.createPipeline(&i, cache, &made); r != 0 {
		return nil, d.checkFor(failed.String(), r, i.Name)
	}
	p.layout, p.sets = made.layout, made.sets
	p.init(d, made.pipeline)
	d.name(abi.ObjectTypePipeline, made.pipeline, i.Name)
	d.track(p)
	return p, nil
}

// Name returns the name given in PipelineInfo.
func (p *ComputePipeline) Name() string { return p.name }

// Device returns the device that the pipeline belongs to.
func (p *ComputePipeline) Device() *Device { return p.dev }

// Bindings returns the number of storage buffers.
func (p *ComputePipeline) Bindings() int { return p.bindings }

// PushBytes returns the size of the push constants.
func (p *ComputePipeline) PushBytes() int { return p.pushBytes }

// Handle returns the VkPipeline, 0 after Close.
func (p *ComputePipeline) Handle() uintptr { return p.handle.Load() }

// Stat is one statistic that the driver has of a compiled pipeline, for example "Register Count".
type Stat struct {
	Name, Description string
	Value             float64
}

// Stats returns the statistics of a pipeline made with CaptureStats.
func (p *ComputePipeline) Stats() ([]Stat, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if !p.stats {
		return nil, argErr("ComputePipeline.Stats", "pipeline", p.name, "it must have been made with CaptureStats")
	}
	stats, failed, r := p.dev.table.pipelineStats(p.handle.Load())
	if err := p.dev.checkFor(failed.String(), r, p.name); err != nil {
		return nil, err
	}
	return stats, nil
}

// Close destroys the pipeline. Work that uses it must be done. A second call does nothing.
func (p *ComputePipeline) Close() error {
	if p != nil {
		p.dev.release(p)
	}
	return nil
}

func (p *ComputePipeline) destroy() {
	handle, done := p.take()
	defer done()
	p.dev.table.destroyPipeline(&nativePipeline{handle, p.layout, p.sets})
}
