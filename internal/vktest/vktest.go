// Package vktest gives tests a Vulkan device that complains: with the validation layer on, any message fails the test.
//
// A machine without Vulkan skips the test with the reason. VKATTN_REQUIRE_DEVICE=1 turns such skips into failures. A machine without the
// validation layer, or with one that does not load, runs tests unvalidated and says so; VKATTN_REQUIRE_VALIDATION=1 makes that a failure
// too. VKATTN_TEST_DEVICE picks the device whose name contains it; otherwise the first one is taken.
package vktest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vkattn/vkattn/vk"
)

// Options say how the device is opened.
type Options struct {
	SyncValidation bool             // also check for missing barriers; slower
	NoValidation   bool             // for timing
	Device         vk.DeviceOptions // of PhysicalDevice.Open
	MaxAPIVersion  vk.Version       // of NewInstance
	Faults         *vk.Faults       // of NewInstance
	Extensions     []string         // of NewInstance
}

// Instance opens a validated instance for the length of the test.
func Instance(t testing.TB, o Options) *vk.Instance {
	t.Helper()
	rec := &recorder{t: t}
	options := vk.InstanceOptions{
		AppName: t.Name(), MaxAPIVersion: o.MaxAPIVersion, Faults: o.Faults, Extensions: o.Extensions,
		Validation: !o.NoValidation, SyncValidation: o.SyncValidation && !o.NoValidation, OnMessage: rec.message,
	}
	in, err := vk.NewInstance(options)
	if Unvalidated(err) {
		options.Validation, options.SyncValidation = false, false
		in, err = vk.NewInstance(options)
	}
	if errors.Is(err, vk.ErrLayerMissing) {
		t.Fatalf("%s=1: %v", RequireValidation, err)
	}
	if errors.Is(err, vk.ErrUnsupported) && len(o.Extensions) > 0 {
		t.Skip(err)
	}
	if err != nil {
		missing(t, err.Error())
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Errorf("closing the instance: %v", err)
		}
		rec.stop()
	})
	return in
}

// PhysicalDevice returns the device that tests use.
func PhysicalDevice(t testing.TB, in *vk.Instance) *vk.PhysicalDevice {
	t.Helper()
	d, err := FirstDevice(in)
	if errors.Is(err, errNoDevice) {
		missing(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var errNoDevice = errors.New("the Vulkan loader found no device of version 1.1 or more")

// FirstDevice is PhysicalDevice outside of a test.
func FirstDevice(in *vk.Instance) (*vk.PhysicalDevice, error) {
	devices, err := in.PhysicalDevices()
	if err != nil {
		return nil, err
	}
	want := os.Getenv("VKATTN_TEST_DEVICE")
	for _, d := range devices {
		if strings.Contains(d.Facts().Name, want) {
			return d, nil
		}
	}
	if want != "" {
		return nil, fmt.Errorf("VKATTN_TEST_DEVICE=%s: none of the %d devices has such a name", want, len(devices))
	}
	return nil, errors.Join(append([]error{errNoDevice}, in.Skipped()...)...)
}

// Device opens a validated device for the length of the test. Whatever is made from it and not closed is closed with it.
func Device(t testing.TB) *vk.Device {
	t.Helper()
	return Open(t, Options{})
}

// Open is Device with options.
func Open(t testing.TB, o Options) *vk.Device {
	t.Helper()
	d, err := PhysicalDevice(t, Instance(t, o)).Open(o.Device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// Opened opens a device of a layer above for the length of the test. open is given what takes the messages of the validation layers, nil
// where tests run without them.
func Opened[D io.Closer](t testing.TB, open func(onMessage func(vk.Message)) (D, error)) D {
	t.Helper()
	rec := &recorder{t: t}
	d, err := open(rec.message)
	if Unvalidated(err) {
		d, err = open(nil)
	}
	if errors.Is(err, vk.ErrLayerMissing) {
		t.Fatalf("%s=1: %v", RequireValidation, err)
	}
	if err != nil {
		missing(t, err.Error())
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error("Close:", err)
		}
		rec.stop()
	})
	return d
}

// LeaveOutExamples makes go test leave examples out for want of a device, unless there must be one: unlike tests they cannot skip
// themselves. It is for TestMain.
func LeaveOutExamples(why error) {
	flag.Parse()
	if why == nil || os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
		return
	}
	fmt.Fprintln(os.Stderr, "examples are left out:", why)
	skip := flag.Lookup("test.skip")
	if err := skip.Value.Set(strings.TrimPrefix(skip.Value.String()+"|^Example", "|")); err != nil {
		panic(err)
	}
}

// missing skips the test, or fails it where a device is required.
func missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
		t.Fatalf("VKATTN_REQUIRE_DEVICE=1: %s", reason)
	}
	t.Skip(reason)
}

// recorder fails the test on messages, the first few in full; it says nothing once the test is over.
type recorder struct {
	t  testing.TB
	mu sync.Mutex
	n  int
}

func (r *recorder) message(m vk.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.t == nil {
		return
	}
	if r.n++; r.n <= 5 {
		r.t.Errorf("validation: %v", m)
	} else {
		r.t.Fail()
	}
}

func (r *recorder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n > 5 {
		r.t.Errorf("validation: %d messages in all", r.n)
	}
	r.t = nil
}
