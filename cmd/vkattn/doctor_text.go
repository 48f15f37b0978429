package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
)

func (d *doctor) printMachine(n named) {
	n.line("vkattn", "%s · %s", d.VKAttn, d.Go)
	n.line("system", "%s · %s", d.System, count(d.CPUs, "CPU"))
	if len(d.GPUs) > 0 {
		n.line("hardware", "%s", strings.Join(d.GPUs, " · "))
	}
	if d.Error != "" {
		n.line("error", "%s", n.paint("FAIL", "no device can be used")+": "+d.Error)
	}
	if d.Device != nil {
		n.line("device", "%d  %s", d.Device.Index, d.Device.Device)
		d.Device.printFacts(n)
	}
	n.lines("also there", d.Others)
}

// paint colours text on a terminal as a verdict is coloured.
func (n named) paint(verdict, s string) string {
	switch {
	case !n.color:
		return s
	case verdict == "FAIL":
		return text.FgRed.Sprint(s)
	case verdict == "pass":
		return text.FgGreen.Sprint(s)
	}
	return text.FgYellow.Sprint(s)
}

func printDrivers(n named) {
	var b strings.Builder
	helpWithDrivers(&b)
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(n.w, report.Fold("  "+homeless(strings.TrimRight(line, "\n")), n.width, strings.Repeat(" ", 2+14)))
	}
}

func (d *doctor) printAbilities(n named) {
	var has []string
	for _, a := range d.Abilities {
		if a.Has {
			has = append(has, a.Name)
		}
	}
	if len(has) > 0 {
		n.line("there", "%s", n.paint("pass", strings.Join(has, " · ")))
	}
	for _, a := range d.Abilities {
		if a.Has {
			continue
		}
		n.line("missing", "%s", n.paint("lacks", a.Name)+": the device has no "+strings.Join(a.Lacks, ", "))
		n.line("", "cost: %s", a.Cost)
		n.line("", "to do: %s", a.Do)
		if len(a.Kernels) > 0 {
			n.line("", "kernels: %s", strings.Join(a.Kernels, ", "))
		}
	}
}

func (d *doctor) printSelfChecks(n named) {
	passed := 0
	for _, c := range d.Device.SelfChecks {
		if c.Pass {
			passed++
		}
	}
	if passed > 0 {
		n.line("right", "%s: every kernel, in every type that it has here, against float64",
			n.paint("pass", fmt.Sprintf("%d of %d", passed, len(d.Device.SelfChecks))))
	}
	for _, c := range d.Device.SelfChecks {
		if !c.Pass {
			n.line("wrong", "%s  %s", n.paint("FAIL", fmt.Sprintf("%s/%s %s", c.Impl, c.Tier, c.DType)),
				strings.TrimSpace(c.Kernel+"  "+homeless(c.Why)))
		}
	}
}

// table prints a table, a little to the right.
func (n named) table(header []string, align string, rows [][]string) {
	t := report.NewText(header, align).Fit(max(n.width-2, 0))
	for _, row := range rows {
		t.Row(row...)
	}
	for _, line := range strings.Split(t.String(), "\n") {
		fmt.Fprintln(n.w, "  "+line)
	}
}

func (d *doctor) printChoices(n named) {
	var rows [][]string
	for _, c := range together(d.Choices) {
		kernel := c.Kernel
		if c.Tuned {
			kernel += " (tuned)"
		}
		if c.Error != "" {
			kernel = n.paint("lacks", c.Error)
		}
		rows = append(rows, []string{c.Pass, c.types, c.dims, kernel})
	}
	n.table([]string{"pass", "types", "D", "kernel and tile"}, "llll", rows)
	n.lines("passed over", passedOver(d.Choices))
}

// shortType is a type as people write it.
func shortType(dtype string) string {
	return strings.NewReplacer("bfloat", "bf", "float", "fp").Replace(dtype)
}

// sameChoice is what several types and head dimensions get.
type sameChoice struct {
	choiceJSON
	types, dims string
}

// together puts choices together that differ in nothing but the type, and then those that differ in nothing but the head dimension.
func together(choices []choiceJSON) (out []sameChoice) {
	like := func(a *sameChoice, b *choiceJSON) bool {
		return a.Pass == b.Pass && a.Kernel == b.Kernel && a.Tuned == b.Tuned && a.Error == b.Error
	}
	for _, c := range choices {
		at := slices.IndexFunc(out, func(o sameChoice) bool { return like(&o, &c) && o.Dim == c.Dim })
		if at < 0 {
			out = append(out, sameChoice{c, shortType(c.DType), fmt.Sprint(c.Dim)})
		} else {
			out[at].types += ", " + shortType(c.DType)
		}
	}
	for i := 0; i < len(out); i++ {
		for j := len(out) - 1; j > i; j-- {
			if like(&out[i], &out[j].choiceJSON) && out[i].types == out[j].types {
				out[i].dims += ", " + out[j].dims
				out = slices.Delete(out, j, j+1)
			}
		}
	}
	return out
}

