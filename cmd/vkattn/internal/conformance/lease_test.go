package conformance

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// A device keeps every kernel that it has compiled, and a CPU driver's take some 15 MiB each. The suite's cases therefore run on one device
// after another: each serves a number of cases, and is closed when the last of them has ended.
const casesOfDevice = 60

var leases struct {
	mu      sync.Mutex
	current *leased
}

type leased struct {
	dev           *flash.Device
	users, served int
	retired       bool
}

// lease gives a case its device for the length of the test.
func lease(t *testing.T) *flash.Device {
	t.Helper()
	leases.mu.Lock()
	defer leases.mu.Unlock()
	l := leases.current
	if l == nil {
		dev, _, err := open()
		require.NoError(t, err)
		l = &leased{dev: dev}
		leases.current = l
	}
	l.users++
	if l.served++; l.served == casesOfDevice {
		l.retired, leases.current = true, nil
	}
	t.Cleanup(func() {
		leases.mu.Lock()
		defer leases.mu.Unlock()
		if l.users--; l.users == 0 && l.retired {
			require.NoError(t, l.dev.Close())
		}
	})
	return l.dev
}

// closeLeased closes the device that cases would still be given.
func closeLeased(t *testing.T) {
	leases.mu.Lock()
	defer leases.mu.Unlock()
	if l := leases.current; l != nil {
		require.Zero(t, l.users)
		require.NoError(t, l.dev.Close())
		leases.current = nil
	}
}
