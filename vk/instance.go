package vk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

const (
	validationLayer      = "VK_LAYER_KHRONOS_validation"
	extDebugUtils        = "VK_EXT_debug_utils"
	extPortabilityEnum   = "VK_KHR_portability_enumeration"
	extValidationFeature = "VK_EXT_validation_features"
)

// InstanceOptions say how an instance is created. Where validation is on, the environment variable VKATTN_VALIDATION adds to what is
// checked: see [ValidationEnv]. OnMessage gets no advice that this library decided otherwise about, and nothing that an old loader or layer
// causes: see [Message.NotOurs].
type InstanceOptions struct {
	AppName        string
	Validation     bool    // load the validation layer; ErrLayerMissing without it
	SyncValidation bool    // also check for missing barriers; implies Validation
	GPUValidation  bool    // also have shaders check their accesses, which changes and slows them; implies Validation
	BestPractices  bool    // also give advice, but for what this library decided otherwise; implies Validation
	MaxAPIVersion  Version // do not ask for more than this; 0 means 1.3
	// receives warnings and errors of the layers, on whichever goroutine made the call; must not use this package
	OnMessage  func(Message)
	Faults     *Faults  // calls that shall fail, for tests; nil: those of VKATTN_FAULT, most often none
	Extensions []string // to enable besides: those of a window's surface, as its library names them, or [HeadlessSurface]
}

// Instance is a Vulkan instance with its own function table. It is safe for concurrent use.
type Instance struct {
	table     *instanceTable
	handle    uintptr
	version   Version
	messenger uintptr
	receiver  uint64
	devices   []*PhysicalDevice
	skipped   []error
	validated bool
	layer     Version       // of the validation layer; 0 without it
	onMessage func(Message) // of the options
	debug     bool          // VK_EXT_debug_utils is enabled
	faults    *Faults
	headless  bool // HeadlessSurface is enabled

	mu       sync.Mutex
	open     map[*Device]struct{}
	surfaces map[*Surface]struct{}
	closed   bool
}

// NewInstance loads the loader if need be, creates an instance of version 1.1 to 1.3 and finds its physical devices.
func NewInstance(o InstanceOptions) (*Instance, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	faults, err := o.Faults.orEnvironment()
	if err != nil {
		return nil, err
	}
	gipa := GetInstanceProcAddr()
	version := instanceVersion(gipa)
	if version < Version11 {
		return nil, fmt.Errorf("vk: the Vulkan loader offers only version %v; 1.1 is the least that is needed: %w", version, ErrUnsupported)
	}
	limit := o.MaxAPIVersion
	if limit == 0 {
		limit = Version13
	}
	if limit < Version11 {
		return nil, argErr("NewInstance", "MaxAPIVersion", limit, "it must be at least 1.1.0")
	}
	version = min(version, limit)
	keepDrivers(version)

	checks, err := o.checks(os.Getenv(ValidationEnv))
	if err != nil {
		return nil, err
	}
	offered, err := instanceExtensions(faults, gipa, "")
	if err != nil {
		return nil, err
	}
	var layers, extensions []string
	var layer Version
	if checks != 0 {
		if layer, err = layerVersion(faults, gipa, validationLayer); err != nil {
			return nil, err
		}
		if layer == 0 {
			return nil, ErrLayerMissing
		}
		layers = append(layers, validationLayer)
		more, err := instanceExtensions(faults, gipa, validationLayer)
		if err != nil {
			return nil, err
		}
		offered = append(offered, more...)
	}
	want := func(name string) bool {
		if slices.Contains(offered, name) {
			extensions = append(extensions, name)
			return true
		}
		return false
	}
	debug := want(extDebugUtils)
	messenger := debug && o.OnMessage != nil
	portability := want(extPortabilityEnum)
	for _, name := range o.Extensions {
		if !slices.Contains(extensions, name) && !want(name) {
			return nil, fmt.Errorf("vk: NewInstance: the Vulkan loader and drivers do not offer the instance extension %s: %w", name,
				ErrUnsupported)
		}
	}
	if more := checks &^ checkCore; more != 0 && !want(extValidationFeature) {
		return nil, fmt.Errorf("vk: the validation layer does not offer %s, which checking %v needs: %w", extValidationFeature, more,
			ErrUnsupported)
	}

	in := &Instance{version: version, validated: checks != 0, layer: layer, onMessage: o.OnMessage, debug: debug, faults: faults,
		open: map[*Device]struct{}{}, surfaces: map[*Surface]struct{}{},
		headless: slices.Contains(extensions, HeadlessSurface)}
	if messenger {
		in.receiver = addReceiver(in.message)
	}
	fail := func(err error) (*Instance, error) {
		receivers.Delete(in.receiver)
		return nil, err
	}
	frame := abi.NewFrame()
	defer frame.Free()
	_, next := newInstanceChain(frame, in.receiver, checks&^checkCore)
	handle, physical, err := createInstance(faults, o.AppName, version, layers, extensions, portability, next)
	if err != nil {
		err = withLoaderErrors(err, gipa, o.AppName, version, debug, layers)
		if layer != 0 && errors.Is(err, ErrLayerNotPresent) {
			err = &layerError{version: layer, err: err}
		}
		return fail(err)
	}
	in.handle = handle
	if in.table, err = loadInstance(gipa, handle); err != nil {
		destroyUnloaded(gipa, handle)
		return fail(err)
	}
	faults.hookTable(&in.table.table, 0, physical...)
	faults.count("Instance", 1)
	if messenger {
		if r := Result(in.table.createMessenger(in.receiver, &in.messenger)); r < 0 {
			in.destroy()
			return nil, callErr("vkCreateDebugUtilsMessengerEXT", r, "")
		}
	}
	for _, p := range physical {
		facts, err := queryFacts(in.table, p, version)
		if err == nil && facts.EffectiveVersion < Version11 {
			err = fmt.Errorf("vk: device %q offers only Vulkan %v; 1.1 is needed: %w", facts.Name, facts.EffectiveVersion, ErrUnsupported)
		}
		if err != nil { // one broken driver must not hide the others
			in.skipped = append(in.skipped, err)
			continue
		}
		in.devices = append(in.devices, &PhysicalDevice{instance: in, handle: p, facts: facts})
	}
	return in, nil
}

