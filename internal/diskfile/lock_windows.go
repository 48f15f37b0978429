package pipeline

import (
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// lockFile takes an exclusive lock on a file, waiting for it at most lockPatience; the system releases it when the process
// ends in any way.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	for give := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		err = windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, new(windows.Overlapped))
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != windows.ERROR_LOCK_VIOLATION || time.Now().After(give) {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
}
