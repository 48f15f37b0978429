// Mutate plants mistakes in shaders and Go, one at a time, and says which test finds each: a test suite is as good as the mistakes
// that it does not let through.
//
//	tools/mutate.sh                     every mutant that the table has no row of
//	tools/mutate.sh --only scale-twice  these, whatever the table has
//	tools/mutate.sh --list              what there is
//
// It works in a Git worktree of HEAD in a temporary folder; what is not committed is no part of it, and the tree at hand stays as it is.
// For each mutant it puts one text in another's place, compiles the shaders that this changes (behaviour is to be judged: neither the
// manifest nor the test of stale modules may give a mutant away), and runs the tests that ought to find it, in short mode and then whole,
// and, if these pass, all short tests of their packages, with --whole of every package. What finds a mutant must pass without it.
//
// Results go to a table in Markdown (testdata/mutants.md), a row as soon as it is known, so that an interrupted run goes on where it
// ended. The exit status is 1 where a mutant survives that is not marked as equivalent, or as one of other devices, or where one that is
// marked as equivalent is found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	only, out       string
	list            bool
	whole, expected bool
	again           bool
	testTime        time.Duration
	packageTime     time.Duration
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("mutate", flag.ContinueOnError)
	f.StringVar(&o.only, "only", "", "run the mutants with these `ids`, separated by commas, again")
	f.BoolVar(&o.list, "list", false, "list the mutants and stop")
	f.StringVar(&o.out, "out", "", "the table's `file` (testdata/mutants.md)")
	f.BoolVar(&o.whole, "whole", false, "let every package look for what its own tests do not find")
	f.BoolVar(&o.expected, "expected", false, "run the expected tests alone")
	f.BoolVar(&o.again, "again", false, "run mutants again that the table has a row of")
	f.DurationVar(&o.testTime, "test-time", 10*time.Minute, "limit of the expected tests of a mutant")
	f.DurationVar(&o.packageTime, "package-time", 20*time.Minute, "limit of the tests of one package")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("argument %q: there are only flags", f.Arg(0))
	}
	if o.whole && o.expected {
		return o, errors.New("--whole and --expected: it must be one of them")
	}
	return o, nil
}

// choose gives the mutants that --only names, all without it.
func choose(all []Mutant, only string) ([]Mutant, error) {
	if only == "" {
		return all, nil
	}
	var out []Mutant
	for id := range strings.SplitSeq(only, ",") {
		found := false
		for _, m := range all {
			if m.ID == id {
				out, found = append(out, m), true
			}
		}
		if !found {
			return nil, fmt.Errorf("--only: there is no mutant %q (--list names them)", id)
		}
	}
	return out, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	mutants, err := choose(Mutants(), o.only)
	if err != nil {
		return err
	}
	if o.list {
		for _, m := range mutants {
			fmt.Printf("%-32s %s: %s\n", m.ID, m.File, m.Breaks)
		}
		return nil
	}
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(root, "testdata", "mutants.md")
	}
	table, err := readTable(o.out)
	if err != nil {
		return err
	}
	tree, err := newTree(ctx, root)
	if err != nil {
		return err
	}
	defer tree.remove()
	s := &session{options: o, tree: tree, table: table, tester: newTester(tree.dir)}
	return s.all(ctx, mutants)
}

// session is one run of the command.
type session struct {
	options
	tree   *tree
	table  *table
	tester *tester
}

