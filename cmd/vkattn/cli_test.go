package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// TestMain lets the test binary be the command, and a peer of it.
func TestMain(m *testing.M) {
	if os.Getenv("VKATTN_TEST_COMMAND") != "" {
		main()
	}
	if os.Getenv("VKATTN_TEST_PEER") != "" {
		fakePeer()
		return
	}
	measurePeaks = measuredOnce()
	os.Exit(m.Run())
}

// measuredOnce is tune.MeasurePeaks, once for each name of a device: a second on a CPU, and several on a GPU, of each command. A cancelled
// context ends it as ever.
func measuredOnce() func(context.Context, *flash.Device) (tune.Peaks, error) {
	var mu sync.Mutex
	known := map[string]tune.Peaks{}
	return func(ctx context.Context, dev *flash.Device) (tune.Peaks, error) {
		mu.Lock()
		defer mu.Unlock()
		name := dev.Info().Name
		if p, ok := known[name]; ok && ctx.Err() == nil {
			return p, nil
		}
		p, err := tune.MeasurePeaks(ctx, dev)
		if err == nil {
			known[name] = p
		}
		return p, err
	}
}

// call runs the command in this process.
func call(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// TestHelpOfLists: help speaks of no default where there is none.
func TestHelpOfLists(t *testing.T) {
	for _, command := range []string{"bench", "map", "rows", "tune", "verify", "analyze", "view"} {
		status, stdout, _ := call(command, "--help")
		require.Zero(t, status)
		require.NotContains(t, stdout, "default []", command)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--frobnicate", "unknown flag: --frobnicate"},
		{"bench --frobnicate", "unknown flag: --frobnicate"},
		{"bensh", `unknown command "bensh", did you mean "bench"?`},
		{"help bensh", `unknown command "bensh", did you mean "bench"?`},
		{"info everything", `unexpected argument "everything"`},
		{"verify now", `unexpected argument "now"`},
		{"bench fast", `unexpected argument "fast"`},
		{"bench --seq 12x", `--seq "12x": it must be a comma list of integers from 1 to 2³⁰−1`},
		{"bench --seq 2048m", `--seq "2048m": it must be`},
		{"bench --seq 0", `--seq "0": it must be`},
		{"bench --batch -3", `--batch "-3"`},
		{"bench --head-dim 600", "head-dim is 600: it must be between 1 and 576"},
		{"bench --heads 6 --kv-heads 4", "kv-heads is 4: it must divide heads, which is 6"},
		{"bench --emb-dim 1000 --heads 16", "emb-dim is 1000: it must be a multiple of heads, which is 16"},
		{"bench --emb-dim 100 --heads 2 --head-dim 64", "emb-dim is 100: it must be heads × head-dim"},
		{"bench --tokens 1k --batch 2", "--tokens and --batch are both given"},
		{"bench --tokens 1k,2k", "--tokens: it must be one number"},
		{"bench --tokens 1000 --seq 512", "seq is 512: it must divide tokens, which is 1000"},
		{"bench --dtype int8", `--dtype "int8": it must be float16`},
		{"bench --impl flash9", `--impl "flash9": it must be standard, flash1, flash (flash2) or blocksparse`},
		{"bench --causal=perhaps", `--causal "perhaps": it must be true, false or both`},
		{"bench --causal perhaps", `unexpected argument "perhaps" (--causal takes true, false or both)`},
		{"bench --suite all", `--suite "all": it must be one of quick`},
		{"bench --format xml", `--format "xml": it must be one of table`},
		{"bench --tier tensor", `--tier "tensor": it must be scalar or matrix`},
		{"bench --rounds 0", "--rounds is 0: it must be from 1 to 1000"},
		{"bench --limit -1s", "--limit is -1s"},
		{"bench --append", "there is none"},
		{"bench --out x --append --force", "--append and --force are both given"},
		{"bench --out x.csv", "result files are JSON lines"},
		{"bench --peer x --compare y", "--peer and --compare are both given"},
		{"bench --peer x --peer-impl=", "--peer-impl is empty"},
		{"bench --tuning br", `--tuning "br": it must be a comma list of name=number`},
		{"bench --tuning br=1,br=2", "several tiles are several --tuning"},
		{"bench --dropout 0,1", `--dropout "1": it must be at least 0 and below 511/512`},
		{"bench --dropout 1e-9", `--dropout "1e-9": it must be 0 or at least 1/512`},
		{"bench --pass sideways", `--pass "sideways": it must be fwd, bwd, both or jvp`},
		{"bench --ranks 2 --pass jvp", "--pass jvp is of attention on one device: it does not go with --ranks"},
		{"bench --from-host --pass fwd,jvp", "--pass jvp is of attention on one device"},
		{"passes --pass jvp", "--pass jvp: passes in forward mode are not listed"},
		{"analyze --pass jvp", "--pass jvp: passes in forward mode are not analyzed"},
		{"tune --rounds 0", "--rounds is 0"},
		{"tune --list --reset", "--list and --reset are both given"},
		{"tune --reset --dry-run", "--reset and --dry-run are both given"},
		{"tune --export x --list", "--export goes without --list"},
		{"tune --head-dim 600", "head-dim is 600"},
		{"verify --tier x", `--tier "x": it must be scalar or matrix`},
		{"verify --impl x", `--impl "x": it must be standard, flash1, flash (flash2) or blocksparse`},
		{"verify --parallel -1", "--parallel is -1: it must be at least 1"},
		{"verify --parallel 0", "--parallel is 0: it must be at least 1"},
		{"verify --random -1", "--random is -1: it must be at least 1"},
		{"verify --random x", `--random "x": it must be a whole number`},
		{"verify --seed -1", `--seed "-1": it must be a whole number from 0`},
		{"verify --impl=", "--impl is empty: leave it out, or give it a value"},
		{"bench --seq=", "--seq is empty: leave it out, or give it a value"},
		{"bench --causal= --tuning=", "--causal is empty"},
		{`bench --seq ""`, "--seq is empty: leave it out, or give it a value"},
		{`bench --list --seq 512 --seq ""`, "--seq is empty: leave it out, or give it a value"},
		{`bench --list --tuning br=64 --tuning ""`, "--tuning is empty"},
		{`map --random --out x.png --window ""`, "--window is empty"},
		{"bench --list --window -5", `--window "-5": it must be a comma list of integers from 0 to 2³⁰−1`},
		{"bench --list --page -1", `--page "-1": it must be a comma list of integers from 0`},
		{"bench --ranks 0", "--ranks is 0: it must be at least 1"},
		{"bench --ranks 0 --seq 64", "--ranks is 0: it must be at least 1"},
		{"bench --ranks -1", "--ranks is -1: it must be at least 1"},
		{"bench --out=", "--out is empty"},
		{"bench --rounds many", `--rounds "many": it must be a whole number`},
		{"bench --limit 5", `--limit "5": it must be a time with its unit, such as 30s or 2m`},
		{"bench --append=perhaps", `--append "perhaps": it must be true or false`},
		{"compare a b --fail-above x", `--fail-above "x": it must be a number`},
		{"report a --out=", "--out is empty"},
		{"doctor now", `unexpected argument "now"`},
		{"doctor --limit 0s", "--limit is 0s: it must be more than 0"},
		{"doctor --limit soon", `--limit "soon": it must be a time with its unit`},
		{"doctor --force", "--force is about the --out file, and there is none"},
		{"doctor --out=", "--out is empty"},
		{"version now", `unexpected argument "now"`},
		{"verify --tuning fm", `--tuning "fm": it must be a comma list of name=number`},
		{"bench --impl standard,flash --tuning br=64,colour=3",
			`--tuning "br=64,colour=3": no kernel has a parameter "colour"; there are bc, bf16, br,`},
		{"tune --pass both", `--pass "both": it must be fwd or bwd`},
		{"verify --tuning colour=3", `no kernel has a parameter "colour"`},
		{"verify --tuning form=1 --tuning form=1", `--tuning "form=1" is given twice`},
		{"verify --vectors x --random 3", "--vectors and --random are both given"},
		{"verify --vectors x --quick", "--vectors and --quick are both given"},
		{"verify --vectors x --seed 3", "--vectors and --seed are both given"},
		{"verify --run [", `--run "[": it must be a regular expression`},
	} {
		t.Run(test.args, func(t *testing.T) {
			args := strings.Fields(test.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], `""`, "") // as a shell does
			}
			status, stdout, stderr := call(args...)
			require.Equal(t, exitUsage, status)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "vkattn: ")
			require.Contains(t, stderr, test.want)
			require.Contains(t, stderr, "--help'")
			require.NotRegexp(t, "goroutine|strconv|json:|invalid syntax", stderr)
		})
	}
}

