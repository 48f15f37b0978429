package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64
	Output     string
	Key, Value string // of attr
}

// test is a test that runs, a subtest too.
type test struct {
	output []string
	attrs  map[string]string
}

type testID struct{ pkg, name string }

// view prints what is to be seen at once and keeps what the summary needs.
type view struct {
	out      io.Writer
	verbose  bool
	progress *progress
	now      func() time.Time
	began    time.Time
	running  map[testID]*test
	said     map[string][]string // by packages outside their tests
	packages int                 // that ended
	summary  summary
}

func newView(out io.Writer, verbose bool, p *progress, now func() time.Time) *view {
	return &view{out: out, verbose: verbose, progress: p, now: now, began: now(), running: map[testID]*test{}, said: map[string][]string{}}
}

// line takes one line of input. What is no event, a message of the go command say, is printed.
func (v *view) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		v.print(string(line))
		return
	}
	v.take(e)
	v.progress.show(v.now(), func() string { return v.status(e) })
}

func (v *view) take(e event) {
	if e.Action == "build-output" {
		v.print(e.Output)
		return
	}
	if e.Test == "" {
		v.ofPackage(e)
		return
	}
	id := testID{e.Package, e.Test}
	t := v.running[id]
	if t == nil {
		t = &test{}
		v.running[id] = t
	}
	switch e.Action {
	case "output":
		if v.verbose {
			v.print(e.Output)
		}
		if !isNote(e.Output) {
			t.output = append(t.output, e.Output)
		}
	case "attr":
		if t.attrs == nil {
			t.attrs = map[string]string{}
		}
		t.attrs[e.Key] = e.Value
	case "pass", "fail", "skip":
		if e.Action == "fail" && !v.verbose {
			v.print(strings.Join(t.output, ""))
		}
		v.summary.add(e, t)
		delete(v.running, id)
	}
}

// closing are the lines with which go test closes a package; what a package said outside its tests is of interest where it failed.
var closing = regexp.MustCompile(`^(ok  |\?   |FAIL)\t`)

// isNote says whether a line only tells of a test's course.
func isNote(line string) bool { return strings.HasPrefix(line, "=== ") }

func (v *view) ofPackage(e event) {
	switch e.Action {
	case "output":
		switch {
		case v.verbose:
			v.print(e.Output)
		case closing.MatchString(e.Output):
			if strings.HasPrefix(e.Output, "FAIL") {
				v.print(strings.Join(v.said[e.Package], ""))
			}
			delete(v.said, e.Package)
			v.print(e.Output)
		case e.Output != "PASS\n" && e.Output != "FAIL\n":
			v.said[e.Package] = append(v.said[e.Package], e.Output)
		}
	case "pass", "fail", "skip":
		v.packages++
		if e.Action == "fail" {
			v.summary.failedPackages++
		}
		var left []testID // of a package that ended in the middle: by a panic, a time-out, a kill
		for id := range v.running {
			if id.pkg == e.Package {
				left = append(left, id)
			}
		}
		slices.SortFunc(left, func(a, b testID) int { return strings.Compare(a.name, b.name) })
		for _, id := range left {
			if text := strings.Join(v.running[id].output, ""); !v.verbose && text != "" {
				v.print(fmt.Sprintf("--- %s had not ended:\n%s", id.name, text))
			}
			v.summary.unfinished = append(v.summary.unfinished, id.pkg+" "+id.name)
			delete(v.running, id)
		}
	}
}

// print prints lines, where the line of progress was.
func (v *view) print(text string) {
	if text == "" {
		return
	}
	v.progress.clear()
	io.WriteString(v.out, text)
}

// status is the line of progress.
func (v *view) status(e event) string {
	s := &v.summary
	text := fmt.Sprintf("%v  %d passed", v.now().Sub(v.began).Round(time.Second), s.passed)
	if s.failed > 0 {
		text += fmt.Sprintf(", %d FAILED", s.failed)
	}
	if s.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.skipped)
	}
	text += fmt.Sprintf(", %d packages done", v.packages)
	if e.Package != "" {
		text += "  " + shortPackage(e.Package) + " " + e.Test
	}
	return text
}

// shortPackage is the path of a package within its module.
func shortPackage(path string) string {
	if parts := strings.SplitN(path, "/", 4); len(parts) == 4 && strings.Contains(parts[0], ".") {
		return parts[3]
	}
	return path
}

// finish sums up, with the tally of what the tests' processes told.
func (v *view) finish(tally string) {
	v.progress.clear()
	var err error
	if v.summary.account, err = readAccount(tally); err != nil {
		v.print(err.Error() + "\n")
	}
	v.summary.print(v.out, v.packages, v.now().Sub(v.began))
}

var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason is what a skipped test said last: its lines without the place in the source.
func reason(output []string) string {
	first := -1
	for i, line := range output {
		if logged.MatchString(line) {
			first = i
		}
	}
	if first < 0 {
		return "without a reason"
	}
	var words []string
	for i, line := range output[first:] {
		if strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			continue
		}
		if i == 0 {
			line = logged.ReplaceAllString(line, "")
		}
		words = append(words, strings.Fields(line)...)
	}
	if len(words) == 0 {
		return "without a reason"
	}
	return strings.Join(words, " ")
}
