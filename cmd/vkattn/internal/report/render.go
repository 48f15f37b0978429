package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Formats lists the names that Write takes.
var Formats = []string{"table", "md", "csv", "jsonl", "gobench"}

// CheckFormat says whether Write takes the format.
func CheckFormat(format string) error {
	if !slices.Contains(Formats, format) {
		return fmt.Errorf("format %q: it must be one of %s", format, strings.Join(Formats, ", "))
	}
	return nil
}

// Write renders results. color is for "table" alone.
func Write(w io.Writer, format string, r *Results, color bool) error {
	switch format {
	case "table":
		return WriteTable(w, r, Screen{Color: color})
	case "md":
		return writeMarkdown(w, r)
	case "csv":
		return writeCSV(w, r)
	case "jsonl":
		return writeJSONL(w, r)
	case "gobench":
		return writeGobench(w, r)
	}
	return CheckFormat(format)
}

// HeaderLines describes the device and its ceilings.
func HeaderLines(h result.Header) []string {
	var first, second []string
	add := func(to *[]string, format string, a ...any) { *to = append(*to, fmt.Sprintf(format, a...)) }
	add(&first, "%s", h.Device)
	if h.Driver != "" {
		add(&first, "%s", h.Driver)
	}
	if h.API != "" {
		add(&first, "Vulkan %s", h.API)
	}
	if len(h.Tiers) > 0 {
		add(&first, "tiers %s", strings.Join(h.Tiers, ", "))
	}
	add(&first, "vkattn %s", h.VKAttn)
	p := h.Peaks
	matrix, fp32 := PeakRates(h.CPU, p)
	if matrix != "" {
		add(&second, "matrix %s", matrix)
	}
	if fp32 != "" {
		add(&second, "fp32 %s", fp32)
	}
	if p.CopyGBps > 0 {
		add(&second, "copy %s GB/s", Digits(p.CopyGBps))
	}
	out := []string{strings.Join(first, " · ")}
	if len(second) > 0 {
		out = append(out, "measured peaks: "+strings.Join(second, " · "))
	}
	return out
}

// Screen is what text is written to.
type Screen struct {
	Color bool
	Width int // in columns; 0: any
}

