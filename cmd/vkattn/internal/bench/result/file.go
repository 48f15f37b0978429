package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/vkattn/vkattn/internal/plainjson"
)

// File is what a result file holds.
type File struct {
	Path    string
	Headers []Header          // of this program; several when runs were appended
	Other   []json.RawMessage // lines of a peer that are not rows: its header, its GEMM figure
	Rows    []Row
	Maps    []Picture // that vkattn map added
	Rings   []RingRow // of several devices
	Cut     int       // bytes of a last line that a kill or a power cut left unfinished, and that is left out
}

// ReadFile reads a result file of ours or of torch_baseline.py. An error names
// the file and the line. Lines and files that are far longer than any of ours are
// refused, however much there is of them.
func ReadFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(path, f)
}

// Read is ReadFile on a stream; path is for errors.
func Read(path string, r io.Reader) (*File, error) {
	out, err := read(path, r)
	if err == nil && len(out.Headers)+len(out.Rows)+len(out.Other)+len(out.Maps)+len(out.Rings) == 0 {
		if out.Cut > 0 {
			return nil, fmt.Errorf("%s:1: the only line was cut off: delete the file, and measure again", path)
		}
		return nil, fmt.Errorf("%s:1: the file is empty: it must hold one JSON object a line", path)
	}
	return out, err
}

// read is Read of a file that may hold nothing yet.
func read(path string, r io.Reader) (*File, error) {
	out := &File{Path: path}
	in := NewLines(path, r, mostFile)
	for text, ok := in.Next(); ok; text, ok = in.Next() {
		if !in.ended && cutOff(text) {
			out.Cut = len(text)
			break
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if err := out.add(text); err != nil {
			return nil, in.bad(err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// cutOff says whether a last line, which has no end, is the beginning of a JSON object, or what a file system leaves of one whose
// bytes did not reach the disk.
func cutOff(text []byte) bool {
	return len(text) > 0 && (text[0] == '{' || text[0] == 0) && !json.Valid(bytes.TrimSpace(text))
}

// add takes one line: a header of ours, a row, or a peer's remark.
func (f *File) add(text []byte) error {
	var keys map[string]json.RawMessage
	if err := plainjson.Unmarshal(text, &keys); err != nil {
		return fmt.Errorf("not a JSON object: %w (where a power cut damaged the line, delete it: vkattn bench --append measures its row "+
			"again)", err)
	}
	has := func(k string) bool { _, ok := keys[k]; return ok }
	switch {
	case has("impl"):
		var row Row
		if err := row.take(keys); err != nil {
			return fmt.Errorf("bad result row: %w", err)
		}
		if last := len(f.Headers) - 1; last >= 0 && row.Ours() {
			row.peaks, row.command = f.Headers[last].Peaks, f.Headers[last].Command
		}
		f.Rows = append(f.Rows, row)
	case has("vkattn"):
		var h Header
		if err := plainjson.Unmarshal(text, &h); err != nil {
			return fmt.Errorf("bad header: %w", err)
		}
		f.Headers = append(f.Headers, h)
	case has("map"):
		var p Picture
		if err := plainjson.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("bad picture: %w", err)
		}
		f.Maps = append(f.Maps, p)
	case has("ranks"):
		var r RingRow
		err := plainjson.Unmarshal(text, &r)
		if err == nil {
			r.known()
			err = r.validate()
		}
		if err != nil {
			return fmt.Errorf("bad row of several devices: %w", err)
		}
		f.Rings = append(f.Rings, r)
	case has("op"):
		return errors.New("a row of 'vkattn rows': it is no measurement of attention, and stands in no table of these")
	case has("peer"), has("torch"), has("gpu"), has("gemm_tflops"):
		f.Other = append(f.Other, bytes.Clone(text))
	default:
		return fmt.Errorf("neither a header (vkattn, torch) nor a result row (impl): is this a result file?")
	}
	return nil
}

// Picture is a line of a result file that vkattn map adds: a picture that a report shows beside its figures.
type Picture struct {
	Title   string   `json:"map"`
	Caption []string `json:"caption,omitempty"`
	PNG     []byte   `json:"png"`
}
