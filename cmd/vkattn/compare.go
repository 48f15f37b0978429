package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
)

// worstRows is how many rows a failure names.
const worstRows = 5

func newCompare() *cobra.Command {
	var above float64
	var subset, wide, relative bool
	var format, tolerance string
	cmd := &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Compare two result files row by row, and fail on a slow-down",
		Long: `Compare the times of two result files row by row, with significance: where both have at least four rounds
(vkattn bench --rounds), by the Mann-Whitney U test at p < 0.05, as benchstat does; else by whether the
20th to 80th percentiles overlap. A row that was measured in OLD, and that failed in NEW or is not in it,
counts as lost; --subset is for a NEW that measured fewer rows on purpose.

With --relative what is compared is times × the peak that each row is bound by, as its own run has measured it: of matrices, of fp32,
or of copying. So a file of one card judges another of its kind, or the same at other clocks. A row that another peak bounds in NEW,
as one that fell to the scalar tier is, is judged by its times. One of ours whose peak a run lacks cannot be judged, and fails.`,
		Example: `  vkattn bench --suite quick --rounds 6 --out new.jsonl
  vkattn compare old.jsonl new.jsonl --fail-above 1.05   # exit status 1 when a row is more than 5 % slower
  vkattn bench --suite guard --out guard.jsonl
  vkattn compare --relative --tolerance 5% recorded.jsonl guard.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			gate := cmd.Flags().Changed("fail-above") || cmd.Flags().Changed("tolerance")
			if len(args) != 2 {
				return usage(cmd, fmt.Errorf("%s given: it takes two, OLD and NEW", count(len(args), "file")))
			}
			switch {
			case cmd.Flags().Changed("fail-above") && cmd.Flags().Changed("tolerance"):
				return usage(cmd, errors.New("--fail-above and --tolerance are both given: they say the same"))
			case cmd.Flags().Changed("tolerance"):
				var err error
				if above, err = report.ParseTolerance(tolerance); err != nil {
					return usage(cmd, fmt.Errorf("--tolerance %q: %w", tolerance, err))
				}
			case gate:
				if err := report.CheckFactor(above); err != nil {
					return usage(cmd, fmt.Errorf("--fail-above %g: %w", above, err))
				}
			}
			if !slices.Contains(report.ChangeFormats, format) {
				return usage(cmd, fmt.Errorf("--format %q: it must be one of %s", format, strings.Join(report.ChangeFormats, ", ")))
			}
			var files [2]*result.File
			for i, path := range args {
				var err error
				if files[i], err = readResults(cmd.ErrOrStderr(), path); err != nil {
					return err
				}
			}
			compare := report.Diff
			if relative {
				compare = report.DiffRelative
			}
			changes, err := compare(files[0], files[1])
			if err != nil {
				return err
			}
			if err := report.WriteChanges(cmd.OutOrStdout(), format, changes, screenOf(cmd.OutOrStdout(), wide).Width); err != nil {
				return err
			}
			if !gate {
				return nil
			}
			failed := false
			if slower := changes.Slower(above); len(slower) > 0 {
				failed = true
				fmt.Fprintf(cmd.ErrOrStderr(), "vkattn: %s of %d slower than %g × or lost: %s\n", count(len(slower), "row"),
					len(changes.Rows), above, report.Worst(slower, worstRows))
			}
			if n := len(changes.Unjudged); n > 0 {
				failed = true
				fmt.Fprintf(cmd.ErrOrStderr(), "vkattn: %s cannot be judged, for no peak is known of: compare without --relative\n",
					count(n, "row"))
			}
			if missing := len(changes.OnlyOld); missing > 0 && !subset {
				failed = true
				fmt.Fprintf(cmd.ErrOrStderr(), "vkattn: %s of %s not in %s (--subset if that is meant)\n", count(missing, "row"),
					args[0], args[1])
			}
			if failed {
				return errSilent
			}
			return nil
		},
	}
	cmd.Flags().Float64Var(&above, "fail-above", 0, "exit status 1 when a row is significantly slower than this `factor`, such as 1.05, "+
		"or lost")
	cmd.Flags().StringVar(&tolerance, "tolerance", "", "the same in `percent`, such as 5%")
	cmd.Flags().BoolVar(&relative, "relative", false, "compare times × the peak that bounds each row, as its own run measured it: across "+
		"cards of one kind")
	cmd.Flags().BoolVar(&subset, "subset", false, "rows that NEW lacks are no loss")
	cmd.Flags().StringVar(&format, "format", "table", "`form` to print: "+strings.Join(report.ChangeFormats, ", "))
	wideFlag(cmd, &wide)
	return cmd
}