// loadInstance makes the table of an instance's functions.
func loadInstance(gipa, handle uintptr) (*instanceTable, error) {
	t, missing := loadInstanceTable(gipa, handle)
	if missing != 0 {
		return nil, fmt.Errorf("vk: the instance has no function %v; Vulkan 1.1 is needed: %w", missing, ErrUnsupported)
	}
	return t, nil
}

// PhysicalDevices returns the devices of version 1.1 or more, in the loader's order.
func (in *Instance) PhysicalDevices() ([]*PhysicalDevice, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, ErrClosed
	}
	return slices.Clone(in.devices), nil
}

// Skipped returns why devices that the loader found are not among the physical devices, one error each.
func (in *Instance) Skipped() []error { return slices.Clone(in.skipped) }

// Handle returns the VkInstance.
func (in *Instance) Handle() uintptr { return in.handle }

// APIVersion returns the version that the instance was created with.
func (in *Instance) APIVersion() Version { return in.version }

// Validated says whether the validation layer is loaded.
func (in *Instance) Validated() bool { return in.validated }

// LayerVersion returns the version of the validation layer that is loaded, 0 without it.
func (in *Instance) LayerVersion() Version { return in.layer }

// Close closes the devices opened from the instance and then the instance. A second call does nothing.
func (in *Instance) Close() error {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return nil
	}
	in.closed = true
	devices := make([]*Device, 0, len(in.open))
	for d := range in.open {
		devices = append(devices, d)
	}
	in.mu.Unlock()
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.Close())
	}
	in.destroySurfaces()
	in.destroy()
	return errors.Join(errs...)
}

func (in *Instance) destroy() {
	if in.messenger != 0 {
		in.table.destroyMessenger(in.messenger)
	}
	in.table.destroy()
	in.faults.count("Instance", -1)
	in.table.unhook()
	in.table = nil
	receivers.Delete(in.receiver)
}

// PhysicalDevice is a device that can be opened.
type PhysicalDevice struct {
	instance *Instance
	handle   uintptr
	facts    *Facts
}

// Facts returns what is known of the device; it must not be changed.
func (p *PhysicalDevice) Facts() *Facts { return p.facts }

// Handle returns the VkPhysicalDevice.
func (p *PhysicalDevice) Handle() uintptr { return p.handle }

func instanceExtensions(f *Faults, gipa uintptr, layer string) ([]string, error) {
	return listNames("vkEnumerateInstanceExtensionProperties",
		faulty(f, callEnumerateInstanceExtensionProperties, func(out []abi.ExtensionProperties) int32 {
			return listInstanceExtensions(gipa, layer, out)
		}), func(p *abi.ExtensionProperties) string { return abi.Chars(p.ExtensionName[:]) })
}

// layerVersion is the version of Vulkan that an installed layer was made for; 0 where there is no such layer.
func layerVersion(f *Faults, gipa uintptr, name string) (Version, error) {
	layers, err := list("vkEnumerateInstanceLayerProperties",
		faulty(f, callEnumerateInstanceLayerProperties, func(out []abi.LayerProperties) int32 { return listInstanceLayers(gipa, out) }))
	for i := range layers {
		if abi.Chars(layers[i].LayerName[:]) == name {
			return max(Version(layers[i].SpecVersion), 1), err // whatever it says, it is there
		}
	}
	return 0, err
}

// listNames is [list] with a name from each element.
func listNames[T any](call string, fill func([]T) int32, name func(*T) string) ([]string, error) {
	all, err := list(call, fill)
	names := make([]string, len(all))
	for i := range all {
		names[i] = name(&all[i])
	}
	return names, err
}

// list asks how many elements there are, makes room and asks for them, again if there were more by then.
func list[T any](call string, fill func([]T) int32) ([]T, error) {
	n := fill(nil)
	for {
		if n < 0 {
			return nil, callErr(call, Result(n), "")
		}
		if n == 0 {
			return nil, nil
		}
		out := make([]T, n+4)
		m := fill(out)
		if m >= 0 && int(m) < len(out) {
			return out[:m], nil
		}
		if m < 0 {
			return nil, callErr(call, Result(m), "")
		}
		n = 2 * m
	}
}
