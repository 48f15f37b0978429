package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

func newInfo() *cobra.Command {
	var asJSON, measure, links bool
	var device deviceChoice
	var compile compileFlags
	cmd := &cobra.Command{
		Use:   "info",
		Short: "List the devices, what each offers attention, and which would be chosen",
		Long: `List the Vulkan devices of this machine: memory, shared memory, subgroups, timestamps, matrix shapes, and
for each implementation and kernel tier the storage types it runs, or what the device lacks for it; and the
family of tiles that the device takes.

With --measure, each device's ceilings are measured too: fp32 and matrix multiply-adds in registers, and
the bandwidth of a large copy; and each kernel's self-check is run.

With --links, how fast bytes move is measured: between the host and each device, and from each GPU to each
other over memory of the host, as attention over several devices moves them (docs/scale.md).

With --compile, the driver compiles the kernels of a suite of problems, and nothing runs: kernels count as having
passed their self-checks. The table has a line for each problem, with the kernel and tile that it gets, and one
for each kernel below it, with what the driver says of the machine code: registers, spills, shared memory, how
many subgroups run at once, cycles (docs/devices.md). --against fails where that is worse than a table made before.`,
		Example: `  vkattn info
  vkattn info --device h200 --measure
  vkattn info --links
  vkattn info --compile --out table.txt
  vkattn info --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if links {
				if measure || device.name != "" {
					return usage(cmd, errors.New("--links measures every GPU, and links alone: it does not go with --measure and --device"))
				}
				return printLinks(cmd, &device, asJSON)
			}
			if compile.on {
				if measure || asJSON {
					return usage(cmd, errors.New("--compile makes a table of kernels: it does not go with --measure and --json"))
				}
				return compile.run(cmd, &device)
			}
			if err := compile.without(); err != nil {
				return usage(cmd, err)
			}
			infos, err := deviceInfos(cmd.Context(), cmd.ErrOrStderr(), device, measure)
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetEscapeHTML(false)
				out.SetIndent("", "  ")
				return out.Encode(infos)
			}
			if _, err := tune.Stored(); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "vkattn: stored tunings are not used: %s\n", plain(err.Error()))
			}
			for i, d := range infos {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				d.print(cmd.OutOrStdout(), colored(cmd.OutOrStdout()))
			}
			return nil
		},
	}
	deviceFlags(cmd, &device)
	cmd.Flags().BoolVar(&measure, "measure", false, "measure the ceilings of each device")
	cmd.Flags().BoolVar(&links, "links", false, "measure how fast bytes move between the host and each device, and between devices")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	compile.add(cmd)
	return cmd
}

// deviceJSON is a device as info --json prints it.
type deviceJSON struct {
	result.Header
	Index      int        `json:"index"`
	Kind       string     `json:"kind"`
	Chosen     bool       `json:"chosen"`
	Reason     string     `json:"reason"`
	Timestamps bool       `json:"timestamps"`
	Memory     uint64     `json:"memory_bytes"`
	Kernels    []tierJSON `json:"kernels"`
	Tiles      []string   `json:"tiles"` // families whose rows are tried, the device's own first
	// What small problems gave; with --measure.
	SelfChecks []checkJSON `json:"self_checks,omitempty"`

	matrixShape string
	facts       flash.DeviceInfo
}

type tierJSON struct {
	Impl    string   `json:"impl"`
	Tier    string   `json:"tier"`
	Kernel  string   `json:"kernel"`
	DTypes  []string `json:"dtypes"`
	Missing []string `json:"missing,omitempty"`
	// What a problem may have, and must have, beyond plain attention.
	Features []string `json:"features,omitempty"`
	Needs    []string `json:"needs,omitempty"`
	MinDim   int      `json:"min_dim,omitempty"`
	MaxDim   int      `json:"max_dim"`
	MostRows int      `json:"most_rows,omitempty"`
	Backward string   `json:"backward,omitempty"`
}

// offers says what the kernel computes beyond a plain forward pass, without what every kernel does.
func (k *tierJSON) offers(every []string) string {
	parts := []string{fmt.Sprintf("head dimensions up to %d", k.MaxDim)}
	if k.MinDim > 0 {
		parts[0] = fmt.Sprintf("head dimensions from %d to %d", k.MinDim, k.MaxDim)
	}
	if k.MostRows > 0 {
		parts = append(parts, fmt.Sprintf("up to %d rows of a key head", k.MostRows))
	}
	for _, f := range k.Features {
		if slices.Contains(every, f) {
			continue
		}
		if slices.Contains(k.Needs, f) {
			f += " (needed)"
		}
		parts = append(parts, f)
	}
	if k.Backward == "" {
		parts = append(parts, "no backward")
	} else {
		parts = append(parts, "backward: "+k.Backward)
	}
	return strings.Join(parts, " · ")
}

// ofEvery are the features that every kernel has and none needs.
func ofEvery(kernels []tierJSON) (every []string) {
	if len(kernels) == 0 {
		return nil
	}
	for _, f := range kernels[0].Features {
		if !slices.ContainsFunc(kernels, func(k tierJSON) bool { return !slices.Contains(k.Features, f) || slices.Contains(k.Needs, f) }) {
			every = append(every, f)
		}
	}
	return every
}

// whyNot are the reasons why types are missing, each once, with the kernels that it is the reason of.
func whyNot(kernels []tierJSON) (lines []string) {
	about := map[string][]string{}
	for _, k := range kernels {
		for _, reason := range k.Missing {
			if about[reason] == nil {
				lines = append(lines, reason)
			}
			about[reason] = append(about[reason], k.Kernel)
		}
	}
	for i, reason := range lines {
		lines[i] = fmt.Sprintf("%s (%s)", reason, strings.Join(about[reason], ", "))
	}
	return lines
}

// checkJSON is a tune.Verdict.
type checkJSON struct {
	Impl   string `json:"impl"`
	Tier   string `json:"tier"`
	DType  string `json:"dtype"`
	Kernel string `json:"kernel"`
	Pass   bool   `json:"pass"`
	Why    string `json:"why,omitempty"`
}

// deviceInfos lists the devices, or the one that is asked for.
func deviceInfos(ctx context.Context, stderr io.Writer, device deviceChoice, measure bool) ([]deviceJSON, error) {
	infos, err := flash.Devices(device.options()...)
	if err != nil {
		return nil, err
	}
	var out []deviceJSON
	if device.name != "" {
		dev, err := device.open()
		if err != nil {
			return nil, err
		}
		want := dev.Info().Index
		dev.Close()
		infos = infos[want : want+1]
	}
	for _, info := range infos {
		d := deviceJSON{Header: bench.DescribeDevice(info), Index: info.Index, Kind: info.Facts.Type.String(), Chosen: info.Chosen,
			Reason: info.Reason, Timestamps: info.Timestamps(), Memory: info.DeviceMemory(), Tiles: info.Tiles, facts: info}
		d.VKAttn = version()
		for _, t := range info.Tiers {
			k := tierJSON{Impl: t.Implementation.String(), Tier: string(t.Tier), Kernel: t.Kernel, DTypes: []string{}, Missing: t.Missing,
				Features: t.Features, Needs: t.Needs, MinDim: t.MinDim, MaxDim: t.MaxDim, MostRows: t.MostRows, Backward: t.Backward}
			for _, dtype := range t.DTypes {
				k.DTypes = append(k.DTypes, dtype.String())
			}
			d.Kernels = append(d.Kernels, k)
		}
		if measure {
			if err := d.measure(ctx, stderr, device.tiles); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
	}
	return out, nil
}

func (d *deviceJSON) measure(ctx context.Context, stderr io.Writer, tiles string) error {
	choice := deviceChoice{fmt.Sprint(d.Index), tiles}
	dev, err := choice.open()
	if err != nil {
		return err
	}
	defer closeDevice(stderr, dev)
	p, err := tune.MeasurePeaks(ctx, dev)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Device, err)
	}
	d.Peaks, d.matrixShape = bench.PeaksOf(p), p.MatrixShape
	verdicts, err := tune.SelfCheck(ctx, dev, nil, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Device, err)
	}
	for _, v := range verdicts {
		d.SelfChecks = append(d.SelfChecks, checkJSON{v.Implementation.String(), string(v.Tier), v.DType.String(), v.Kernel, v.Pass, v.Why})
	}
	return nil
}

func (d *deviceJSON) print(w io.Writer, color bool) {
	bold := func(s string) string {
		if color {
			return text.Bold.Sprint(s)
		}
		return s
	}
	f := d.facts.Facts
	width := min(cmp.Or(widthOf(w), readable), readable)
	line := func(name, format string, a ...any) {
		fmt.Fprintln(w, report.Fold(fmt.Sprintf("  %-11s %s", name, fmt.Sprintf(format, a...)), width, strings.Repeat(" ", 2+11+1+2)))
	}

	fmt.Fprintf(w, "%s\n", bold(fmt.Sprintf("%d  %s", d.Index, d.Device)))
	chosen := "not chosen"
	if d.Chosen {
		chosen = "chosen"
	}
	line("choice", "%s: %s", chosen, d.Reason)
	line("kind", "%s · %s · Vulkan %s", d.Kind, d.Driver, f.EffectiveVersion)
	line("memory", "%s on the device · %s the largest allocation · %s the largest binding",
		bytesText(d.Memory), bytesText(f.Limits.MaxAllocationSize), bytesText(f.Limits.MaxStorageBufferRange))
	side := ""
	if f.Multiprocessors > 0 {
		side = fmt.Sprintf(" · %d multiprocessors", f.Multiprocessors)
	}
	line("workgroup", "%s shared memory · %d invocations · subgroups of %s%s",
		bytesText(uint64(f.Limits.MaxSharedMemory)), f.Limits.MaxWorkgroupInvocations,
		subgroups(f.Subgroup.Min, f.Subgroup.Size, f.Subgroup.Max), side)
	line("tiles", "%s", strings.Join(d.Tiles, ", then "))
	line("timestamps", "%s", timestampText(d.facts))
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
	line("features", "%s", strings.Join(types, " · "))
	if len(d.Matrices) > 0 {
		for i, m := range shortMatrices(d.Matrices) {
			name := ""
			if i == 0 {
				name = "matrices"
			}
			line(name, "%s", m)
		}
	}
	if p := d.Peaks; p != (result.Peaks{}) {
		parts := []string{}
		matrix, fp32 := report.PeakRates(d.CPU, p)
		if matrix != "" {
			parts = append(parts, fmt.Sprintf("matrix %s (%s, f16 into f32)", matrix, d.matrixShape))
		}
		parts = append(parts, "fp32 "+fp32, fmt.Sprintf("copy %.4g GB/s", p.CopyGBps))
		line("measured", "%s", strings.Join(parts, " · "))
	}
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
		line(name, "%-8s  %-6s  %-21s  %s", k.Impl, k.Tier, k.Kernel, dtypes)
		line("", "  %s", k.offers(every))
	}
	if len(every) > 0 {
		line("every one", "%s", strings.Join(every, " · "))
	}
	for i, reason := range whyNot(d.Kernels) {
		name := ""
		if i == 0 {
			name = "not"
		}
		line(name, "%s", reason)
	}
	for i, c := range d.SelfChecks {
		name, word := "", "pass"
		if i == 0 {
			name = "self-check"
		}
		if !c.Pass {
			word = "FAIL"
		}
		line(name, "%-8s  %-6s  %-8s  %s  %s", c.Impl, c.Tier, c.DType, word, strings.TrimSpace(c.Kernel+"  "+c.Why))
	}
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