// all runs the mutants and says what survives.
func (s *session) all(ctx context.Context, mutants []Mutant) error {
	var bad []string
	for i, m := range mutants {
		if err := ctx.Err(); err != nil {
			return errors.New("interrupted; the table has what was found so far")
		}
		row, known := s.table.rows[m.ID]
		if !known || s.again || s.only != "" {
			start := time.Now()
			verdict, err := s.try(ctx, &m)
			if ctx.Err() != nil {
				return errors.New("interrupted; the table has what was found so far")
			}
			if err != nil { // the list, or a test, is to be mended; the other mutants can be tried all the same
				fmt.Printf("[%d/%d] %s: not tried: %v\n", i+1, len(mutants), m.ID, err)
				bad = append(bad, fmt.Sprintf("%s is not tried: %v", m.ID, err))
				continue
			}
			row = tableRow{verdict: verdict, seconds: time.Since(start).Seconds(), tested: time.Now().Format(time.DateOnly) + " " +
				s.tree.commit}
			s.table.rows[m.ID] = row
			if err := s.table.write(s.out); err != nil {
				return err
			}
			fmt.Printf("[%d/%d] %s: %s, %.0f s\n", i+1, len(mutants), m.ID, verdict, row.seconds)
		}
		survived := strings.HasPrefix(row.verdict, survivedPrefix)
		switch {
		case survived && m.Equivalent == "" && m.OnlyOn == "":
			bad = append(bad, m.ID+" survives: "+m.Breaks)
		case !survived && m.Equivalent != "":
			bad = append(bad, fmt.Sprintf("%s is marked as equivalent (%s), and %s", m.ID, m.Equivalent, row.verdict))
		}
	}
	fmt.Printf("%d mutants, %d wrong\n", len(mutants), len(bad))
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "\n"))
	}
	return nil
}

// try plants one mutant, looks for a test that finds it, and takes it away again.
func (s *session) try(ctx context.Context, m *Mutant) (verdict string, err error) {
	var expected []Killer // those that run anything on this machine
	for _, k := range m.Kill {
		runs, err := s.sound(ctx, k)
		if err != nil {
			return "", err
		}
		if runs {
			expected = append(expected, k)
		}
	}
	if len(expected) == 0 {
		return "", fmt.Errorf("of the expected tests none runs on this machine: %v", m.Kill)
	}
	if err := s.tree.plant(ctx, m); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.tree.restore()) }()
	for _, length := range []testLength{shortTests, wholeTests} {
		for _, k := range expected {
			o, err := s.tester.run(ctx, s.testTime, length, k.Run, k.Package)
			if err != nil {
				return o.String(), err
			}
			if o.failed() && length == wholeTests && o.test != "" {
				if err := s.tree.restore(); err != nil {
					return "", err
				}
				_, err = s.sound(ctx, Killer{o.pkg, exactly(o.test)}) // it was asked of short tests
			}
			if o.failed() {
				return o.String(), err
			}
		}
	}
	if s.expected || m.Equivalent != "" || m.OnlyOn != "" {
		return survivedPrefix + " the expected tests" + because(m), nil
	}
	packages := m.packages()
	o, err := s.tester.run(ctx, s.packageTime, shortTests, "", packages...)
	if err == nil && !o.failed() && s.whole {
		packages = []string{"./..."}
		o, err = s.tester.run(ctx, s.packageTime, shortTests, "", packages...)
	}
	if err != nil {
		return "", err
	}
	if !o.failed() {
		return survivedPrefix + " all tests of " + strings.Join(packages, " "), nil
	}
	if err := s.tree.restore(); err != nil {
		return "", err
	}
	if o.test == "" {
		return o.String(), nil
	}
	_, err = s.sound(ctx, Killer{o.pkg, exactly(o.test)})
	return o.String(), err
}

const survivedPrefix = "**survives**"

func because(m *Mutant) string {
	switch {
	case m.Equivalent != "":
		return ", being equivalent: " + m.Equivalent
	case m.OnlyOn != "":
		return ", being run only on " + m.OnlyOn
	}
	return ""
}

// sound makes sure that tests pass in the tree without a mutant. runs says that at least one of them does not skip.
func (s *session) sound(ctx context.Context, k Killer) (runs bool, err error) {
	if _, ok := s.table.sound[k.String()]; ok {
		return true, nil
	}
	for _, length := range []testLength{shortTests, wholeTests} {
		start := time.Now()
		o, err := s.tester.runClean(ctx, s.testTime, length, k.Run, k.Package)
		switch {
		case err != nil:
			return false, err
		case o.failed():
			return false, fmt.Errorf("without a mutant %s is %s\n%s", k, o, o.tail)
		case o.passed > 0:
			s.table.sound[k.String()] = time.Since(start).Seconds()
			return true, s.table.write(s.out)
		}
	}
	return false, nil
}

// output runs a command and gives what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second // for what the command itself started
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}
