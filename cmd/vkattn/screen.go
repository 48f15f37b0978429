package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"golang.org/x/term"
)

// onTerminal says whether w is a terminal.
func onTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf is the width of the terminal that w is, or what COLUMNS says of what stands in for one; 0: any.
func widthOf(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 0
}

// readable is the width in columns of text that is still easy to read.
const readable = 120

// helpWidth is the width to fold help to.
func helpWidth(w io.Writer) int {
	if width := widthOf(w); width > 40 {
		return min(width, readable)
	}
	return readable
}

// colored says whether text for w may be coloured: on a terminal, unless
// NO_COLOR (no-color.org) or a dumb terminal say otherwise.
func colored(w io.Writer) bool {
	return onTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// wideFlag adds --wide to a command that prints tables.
func wideFlag(cmd *cobra.Command, wide *bool) {
	cmd.Flags().BoolVar(wide, "wide", false, "all columns of tables, whatever the terminal's width")
}

// screenOf is what a command prints tables to.
func screenOf(w io.Writer, wide bool) report.Screen {
	s := report.Screen{Color: colored(w)}
	if !wide {
		s.Width = widthOf(w)
	}
	return s
}

// newText begins a table for w, from which the columns of drop are left out, in that order, where it is narrow.
func newText(w io.Writer, wide bool, drop, header []string, align string) *report.Text {
	return report.NewText(header, align).Fit(screenOf(w, wide).Width, drop...)
}

// printText prints a table, and which columns it leaves out.
func printText(w io.Writer, t *report.Text) {
	fmt.Fprintln(w, t)
	if dropped := t.Dropped(); len(dropped) > 0 {
		fmt.Fprintln(w, report.Fold(report.NotShown(dropped, widthOf(w)), widthOf(w), "  "))
	}
}

// printHeader says which device it is.
func printHeader(w io.Writer, h result.Header) {
	for _, line := range report.HeaderLines(h) {
		fmt.Fprintln(w, report.Fold(line, widthOf(w), "  "))
	}
}
