package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
	"golang.org/x/term"
)

// deviceFlag adds --device.
func deviceFlag(cmd *cobra.Command, device *string) {
	cmd.Flags().StringVar(device, "device", "", "which device: its number or part of its name, as 'vkattn info' lists them (default: the best)")
}

// openDevice opens the device that --device names.
func openDevice(name string) (*flash.Device, error) {
	var opts []flash.DeviceOption
	if name != "" {
		opts = append(opts, flash.WithDevice(name))
	}
	return flash.Open(opts...)
}

// headerOf describes a device as result files do, its peaks measured.
func headerOf(ctx context.Context, dev *flash.Device) (bench.Header, error) {
	h := bench.DescribeDevice(dev.Info())
	h.VKAttn, h.Command = version(), os.Args
	p, err := dev.MeasurePeaks(ctx)
	if err != nil {
		return h, err
	}
	h.Peaks = bench.PeaksOf(p)
	return h, nil
}

// onTerminal says whether w is a terminal.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored says whether text for w may be coloured: on a terminal, unless
// NO_COLOR (no-color.org) or a dumb terminal say otherwise.
func colored(w io.Writer) bool {
	return onTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// count is "1 row" or "3 rows".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
