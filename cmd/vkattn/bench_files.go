package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
)

// readResults reads a result file, and says so when its end is missing.
func readResults(stderr io.Writer, path string) (*result.File, error) {
	f, err := result.ReadFile(path)
	if err == nil && f.Cut > 0 {
		fmt.Fprintf(stderr, "vkattn: %s: the last line was cut off, and is left out\n", path)
	}
	return f, err
}

// earlier opens the --out file that --append adds to and gives its rows; without such a file there are none.
func (f *benchFlags) earlier(stderr io.Writer) (*result.OutFile, []result.Row, error) {
	if f.out == "" {
		return nil, nil, nil
	}
	info, err := os.Stat(f.out)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case info.IsDir():
		return nil, nil, fmt.Errorf("--out %s is a folder: it must be a file", f.out)
	case !f.appendTo && !f.force:
		return nil, nil, fmt.Errorf("%s exists already: add to it with --append, replace it with --force, or name another file", f.out)
	case f.force:
		return nil, nil, nil
	}
	file, err := result.CreateFile(f.out, result.Append)
	if err != nil || file.Earlier == nil {
		return file, nil, err
	}
	if file.Earlier.Cut > 0 {
		sayRemoved(stderr, f.out)
	}
	return file, file.Earlier.Rows, nil
}

// sayRemoved says that adding to a result file removed what was left of its last line.
func sayRemoved(stderr io.Writer, path string) {
	fmt.Fprintf(stderr, "vkattn: %s: the last line was cut off, and is removed\n", path)
}

// keep takes over the earlier rows that are wanted again, and the peers' beside them; those of shapes that are measured anew
// are left to the file.
func keep(r *report.Results, earlier []result.Row, jobs []result.Job, device string) {
	had := map[result.Case]result.Row{}
	for _, row := range earlier {
		if old, again := had[row.Case]; again {
			row = row.After(old)
		}
		if report.IsOurs(row) && row.Device == device && !row.Failed() {
			had[row.Case] = row
		}
	}
	for _, j := range jobs {
		if row, ok := had[j.Case]; ok && j.Passes.Done(row) {
			r.Rows = append(r.Rows, row)
		}
	}
	again := map[result.Case]bool{}
	for _, j := range jobs {
		again[j.Case.Shape()] = again[j.Case.Shape()] || !has(r.Rows, j.Case)
	}
	for _, row := range earlier {
		if !report.IsOurs(row) && !again[row.Shape()] {
			r.Peers = append(r.Peers, row)
		}
	}
}

// ownRows are those that this program measured on a device.
func ownRows(rows []result.Row, device string) (own []result.Row) {
	for _, r := range rows {
		if report.IsOurs(r) && r.Device == device {
			own = append(own, r)
		}
	}
	return own
}

func has(rows []result.Row, c result.Case) bool {
	return slices.ContainsFunc(rows, func(r result.Row) bool { return r.Case == c })
}

// sortLike puts rows in the order of the jobs.
func sortLike(rows []result.Row, jobs []result.Job) {
	at := map[result.Case]int{}
	for i, j := range jobs {
		at[j.Case] = i
	}
	slices.SortStableFunc(rows, func(a, b result.Row) int { return at[a.Case] - at[b.Case] })
}

// sink is the --out file; without one it takes rows and does nothing.
type sink struct {
	file *result.OutFile
	w    *result.Writer
}

// newSink opens the --out file, unless it is open, and writes the header, and the rows of --compare that belong to the jobs.
func (f *benchFlags) newSink(file *result.OutFile, h result.Header, peers []result.Row, jobs []result.Job) (*sink, error) {
	if f.out == "" {
		return &sink{}, nil
	}
	mode := result.CreateNew
	switch {
	case f.appendTo:
		mode = result.Append
	case f.force:
		mode = result.Force
	}
	if file == nil {
		var err error
		if file, err = result.CreateFile(f.out, mode); err != nil {
			return nil, err
		}
	}
	s := &sink{file, result.NewWriter(file)}
	if err := s.w.Line(h); err != nil {
		file.Close()
		return nil, err
	}
	shapes := map[result.Case]bool{}
	for _, j := range jobs {
		shapes[j.Case.Shape()] = true
	}
	for _, p := range peers {
		if shapes[p.Shape()] && slices.Contains(f.peerImpls, p.Impl) && !report.IsOurs(p) { // those of an earlier run are in its file
			if err := s.w.Line(p); err != nil {
				file.Close()
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *sink) row(r result.Row) error {
	if s.file == nil {
		return nil
	}
	return s.w.Line(r)
}

func (s *sink) peer(header []string) error {
	if s.file == nil {
		return nil
	}
	return s.w.Peer(header)
}

func (s *sink) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
