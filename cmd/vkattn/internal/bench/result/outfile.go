package result

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/vkattn/vkattn/internal/diskfile"
)

// CreateMode says what CreateFile does with a file that exists.
type CreateMode int

const (
	CreateNew CreateMode = iota // refuse
	Append                      // add to it
	Force                       // replace it
)

// OutFile is a file of lines that one process writes at a time, and that is whole whenever that process ends.
type OutFile struct {
	file    *os.File
	regular bool // not a pipe, a terminal, /dev/null
	made    bool // it was not there, or what was there is gone
	closed  bool
	Earlier *File // what Append found; Cut bytes of it are removed
}

// CreateFile opens a file for writing, and keeps other processes from doing so until Close. Appending to a result file whose last
// line was cut off removes that line, and to one without a newline at its end adds one.
func CreateFile(path string, mode CreateMode) (*OutFile, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_APPEND
	f, err := os.OpenFile(path, flags|os.O_EXCL, 0o644)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		if mode == CreateNew {
			return nil, fmt.Errorf("%s exists already: add to it with --append, replace it with --force, or name another file", path)
		}
		f, err = os.OpenFile(path, flags, 0o644)
	}
	if err != nil {
		return nil, err
	}
	out := &OutFile{file: f, made: made}
	if err := out.begin(path, mode); err != nil {
		f.Close()
		return nil, err
	}
	return out, nil
}

func (o *OutFile) begin(path string, mode CreateMode) error {
	info, err := o.file.Stat()
	if err != nil {
		return err
	}
	if o.regular = info.Mode().IsRegular(); !o.regular {
		return nil
	}
	if got, err := diskfile.TryLock(o.file); err == nil && !got { // a file system without locks goes without
		return fmt.Errorf("%s is being written by another process: wait until that ends, or name another file", path)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(info, now) { // whoever had made it closed it, with nothing in it
		return fmt.Errorf("%s was removed meanwhile by another process: try it again", path)
	}
	switch mode {
	case Append:
		return o.resume(path)
	case Force:
		o.made = true
		return os.Truncate(path, 0)
	}
	return nil
}

// resume reads what the file holds and makes its end one that lines can be added to.
func (o *OutFile) resume(path string) (err error) {
	if o.Earlier, err = read(path, o.file); err != nil {
		return err
	}
	info, err := o.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - int64(o.Earlier.Cut)
	if o.Earlier.Cut > 0 {
		if err := os.Truncate(path, size); err != nil {
			return fmt.Errorf("%s: removing its last line, which was cut off: %w", path, err)
		}
	}
	last := []byte{'\n'}
	if size > 0 {
		if _, err := o.file.ReadAt(last, size-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		_, err = o.Write([]byte{'\n'})
	}
	return err
}

// Write adds lines, and lets them reach the disk. Where there is no room for all of them, none is added.
func (o *OutFile) Write(lines []byte) (int, error) {
	n, err := o.file.Write(lines)
	if !o.regular {
		return n, err
	}
	if err != nil && n > 0 {
		return 0, errors.Join(err, o.takeBack(int64(n)))
	}
	if err == nil {
		err = o.file.Sync()
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
			err = nil // a file system that has nothing to wait for
		}
	}
	return n, err
}

// takeBack removes the last n bytes.
func (o *OutFile) takeBack(n int64) error {
	info, err := o.file.Stat()
	if err != nil {
		return err
	}
	return os.Truncate(o.file.Name(), info.Size()-n)
}

// Close lets other processes write the file. One that CreateFile has made is removed where nothing was written to it: it would tell
// nothing, and be in the way of the next call.
func (o *OutFile) Close() error {
	if o.closed {
		return o.file.Close()
	}
	o.closed = true
	left := false
	if info, err := o.file.Stat(); o.made && o.regular && err == nil && info.Size() == 0 {
		left = os.Remove(o.file.Name()) != nil // Windows removes no file that is open
	}
	err := o.file.Close()
	if left {
		_ = os.Remove(o.file.Name())
	}
	return err
}

// AddTo opens a result file to add lines to it. It must be one: a file that is not there, or holds nothing, is a mistake.
func AddTo(path string) (*OutFile, error) {
	if _, err := ReadFile(path); err != nil {
		return nil, err
	}
	return CreateFile(path, Append)
}

// Line is the picture as a line of a result file, an error where that would be longer than what is read of one.
func (p Picture) Line() ([]byte, error) {
	var line bytes.Buffer
	if err := NewWriter(&line).Line(p); err != nil {
		return nil, err
	}
	if n := line.Len(); n > MostLine {
		return nil, fmt.Errorf("the picture makes a line of %d KiB, and one of a result file may have %d: draw fewer heads, or fewer "+
			"cells of each", (n+1023)>>10, MostLine>>10)
	}
	return line.Bytes(), nil
}
