// Package tally lets the processes of a test run tell what its summary counts: a line of JSON each in a file that all of them append to,
// whichever package's tests or started commands they are. Outside such a run, where no environment variable names a file, nothing is
// written.
package tally

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Variable names the file.
const Variable = "VKATTN_TEST_TALLY"

// The kinds of lines.
const (
	Pipeline    = "pipeline"    // compiled: its module, its constants, how long it took
	FirstRun    = "first run"   // of a pipeline, the same: a CPU's driver makes machine code of it then
	PassedOver  = "passed over" // a message of the validation layers that is no objection to the program: its entry in vk's table, and why
	Unvalidated = "unvalidated" // a process whose tests ran without the validation layer: why
)

// Line is one thing to count.
type Line struct {
	Kind    string  `json:"kind"`
	Name    string  `json:"name"`
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

var file = sync.OnceValue(func() io.Writer { return open(os.Getenv(Variable)) })

// open opens the file for appending; nil where there is none to write to.
func open(name string) io.Writer {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Variable, err)
		return nil
	}
	return f
}

// On says whether anything is written, for callers who would have to measure it first.
func On() bool { return file() != nil }

// Add writes a line.
func Add(l Line) {
	if f := file(); f != nil {
		add(f, l)
	}
}

// add writes the line in one piece, so that those of several processes do not mix. What cannot be written is not counted; no test fails
// for it.
func add(w io.Writer, l Line) {
	data, err := json.Marshal(l)
	if err == nil {
		_, _ = w.Write(append(data, '\n'))
	}
}

// Read reads lines to the end. A line that is none, of a process killed as it wrote say, is an error that names it; the others are read
// all the same.
func Read(r io.Reader) ([]Line, error) {
	var lines []Line
	var errs []error
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		var l Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			errs = append(errs, fmt.Errorf("%s, line %d: %w", Variable, n, err))
			continue
		}
		lines = append(lines, l)
	}
	return lines, errors.Join(append(errs, in.Err())...)
}
