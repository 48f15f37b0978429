package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/diskfile"
)

// output remembers the first error of writing to the standard output, which whoever prints there need not look at.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// fileOutput is an output that may be a terminal.
type fileOutput struct {
	*output
	fd func() uintptr
}

func (o fileOutput) Fd() uintptr { return o.fd() }

// writer gives the output as what it writes to: a file, if that is one.
func (o *output) writer() io.Writer {
	if f, ok := o.w.(interface{ Fd() uintptr }); ok {
		return fileOutput{o, f.Fd}
	}
	return o
}

// linesTo is where rows of JSON lines go: to the standard output where JSON is asked for, and to a new file where one is named, which force
// replaces.
func linesTo(stdout io.Writer, asJSON bool, path string, force bool) (lines io.Writer, close func(), err error) {
	var sinks []io.Writer
	close = func() {}
	if asJSON {
		sinks = append(sinks, stdout)
	}
	if path != "" {
		mode := result.CreateNew
		if force {
			mode = result.Force
		}
		file, err := result.CreateFile(path, mode)
		if err != nil {
			return nil, nil, err
		}
		close = func() { file.Close() }
		sinks = append(sinks, file)
	}
	return io.MultiWriter(sinks...), close, nil
}

// refuseOut says why the --out file cannot be written, before anything is measured; "" is none.
func refuseOut(path string, force bool) error {
	info, err := os.Stat(path)
	switch {
	case path == "" || errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("--out %s is a folder: it must be a file", path)
	case !force:
		return fmt.Errorf("%s exists already: replace it with --force, or name another file", path)
	}
	return nil
}

// writeWhole makes a file of data, whole or not at all. Of one that exists, which force replaces, nothing is lost where that fails.
func writeWhole(path string, force bool, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) && force {
		return replaceWhole(path, data)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// replaceWhole is writeWhole of a file that exists, which keeps its mode, as a link to it stays one.
func replaceWhole(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // a device, which holds nothing to lose
		return os.WriteFile(path, data, 0)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	if err := diskfile.Replace(path, data); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm())
}
