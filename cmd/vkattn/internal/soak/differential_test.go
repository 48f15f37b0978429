package soak

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

var flags struct {
	n, families, perPlan, workers, failures int
	seed                                    uint64
	out, only, tiers                        string
	limit                                   time.Duration
}

func init() {
	flag.IntVar(&flags.n, "soak.n", 0, "problems, or plans (default: some seconds of them)")
	flag.Uint64Var(&flags.seed, "soak.seed", 0, "seed of everything (default: another one in each run)")
	flag.IntVar(&flags.families, "soak.families", 0, "sets of problems that share compiled kernels (default: what suits the number of "+
		"problems and the device)")
	flag.IntVar(&flags.perPlan, "soak.perplan", 0, "problems that share a plan (default 4)")
	flag.IntVar(&flags.workers, "soak.workers", 0, "goroutines (default: the number of processors; 16 for plans)")
	flag.IntVar(&flags.failures, "soak.failures", 0, "end after so many wrong problems (default 10)")
	flag.StringVar(&flags.only, "soak.only", "", "run this problem alone, FAMILY:PLAN:CASE of a run with the same seed, families and tiers")
	flag.StringVar(&flags.tiers, "soak.tiers", "", "kernel tiers, scalar,matrix (default: all, scalar alone on a CPU)")
	flag.StringVar(&flags.out, "soak.out", "", "write the summary to this file, as JSON")
	flag.DurationVar(&flags.limit, "soak.limit", 0, "end with fewer problems after so long")
}

// TestMain gives the collector room: problems are many and small, and memory is not what is short.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
	os.Exit(m.Run())
}

func seed() uint64 {
	if flags.seed != 0 {
		return flags.seed
	}
	if os.Getenv("CI") != "" {
		return 20240607
	}
	return uint64(time.Now().UnixNano()) % 1e9
}

// TestDifferential compares random problems with float64: a few here, a million with tools/soak.sh differential.
func TestDifferential(t *testing.T) {
	dev := open(t)
	o := Options{
		Problems: flags.n, Seed: seed(), Families: flags.families, PerPlan: flags.perPlan, Workers: flags.workers,
		Failures: flags.failures, Limit: flags.limit,
	}
	if o.Problems == 0 {
		// On a CPU driver it is compiling that takes time, a second or two for each family.
		if o.Problems, o.Families = 320, 16; testing.Short() {
			o.Problems, o.Families = 48, 4
		}
	}
	for _, name := range strings.FieldsFunc(flags.tiers, func(r rune) bool { return r == ',' }) {
		o.Tiers = append(o.Tiers, flash.Tier(name))
	}
	replay := fmt.Sprintf("tools/soak.sh differential %d --seed %d", o.Problems, o.Seed)
	for _, f := range []struct {
		name, value string
	}{{"families", fmt.Sprint(o.Families)}, {"tiers", flags.tiers}} {
		if f.value != "" && f.value != "0" {
			replay += " --" + f.name + " " + f.value
		}
	}
	if flags.only != "" {
		id, err := ParseID(flags.only)
		require.NoError(t, err)
		o.Only = &id
	}
	terminal := onTerminal(os.Stderr)
	o.Failed = func(f Failure) {
		text := fmt.Sprintf("%v\n  again: %s --only %v", f, replay, f.ID)
		t.Error(text)
		if flags.n > 0 { // a long run may be killed before the test's own lines come
			fmt.Fprintln(os.Stderr, text)
		}
	}
	if terminal {
		o.Every = time.Second
	}
	o.Progress = func(s *Summary) {
		switch {
		case terminal:
			fmt.Fprintf(os.Stderr, "\r\x1b[K%s", s.Line())
		case flags.n > 0:
			fmt.Fprintln(os.Stderr, s.Line())
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t.Logf("seed %d", o.Seed)
	s, err := Differential(ctx, dev, o)
	if terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	if s != nil {
		if flags.n > 0 || flags.only != "" || testing.Verbose() {
			s.Print(os.Stdout)
		}
		if flags.out != "" {
			data, err := json.MarshalIndent(s, "", "  ")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(flags.out, append(data, '\n'), 0o644))
		}
	}
	require.NoError(t, err)
	require.Zero(t, s.Wrong)
	if flags.only == "" && flags.limit == 0 {
		require.GreaterOrEqual(t, s.Problems, o.Problems)
	}
}

func onTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
