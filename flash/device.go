package flash

import "errors"

var errUnfinished = errors.New("flash: not finished yet")

// Device is a Vulkan device with what attention needs on it.
type Device struct {
	info DeviceInfo
}

// Open opens the best device, or the one the options name.
func Open(opts ...DeviceOption) (*Device, error) { return nil, errUnfinished }

// Attach uses a VkDevice that the caller owns. Nothing of the caller's is ever destroyed.
func Attach(external External, opts ...DeviceOption) (*Device, error) { return nil, errUnfinished }

// Devices lists the machine's devices, in the order in which Open prefers them.
func Devices(opts ...DeviceOption) ([]DeviceInfo, error) { return nil, errUnfinished }

// Info describes the device.
func (d *Device) Info() DeviceInfo { return d.info }

// Usage gives the bytes allocated on the device by label, with high-water marks.
func (d *Device) Usage() Usage { return Usage{} }

// ResetPeak sets the high-water marks to the current use.
func (d *Device) ResetPeak() {}

// WaitIdle waits until the device has nothing left to do.
func (d *Device) WaitIdle() error { return errUnfinished }

// Lost gives the error that lost the device, nil while it works.
func (d *Device) Lost() error { return nil }

// Close frees everything made on the device, then the device itself unless it is attached.
func (d *Device) Close() error { return nil }