func TestFilesAreCheckedBeforeTheDevice(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.jsonl")
	require.NoError(t, os.WriteFile(out, []byte("precious\n"), 0o644))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--out", out}, "exists already: add to it with --append, replace it with --force"},
		{[]string{"--out", dir}, "is a folder: it must be a file"},
		{[]string{"--out", out, "--append"}, out + ":1: not a JSON object"},
		{[]string{"--compare", out}, out + ":1: not a JSON object"},
		{[]string{"--compare", filepath.Join(dir, "none")}, "no such file"},
	} {
		status, stdout, stderr := call(append([]string{"bench", "--device", "no such device"}, test.args...)...)
		require.Equal(t, exitFailure, status, test.args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, test.want)
	}
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "precious\n", string(data))
}

// TestProgressOfLongSweeps: without a terminal a line now and then tells how far the sweep is; a short one says nothing.
func TestProgressOfLongSweeps(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	b := (&benchFlags{}).bar(&out)
	b.now = func() time.Time { return now }
	for step := 1; step <= 4; step++ {
		b.step(step, 40, "something")
		now = now.Add(2 * time.Second)
	}
	require.Empty(t, out.String(), "eight seconds")
	now = now.Add(32 * time.Second)
	b.step(11, 40, "flash2 float16 B1")
	b.step(11, 40, "the same again")
	require.Equal(t, "10 of 40 after 40s, about 2m0s to go: flash2 float16 B1\n", out.String())
	b.done()

	out.Reset()
	b = (&benchFlags{quiet: true}).bar(&out)
	b.now = func() time.Time { now = now.Add(time.Hour); return now }
	b.step(1, 2, "x")
	b.step(2, 2, "y")
	require.Empty(t, out.String())
}

