// Package diskfile changes files that several processes share, and that may be cut off at any moment: by a kill, a full
// disk, a power cut. A reader sees the old content or the new, never a part.
package diskfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// patience is how long Update waits for another process that changes the same file.
const patience = 5 * time.Second

// Update replaces a file by what change makes of it, under a lock, so that changes of several processes follow one another and
// none is lost. The folder is made when it is missing. change reads the file itself; its error leaves the file as it is.
//
// Where the file system has no locks, or their holder hangs, the file is replaced without: it stays whole, and what another
// process adds in the same moment is lost.
func Update(path string, change func() ([]byte, error)) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "replace", Path: path, Err: errors.New("it is not a regular file")}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if unlock, err := Lock(path + ".lock"); err == nil {
		defer unlock()
		removeLeftovers(path)
	}
	data, err := change()
	if err != nil {
		return err
	}
	return replace(path, data, true)
}

// Replace makes a file hold data, without a lock of its own and without waiting for the disk: for many files in one folder of which it does
// not matter which of two writers comes last, and whose content tells whether it is whole, as after a power cut it may not be. Temporary
// files of processes that were killed meanwhile, *.tmp beside it, are the caller's to remove.
func Replace(path string, data []byte) error { return replace(path, data, false) }

// Lock takes the lock of a file made for that, waiting for it at most five seconds. An error means that the file system has no locks, or
// that the holder hangs.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got, err := TryLock(f)
		if got {
			return func() { f.Close() }, nil
		}
		if err == nil && time.Now().After(end) {
			err = fmt.Errorf("%s is locked by another process", path)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
}

// isTemporary says whether name is one that os.CreateTemp makes of base.*.tmp.
func isTemporary(name, base string) bool {
	number, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return false
	}
	number, ok = strings.CutSuffix(number, ".tmp")
	_, err := strconv.ParseUint(number, 10, 64)
	return ok && err == nil
}

// removeLeftovers removes the temporary files of processes that were killed. Whoever holds the lock is the only one who writes.
func removeLeftovers(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range entries {
		if isTemporary(e.Name(), filepath.Base(path)) {
			os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// replace makes path hold data in one rename, after the data has reached the disk where it must.
func replace(path string, data []byte, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return failed(path, err)
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return failed(path, err)
	}
	return nil
}

// failed says of path what went wrong with its temporary file, whose name means nothing to anyone.
func failed(path string, err error) error {
	var one *fs.PathError
	var two *os.LinkError
	switch {
	case errors.As(err, &one):
		err = one.Err
	case errors.As(err, &two):
		err = two.Err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}
