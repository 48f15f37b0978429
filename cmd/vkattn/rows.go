package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/rows"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
)

// rowsFlags are the flags of rows as given.
type rowsFlags struct {
	device               deviceChoice
	operations           []string
	pattern              string
	out                  string
	asJSON, force, quiet bool
	wide                 bool
}

func newRows() *cobra.Command {
	var f rowsFlags
	cmd := &cobra.Command{
		Use:   "rows",
		Short: "Measure what moves rows beside attention: appending to caches, rotation, merging parts",
		Long: `Measure what moves rows beside attention, in fp16: appending keys and values to caches, rotary position
embedding, and merging attention over parts of the keys.

  append   one token and 64 of each of 64 sequences, 8 key heads of 128, keys turned by their positions; into
           caches of fp16, q8_0 and q4_0, in one piece and in pages of 16
  rotate   as many queries of 32 heads
  merge    2, 8 and 64 parts of 64 × 32 rows of 128, stacked in one tensor and in one tensor each

On a CPU, sizes are a fraction of these. What a run writes is compared with a model on the host, every row of
it, before it is timed; caches must be as they were elsewhere. Times are medians of device timestamps, rows of
several sets of random tensors in turn. "MB" is what is read and written at least, and "% copy" what that over
the time is of the bandwidth of copying, measured in the same run.`,
		Example: `  vkattn rows
  vkattn rows --op append,merge --out rows.jsonl
  vkattn rows --op append --run q8_0
  vkattn rows --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runRows(cmd, &f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringSliceVar(&f.operations, "op", rows.Operations, "`list` of what to measure: "+strings.Join(rows.Operations, ", "))
	fl.StringVar(&f.pattern, "run", "", "only the rows whose names match this regular `expression`, as the progress bar shows them "+
		"(default: all)")
	deviceFlags(cmd, &f.device)
	fl.BoolVar(&f.asJSON, "json", false, "print JSON lines, a header and a line for each row, in place of the table")
	fl.StringVar(&f.out, "out", "", "result `file` to write (JSON lines), besides what is printed")
	fl.BoolVar(&f.force, "force", false, "replace the --out file")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress bar")
	wideFlag(cmd, &f.wide)
	return cmd
}

func runRows(cmd *cobra.Command, f *rowsFlags) (err error) {
	operations, err := rows.ParseOperations(f.operations)
	if err != nil {
		return usage(cmd, fmt.Errorf("--%w", err))
	}
	wanted, err := regexp.Compile(f.pattern)
	if err != nil {
		return usage(cmd, fmt.Errorf("--run %q: it must be a regular expression: %w", f.pattern, err))
	}
	if f.force && f.out == "" {
		return usage(cmd, errors.New("--force is about the --out file, and there is none"))
	}
	if err := refuseOut(f.out, f.force); err != nil {
		return err
	}
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	dev, err := f.device.open()
	if err != nil {
		return err
	}
	defer closeDevice(stderr, dev)
	header, err := headerOf(ctx, dev)
	if err != nil {
		return err
	}
	measurer, cases := rows.NewDevice(dev, version(), header.Peaks), rows.Cases(header.CPU, operations)
	cases = slices.DeleteFunc(cases, func(c rows.Case) bool { return !wanted.MatchString(c.String()) })
	if len(cases) == 0 {
		return fmt.Errorf("--run %s: no row has such a name", f.pattern)
	}
	lines, closeLines, err := linesTo(stdout, f.asJSON, f.out, f.force)
	if err != nil {
		return err
	}
	defer closeLines()
	if err := result.NewWriter(lines).Line(header); err != nil {
		return err
	}
	bar := newBar(stderr, f.quiet)
	var results []rows.Result
	failed := 0
	for i, c := range cases {
		bar.step(i+1, len(cases), c.String())
		r := measurer.Measure(ctx, c)
		if ctx.Err() != nil {
			break
		}
		if results = append(results, r); r.Failed() {
			failed++
		}
		if err = result.NewWriter(lines).Line(r); err != nil {
			break
		}
	}
	bar.done()
	if !f.asJSON {
		fmt.Fprintf(stdout, "%s · copy %s GB/s\n\n%s\n", header.Device, result.Digits(header.Peaks.CopyGBps),
			rowsTable(results, screenOf(stdout, f.wide).Width))
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "%d of %s measured\n", len(results), count(len(cases), "row"))
		return ctx.Err()
	case err != nil:
		return err
	case failed > 0:
		fmt.Fprintf(stderr, "vkattn: %s of %d failed\n", count(failed, "row"), len(results))
		return errSilent
	}
	return nil
}

// rowsTable is results as text of at most that width; what went wrong stands in place of the figures.
func rowsTable(results []rows.Result, width int) string {
	t := report.NewText([]string{"", "B × H × rows × D", "how", "ms", "p20 – p80", "MB", "GB/s", "% copy", "max err", ""},
		"lllrrrrrrl").Fit(width, "max err", "p20 – p80")
	for _, r := range results {
		if r.Error != "" {
			t.Row(r.Operation, r.Shape(), r.How(), r.Reason.Word(), "", "", "", "", "", plain(r.Error))
			continue
		}
		t.Row(r.Operation, r.Shape(), r.How(), result.Digits(r.Ms), result.Digits(r.P20)+" – "+result.Digits(r.P80),
			result.Digits(r.LeastBytes/1e6), result.Digits(r.GBps), result.Digits(r.Copy), fmt.Sprintf("%.1e", *r.MaxErr), r.Note)
	}
	return t.String()
}

// movesRows says whether somebody who asks bench for a suite of that name means what rows measures.
func movesRows(suite string) bool {
	return slices.Contains(append([]string{"cache", "rows"}, rows.Operations...), suite)
}
