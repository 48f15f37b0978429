package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
)

// named prints lines that begin with a name, folded where text is still easy to read.
type named struct {
	w     io.Writer
	width int
	color bool
}

// namedFor is that for what a command prints to.
func namedFor(w io.Writer) named {
	return named{w, min(cmp.Or(widthOf(w), readable), readable), colored(w)}
}

func (n named) line(name, format string, a ...any) {
	fmt.Fprintln(n.w, report.Fold(fmt.Sprintf("  %-11s %s", name, fmt.Sprintf(format, a...)), n.width, strings.Repeat(" ", 2+11+1+2)))
}

// lines are several under one name.
func (n named) lines(name string, lines []string) {
	for _, l := range lines {
		n.line(name, "%s", l)
		name = ""
	}
}

// title begins what lines are about.
func (n named) title(title string) {
	if n.color {
		title = text.Bold.Sprint(title)
	}
	fmt.Fprintln(n.w, title)
}

// print prints all that is known of a device.
func (d *deviceJSON) print(n named) {
	n.title(fmt.Sprintf("%d  %s", d.Index, d.Device))
	d.printFacts(n)
	d.printPeaks(n)
	d.printKernels(n)
	for i, c := range d.SelfChecks {
		name := ""
		if i == 0 {
			name = "self-check"
		}
		n.line(name, "%s", c)
	}
}

// printFacts prints what the driver says of the device.
func (d *deviceJSON) printFacts(n named) {
	f := d.facts.Facts
	chosen := "not chosen"
	if d.Chosen {
		chosen = "chosen"
	}
	n.line("choice", "%s: %s", chosen, d.Reason)
	n.line("kind", "%s · %s · Vulkan %s", d.Kind, d.Driver, f.EffectiveVersion)
	n.line("memory", "%s on the device · %s the largest allocation · %s the largest binding",
		bytesText(d.Memory), bytesText(f.Limits.MaxAllocationSize), bytesText(f.Limits.MaxStorageBufferRange))
	side := ""
	if f.Multiprocessors > 0 {
		side = fmt.Sprintf(" · %d multiprocessors", f.Multiprocessors)
	}
	n.line("workgroup", "%s shared memory · %d invocations · subgroups of %s%s",
		bytesText(uint64(f.Limits.MaxSharedMemory)), f.Limits.MaxWorkgroupInvocations,
		subgroups(f.Subgroup.Min, f.Subgroup.Size, f.Subgroup.Max), side)
	n.line("tiles", "%s", strings.Join(d.Tiles, ", then "))
	n.line("timestamps", "%s", timestampText(d.facts))
	var types []string
	for _, t := range []struct {
		name string
		has  bool
	}{{"fp16", f.Features.Float16}, {"16-bit storage", f.Features.Storage16}, {"bf16", f.Features.BFloat16Type},
		{"cooperative matrices", f.Features.CooperativeMatrix}, {"bf16 matrices", f.Features.BFloat16CooperativeMatrix}} {
		mark := "no "
		if t.has {
			mark = ""
		}
		types = append(types, mark+t.name)
	}
	n.line("features", "%s", strings.Join(types, " · "))
	n.lines("matrices", shortMatrices(d.Matrices))
}

// printPeaks prints the ceilings, where they were measured.
func (d *deviceJSON) printPeaks(n named) {
	if p := d.Peaks; p != (result.Peaks{}) {
		parts := []string{}
		matrix, fp32 := report.PeakRates(d.CPU, p)
		if matrix != "" {
			parts = append(parts, fmt.Sprintf("matrix %s (%s, f16 into f32)", matrix, d.matrixShape))
		}
		parts = append(parts, "fp32 "+fp32, fmt.Sprintf("copy %.4g GB/s", p.CopyGBps))
		n.line("measured", "%s", strings.Join(parts, " · "))
	}
}

// printKernels prints what each kernel offers on the device, and why it does not run the other types.
func (d *deviceJSON) printKernels(n named) {
	every := ofEvery(d.Kernels)
	for i, k := range d.Kernels {
		name := ""
		if i == 0 {
			name = "attention"
		}
		dtypes := strings.Join(k.DTypes, " ")
		if dtypes == "" {
			dtypes = "none"
		}
		n.line(name, "%-8s  %-6s  %-21s  %s", k.Impl, k.Tier, k.Kernel, dtypes)
		n.line("", "  %s", k.offers(every))
	}
	if len(every) > 0 {
		n.line("every one", "%s", strings.Join(every, " · "))
	}
	n.lines("not", whyNot(d.Kernels))
}

func (c checkJSON) String() string {
	word := "pass"
	if !c.Pass {
		word = "FAIL"
	}
	return fmt.Sprintf("%-8s  %-6s  %-8s  %s  %s", c.Impl, c.Tier, c.DType, word, strings.TrimSpace(c.Kernel+"  "+c.Why))
}

func subgroups(low, size, high uint32) string {
	if low < high {
		return fmt.Sprintf("%d (%d to %d)", size, low, high)
	}
	return fmt.Sprint(size)
}

func timestampText(info flash.DeviceInfo) string {
	if !info.Timestamps() {
		return "none: times will be the host's"
	}
	bits := uint32(0)
	for _, q := range info.Facts.Queues {
		bits = max(bits, q.TimestampValidBits)
	}
	return fmt.Sprintf("%d bits, a tick is %g ns", bits, info.Facts.Limits.TimestampPeriod)
}

// shortMatrices groups matrix shapes by their types, so that a device with a
// dozen does not fill the screen: "f16·f16+f32→f32 subgroup: 16x16x16, 16x8x16".
func shortMatrices(all []string) []string {
	var order []string
	sizes := map[string][]string{}
	for _, m := range all {
		size, types, _ := strings.Cut(m, " ")
		if _, ok := sizes[types]; !ok {
			order = append(order, types)
		}
		sizes[types] = append(sizes[types], size)
	}
	var out []string
	for _, types := range order {
		out = append(out, types+": "+strings.Join(sizes[types], ", "))
	}
	return out
}

// bytesText is a size with a binary unit: 48 KiB, 139.8 GiB.
func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if v >= 100 || v == float64(int(v)) {
		return fmt.Sprintf("%.0f %s", v, units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
