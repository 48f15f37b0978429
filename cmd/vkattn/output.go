package main

import "io"

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
