package flash

// temporary until vk and pipeline have these
type External struct {
	GetInstanceProcAddr, Instance, PhysicalDevice, Device, Queue uintptr
	QueueFamily                                                  uint32
	Extensions                                                   []string
}
type Usage struct{}
type ForwardUses struct{}
type DeviceOption func(*deviceOptions) error
type deviceOptions struct{}
type DeviceInfo struct{}
