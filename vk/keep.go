package vk

import "sync"

// kept is the instance that keepDrivers holds on to.
var kept struct {
	sync.Mutex
	instances int
	held      bool
}

// keepDrivers makes an instance without layers when a process is about to make its second one, and never destroys it. While any
// instance lives, the loader does not unload the drivers to load them again for the next; NVIDIA's (580) fails to load about the
// thirtieth time in a process. A process that opens one device at a time pays nothing for the first.
func keepDrivers(version Version) {
	kept.Lock()
	defer kept.Unlock()
	if kept.instances++; kept.instances < 2 || kept.held {
		return
	}
	_, _, err := createInstance(nil, "vkattn", version, nil, nil, false, nil)
	kept.held = err == nil // else whoever asked for an instance gets the reason
}
