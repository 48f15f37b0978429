package door

import (
	"strings"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// device is what a device's handle names.
type device struct {
	*flash.Device
	attached bool // so that buffers of the caller's can be its
}

var devices = handles[*device]{kind: "device"}

// OpenOptions is vkattn_open_options.
type OpenOptions struct {
	Name     string // as of flash.WithDevice; "" for the best
	CacheDir string // of pipelines; "" for the user's
	NoCPU    bool
	NoCache  bool // neither read nor write files
}

func (o OpenOptions) options() (out []flash.DeviceOption) {
	if o.Name != "" {
		out = append(out, flash.WithDevice(o.Name))
	}
	if o.CacheDir != "" {
		out = append(out, flash.WithCacheDir(o.CacheDir))
	}
	if o.NoCPU {
		out = append(out, flash.WithoutCPU())
	}
	if o.NoCache {
		out = append(out, flash.WithoutDiskCache())
	}
	return out
}

// Open is vkattn_device_open.
func Open(o OpenOptions) (Handle, error) {
	d, err := flash.Open(o.options()...)
	if err != nil {
		return 0, err
	}
	return devices.add(&device{Device: d}), nil
}

// External is vkattn_external: a device that the caller made.
type External struct {
	GetInstanceProcAddr, Instance, PhysicalDevice, Device, Queue uintptr

	QueueFamily uint32
	APIVersion  uint32   // as VK_MAKE_API_VERSION packs it; 0: the device's
	Features    []string // as Vulkan names the members of its structures
	Extensions  []string
	Lock        sync.Locker // held around submissions; may be nil
	CacheDir    string      // of pipelines; "" for the user's
	NoCache     bool
}

// Attach is vkattn_device_attach.
func Attach(e External) (Handle, error) {
	features, err := featuresOf(e.Features)
	if err != nil {
		return 0, err
	}
	d, err := flash.Attach(flash.External{
		GetInstanceProcAddr: e.GetInstanceProcAddr, Instance: e.Instance, PhysicalDevice: e.PhysicalDevice, Device: e.Device,
		Queue: e.Queue, QueueFamily: e.QueueFamily, APIVersion: vk.Version(e.APIVersion), Enabled: features, Extensions: e.Extensions,
		QueueLock: e.Lock,
	}, OpenOptions{CacheDir: e.CacheDir, NoCache: e.NoCache}.options()...)
	if err != nil {
		return 0, err
	}
	return devices.add(&device{Device: d, attached: true}), nil
}

// Close is vkattn_device_close.
func Close(h Handle) error {
	d, err := devices.take(h)
	if err != nil {
		return err
	}
	return d.Close()
}

// Describe is vkattn_device_describe: name, driver, and what there is to notice, a line each.
func Describe(h Handle) (string, error) {
	d, err := devices.find(h)
	if err != nil {
		return "", err
	}
	info := d.Info()
	return strings.Join(append([]string{info.Name, info.Driver}, d.Notices()...), "\n"), nil
}

// featuresOf reads names of features.
func featuresOf(names []string) (f vk.Features, err error) {
	fields := fieldsOf(&f)
	for _, name := range names {
		field := fields[name]
		if field == nil {
			return f, bad("external.features", name, "must be the name of a feature that vkattn.h lists")
		}
		*field = true
	}
	return f, nil
}

// fieldsOf are the features by the names that vkattn.h lists.
func fieldsOf(f *vk.Features) map[string]*bool {
	return map[string]*bool{
		"robustBufferAccess":                  &f.RobustBufferAccess,
		"shaderInt16":                         &f.Int16,
		"shaderInt64":                         &f.Int64,
		"shaderFloat64":                       &f.Float64,
		"storageBuffer16BitAccess":            &f.Storage16,
		"storageBuffer8BitAccess":             &f.Storage8,
		"shaderFloat16":                       &f.Float16,
		"shaderInt8":                          &f.Int8,
		"timelineSemaphore":                   &f.TimelineSemaphore,
		"subgroupSizeControl":                 &f.SubgroupSizeControl,
		"computeFullSubgroups":                &f.ComputeFullSubgroups,
		"cooperativeMatrix":                   &f.CooperativeMatrix,
		"cooperativeMatrixRobustBufferAccess": &f.CooperativeMatrixRobust,
		"shaderBFloat16Type":                  &f.BFloat16Type,
		"shaderBFloat16DotProduct":            &f.BFloat16DotProduct,
		"shaderBFloat16CooperativeMatrix":     &f.BFloat16CooperativeMatrix,
		"vulkanMemoryModel":                   &f.VulkanMemoryModel,
		"vulkanMemoryModelDeviceScope":        &f.VulkanMemoryModelDeviceScope,
		"bufferDeviceAddress":                 &f.BufferDeviceAddress,
		"pipelineExecutableInfo":              &f.PipelineExecutableInfo,
		"hostQueryReset":                      &f.HostQueryReset,
		"synchronization2":                    &f.Synchronization2,
		"scalarBlockLayout":                   &f.ScalarBlockLayout,
		"maintenance4":                        &f.Maintenance4,
		"shaderSubgroupExtendedTypes":         &f.SubgroupExtendedTypes,
		"VK_EXT_memory_budget":                &f.MemoryBudget,
		"VK_EXT_external_memory_host":         &f.ExternalMemoryHost,
	}
}