// passedOver are the reasons why kernels were not taken that are preferred, each once, with the kernels that it is the reason of.
func passedOver(choices []choiceJSON) (lines []string) {
	kernels := map[string][]string{}
	for _, c := range choices {
		for _, why := range c.Why {
			kernel, reason, _ := strings.Cut(homeless(why), ": ")
			if strings.Contains(reason, " is on the deny-list ") { // a long story, which stands elsewhere
				reason = "on the deny-list: the self-check failed, as 'Stored' says"
			}
			// That a kernel is for other problems says nothing of the device.
			if strings.Contains(reason, "it takes up to ") || slices.Contains(kernels[reason], kernel) {
				continue
			}
			if kernels[reason] == nil {
				lines = append(lines, reason)
			}
			kernels[reason] = append(kernels[reason], kernel)
		}
	}
	for i, reason := range lines {
		lines[i] = fmt.Sprintf("%s (%s)", reason, strings.Join(kernels[reason], ", "))
	}
	return lines
}

func (d *doctor) printSpeeds(n named) {
	d.Device.printPeaks(n)
	jobs := doctorJobs(d.Device.CPU)
	first, last := jobs[0].Case, jobs[len(jobs)-1].Case
	n.line("problems", "%d heads, %d tokens · decoding: %d × %d heads on %d, 1 query, %d keys", first.H, first.N, last.B, last.H,
		last.Hkv, last.N)
	var rates []float64
	for _, r := range d.Rows {
		rates = append(rates, r.Fwd.TFLOPS, r.Bwd.TFLOPS)
	}
	unit := result.RateUnit(d.Device.CPU, rates...)
	var rows [][]string
	var notes []string
	for _, r := range d.Rows {
		rows = append(rows, d.speedRow(r, false, unit))
		if r.Bwd.Ms > 0 || r.BwdFailure.Error != "" {
			rows = append(rows, d.speedRow(r, true, unit))
		}
		for _, note := range []string{r.Error, r.BwdFailure.Error, r.Note} {
			if note = homeless(plain(note)); note != "" && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	if len(rows) == 0 {
		n.line("notes", "nothing was measured")
		return
	}
	n.table([]string{"pass", "type", "D", "ms", unit.Name, "max err", "%", "of the peak in"}, "llrrrrrl", rows)
	n.lines("notes", notes)
}

// speedRow is a pass of a row as text, with the share of what bounds it.
func (d *doctor) speedRow(r result.Row, backward bool, unit result.Unit) []string {
	pass := passOf(r.Case, backward)
	if backward {
		r.Fwd, r.Check, r.Failure = r.Bwd, r.BwdCheck, r.BwdFailure
	}
	r.Bwd, r.BwdFailure = result.Pass{}, result.Failure{}
	cell := &result.Cell{View: &result.View{Peaks: d.Device.Peaks, Rate: [2]result.Unit{unit, unit}}, Row: &r}
	show := func(key string) string {
		for _, c := range result.Columns {
			if c.Key == key {
				return c.Show(cell)
			}
		}
		return ""
	}
	share, of := show("pct_copy"), "copying"
	if share == "" {
		share, of = show("pct_peak"), "arithmetic"
	}
	if share == "" {
		of = ""
	}
	return []string{pass, shortType(r.DType), fmt.Sprint(r.D), show("fwd_ms"), show("fwd_tflops"), show("max_err"), share, of}
}

func (d *doctor) printStored(n named) {
	s := d.Stored
	if s.VerdictFile == "" {
		n.line("verdicts", "of self-checks are kept nowhere")
	} else {
		n.line("verdicts", "%d passed, %d denied, in %s", s.Passed, len(s.Denied), s.VerdictFile)
	}
	for _, denial := range s.Denied {
		n.line("", "%s: %s", n.paint("FAIL", strings.Join(denial.Modules, ", ")), denial.Why)
	}
	switch {
	case s.File == "":
		n.line("tunings", "none are used: %s is off, or there is no configuration directory", "VKATTN_TUNING")
	case len(s.Tunings) == 0:
		n.line("tunings", "none of this device, in %s", s.File)
	default:
		n.line("tunings", "%s of this device, in %s", count(len(s.Tunings), "tile"), s.File)
		for _, e := range s.Tunings {
			n.line("", "%s %s D %d: %s, %.2f × the built-in choice", e.Kernel, e.DType, e.HeadDim, e.Tile, e.Gain)
		}
	}
	n.lines("notices", s.Notices)
}

func (d *doctor) printEnvironment(n named) {
	if len(d.Set) == 0 {
		fmt.Fprintln(n.w, "  no variable is set that changes what vkattn, the loader or a driver does")
	}
	for _, v := range d.Set {
		line := v.Name + "=" + homeless(v.Value)
		if v.What != "" {
			line += " · " + v.What
		}
		fmt.Fprintln(n.w, report.Fold("  "+line, n.width, "    "))
	}
}

// printDetails prints what a terminal has no room for.
func (d *doctor) printDetails(n named) {
	d.Device.printKernels(n)
	for i, c := range d.Device.SelfChecks {
		name := ""
		if i == 0 {
			name = "self-check"
		}
		n.line(name, "%s", c)
	}
	for _, limit := range sortedKeys(d.Device.Limits) {
		n.line("limit", "%s %d", limit, d.Device.Limits[limit])
	}
	n.line("extensions", "%s", strings.Join(d.Device.Extensions, " "))
}
