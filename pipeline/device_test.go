package pipeline

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/vkattn/vkattn/vk"
)

// shared is the device that all tests use, with the validation layers on, and what they said.
var shared struct {
	once     sync.Once
	instance *vk.Instance
	device   *vk.Device
	err      error

	mu       sync.Mutex
	messages []string
}

func openShared() error {
	if err := vk.Load(); err != nil {
		return err
	}
	// Have the synchronisation validation look at what shaders access too; it takes every binding as touched as declared.
	if err := os.Setenv("VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC", "true"); err != nil {
		return err
	}
	var err error
	shared.instance, err = vk.NewInstance(vk.InstanceOptions{
		AppName: "vkattn pipeline tests", Validation: os.Getenv("VKATTN_NO_VALIDATION") == "", SyncValidation: true,
		OnMessage: func(m vk.Message) {
			shared.mu.Lock()
			defer shared.mu.Unlock()
			shared.messages = append(shared.messages, fmt.Sprintf("%s: %s", m.ID, m.Text))
		},
	})
	if err != nil {
		return err
	}
	all, err := shared.instance.PhysicalDevices()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no Vulkan device")
	}
	shared.device, err = all[0].Open(vk.DeviceOptions{})
	return err
}

func testDevice(t testing.TB) *vk.Device {
	t.Helper()
	shared.once.Do(func() { shared.err = openShared() })
	if shared.err != nil {
		if os.Getenv("VKATTN_REQUIRE_DEVICE") != "" {
			t.Fatal(shared.err)
		}
		t.Skip(shared.err)
	}
	t.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		for _, m := range shared.messages {
			t.Error(m)
		}
		shared.messages = nil
	})
	return shared.device
}
