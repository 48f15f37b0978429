package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tester runs tests of a tree.
type tester struct {
	dir, exec string
	env       []string
	built     map[string]string // test binaries of the tree without a mutant, by package
}

func newTester(dir string) *tester {
	t := &tester{dir: dir, exec: os.Getenv("VKATTN_EXEC"), env: os.Environ(), built: map[string]string{}}
	for _, name := range []string{"VKATTN_REQUIRE_DEVICE", "VKATTN_REQUIRE_MATRIX", "VKATTN_REQUIRE_VALIDATION"} {
		if _, ok := os.LookupEnv(name); !ok {
			t.env = append(t.env, name+"=1") // what a test skips finds nothing
		}
	}
	return t
}

// outcome is what a run of tests came to.
type outcome struct {
	pkg, test string // the first that failed, the innermost; no test where the package itself failed
	timedOut  bool
	crashed   string // the signal that ended the process
	passed    int    // tests without subtests that passed
	late      bool   // tests were left out, because the package's time was up
	tail      string // the end of what was printed
}

func (o *outcome) failed() bool { return o.pkg != "" }

// String says what failed, for the table.
func (o outcome) String() string {
	what := strings.TrimSpace(strings.TrimPrefix(o.pkg, "./") + " " + o.test)
	switch {
	case o.timedOut:
		return "timed out in " + what
	case o.crashed != "":
		return "crashed (" + o.crashed + ") in " + what
	}
	return "killed by " + what
}

// staleness are the tests that compare compiled shaders with their sources: every mutant of a shader would fail them.
const staleness = "^(TestEveryListedModuleIsCurrent|TestShadersAreNotStale)$"

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
}

// testLength says whether tests run whole.
type testLength string

const (
	shortTests testLength = "-test.short=true"
	wholeTests testLength = "-test.short=false"
)

// run runs the tests of packages that match a pattern, until one fails. A test that hangs is a failure, code that does not compile an
// error.
func (t *tester) run(ctx context.Context, limit time.Duration, length testLength, pattern string, packages ...string) (outcome, error) {
	args := []string{"test", "-json", string(length), "-failfast", "-count=1", "-trimpath", "-vet=off", "-timeout=" + limit.String(),
		"-skip=" + staleness}
	if t.exec != "" {
		args = append(args, "-exec="+t.exec)
	}
	if pattern != "" {
		args = append(args, "-run="+pattern)
	}
	return t.json(ctx, limit*time.Duration(len(packages)), t.dir, append(args, packages...), strings.Join(packages, " "))
}

// runClean runs the same tests of one package in the tree without a mutant. It is asked for again and again, and links the tests once.
func (t *tester) runClean(ctx context.Context, limit time.Duration, length testLength, pattern, pkg string) (outcome, error) {
	if t.built[pkg] == "" {
		binary := filepath.Join(t.dir+cleanSuffix, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-")+".test")
		if _, err := output(ctx, t.dir, "go", "test", "-c", "-trimpath", "-vet=off", "-o="+binary, pkg); err != nil {
			return outcome{}, err
		}
		t.built[pkg] = binary
	}
	args := []string{"tool", "test2json", "-p=" + module + strings.TrimPrefix(pkg, ".")}
	args = append(append(args, strings.Fields(t.exec)...), t.built[pkg], "-test.v=test2json", "-test.paniconexit0", string(length),
		"-test.failfast",
		"-test.count=1", "-test.timeout="+limit.String(), "-test.skip="+staleness, "-test.run="+pattern)
	return t.json(ctx, limit, filepath.Join(t.dir, filepath.FromSlash(pkg)), args, pkg)
}

// cleanSuffix makes the name of the folder of such tests of that of the tree.
const cleanSuffix = "-tests"

// json runs a go command that prints events of tests.
func (t *tester) json(ctx context.Context, limit time.Duration, dir string, args []string, what string) (outcome, error) {
	const grace = 2 * time.Minute // the test's own limit, with its message, comes first; compiling counts here and not there
	ctx2, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx2, "go", args...)
	cmd.Dir, cmd.Env = dir, t.env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test ends its tests
	cmd.WaitDelay = 10 * time.Second
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, errors.New("interrupted")
	}
	o, broken := read(&printed)
	switch {
	case broken != "":
		return o, fmt.Errorf("%s does not compile:\n%s", broken, o.tail)
	case ctx2.Err() != nil && !o.failed():
		o.pkg, o.timedOut = what, true
	case err != nil && !o.failed():
		return o, fmt.Errorf("testing %s: %w\n%s", what, err, o.tail)
	case o.late && !o.failed():
		return o, fmt.Errorf("testing %s: tests were left out for lack of time; give more by --test-time or --package-time", what)
	}
	return o, nil
}

// read makes sense of the output of go test -json. broken is a package that does not compile.
func read(printed *bytes.Buffer) (o outcome, broken string) {
	var failed, passed []event
	var packages []string
	parents := map[string]bool{}
	lines := bufio.NewScanner(printed)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			o.tail += lines.Text() + "\n"
			continue
		}
		if e.Test != "" {
			for at := strings.LastIndexByte(e.Test, '/'); at > 0; at = strings.LastIndexByte(e.Test[:at], '/') {
				parents[e.Package+" "+e.Test[:at]] = true
			}
		}
		switch {
		case e.FailedBuild != "":
			broken = e.FailedBuild
		case e.Action == "fail" && e.Test != "":
			failed = append(failed, e)
		case e.Action == "fail":
			packages = append(packages, e.Package)
		case e.Action == "pass" && e.Test != "":
			passed = append(passed, e)
		case e.Action == "output" || e.Action == "build-output":
			o.tail += e.Output
			o.late = o.late || strings.Contains(e.Output, "left out for lack of time")
			o.timedOut = o.timedOut || strings.HasPrefix(e.Output, "panic: test timed out after")
			if _, signal, ok := strings.Cut(e.Output, "signal: "); ok && !strings.Contains(signal, "interrupt") {
				o.crashed = strings.TrimSpace(signal)
			}
		}
		if n := len(o.tail); n > 8000 {
			o.tail = o.tail[n-6000:]
		}
	}
	o.tail, _, _ = strings.Cut(o.tail, "\ngoroutine ") // the stacks of a test that hung say nothing of the mutant
	for _, e := range passed {
		if !parents[e.Package+" "+e.Test] {
			o.passed++
		}
	}
	short := func(pkg string) string { return "." + strings.TrimPrefix(pkg, module) }
	failing := map[string]bool{} // tests of which a subtest failed
	for _, e := range failed {
		for at := strings.LastIndexByte(e.Test, '/'); at > 0; at = strings.LastIndexByte(e.Test[:at], '/') {
			failing[e.Package+" "+e.Test[:at]] = true
		}
	}
	for _, e := range failed {
		if !failing[e.Package+" "+e.Test] {
			o.pkg, o.test = short(e.Package), e.Test
			return o, broken
		}
	}
	if len(packages) > 0 {
		o.pkg = short(packages[0])
	}
	return o, broken
}

const module = "github.com/vkattn/vkattn"
