package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// listCases prints the cases that bench would measure, a JSON object a line. Only the kind of the device matters, since some suites are
// smaller on a CPU: without --device that of a GPU is taken, and none is opened.
func (f *benchFlags) listCases(cmd *cobra.Command, g result.Grid) error {
	if f.out != "" || f.peer != "" || f.compare != "" || f.trace != "" || f.device.tiles != "" {
		return usage(cmd, errors.New("--list measures nothing: leave --out, --peer, --compare, --trace and --tiles out"))
	}
	cpu := false
	if f.device.name != "" {
		dev, err := f.device.open()
		if err != nil {
			return err
		}
		cpu = bench.IsCPU(dev.Info())
		closeDevice(cmd.ErrOrStderr(), dev)
	}
	jobs, err := f.jobs(g, cpu)
	if err != nil {
		return usage(cmd, err)
	}
	w := result.NewWriter(cmd.OutOrStdout())
	for _, j := range jobs {
		if err := w.Line(j); err != nil {
			return err
		}
	}
	return nil
}
