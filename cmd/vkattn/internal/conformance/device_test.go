package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// shared is the device that all tests of this package use, with the validation layers on.
var shared struct {
	once     sync.Once
	dev      *flash.Device
	err      error
	layers   bool
	mu       sync.Mutex
	messages []string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dev != nil {
		if err := shared.dev.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the device:", err)
			code = 1
		}
		if left := takeMessages(); len(left) > 0 {
			fmt.Fprintln(os.Stderr, "validation messages on closing the device:", left)
			code = 1
		}
	}
	os.Exit(code)
}

// required says whether an environment variable turns a missing thing into a failure.
func required(variable string) bool { return os.Getenv(variable) == "1" }

// open opens a device with the validation layers on, and says whether it has them.
func open() (dev *flash.Device, layers bool, err error) {
	record := func(m flash.Message) {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.messages = append(shared.messages, fmt.Sprint(m))
	}
	dev, err = flash.Open(flash.WithoutDiskCache(), flash.WithValidation(record))
	if vktest.Unvalidated(err) {
		dev, err = flash.Open(flash.WithoutDiskCache())
		return dev, false, err
	}
	return dev, true, err
}

// device opens the shared device; a machine without one skips the test, or fails it where
// VKATTN_REQUIRE_DEVICE=1.
func device(t *testing.T) *flash.Device {
	t.Helper()
	shared.once.Do(func() {
		shared.dev, shared.layers, shared.err = open()
	})
	switch {
	case shared.err == nil:
	case errors.Is(shared.err, flash.ErrNoDevice) && !required("VKATTN_REQUIRE_DEVICE"):
		t.Skip("no Vulkan device: ", shared.err)
	default:
		t.Fatal(shared.err)
	}
	t.Logf("%s, validation layers %v", shared.dev.Info().Name, shared.layers)
	return shared.dev
}

// takeMessages gives what the validation layers said since it was last called.
func takeMessages() []string {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	out := shared.messages
	shared.messages = nil
	return out
}

// passes runs a case on a target as a test of its own, which skips where the case does, and fails where it or the validation layers do.
func passes(t *testing.T, dev *flash.Device, c *Case, target Target) Result {
	t.Helper()
	vktest.Budget(t)
	r := c.Run(context.Background(), dev, target)
	require.Empty(t, takeMessages())
	if r.Skipped != "" {
		t.Skip(r.Skipped)
	}
	require.True(t, r.Pass, r.Failure)
	return r
}
