package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// deviceChoice is which device a command runs on, and with which tiles.
type deviceChoice struct{ name, tiles string }

// deviceFlags adds --device and --tiles.
func deviceFlags(cmd *cobra.Command, c *deviceChoice) {
	cmd.Flags().StringVar(&c.name, "device", "", "which device: its number or part of its `name`, as 'vkattn info' lists them (default: "+
		"the best)")
	cmd.Flags().StringVar(&c.tiles, "tiles", "", "`file` of tiles, as 'vkattn tune --export' writes one: its rows go before the built-in "+
		"ones (default: none)")
}

// options are those for a device, without its name.
func (c *deviceChoice) options() []flash.DeviceOption {
	if c.tiles == "" {
		return nil
	}
	return []flash.DeviceOption{flash.WithTiles(c.tiles)}
}

// open opens the device.
func (c *deviceChoice) open(opts ...flash.DeviceOption) (*flash.Device, error) {
	opts = append(opts, c.options()...)
	if c.name != "" {
		opts = append(opts, flash.WithDevice(c.name))
	}
	dev, err := flash.Open(opts...)
	var none *flash.ArgumentError
	if errors.As(err, &none) && none.Argument == "WithDevice" {
		return nil, fmt.Errorf("--device %s: it %s", none.Value, none.Rule)
	}
	return dev, err
}

// closeDevice closes a device and tells what it has to say about the files that it keeps.
func closeDevice(stderr io.Writer, dev *flash.Device) {
	err := dev.Close()
	for _, notice := range dev.Notices() {
		fmt.Fprintln(stderr, "vkattn: "+plain(notice))
	}
	if err != nil && !errors.Is(err, flash.ErrDeviceLost) { // the loss of the device ended the command, and is told by it
		fmt.Fprintf(stderr, "vkattn: closing the device: %s\n", plain(err.Error()))
	}
}

// helpWithDrivers says where a Vulkan driver comes from, for who has none.
func helpWithDrivers(w io.Writer) {
	fmt.Fprintln(w, "vkattn needs a Vulkan loader and a driver:")
	switch runtime.GOOS {
	case "windows":
		fmt.Fprintln(w, "  both come with the GPU's driver: install or update that")
	case "darwin":
		fmt.Fprintln(w, "  brew install vulkan-loader molten-vk")
	default:
		fmt.Fprint(w, `  NVIDIA      the driver with its Vulkan part, and the loader: libvulkan1, vulkan-loader or vulkan-icd-loader
  AMD, Intel  Mesa's drivers and the loader: apt-get install mesa-vulkan-drivers libvulkan1
  no GPU      the same: Mesa has a driver for the CPU too
In vkattn's source tree, tools/setup.sh finds or provides one, and tools/run.sh starts a program with it.
`)
	}
	for _, name := range []string{"VKATTN_LOADER", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_SELECT",
		"VK_LOADER_DRIVERS_DISABLE"} {
		if v, ok := os.LookupEnv(name); ok {
			fmt.Fprintf(w, "%s is set to %q: the loader looks where that says.\n", name, v)
		}
	}
}

// measurePeaks is tune's; tests, which run commands by the dozen, keep what it gave.
var measurePeaks = tune.MeasurePeaks

// headerOf describes a device as result files do, its peaks measured.
func headerOf(ctx context.Context, dev *flash.Device) (result.Header, error) {
	h := bench.DescribeDevice(dev.Info())
	h.VKAttn, h.Command = version(), os.Args
	p, err := measurePeaks(ctx, dev)
	if err != nil {
		return h, err
	}
	h.Peaks = bench.PeaksOf(p)
	return h, nil
}

// count is "1 row" or "3 rows".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
