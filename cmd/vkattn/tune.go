package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/compiled"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// What is measured where no size is given: enough work to fill a GPU, little enough for a CPU.
var (
	tuneGPU = result.Grid{Impls: []string{"flash2"}, Tokens: 16384, EmbDim: []int{2048}, HeadDim: []int{64, 128}, Seq: []int{4096}}
	tuneCPU = result.Grid{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{2}, HeadDim: []int{64}, Seq: []int{512}}
)

func newTune() *cobra.Command {
	var f benchFlags
	var list, reset, dry, statistics bool
	var export, pass string
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Measure the kernel tiles on this machine's device and keep the fastest",
		Long: `Measure the tiles that the flash kernel offers on this machine's device, for each combination of head
dimension, storage type and causal mask, and store those that beat the built-in choice by more than 2 %.
Every tile's output is checked; measurements are interleaved over several rounds.

Plans for the same device, driver, kernel, type, head dimension, mask and class of query length (up to 16,
up to 511, more) then take the stored tile, and say so; with up to 16 queries, for the same class of key
length too. VKATTN_TUNING names another file, or is "off".

--pass bwd measures tiles of the backward pass's kernels instead, those of one kernel at a time, and stores nothing: what is fastest
can be given to bench as --tuning, or to WithBackwardTuning.

--export FILE writes what is stored for this device and driver as a file of tiles ("-": to standard output), which
--tiles FILE of this and other commands reads on devices like it: it can be sent to somebody.

The file: ` + tuningFileText(),
		Example: `  vkattn tune
  vkattn tune --head-dim 32,64,96,128 --dtype fp16,bf16
  vkattn tune --batch 1 --heads 32 --kv-heads 8 --q-len 1 --seq 16k --head-dim 128 --causal=false
  vkattn tune --pass bwd --head-dim 256
  vkattn tune --list
  vkattn tune --export my.tiles`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list && reset:
				return usage(cmd, fmt.Errorf("--list and --reset are both given: ask for one of them"))
			case reset && dry:
				return usage(cmd, fmt.Errorf("--reset and --dry-run are both given: either forget what is stored or leave it as it is"))
			case export != "" && (list || reset || dry):
				return usage(cmd, fmt.Errorf("--export goes without --list, --reset and --dry-run: it writes what is stored, and "+
					"measures nothing"))
			case pass != "fwd" && pass != "bwd":
				return usage(cmd, fmt.Errorf("--pass %q: it must be fwd or bwd", pass))
			case pass == "bwd" && (list || reset || export != ""):
				return usage(cmd, fmt.Errorf("--pass bwd goes without --list, --reset and --export: nothing is stored of it"))
			case list:
				return listTunings(cmd.OutOrStdout(), f.wide)
			case export != "":
				return exportTiles(cmd, &f.device, export)
			}
			if f.rounds < 1 || f.rounds > 1000 {
				return usage(cmd, fmt.Errorf("--rounds is %d: it must be from 1 to 1000", f.rounds))
			}
			f.format, f.peerImpls = "table", []string{"none"}
			f.axes.set("impl", "flash2")
			g, err := f.check(cmd, args)
			if err != nil {
				return usage(cmd, err)
			}
			return runTune(cmd, &f, g, reset, dry, pass == "bwd", statistics)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.axes.add(cmd, usual(tuneGPU, &tuneCPU),
		"dtype", "batch", "heads", "kv-heads", "q-len", "seq", "head-dim", "value-dim", "causal")
	deviceFlags(cmd, &f.device)
	fl.StringVar(&f.tier, "tier", "", "kernel `tier`: scalar or matrix (default: the fastest that can)")
	fl.IntVar(&f.rounds, "rounds", 3, "measure so many `times`, interleaved; medians count")
	fl.DurationVar(&f.limit, "limit", time.Minute, "time limit of measuring a tile once: fewer runs where they take longer, 0 for no limit")
	fl.StringVar(&pass, "pass", "fwd", "whose tiles: those of `fwd` or bwd, of which nothing is stored")
	fl.BoolVar(&statistics, "statistics", false, "compile each tile once more, and print what the driver says of its machine code: "+
		"registers, spills, what runs at once (docs/devices.md)")
	fl.BoolVar(&dry, "dry-run", false, "store nothing")
	fl.BoolVar(&list, "list", false, "print what is stored, for all devices")
	fl.StringVar(&export, "export", "", "write what is stored for this device as a `file` of tiles, and measure nothing")
	fl.BoolVar(&reset, "reset", false, "forget what is stored for this device")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress bar")
	wideFlag(cmd, &f.wide)
	return cmd
}

func tuningFileText() string {
	if path := tune.File(); path != "" {
		return path
	}
	return "none (" + tune.FileEnv + " is off)"
}