// WriteTable is Write of a table for a screen: columns that do not fit are named below it, and lines are folded.
func WriteTable(w io.Writer, r *Results, s Screen) error {
	g := build(r)
	var b strings.Builder
	line := func(text, indent string) { b.WriteString(Fold(text, s.Width, indent) + "\n") }
	for _, text := range HeaderLines(r.Header) {
		line(text, "  ")
	}
	if len(g.shared) > 0 && len(g.cells) > 0 {
		line("all rows: "+strings.Join(g.shared, " · "), "  ")
	}
	if len(g.cells) == 0 {
		b.WriteString("\nno rows\n")
	} else {
		t := gridText(g, s.Color).Fit(s.Width, leastImportant...)
		b.WriteString("\n" + t.String() + "\n")
		dropped := t.Dropped()
		if text := legend(g, dropped); text != "" {
			line(text, "  ")
		}
		if len(dropped) > 0 {
			line(NotShown(dropped, s.Width), "  ")
		}
	}
	for _, sum := range Summaries(r) {
		b.WriteString(emphasis(Fold(sum.String(), s.Width, "  "), s.Color) + "\n")
	}
	for _, n := range g.notes {
		line("! "+n, "  ")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// NotShown says which columns a screen has no room for.
func NotShown(columns []string, width int) string {
	return fmt.Sprintf("not shown at %d columns: %s (--wide shows all)", width, strings.Join(columns, ", "))
}

// leastImportant are columns of results in the order in which they are left out where a screen is narrow. The problem, the
// implementation, the time and the ratios stay.
var leastImportant = []string{"checked", "in all", "emb dim", "GB asked for", "tiles", "bwd ±", "±", "% peak", "bwd max err", "kernel",
	"bwd peak MiB", "max err",
	"fwd+bwd ms", "peak MiB", "bwd TFLOP/s", "bwd GFLOP/s", "TFLOP/s", "GFLOP/s"}

// legend explains the columns that do not explain themselves, but for those that are not shown.
func legend(g *grid, dropped []string) string {
	var parts []string
	for _, c := range g.columns {
		if c.Legend != "" && !slices.Contains(dropped, c.Name) {
			parts = append(parts, c.Name+": "+c.Legend)
		}
	}
	return strings.Join(parts, " · ")
}

func emphasis(s string, color bool) string {
	if color {
		return text.Bold.Sprint(s)
	}
	return s
}

func gridText(g *grid, color bool) *Text {
	var header []string
	align := ""
	for _, c := range g.columns {
		header = append(header, c.Name)
		if c.Left {
			align += "l"
		} else {
			align += "r"
		}
	}
	t := NewText(header, align)
	rules := g.largestGroup() > 2 // pairs are seen without
	for i, cells := range g.cells {
		if rules && i > 0 && g.groups[i] != g.groups[i-1] {
			t.Rule()
		}
		var row []string
		for j, v := range cells {
			row = append(row, paint(v, g.columns[j].Name, g.peer[i], color))
		}
		t.Row(row...)
	}
	return t
}

func paint(v, column string, peer, color bool) string {
	switch {
	case !color || v == "":
		return v
	case v == "WRONG" || v == "FAILED":
		return text.FgRed.Sprint(v)
	case peer:
		return text.Faint.Sprint(v)
	case strings.HasPrefix(column, "× "):
		if f, err := strconv.ParseFloat(v, 64); err == nil && f > 1 {
			return text.FgGreen.Sprint(v)
		}
	}
	return v
}

func writeMarkdown(w io.Writer, r *Results) error {
	g := build(r)
	var b strings.Builder
	for _, line := range HeaderLines(r.Header) {
		b.WriteString(line + "  \n")
	}
	if len(g.shared) > 0 && len(g.cells) > 0 {
		b.WriteString("All rows: " + strings.Join(g.shared, " · ") + "  \n")
	}
	b.WriteString("\n|")
	for _, c := range g.columns {
		b.WriteString(" " + escape(c.Name) + " |")
	}
	b.WriteString("\n|")
	for _, c := range g.columns {
		if c.Left {
			b.WriteString(" --- |")
		} else {
			b.WriteString(" ---: |")
		}
	}
	b.WriteString("\n")
	for _, cells := range g.cells {
		b.WriteString("|")
		for _, v := range cells {
			b.WriteString(" " + escape(v) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, s := range Summaries(r) {
		b.WriteString("- " + escape(s.String()) + "\n")
	}
	for _, n := range g.notes {
		b.WriteString("- " + escape(n) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// writeCSV writes every column, named as in result files, and the ratios.
func writeCSV(w io.Writer, r *Results) error {
	out := csv.NewWriter(w)
	x := newIndex(r)
	rows, peer := ordered(r)
	all := see(r, x, rows, peer)
	columns := headed(result.CSVColumns(), x.impls)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.Key
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for i := range rows {
		for j, c := range columns {
			line[j] = c.CSV(all.at(i, c))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// writeJSONL writes what a result file holds.
func writeJSONL(w io.Writer, r *Results) error {
	out := result.NewWriter(w)
	if err := out.Line(r.Header); err != nil {
		return err
	}
	rows, _ := ordered(r)
	for _, row := range rows {
		if err := out.Line(row); err != nil {
			return err
		}
	}
	return nil
}

// writeGobench writes the Go benchmark format, which benchstat compares: a line
// for every round. Rows without figures are left out.
func writeGobench(w io.Writer, r *Results) error {
	var b strings.Builder
	h := r.Header
	if goos, goarch, ok := strings.Cut(h.Host, "/"); ok {
		fmt.Fprintf(&b, "goos: %s\ngoarch: %s\n", goos, goarch)
	}
	fmt.Fprintf(&b, "pkg: github.com/vkattn/vkattn\ndevice: %s\ndriver: %s\n", h.Device, h.Driver)
	gobenchRows(&b, "Forward", r)
	gobenchRows(&b, "Backward", backwardOf(r))
	_, err := io.WriteString(w, b.String())
	return err
}

// gobenchLibrary is a library without its version, so that two versions of one have the same names.
func gobenchLibrary(library string) string {
	name, _, _ := strings.Cut(library, " ")
	return cmp.Or(strings.ReplaceAll(name, "/", "-"), "peer")
}

func gobenchRows(b *strings.Builder, pass string, r *Results) {
	rows, peer := ordered(r)
	for i, row := range rows {
		if row.Fwd.Ms <= 0 || earlierRow(row, peer[i]) { // an earlier run has the same names, and benchstat would take both for one
			continue
		}
		name := "Benchmark" + pass + "/"
		if peer[i] { // whose implementations may be called as ours are
			name += "library=" + gobenchLibrary(row.Library) + "/"
		}
		name += row.Path()
		rounds := row.Fwd.Rounds
		if len(rounds) == 0 {
			rounds = []float64{row.Fwd.Ms}
		}
		for _, ms := range rounds {
			fmt.Fprintf(b, "%s %d %.0f ns/op %.6g TFLOP/s", name, max(row.Fwd.N/len(rounds), 1), ms*1e6, row.Fwd.TFLOPS*row.Fwd.Ms/ms)
			if row.Fwd.PeakMiB != nil {
				fmt.Fprintf(b, " %.6g peak-MiB", *row.Fwd.PeakMiB)
			}
			b.WriteString("\n")
		}
	}
}