// TestBarFitsTheTerminal: at no width does the line of a bar break.
func TestBarFitsTheTerminal(t *testing.T) {
	for _, width := range []int{40, 60, 80, 120, 200} {
		var out bytes.Buffer
		b := &bar{w: &out, terminal: true, width: width, now: time.Now}
		for _, step := range []int{1, 4, 999, 1000} {
			b.step(step, 1000, "inputs of float16 B16 H32/8 N16384 D128 causal window 1024 alibi")
			time.Sleep(60 * time.Millisecond) // the bar draws at most every 50 ms
		}
		lines := strings.Split(out.String(), "\r")
		require.Greater(t, len(lines), 3)
		for _, line := range lines {
			require.LessOrEqual(t, text.StringWidthWithoutEscSequences(line), width, "%q", line)
		}
		b.done()
	}
}

func TestHelp(t *testing.T) {
	status, bare, _ := call()
	require.Zero(t, status)
	require.Contains(t, bare, "Available Commands:")
	for _, args := range [][]string{{"--help"}, {"bench", "--help"}, {"info", "--help"}, {"doctor", "--help"}, {"verify", "--help"},
		{"tune", "--help"}, {"help", "bench"}} {
		status, stdout, stderr := call(args...)
		require.Zero(t, status, args)
		require.Empty(t, stderr)
		require.Contains(t, stdout, "Examples:", args)
		require.Contains(t, stdout, "Usage:", args)
	}
	for command, defaults := range map[string][]string{
		"bench": {"(default standard,flash2)", "(default 16)", "(default 32)", "(default 512,1024,2048)", "(default heads × head-dim)"},
		"tune": {"(default 16384 / seq; 1 on a CPU)", "(default 2048 / head-dim; 2 on a CPU)", "(default 64,128; 64 on a CPU)",
			"(default 4096; 512 on a CPU)"},
		"analyze": {"(default 16; 1 on a CPU)", "(default 32; 4 on a CPU)", "(default true; --causal alone is true)"},
	} {
		_, help, _ := call(command, "--help")
		help = strings.Join(strings.Fields(help), " ") // however it is folded
		for _, s := range defaults {
			require.Contains(t, help, s, command)
		}
	}
	_, help, _ := call("bench", "--help")
	for _, s := range []string{"quick", "papers", "reports", "\n  ring  ", "\n  first  ", "--peer", "--emb-dim", "--append",
		"--heads 16 --head-dim 128 --seq 32768,65536,131072 --causal", "time limit of a row in each round"} {
		require.Contains(t, help, s)
	}
	for _, args := range []string{"--version", "version"} {
		status, stdout, _ := call(args)
		require.Zero(t, status)
		require.Contains(t, stdout, "vkattn version "+release)
	}
}
