package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/first"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
)

const (
	firstSuite = "first"
	firstAbout = "what a program waits for: opening, the first plan, forward and backward pass, plans again; nothing cached, and cached"
	firstCache = "first-cache" // a hidden flag: the steps are done in this process, whose kernels are kept in this folder
	firstWarm  = "first-warm"  // likewise: there are some
)

// firstFlags are those of bench that the suite takes.
var firstFlags = []string{"suite", "device", "tiles", "tier", "format", "out", "force", "quiet", "wide", firstCache, firstWarm}

// runFirst does the steps of the suite twice, each time in a process of its own: with caches that are empty, and with what the first has
// left there.
func runFirst(cmd *cobra.Command, f *benchFlags, args []string) error {
	if err := f.checkFirst(cmd, args); err != nil {
		return usage(cmd, err)
	}
	if f.firstCache != "" {
		return f.firstSteps(cmd)
	}
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := refuseOut(f.out, f.force); err != nil {
		return err
	}
	dev, err := f.device.open()
	if err != nil {
		return err
	}
	header, err := headerOf(ctx, dev)
	closeDevice(stderr, dev)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "vkattn-first")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := first.Prepare(folder); err != nil {
		return err
	}
	lines, closeLines, err := linesTo(stdout, f.format == "json", f.out, f.force)
	if err != nil {
		return err
	}
	defer closeLines()
	if err := result.NewWriter(lines).Line(header); err != nil {
		return err
	}
	child := []string{"bench", "--suite", firstSuite, "--" + firstCache, filepath.Join(folder, "vkattn")}
	for _, flag := range [][2]string{{"--device", f.device.name}, {"--tiles", f.device.tiles}, {"--tier", f.tier}} {
		if flag[1] != "" {
			child = append(child, flag[:]...)
		}
	}
	bar := newBar(stderr, f.quiet)
	var steps []first.Step
	for _, warm := range []bool{false, true} {
		err := first.Child(ctx, first.Environment(folder), append(child, fmt.Sprintf("--%s=%v", firstWarm, warm)),
			func(s first.Step) error {
				steps = append(steps, s)
				bar.step(len(steps)+1, 2*first.Steps, s.Name)
				return result.NewWriter(lines).Line(s)
			})
		if err != nil {
			bar.done()
			return err
		}
	}
	bar.done()
	if f.format == "table" {
		fmt.Fprintf(stdout, "%s\n\n%s\n", header.Device, firstTable(steps, screenOf(stdout, f.wide).Width))
	}
	return nil
}

// checkFirst says what is wrong with the flags of the suite, whose problems are its own.
func (f *benchFlags) checkFirst(cmd *cobra.Command, args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	cmd.Flags().Visit(func(given *pflag.Flag) {
		known := false
		for _, name := range firstFlags {
			known = known || given.Name == name
		}
		if !known {
			err = errors.Join(err, fmt.Errorf("--suite %s has problems of its own: it takes no --%s", firstSuite, given.Name))
		}
	})
	switch {
	case err != nil:
		return err
	case f.format != "table" && f.format != "json":
		return fmt.Errorf("--format %s: --suite %s prints table or json", f.format, firstSuite)
	case f.force && f.out == "":
		return errors.New("--force is about the --out file, and there is none")
	}
	switch flash.Tier(f.tier) {
	case "", flash.TierScalar, flash.TierMatrix:
		return nil
	}
	return fmt.Errorf("--tier %q: it must be scalar or matrix", f.tier)
}

// firstSteps does the steps in this process, and prints them.
func (f *benchFlags) firstSteps(cmd *cobra.Command) error {
	var opts []flash.PlanOption
	if f.tier != "" {
		opts = append(opts, flash.WithTier(flash.Tier(f.tier)))
	}
	open := func() (*flash.Device, error) { return f.device.open(flash.WithCacheDir(f.firstCache)) }
	return first.Run(cmd.Context(), version(), f.firstWarm, open, opts,
		func(s first.Step) error { return result.NewWriter(cmd.OutOrStdout()).Line(s) })
}

// firstTable is steps as text of at most that width, those with nothing cached beside those with caches.
func firstTable(steps []first.Step, width int) string {
	t := report.NewText([]string{"", "problem", "nothing cached", "pipelines", "compiling", "cached", "pipelines", "from disk", "kernel"},
		"llrrrrrrl").Fit(width, "kernel", "problem")
	for i, s := range steps {
		if s.Cached {
			break
		}
		var warm first.Step
		if at := i + len(steps)/2; at < len(steps) {
			warm = steps[at]
		}
		if s.Error != "" {
			t.Row(s.Name, s.Problem, s.Reason.Word(), "", "", "", "", "", "")
			continue
		}
		t.Row(s.Name, s.Problem, duration(s.Seconds), fmt.Sprint(s.Pipelines), duration(s.Compiling), duration(warm.Seconds),
			fmt.Sprint(warm.Pipelines), fmt.Sprint(warm.FromDisk), s.Kernel)
	}
	return t.String()
}

// duration is seconds in the unit that leaves few digits before the point.
func duration(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-3:
		return result.Digits(s*1e6) + " µs"
	case s < 1:
		return result.Digits(s*1e3) + " ms"
	}
	return strings.TrimSpace(result.Digits(s) + " s")
}
