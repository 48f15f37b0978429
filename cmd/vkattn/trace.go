package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// createTrace opens the --trace file. One that exists is replaced with --force, and with --append where it is a trace: a trace is of one
// run from beginning to end, and that of a sweep that is continued has the rows of the earlier run too, profiled again.
func (f *benchFlags) createTrace() (*result.OutFile, error) {
	if f.force || f.appendTo && bench.ReplaceableTrace(f.trace) {
		return result.CreateFile(f.trace, result.Force)
	}
	if _, err := os.Stat(f.trace); err == nil {
		return nil, fmt.Errorf("--trace %s exists already: nothing can be added to a trace; replace it with --force, or name another file",
			f.trace)
	}
	return result.CreateFile(f.trace, result.CreateNew)
}

// dropTrace closes the file of a trace that was interrupted before it was written, which leaves none.
func (f *benchFlags) dropTrace(stderr io.Writer, file *result.OutFile) {
	file.Close()
	again := "run it again from the beginning"
	if f.out != "" {
		again = "the same with --append makes one of all rows"
	}
	fmt.Fprintf(stderr, "vkattn: no trace was written: %s\n", again)
}

// writeTrace profiles every row that was measured.
func writeTrace(ctx context.Context, w io.Writer, d *bench.Device, h result.Header, rows []result.Row) error {
	var t bench.Trace
	for _, row := range rows {
		if row.Fwd.Ms <= 0 && row.Bwd.Ms <= 0 {
			continue
		}
		if err := d.Profile(ctx, &t, row); err != nil {
			return fmt.Errorf("--trace, %s: %w", row.Case, err)
		}
	}
	return t.Write(w, h)
}
