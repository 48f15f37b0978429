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

// earlierRows are those of the file that --append adds to, the last of each case.
type earlierRows struct {
	own, peers map[result.Case]result.Row // those of this program on this device that did not fail, and peers'
	skipped    map[result.Case]result.Failure
	order      []result.Row // peers', as the file has them
}

func newEarlier(rows []result.Row, device string) *earlierRows {
	e := &earlierRows{own: map[result.Case]result.Row{}, peers: map[result.Case]result.Row{}, skipped: map[result.Case]result.Failure{}}
	for _, row := range rows {
		if !report.IsOurs(row) {
			e.order = append(e.order, row)
			if old, again := e.peers[row.Case]; again {
				row = row.After(old)
			}
			e.peers[row.Case] = row
			continue
		}
		if row.Device == device && row.Skipped() {
			e.skipped[row.Case] = row.Failure
		}
		if old, again := e.own[row.Case]; again {
			row = row.After(old)
		}
		if row.Device == device && !row.Failed() {
			e.own[row.Case] = row
		}
	}
	return e
}

// keep takes over the rows that are wanted again and that this call would measure in the same way. Those that another tier or other tiles
// have measured are an error: a file has one row of a case, and readers would take both for rounds of one.
func (e *earlierRows) keep(r *report.Results, jobs []result.Job, f *benchFlags) error {
	for _, j := range jobs {
		row, ok := e.own[j.Case]
		if !ok || !j.Passes.Done(row) {
			continue
		}
		if row.Error != "" { // what one tier has no kernel for, another may have
			if tier := row.Flag("tier"); tier == "" || tier == f.tier {
				r.Rows = append(r.Rows, row)
			}
			continue
		}
		if f.tier != "" && row.Tier != "" && row.Tier != f.tier {
			return fmt.Errorf("--tier %s: %s was measured on the tier %s, in %s: name another file", f.tier, j.Case, row.Tier, f.out)
		}
		if had := row.Flag("tiles"); had != f.device.tiles {
			return fmt.Errorf("%s: %s was measured with %s, and this call has %s: name another file", f.out, j.Case, tilesNamed(had),
				tilesNamed(f.device.tiles))
		}
		r.Rows = append(r.Rows, row)
	}
	return nil
}

func tilesNamed(path string) string {
	if path == "" {
		return "no --tiles"
	}
	return "--tiles " + path
}

// hasPeer says whether a row of the peer needs not be asked for again.
func (e *earlierRows) hasPeer(j result.Job) bool {
	row, ok := e.peers[j.Case]
	return ok && !row.Failed() && j.Passes.Done(row)
}

// says whether the file has a row that says the same of why it was skipped.
func (e *earlierRows) says(row result.Row) bool {
	old := e.peers[row.Case].Failure
	if report.IsOurs(row) {
		old = e.skipped[row.Case]
	}
	return row.Skipped() && row.Failure == old
}

// beside gives the peers' rows that rows which were not measured anew stand beside: of shapes that were, the earlier ones are left to the
// file, and so are those that the peer has answered again.
func (e *earlierRows) beside(r *report.Results, fresh, peers []result.Row) (out []result.Row) {
	shapes, anew := map[result.Case]bool{}, map[result.Case]bool{}
	for _, row := range r.Rows {
		shapes[row.Shape()] = true
	}
	for _, row := range fresh {
		anew[row.Shape()] = anew[row.Shape()] || row.Error == ""
	}
	for _, row := range e.order {
		if shapes[row.Shape()] && !anew[row.Shape()] && !has(peers, row.Case) {
			out = append(out, row)
		}
	}
	return out
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
