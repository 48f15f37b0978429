package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// resultsScript runs tools/results.sh with a command that notes what it is asked, adds a row to the --out file and, where SLOW is one of
// its arguments, waits to be interrupted. It gives those command lines.
type resultsScript struct {
	dir  string // of the results
	env  []string
	text string // what the script said
	code int
}

const fakeResults = `#!/bin/bash
{ printf '%s\t' "$@"; echo; } >>"$NOTES"
case $1 in
bench) echo '{"impl": "fa2", "dtype": "float16", "B": 1, "H": 1, "N": 1, "D": 1, "fwd_ms": 1}' >>"$4" ;;
verify) echo 'ok    core/d16/none/f16'; echo 'flash2    scalar/f16  3 cases passed' ;;
esac
trap 'echo interrupted, 1 result in 1 s; exit 130' INT
case " $* " in *" ${SLOW:-none of them} "*) for _ in {1..3000}; do sleep 0.1; done ;; esac
`

func (r *resultsScript) run(t *testing.T, steps ...string) (commands [][]string) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("bash is needed")
	}
	if r.dir == "" {
		r.dir = filepath.Join(t.TempDir(), "results")
	}
	own := t.TempDir()
	fake, notes := filepath.Join(own, "vkattn"), filepath.Join(own, "notes")
	require.NoError(t, os.WriteFile(fake, []byte(fakeResults), 0o755))
	cmd := exec.Command(bash, append([]string{filepath.Join("..", "..", "tools", "results.sh"), r.dir}, steps...)...)
	cmd.Env = append(append(os.Environ(), "VKATTN="+fake, "NOTES="+notes, "NAME=box", "LIMIT=60", "SLOW="), r.env...)
	out, err := cmd.CombinedOutput()
	r.text, r.code = string(out), cmd.ProcessState.ExitCode()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	text, err := os.ReadFile(notes)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		commands = append(commands, strings.Split(strings.TrimSuffix(line, "\t\n"), "\t"))
	}
	return commands
}

// TestResultsCommands: every command line of every step is one that vkattn takes, with a peer and without: it gets as far as looking
// for the device.
func TestResultsCommands(t *testing.T) {
	for _, env := range [][]string{nil, {"PEER="}} {
		r := resultsScript{env: env}
		commands := r.run(t)
		require.Zero(t, r.code, r.text)
		require.Greater(t, len(commands), 12)
		for _, args := range commands {
			alone := slices.ContainsFunc([]string{"scalar", "guard", "paged"},
				func(name string) bool { return slices.Contains(args, name) })
			require.Equal(t, env == nil && !alone && args[0] == "bench", slices.Contains(args, "--peer"), "%q", args)
			status, _, stderr := call(append(slices.Clone(args), "--device", "no such device")...)
			require.Equal(t, 1, status, "%q: %s", args, stderr) // 2 is for usage
			require.Contains(t, stderr, "device", "%q", args)
			require.NotContains(t, stderr, "usage", "%q", args)
		}
		files, err := filepath.Glob(filepath.Join(r.dir, "box-*"))
		require.NoError(t, err)
		require.Len(t, files, 17)
		for _, path := range files {
			if filepath.Ext(path) == ".jsonl" {
				_, err := result.ReadFile(path)
				require.NoError(t, err)
			}
		}
	}
}

