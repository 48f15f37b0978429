package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/ranks"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

// printLinks measures links of all GPUs, or of the CPU where there is none.
func printLinks(cmd *cobra.Command, c *deviceChoice, asJSON bool) error {
	infos, err := flash.Devices(c.options()...)
	if err != nil {
		return err
	}
	gpus, bytes := 0, 256<<20
	for _, d := range infos {
		if !bench.IsCPU(d) {
			gpus++
		}
	}
	if gpus == 0 {
		gpus, bytes = 1, 16<<20
	}
	devices, err := ring.Open(gpus, false, c.options()...)
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range devices {
			closeDevice(cmd.ErrOrStderr(), d)
		}
	}()
	links, err := ranks.MeasureLinks(cmd.Context(), devices, bytes)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON {
		for _, l := range links {
			if err := result.NewWriter(out).Line(l); err != nil {
				return err
			}
		}
		return nil
	}
	name := func(i int) string {
		if i < 0 {
			return "host"
		}
		return fmt.Sprintf("%d %s", i, devices[i].Info().Name)
	}
	t := report.NewText([]string{"from", "to", "GB/s", "how"}, "llrl").Fit(screenOf(out, false).Width)
	for _, l := range links {
		how := "by way of staging buffers"
		if l.Imported {
			how = "memory of the host, imported"
		}
		if l.Apart {
			how += ", beside kernels"
		}
		switch l.With {
		case ranks.Others:
			how += "; all devices at once"
		case ranks.BothWays:
			how += "; all devices at once, both ways"
		}
		t.Row(name(l.From), name(l.To), result.Digits(l.GBps), how)
	}
	_, err = fmt.Fprintln(out, t.String())
	return err
}
