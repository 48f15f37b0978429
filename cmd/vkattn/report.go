package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
)

func newReport() *cobra.Command {
	var compare, out, format string
	cmd := &cobra.Command{
		Use:   "report FILE…",
		Short: "Make figures and a page of result files",
		Long: `Make the twelve figures of result files that 'vkattn bench --out' wrote (time, throughput, memory and speed-up
against the sequence length; batch; causal; heads; embedding; head dimension; forward and backward;
throughput map; summary), each as SVG and PNG, and a page that shows them with all rows and with what the
course reports found. Rows of several devices ('vkattn bench --ranks') have figures of their own: speed-up, where the
time goes, and what every device did in a pass.

The page is one file: it needs no network, no script, and is read on a telephone and in the dark. Several
files, of other devices or versions, stand in the same figures. A figure takes the reports' own setting
where the files have it, else the longest sweep that they have.`,
		Example: `  vkattn bench --suite reports --out results.jsonl && vkattn report results.jsonl --out report
  vkattn report h200.jsonl rx7900.jsonl --compare torch.jsonl --out report
  vkattn report results.jsonl --format md --out docs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage(cmd, fmt.Errorf("no result file is given"))
			case out == "":
				return usage(cmd, fmt.Errorf("--out is missing: it must name the folder to write to"))
			case !slices.Contains(report.PageFormats, format):
				return usage(cmd, fmt.Errorf("--format %q: it must be one of %s", format, strings.Join(report.PageFormats, ", ")))
			}
			var files []*result.File
			for _, path := range args {
				f, err := readResults(cmd.ErrOrStderr(), path)
				if err != nil {
					return err
				}
				files = append(files, f)
			}
			var peer *result.File
			if compare != "" {
				var err error
				if peer, err = readResults(cmd.ErrOrStderr(), compare); err != nil {
					return err
				}
			}
			return writeReport(cmd.OutOrStdout(), files, peer, out, format)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&out, "out", "", "`folder` to write to")
	fl.StringVar(&compare, "compare", "", "result `file` of a peer or of an earlier run, to stand beside")
	fl.StringVar(&format, "format", "html", "`form` of the page: "+strings.Join(report.PageFormats, ", "))
	return cmd
}

func writeReport(w io.Writer, files []*result.File, peer *result.File, out, format string) error {
	page, err := report.NewPage(files, peer)
	if err != nil {
		return err
	}
	path, err := page.WritePage(out, format)
	if err != nil {
		return err
	}
	drawn := 0
	for _, f := range page.Figures {
		if len(f.Series) > 0 {
			drawn++
		}
	}
	fmt.Fprintf(w, "%s, with %d of %d figures\n", path, drawn, len(page.Figures))
	for _, f := range page.Figures {
		if len(f.Series) == 0 {
			fmt.Fprintf(w, "not drawn: %s. %s\n", strings.ToLower(f.Title[:1])+f.Title[1:], f.Empty)
		}
	}
	return nil
}