// TestResultsOfRanks: the step of several GPUs runs where it is named alone, with commands that vkattn takes, each of them for every number
// of ranks, which are two hosts too where they can be; a trial is small and shares a device.
func TestResultsOfRanks(t *testing.T) {
	for _, env := range [][]string{nil, {"RANKS=2 4"}, {"TRY=1", "RANKS=3"}, {"TRY=1", "RANKS=5 6", "PEER="}} {
		r := resultsScript{env: env}
		commands := r.run(t, "ranks")
		require.Zero(t, r.code, r.text)
		ranks := map[string]int{}
		for _, args := range commands {
			if args[0] == "info" {
				continue
			}
			after := func(name string) string { return append(args, "")[slices.Index(args, name)+1] }
			n := after("--ranks")
			ranks[n]++
			if slices.Contains(args, "--over") {
				hosts := map[string]string{"4": "2", "6": "3"}[n]
				require.Equal(t, map[bool]string{true: "ring,heads,both", false: "ring,heads"}[hosts != ""], after("--over"), "%q", args)
				require.Equal(t, hosts != "", slices.Contains(args, "--per-host"), "%q", args)
				require.True(t, hosts == "" || after("--per-host") == hosts, "%q", args)
			}
			require.Equal(t, slices.Contains(env, "TRY=1"), slices.Contains(args, "--share-device"))
			status, _, stderr := call(append(slices.Clone(args), "--format", "csv")...)
			require.Equal(t, 2, status, "%q: %s", args, stderr)
			require.Contains(t, stderr, "--format csv: with --ranks", "%q", args) // the last thing that is looked at
		}
		want := [][]string{{"2"}, {"2", "4"}, {"3"}, {"5", "6"}}[len(env)]
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(ranks)))
		for _, n := range ranks {
			require.Equal(t, 3, n)
		}
	}
}

// TestResultsArguments: steps are those that are named, and a name that is none is refused before anything runs.
func TestResultsArguments(t *testing.T) {
	var r resultsScript
	commands := r.run(t, "dims", "few")
	require.Zero(t, r.code, r.text)
	var suites []string
	for _, args := range commands {
		suites = append(suites, args[slices.Index(args, "--suite")+1])
	}
	require.Equal(t, []string{"dims", "decode", "few"}, suites)

	require.Empty(t, r.run(t, "dims", "everything"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.text, "step everything: must be of verify papers")

	out, err := exec.Command("bash", filepath.Join("..", "..", "tools", "results.sh")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "tools/results.sh DIR [step...]")
	require.NotContains(t, string(out), "set -euo")
}

// TestResultsInterrupted: a step that takes too long is interrupted, the next begins, what was measured stays, and the next call adds
// to it. Of an interrupted verification the record says so, the script fails, and the next call runs what had not ended.
func TestResultsInterrupted(t *testing.T) {
	r := resultsScript{env: []string{"SLOW=bench", "LIMIT=3", "PEER="}}
	start := time.Now()
	require.Len(t, r.run(t, "dims", "papers"), 2)
	require.Contains(t, r.text, "status 124")
	require.Less(t, time.Since(start), 4*time.Minute)
	rows := func() int {
		file, err := result.ReadFile(filepath.Join(r.dir, "box-dims.jsonl"))
		require.NoError(t, err)
		return len(file.Rows)
	}
	require.Equal(t, 1, rows())
	r.env = nil
	require.Len(t, r.run(t, "dims"), 1)
	require.Equal(t, 2, rows())

	if testing.Short() {
		return // whole seconds
	}
	r.env = []string{"SLOW=matrix", "LIMIT=1"}
	require.Len(t, r.run(t, "verify"), 4)
	require.Equal(t, 1, r.code, r.text)
	record := func() string {
		text, err := os.ReadFile(filepath.Join(r.dir, "box-verify.txt"))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, 2, strings.Count(record(), "interrupted, 1 result in 1 s"))
	require.Contains(t, record(), "## matrices in fragments 16x8x16 and 16x8x8: vkattn verify --no-skipped --impl flash --tier matrix")
	r.env = nil
	require.Len(t, r.run(t, "verify"), 2, "sections that ended are kept")
	require.Zero(t, r.code, r.text)
	require.NotContains(t, record(), "interrupted")
	require.Equal(t, 4, strings.Count(record(), "flash2  scalar/f16  3 cases passed"))
	require.Len(t, r.run(t, "verify"), 4, "a record that is whole is made anew")
}
