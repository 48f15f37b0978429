package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/flash/ring/mpi"
	"github.com/vkattn/vkattn/internal/bench"
	"github.com/vkattn/vkattn/internal/bench/ranks"
	"github.com/vkattn/vkattn/internal/bench/rows"
	"github.com/vkattn/vkattn/internal/report"
)

// rankFlags are the flags of bench that spread attention over devices.
type rankFlags struct {
	ranks int
	share bool
	host  bool
	mpi   bool
}

func (f *rankFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.ranks, "ranks", 0, "spread each sequence over so many devices of this machine, beside the same on one: ring attention (suite ring: as many as there are GPUs)")
	cmd.Flags().BoolVar(&f.mpi, "mpi", false, "ranks are the processes that mpirun has started, with the GPUs of their host in turn (needs a vkattn built with -tags mpi)")
	cmd.Flags().BoolVar(&f.share, "share-device", false, "with --ranks or --mpi: ranks beyond the number of devices share them")
	cmd.Flags().BoolVar(&f.host, "from-host", false, "keys and values come from memory of the host in blocks, on one device, beside the same with them resident")
}

// ringSuite is the name of the suite that needs several devices.
const ringSuite = "ring"

// ringGrid is what it measures.
func ringGrid(cpu bool) bench.Grid {
	g := bench.Grid{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{16}, HeadDim: []int{128}, Seq: []int{32 << 10, 64 << 10, 128 << 10}, Causal: []bool{true}, Passes: bench.Passes{Fwd: true, Bwd: true}}
	if cpu {
		g.Heads, g.HeadDim, g.Seq = []int{2}, []int{32}, []int{512}
	}
	return g
}

// spread says whether the flags ask for several devices.
func (f *benchFlags) spread() bool {
	return f.over.ranks != 0 || f.over.share || f.over.host || f.over.mpi || f.suite == ringSuite
}

// checkSpread says which flags do not go with several devices.
func (f *benchFlags) checkSpread() error {
	switch {
	case f.over.ranks < 0:
		return fmt.Errorf("--ranks is %d: it must be at least 1", f.over.ranks)
	case f.over.mpi && (f.over.ranks != 0 || f.over.host):
		return errors.New("--mpi has as many ranks as mpirun has started: it does not go with --ranks and --from-host")
	case f.over.host && (f.over.ranks > 1 || f.over.share || f.suite == ringSuite):
		return errors.New("--from-host is of one device: it does not go with --ranks")
	case f.over.ranks == 0 && f.over.share && !f.over.mpi && f.suite != ringSuite:
		return errors.New("--share-device is about --ranks, which is not given")
	case f.suite != "" && f.suite != ringSuite:
		return fmt.Errorf("--suite %s is of one device: --ranks takes sizes, or --suite %s", f.suite, ringSuite)
	case f.peer != "" || f.compare != "" || f.trace != "" || f.appendTo || f.list || f.tier != "":
		return errors.New("--peer, --compare, --trace, --append, --list and --tier are of one device: they do not go with --ranks")
	case f.device.name != "":
		return errors.New("--device is of one device: --ranks takes every GPU")
	case f.format != "table" && f.format != "json":
		return fmt.Errorf("--format %s: with --ranks it must be table or json", f.format)
	}
	return nil
}

