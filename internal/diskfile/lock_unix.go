//go:build unix

package pipeline

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile takes an exclusive lock on a file, waiting for it at most lockPatience; the system releases it when the process
// ends in any way.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for give := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if (err != unix.EWOULDBLOCK && err != unix.EINTR) || time.Now().After(give) {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
}
