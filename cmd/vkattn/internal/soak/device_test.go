package soak

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// said is what the validation layers said.
type said struct {
	on       bool
	mu       sync.Mutex
	messages []string
}

func (s *said) add(m flash.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, fmt.Sprint(m))
}

func (s *said) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.messages
	s.messages = nil
	return out
}

// open opens a device for the length of the test, validated unless VKATTN_VALIDATION is off; a machine without one skips the test, or fails
// it where VKATTN_REQUIRE_DEVICE=1.
func open(t *testing.T) *flash.Device {
	t.Helper()
	dev, layers := openValidated(t)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
		for _, m := range layers.take() {
			t.Errorf("the validation layers object: %s", m)
		}
	})
	return dev
}

func openValidated(t *testing.T) (*flash.Device, *said) {
	t.Helper()
	layers := &said{on: os.Getenv("VKATTN_VALIDATION") != "off"}
	dev, err := openLike(layers)
	if vktest.Unvalidated(err) {
		layers.on = false
		dev, err = openLike(layers)
	}
	switch {
	case err == nil:
	case errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1":
		t.Skip("no Vulkan device: ", err)
	default:
		t.Fatal(err)
	}
	t.Logf("%s, validation layers %v", dev.Info().Name, layers.on)
	return dev, layers
}

// openLike opens a device, validated if the layers are on.
func openLike(layers *said) (*flash.Device, error) {
	options := []flash.DeviceOption{flash.WithoutDiskCache()}
	if layers.on {
		options = append(options, flash.WithValidation(layers.add))
	}
	return flash.Open(options...)
}