// keysIn says where keys and values lay; "" of tensors of the problem's own type.
func keysIn(k tune.Key) string {
	var words []string
	if k.Page > 0 {
		words = append(words, fmt.Sprintf("pages of %d", k.Page))
	}
	switch {
	case k.KeyType == k.ValueType && k.KeyType != "":
		words = append(words, k.KeyType)
	case k.KeyType != k.ValueType:
		words = append(words, cmp.Or(k.KeyType, k.DType)+" and "+cmp.Or(k.ValueType, k.DType))
	}
	if k.Packed {
		words = append(words, "packed sequences")
	}
	return strings.Join(words, ", ")
}

func listTunings(w io.Writer, wide bool) error {
	entries, err := tune.Stored()
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		fmt.Fprintln(w, "nothing is stored in "+tuningFileText())
		return nil
	}
	t := newText(w, wide, []string{"driver", "gain"}, []string{"device", "kernel", "dtype", "head dim", "causal", "queries", "keys in",
		"tile", "gain", "driver"}, "lllrllllrl")
	for _, e := range entries {
		dim := fmt.Sprint(e.HeadDim)
		if e.ValueDim != e.HeadDim {
			dim += fmt.Sprintf("/%d", e.ValueDim)
		}
		t.Row(e.Device, e.Kernel, e.DType, dim, yesNo(e.Causal), strings.TrimSpace(e.Queries+" "+e.Keys), keysIn(e.Key), e.Tile,
			fmt.Sprintf("%.2f", e.Gain), e.Driver)
	}
	printText(w, t)
	return nil
}

