package vk

import (
	"errors"
	"fmt"
	"strings"
)

// Result is a VkResult. Failures are usable as errors: errors.Is(err, vk.ErrDeviceLost).
type Result int32

// The results that callers may want to tell apart.
const (
	Success                 Result = 0
	NotReady                Result = 1
	Timeout                 Result = 2
	Incomplete              Result = 5
	ErrOutOfHostMemory      Result = -1
	ErrOutOfDeviceMemory    Result = -2
	ErrInitializationFailed Result = -3
	ErrDeviceLost           Result = -4
	ErrMemoryMapFailed      Result = -5
	ErrLayerNotPresent      Result = -6
	ErrExtensionNotPresent  Result = -7
	ErrFeatureNotPresent    Result = -8
	ErrIncompatibleDriver   Result = -9
	ErrTooManyObjects       Result = -10
	ErrFormatNotSupported   Result = -11
	ErrFragmentedPool       Result = -12
	ErrUnknown              Result = -13
	ErrOutOfPoolMemory      Result = -1000069000
	ErrFragmentation        Result = -1000161000
	ErrInvalidShader        Result = -1000012000
	ErrSurfaceLost          Result = -1000000000 // the window's surface must be made anew
	ErrWindowInUse          Result = -1000000001
	ErrOutOfDate            Result = -1000001004 // the swapchain no longer suits its surface and must be made anew
	Suboptimal              Result = 1000001003  // it still works, but another would suit better
)

var resultNames = map[Result]string{
	Success: "VK_SUCCESS", NotReady: "VK_NOT_READY", Timeout: "VK_TIMEOUT", Incomplete: "VK_INCOMPLETE",
	ErrOutOfHostMemory: "VK_ERROR_OUT_OF_HOST_MEMORY", ErrOutOfDeviceMemory: "VK_ERROR_OUT_OF_DEVICE_MEMORY",
	ErrInitializationFailed: "VK_ERROR_INITIALIZATION_FAILED", ErrDeviceLost: "VK_ERROR_DEVICE_LOST",
	ErrMemoryMapFailed: "VK_ERROR_MEMORY_MAP_FAILED", ErrLayerNotPresent: "VK_ERROR_LAYER_NOT_PRESENT",
	ErrExtensionNotPresent: "VK_ERROR_EXTENSION_NOT_PRESENT", ErrFeatureNotPresent: "VK_ERROR_FEATURE_NOT_PRESENT",
	ErrIncompatibleDriver: "VK_ERROR_INCOMPATIBLE_DRIVER", ErrTooManyObjects: "VK_ERROR_TOO_MANY_OBJECTS",
	ErrFormatNotSupported: "VK_ERROR_FORMAT_NOT_SUPPORTED", ErrFragmentedPool: "VK_ERROR_FRAGMENTED_POOL",
	ErrUnknown: "VK_ERROR_UNKNOWN", ErrOutOfPoolMemory: "VK_ERROR_OUT_OF_POOL_MEMORY",
	ErrFragmentation: "VK_ERROR_FRAGMENTATION", ErrInvalidShader: "VK_ERROR_INVALID_SHADER_NV",
	ErrSurfaceLost: "VK_ERROR_SURFACE_LOST_KHR", ErrWindowInUse: "VK_ERROR_NATIVE_WINDOW_IN_USE_KHR",
	ErrOutOfDate: "VK_ERROR_OUT_OF_DATE_KHR", Suboptimal: "VK_SUBOPTIMAL_KHR",
}

// String returns the name the specification gives the result.
func (r Result) String() string {
	if s, ok := resultNames[r]; ok {
		return s
	}
	return fmt.Sprintf("VkResult(%d)", int32(r))
}

// Error makes a Result an error; see [Result.String].
func (r Result) Error() string { return r.String() }

var (
	// ErrClosed is returned by every use of an object after its Close, or after the Close of its device.
	ErrClosed = errors.New("vk: used after Close")
	// ErrLayerMissing is returned when validation is asked for and the layer VK_LAYER_KHRONOS_validation is not installed. An error that
	// says that the layer was found and did not load is it, too: errors.Is(err, vk.ErrLayerMissing).
	ErrLayerMissing = errors.New("vk: the layer VK_LAYER_KHRONOS_validation is not installed")
	// ErrUnsupported is returned when a device does not offer, or was not opened with, what a call needs.
	ErrUnsupported = errors.New("vk: not supported by this device")
)

// CallError is a Vulkan call that failed.
type CallError struct {
	Call   string // the function, for example "vkQueueSubmit"
	Result Result
	Detail string // what the call was about, may be empty
}

// Error names the call, its result and what it was about.
func (e *CallError) Error() string {
	if e == nil {
		return "vk: a call failed"
	}
	s := "vk: " + e.Call + ": " + e.Result.String()
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap returns the Result.
func (e *CallError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Result
}

// layerError says that the validation layer is installed and did not load.
type layerError struct {
	version Version
	err     error // of vkCreateInstance
}

func (e *layerError) Error() string {
	return fmt.Sprintf("vk: the layer %s was found (%v), but did not load: %s", validationLayer, e.version,
		strings.TrimPrefix(e.err.Error(), "vk: "))
}

func (e *layerError) Is(target error) bool { return target == ErrLayerMissing }
func (e *layerError) Unwrap() error        { return e.err }

// ArgumentError is an argument that breaks a rule; nothing was done.
type ArgumentError struct {
	Call  string // the function of this package
	Name  string // the argument
	Value any    // what it was
	Rule  string // what it must be
}

// Error names the argument, its value and the rule.
func (e *ArgumentError) Error() string {
	if e == nil {
		return "vk: bad argument"
	}
	return fmt.Sprintf("vk: %s: %s is %v, but %s", e.Call, e.Name, e.Value, e.Rule)
}

// LoaderError says that no Vulkan loader could be opened.
type LoaderError struct {
	Tried  []string // library names, in the order tried
	Reason []string // what the system said, one for each
}

// Error lists the names tried.
func (e *LoaderError) Error() string {
	if e == nil {
		return "vk: no Vulkan loader found"
	}
	var b strings.Builder
	b.WriteString("vk: no Vulkan loader found; tried ")
	for i, name := range e.Tried {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
		if i < len(e.Reason) && e.Reason[i] != "" {
			b.WriteString(" (" + strings.TrimPrefix(e.Reason[i], name+": ") + ")") // dlopen begins with the name
		}
	}
	return b.String()
}

func argErr(call, name string, value any, rule string) error {
	return &ArgumentError{Call: call, Name: name, Value: value, Rule: rule}
}

// callErr turns a result of an instance-level call into an error; nil unless it is a failure.
func callErr(call string, r Result, detail string) error {
	if r >= 0 {
		return nil
	}
	return &CallError{Call: call, Result: r, Detail: detail}
}
