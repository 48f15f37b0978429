package vktest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/vkattn/vkattn/vk"
)

// Shared is a device that tests of a package share. A GPU's driver takes more than a tenth of a second to open one and close it, and
// serves one process after another: with a device for each test the others waited.
type Shared[D io.Closer] struct {
	// Open is given what takes the messages of the validation layers, nil where tests run without them.
	Open func(onMessage func(vk.Message)) (D, error)

	once   sync.Once
	device D
	err    error

	mu       sync.Mutex
	running  map[*recorder]bool
	messages []vk.Message // that came when no test ran
}

// Device opens the device at the first call. A message of the layers fails every test that has the device when it comes.
func (s *Shared[D]) Device(t testing.TB) D {
	t.Helper()
	s.once.Do(func() {
		if s.device, s.err = s.Open(s.message); Unvalidated(s.err) {
			s.device, s.err = s.Open(nil)
		}
	})
	if errors.Is(s.err, vk.ErrLayerMissing) {
		t.Fatalf("%s=1: %v", RequireValidation, s.err)
	}
	if s.err != nil {
		missing(t, s.err.Error())
	}
	rec := &recorder{t: t}
	s.mu.Lock()
	if s.running == nil {
		s.running = map[*recorder]bool{}
	}
	s.running[rec] = true
	s.mu.Unlock()
	t.Cleanup(func() {
		s.mu.Lock()
		delete(s.running, rec)
		s.mu.Unlock()
		rec.stop()
	})
	return s.device
}

func (s *Shared[D]) message(m vk.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) == 0 {
		s.messages = append(s.messages, m)
	}
	for rec := range s.running {
		rec.message(m)
	}
}

// Main runs the tests and closes the device. It is for TestMain, and gives the status to exit with.
func (s *Shared[D]) Main(m *testing.M) int {
	code := m.Run()
	s.once.Do(func() { s.err = errNotOpened })
	if s.err != nil {
		return code
	}
	if err := s.device.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "closing the device:", err)
		code = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		fmt.Fprintln(os.Stderr, "validation, when no test ran:", m)
		code = 1
	}
	return code
}

var errNotOpened = errors.New("no test asked for the device")