// exportTiles writes what is stored for a device as a file of tiles.
func exportTiles(cmd *cobra.Command, device *deviceChoice, path string) error {
	dev, err := device.open()
	if err != nil {
		return err
	}
	defer closeDevice(cmd.ErrOrStderr(), dev)
	text, err := tune.ExportTiles(dev)
	if err != nil {
		return err
	}
	if path == "-" {
		fmt.Fprint(cmd.OutOrStdout(), text)
		return nil
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is written\n", path)
	return nil
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

func runTune(cmd *cobra.Command, f *benchFlags, given result.Grid, reset, dry, backward, statistics bool) error {
	ctx, out, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	dry = dry || backward
	if tune.File() == "" && !dry {
		return fmt.Errorf("there is nowhere to store tunings (%s is off, or there is no configuration directory): use --dry-run to only "+
			"measure", tune.FileEnv)
	}
	if _, err := tune.Stored(); err != nil && !dry { // nothing could be stored in the end
		return err
	}
	dev, err := f.device.open()
	if err != nil {
		return err
	}
	defer closeDevice(stderr, dev)
	if reset {
		return resetTunings(out, dev)
	}
	base := tuneGPU
	if bench.IsCPU(dev.Info()) {
		base = tuneCPU
	}
	if len(given.Heads) > 0 { // heads given by hand untie them from the embedding
		base.EmbDim = nil
	}
	cases, err := base.Override(given).Expand()
	if err != nil {
		return usage(cmd, err)
	}
	header := bench.DescribeDevice(dev.Info())
	header.VKAttn = version()
	printHeader(out, header)
	var opts []flash.PlanOption
	if f.tier != "" {
		opts = append(opts, flash.WithTier(flash.Tier(f.tier)))
	}
	var compiler *flash.Device // of statistics: what drivers are asked for them may be compiled otherwise, and is not timed
	if statistics {
		if compiler, err = f.device.open(flash.CompileOnly()); err != nil {
			return err
		}
		defer compiler.Close()
	}
	measurer := bench.NewDevice(dev, version(), result.Peaks{}, opts...)
	measurer.Limit = f.limit
	stored, failed := 0, 0
	for _, c := range cases {
		bar := f.bar(stderr)
		tune := measurer.Tune
		if backward {
			tune = measurer.TuneBackward
		}
		results, err := tune(ctx, c, f.rounds, bar.step)
		bar.done()
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(out, "\n%s: %v\n", c, err)
			failed++
			continue
		}
		said, err := saidOf(ctx, compiler, c, results, backward, flash.Tier(f.tier))
		if err != nil {
			return err
		}
		printTuned(out, c, results, said, backward, header.CPU, f.wide)
		n, err := store(dev, c, results, dry)
		if err != nil {
			return err
		}
		stored += n
		if slices.ContainsFunc(results, func(r bench.Tuned) bool { return r.Failed() }) {
			failed++
		}
	}
	switch {
	case backward:
		fmt.Fprintln(out, "\nnothing is stored of the backward pass")
	case dry:
		fmt.Fprintln(out, "\nnothing is stored (--dry-run)")
	case stored > 0:
		fmt.Fprintf(out, "\n%s in %s\n", count(stored, "tile"), tune.File())
	case failed > 0:
		fmt.Fprintln(out, "\nnothing is stored")
	default:
		fmt.Fprintln(out, "\nthe built-in tiles are the fastest")
	}
	if failed > 0 {
		fmt.Fprintf(stderr, "vkattn: tiles of %s failed\n", count(failed, "problem"))
		return errSilent
	}
	return nil
}

// saidOf is what the driver says of each tile's kernel, by the tile's tuning; nil without a device to compile on.
func saidOf(ctx context.Context, dev *flash.Device, c result.Case, results []bench.Tuned, backward bool,
	tier flash.Tier) (map[string]compiled.Stats, error) {
	if dev == nil {
		return nil, nil
	}
	said := map[string]compiled.Stats{}
	for i := range results {
		text := tuningText(results[i].Candidate.Tuning)
		c.Tuning = result.Tuning(strings.ReplaceAll(text, " ", ","))
		s, ok, err := compiled.Dearest(ctx, dev, result.Job{Case: c, Passes: result.Passes{Fwd: !backward, Bwd: backward}}, tier)
		if err != nil {
			return nil, err
		}
		if ok {
			said[text] = s.Stats
		}
	}
	return said, nil
}

// printTuned prints the candidates of a case for a pass, fastest first, with what the driver says of them, where it was asked.
func printTuned(w io.Writer, c result.Case, results []bench.Tuned, said map[string]compiled.Stats, backward, cpu, wide bool) {
	timed := func(r *bench.Tuned) (result.Pass, *float64) { return r.Fwd, r.MaxErr }
	best := "taken"
	if backward {
		timed = func(r *bench.Tuned) (result.Pass, *float64) { return r.Bwd, r.BwdCheck.MaxErr }
		best = "fastest"
	}
	c.Impl = ""
	fmt.Fprintf(w, "\n%s, %s\n", c, results[0].Candidate.Kernel)
	sorted := slices.Clone(results)
	slices.SortStableFunc(sorted, func(a, b bench.Tuned) int {
		switch {
		case a.Gain > b.Gain:
			return -1
		case a.Gain < b.Gain:
			return 1
		}
		return 0
	})
	var rates []float64
	for i := range results {
		pass, _ := timed(&results[i])
		rates = append(rates, pass.TFLOPS)
	}
	unit := result.RateUnit(cpu, rates...)
	titles, align := []string{"tile", "ms", unit.Name, "× built in", "max err", "note"}, "lrrrrl"
	if said != nil {
		titles, align = slices.Insert(titles, 5, "registers", "spills", "at once"), "lrrrrrrrl"
	}
	t := newText(w, wide, []string{"max err", unit.Name}, titles, align)
	for _, r := range sorted {
		var notes []string
		if r.Default {
			notes = append(notes, "built in")
		}
		if r.Best {
			notes = append(notes, best)
		}
		if failure := cmp.Or(r.Error, r.BwdFailure.Error); failure != "" {
			notes = append(notes, failure)
		}
		line := []string{r.Tile, "", "", "", "", strings.Join(notes, ", ")}
		if tuning := tuningText(r.Tuning); tuning != "" {
			line[0] += "  " + tuning
		}
		pass, maxErr := timed(&r)
		if pass.Ms > 0 {
			line[1], line[2], line[3] = report.Digits(pass.Ms), report.Digits(pass.TFLOPS*unit.Scale), fmt.Sprintf("%.2f", r.Gain)
		}
		if maxErr != nil {
			line[4] = fmt.Sprintf("%.1e", *maxErr)
		}
		if said != nil {
			s, ok := said[tuningText(r.Candidate.Tuning)]
			for i, v := range []float64{s.Registers, s.Spills, s.Occupancy} {
				text := "-"
				if ok && v >= 0 {
					text = fmt.Sprintf("%g", v)
				}
				line = slices.Insert(line, 5+i, text)
			}
		}
		t.Row(line...)
	}
	printText(w, t)
}

// tuningText reads "bc=64 br=32".
func tuningText(tuning map[string]int) string {
	var parts []string
	for name, v := range tuning {
		parts = append(parts, fmt.Sprintf("%s=%d", name, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// store keeps the winner of a case, or forgets an earlier one when the built-in
// choice won. It returns how many tiles are stored now for the case.
func store(dev *flash.Device, c result.Case, results []bench.Tuned, dry bool) (int, error) {
	at := slices.IndexFunc(results, func(r bench.Tuned) bool { return r.Best })
	if dry || at < 0 {
		return 0, nil
	}
	best := results[at]
	problem, err := c.Problem()
	if err != nil {
		return 0, err
	}
	key, err := tune.KeyOf(dev, best.Candidate.Kernel, problem)
	if err != nil {
		return 0, err
	}
	if best.Default {
		return 0, tune.Remove(key)
	}
	c.Impl = ""
	return 1, tune.Store(tune.Entry{Key: key, Tuning: best.Tuning, Tile: best.Tile, Gain: roundTo(best.Gain, 1e-3),
		TFLOPS: roundTo(best.Fwd.TFLOPS, 1e-6), Problem: c.String() + ", " + time.Now().UTC().Format(time.DateOnly)})
}

func roundTo(v, unit float64) float64 { return float64(int64(v/unit+0.5)) * unit }

func resetTunings(w io.Writer, dev *flash.Device) error {
	entries, err := tune.Stored()
	if err != nil {
		return err
	}
	var keys []tune.Key
	for _, e := range entries {
		if e.Device == dev.Info().Name {
			keys = append(keys, e.Key)
		}
	}
	if err := tune.Remove(keys...); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s forgotten\n", count(len(keys), "tile"))
	return nil
}
