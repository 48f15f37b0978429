package vk

import (
	"sync"
	"sync/atomic"
)

// object is what things made from a device have in common. Closing a device, or the thing itself, is safe beside calls on it: they
// return ErrClosed, or are waited for. Everything but the handle stays as it was made, so that it can be read at any time.
type object struct {
	dev    *Device
	handle atomic.Uintptr // 0 once destroyed
	use    sync.RWMutex   // read-locked by calls on it, locked while it is destroyed
}

func (o *object) init(dev *Device, handle uintptr) {
	o.dev = dev
	o.handle.Store(handle)
}

// enter begins a call on the object: it fails when that or the device is closed, or the device lost. leave must follow when
// it does not.
func (o *object) enter() error {
	if err := o.dev.enter(); err != nil {
		return err
	}
	o.use.RLock()
	if o.handle.Load() == 0 {
		o.leave()
		return ErrClosed
	}
	return nil
}

func (o *object) leave() {
	o.use.RUnlock()
	o.dev.leave()
}

// enterAlone is enter for calls that must be alone with the object; leaveAlone must follow.
func (o *object) enterAlone() error {
	if err := o.dev.enter(); err != nil {
		return err
	}
	o.use.Lock()
	if o.handle.Load() == 0 {
		o.leaveAlone()
		return ErrClosed
	}
	return nil
}

func (o *object) leaveAlone() {
	o.use.Unlock()
	o.dev.leave()
}

// take ends the object: it waits for calls on it and returns the handle, which is to be destroyed before done is called.
func (o *object) take() (handle uintptr, done func()) {
	o.use.Lock()
	return o.handle.Swap(0), o.use.Unlock
}