// runSpread measures attention over several devices beside the same on one.
func runSpread(cmd *cobra.Command, f *benchFlags, args []string) (err error) {
	if args = f.axes.argument(cmd, args); len(args) > 0 {
		return usage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
	}
	if err := f.checkSpread(); err != nil {
		return usage(cmd, err)
	}
	given, err := f.axes.grid()
	if err != nil {
		return usage(cmd, err)
	}
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	infos, err := flash.Devices(f.device.options()...)
	if err != nil {
		return err
	}
	n := f.over.ranks
	var comm mpi.Comm
	var devices []*flash.Device
	first := true // of the processes: it alone writes
	if f.over.mpi {
		var device *flash.Device
		if comm, device, err = joinMPI(ctx, infos, f.over.share, f.device.options()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, comm.Close()) }()
		devices, n, first = []*flash.Device{device}, comm.Size(), comm.Rank() == 0
	}
	if !first {
		stdout = io.Discard
	}
	if f.over.host {
		n = 1
	}
	if n == 0 {
		for _, d := range infos {
			if !bench.IsCPU(d) {
				n++
			}
		}
		n = max(n, 2)
	}
	if comm == nil {
		devices, err = ring.Open(n, f.over.share, f.device.options()...)
	}
	if err != nil {
		var bad *flash.ArgumentError
		if errors.As(err, &bad) && bad.Argument == "ranks" {
			return fmt.Errorf("--ranks %s: %s (--share-device)", bad.Value, bad.Rule)
		}
		return err
	}
	defer func() {
		for _, d := range devices {
			closeDevice(stderr, d)
		}
	}()
	cpu := bench.IsCPU(devices[0].Info())
	grid := ringGrid(cpu).Override(given)
	if given.Passes != (bench.Passes{}) {
		grid.Passes = given.Passes
	}
	cases, err := grid.Expand()
	if err != nil {
		return usage(cmd, err)
	}
	var lines io.Writer = io.Discard
	if f.out != "" && first {
		mode := bench.CreateNew
		if f.force {
			mode = bench.Force
		}
		file, err := bench.CreateFile(f.out, mode)
		if err != nil {
			return err
		}
		defer file.Close()
		lines = file
	}
	bar := newBar(stderr, f.quiet || !first)
	var results []ranks.Result
	failed := 0
	for i, c := range cases {
		bar.step(i+1, len(cases), c.String())
		p, err := c.Problem()
		if err != nil {
			return usage(cmd, err)
		}
		o := ranks.Options{Backward: grid.Passes.Bwd, Stream: f.over.host, Runs: 5, Least: time.Second, Timeout: 5 * time.Minute}
		var r ranks.Result
		if comm != nil {
			r = ranks.MeasureProcesses(ctx, comm, devices[0], p, ring.Shard{}, o)
		} else {
			r = ranks.Measure(ctx, devices, p, ring.Shard{}, o)
		}
		if ctx.Err() != nil {
			break
		}
		if r.Error != "" {
			failed++
		}
		results = append(results, r)
		if err := rows.WriteLine(lines, r); err != nil {
			return err
		}
		if f.format == "json" {
			if err := rows.WriteLine(stdout, r); err != nil {
				return err
			}
		}
	}
	bar.done()
	if f.format == "table" {
		fmt.Fprintf(stdout, "%s, %s\n\n%s\n", devices[0].Info().Name, count(n, "rank"), ranksTable(results, screenOf(stdout, f.wide).Width))
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed > 0:
		fmt.Fprintf(stderr, "vkattn: %s of %d failed\n", count(failed, "row"), len(results))
		return errSilent
	}
	return nil
}

// ranksTable is results as text of at most that width.
func ranksTable(results []ranks.Result, width int) string {
	t := report.NewText([]string{"tokens", "ranks", "order", "fwd 1", "fwd", "×", "waited", "bwd 1", "bwd", "×", "waited", "both ×", "block MB", "mem 1", "mem rank", "max err", ""},
		"rrlrrrrrrrrrrrrrl").Fit(width, "max err", "mem 1", "mem rank", "block MB", "order")
	for _, r := range results {
		if r.Error != "" {
			t.Row(bench.Digits(float64(r.Tokens)), fmt.Sprint(r.Ranks), r.Order, "", "", "", "", "", "", "", "", "", "", "", "", "", plain(r.Error))
			continue
		}
		cell := func(v float64) string {
			if v == 0 {
				return ""
			}
			return bench.Digits(v)
		}
		note := ""
		if !r.Direct && r.Ranks > 1 {
			note = "bytes by way of the host"
		}
		t.Row(fmt.Sprint(r.Tokens), fmt.Sprint(r.Ranks), r.Order, cell(r.Fwd.One), cell(r.Fwd.Ranks), cell(r.Fwd.Speed), cell(r.Fwd.Waited), cell(r.Bwd.One), cell(r.Bwd.Ranks), cell(r.Bwd.Speed), cell(r.Bwd.Waited),
			cell(r.Both), cell(float64(r.BlockBytes)/1e6), cell(float64(r.MemoryOne)/1e6), cell(float64(r.MemoryRank)/1e6), fmt.Sprintf("%.1e", r.MaxErr), note)
	}
	return t.String()
}
