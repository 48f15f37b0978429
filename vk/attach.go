package vk

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// External is a device that somebody else made, with whatever binding: all handles are plain integers.
type External struct {
	GetInstanceProcAddr uintptr     // vkGetInstanceProcAddr; 0: that of this process's loader
	Instance            uintptr     // VkInstance
	PhysicalDevice      uintptr     // VkPhysicalDevice
	Device              uintptr     // VkDevice
	Queue               uintptr     // VkQueue, of a family that computes
	QueueFamily         uint32      // index of that family
	APIVersion          Version     // that the instance was created with, 1.1 or more; 0: the device's
	Enabled             Features    // the features that the device was created with
	Extensions          []string    // the extensions that the device and its instance were created with
	QueueLock           sync.Locker // held around submissions, by one thread each, if the owner submits to the queue too; may be nil
}

// Attach makes a Device of somebody else's. Close leaves the device as it was and destroys only what was made through this
// package. The owner must keep the handles alive until then.
func Attach(e External) (*Device, error) { return attachWith(e, nil) }

func attachWith(e External, f *Faults) (*Device, error) {
	faults, err := f.orEnvironment()
	if err != nil {
		return nil, err
	}
	for _, h := range []struct {
		name  string
		value uintptr
	}{{"Instance", e.Instance}, {"PhysicalDevice", e.PhysicalDevice}, {"Device", e.Device}, {"Queue", e.Queue}} {
		if h.value == 0 {
			return nil, argErr("Attach", h.name, 0, "it must be a handle")
		}
	}
	if e.GetInstanceProcAddr == 0 {
		if err := Load(); err != nil {
			return nil, err
		}
		e.GetInstanceProcAddr = GetInstanceProcAddr()
	}
	version := e.APIVersion
	if version == 0 {
		version = ^Version(0) // the device's own version decides
	} else if version < Version11 {
		return nil, argErr("Attach", "APIVersion", version, "it must be at least 1.1.0")
	}
	table, err := loadInstance(e.GetInstanceProcAddr, e.Instance)
	if err != nil {
		return nil, err
	}
	faults.hookTable(&table.table, 0, e.PhysicalDevice)
	d, err := attach(table, e, version, faults)
	if err != nil {
		table.unhook()
		return nil, err
	}
	return d, nil
}

func attach(table *instanceTable, e External, version Version, faults *Faults) (*Device, error) {
	facts, err := queryFacts(table, e.PhysicalDevice, version)
	if err != nil {
		return nil, err
	}
	if facts.EffectiveVersion < Version11 {
		return nil, fmt.Errorf("vk: device %q offers Vulkan %v, 1.1 is needed: %w", facts.Name, facts.EffectiveVersion, ErrUnsupported)
	}
	if int(e.QueueFamily) >= len(facts.Queues) {
		return nil, argErr("Attach", "QueueFamily", e.QueueFamily, fmt.Sprintf("device %q has %d queue families", facts.Name,
			len(facts.Queues)))
	}
	if facts.Queues[e.QueueFamily].Flags&QueueCompute == 0 {
		return nil, argErr("Attach", "QueueFamily", e.QueueFamily, fmt.Sprintf("that family of device %q does not compute", facts.Name))
	}
	supported, claimed := reflect.ValueOf(facts.Features), reflect.ValueOf(e.Enabled)
	for i := range claimed.NumField() {
		if claimed.Field(i).Bool() && !supported.Field(i).Bool() {
			return nil, argErr("Attach", "Enabled."+claimed.Type().Field(i).Name, true,
				fmt.Sprintf("device %q does not support it", facts.Name))
		}
	}
	d := &Device{
		instance: table, physical: e.PhysicalDevice, facts: facts, enabled: e.Enabled, handle: e.Device,
		external: e, sharedLock: e.QueueLock, faults: faults,
		mask: structMask(facts.EffectiveVersion, facts.HasExtension), presents: slices.Contains(e.Extensions, extSwapchain),
	}
	if err := d.init(e.Queue, e.QueueFamily); err != nil {
		return nil, err
	}
	// The functions may be found although the owner's instance has not enabled their extension.
	if !slices.Contains(e.Extensions, extDebugUtils) {
		d.table.forgetDebugUtils()
	}
	return d, nil
}
