package main

import (
	"context"
	"fmt"
	"io"

	"github.com/vkattn/vkattn/internal/bench"
)

// traceMode says what becomes of a --trace file that exists.
func (f *benchFlags) traceMode() bench.CreateMode {
	if f.force {
		return bench.Force
	}
	return bench.CreateNew
}

// writeTrace profiles every row that was measured.
func writeTrace(ctx context.Context, w io.Writer, d *bench.Device, h bench.Header, rows []bench.Row) error {
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
