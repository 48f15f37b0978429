// Command vkattn measures, checks and describes attention on the Vulkan
// devices of this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/flash"
)

// Exit statuses.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report a program that SIGINT ended
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// errSilent ends the command with a failure that it has already told about.
var errSilent = errors.New("")

func run(args []string, stdout, stderr io.Writer) (status int) {
	defer func() {
		// A fault of ours is told in one line; VKATTN_DEBUG=1 shows where it happened.
		if p := recover(); p != nil && os.Getenv("VKATTN_DEBUG") == "" {
			fmt.Fprintf(stderr, "vkattn: internal error: %v (VKATTN_DEBUG=1 shows more)\n", p)
			status = exitFailure
		} else if p != nil {
			panic(p)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once

	out := &output{w: stdout}
	root := newRoot(out.writer(), stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if out.err != nil && ctx.Err() == nil && (err == nil || errors.Is(err, errSilent)) { // what was asked for was not delivered
		err = fmt.Errorf("the output is not complete: %w", out.err)
	}
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "vkattn: interrupted")
		return exitInterrupted
	case errors.Is(err, errSilent):
		return exitFailure
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "vkattn: %s\nTry '%s --help'.\n", plain(err.Error()), usage.command)
		return exitUsage
	}
	fmt.Fprintf(stderr, "vkattn: %s\n", plain(err.Error()))
	if errors.Is(err, flash.ErrNoDevice) {
		fmt.Fprintln(stderr)
		helpWithDrivers(stderr)
	}
	return exitFailure
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "vkattn",
		Short: "Exact attention (FlashAttention) on any Vulkan GPU: measure it, check it, see what the device offers",
		Long: `vkattn runs exact attention, FlashAttention and the standard three-kernel form, as Vulkan compute shaders.

It measures them on this machine's GPU, checks every kernel against a float64 reference, and says what
the device offers and what would be chosen.

Environment:
  VKATTN_LOADER    the Vulkan loader to open, in place of the system's
  VKATTN_TUNING    the file of tuned tiles, in place of the user's; off: none
  VKATTN_FAULT     calls into the driver that fail, for tests; alloc:7 is the seventh allocation
  VK_DRIVER_FILES  the loader's own: where drivers are described
  NO_COLOR         no colours on the terminal`,
		Example: `  vkattn bench                      a first look: standard against flash
  vkattn bench --suite papers       the FlashAttention papers' grid
  vkattn doctor                     does it work here, and how fast?
  vkattn verify                     is every kernel right on this device?
  vkattn info                       devices, tiers, limits
  vkattn map --random --out a.png   what attends to what, as a picture`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,

		PersistentPreRunE: refuseEmpty,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	// Lines of help end at the terminal's edge, or where they are still easy to read.
	wrapped := fmt.Sprintf("FlagUsagesWrapped %d", helpWidth(stdout))
	root.SetUsageTemplate(strings.NewReplacer("LocalFlags.FlagUsages", "LocalFlags."+wrapped, "InheritedFlags.FlagUsages",
		"InheritedFlags."+wrapped).Replace(root.UsageTemplate()))
	root.SetHelpCommand(&cobra.Command{ // cobra's own shows the root's help for a command that does not exist
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil {
				err = noArgs(cmd, rest)
			}
			if err != nil {
				return err
			}
			return cmd.Help()
		},
	})
	root.AddCommand(newBench(), newRows(), newMap(), newReport(), newCompare(), newAnalyze(), newPasses(), newInfo(), newDoctor(),
		newTune(), newVerify(), newView(), newVersion())
	for _, cmd := range root.Commands() {
		refuseEmptyItems(cmd)
	}
	return root
}

// noArgs refuses positional arguments; on the root they are unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unexpected argument %q", args[0])
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		err = fmt.Errorf("unknown command %q", args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err = fmt.Errorf("%w, did you mean %q?", err, near[0])
		}
	}
	return &usageError{err, cmd.CommandPath()}
}

// release is the version of this source tree.
const release = "0.9.0"

// newVersion is --version as a command, which is where many look for it.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "vkattn version %s\n", version())
			return err
		},
	}
}

// version adds the revision that the program was built from, where Go noted it.
func version() string {
	v := release
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ".modified"
			}
		}
	}
	if len(revision) >= 7 {
		v += "+" + revision[:7] + dirty
	}
	return v
}
