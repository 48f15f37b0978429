package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/analysis"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

func newAnalyze() *cobra.Command {
	var f benchFlags
	var format, out string
	var nonzero float64
	var plans bool
	cmd := &cobra.Command{
		Use:   "analyze [FILE]",
		Short: "What attention costs and what bounds it: operations, bytes, intensity, least time, roofline",
		Long: `Say what attention costs: operations of each step, bytes as the kernel that ran counts them, arithmetic
intensity, the ridge point of the device's measured peaks, what bounds it, the least possible time, and the
measured time over it; then the lecture's tables, arithmetic intensity and the operations of a transformer
block against the sequence length.

With a result file of 'vkattn bench', of its rows, with the models of kernels that they hold and the peaks in
its header; no device is needed. Rows of older versions have no models: their bytes are those recorded.
Without one, of the problem that the flags name, planned and measured on this machine's device.

Implementations without a row stand in as models with flash2's tile: flash1 reads and writes O for every
block of keys, blocksparse moves the share of blocks that are not zero.`,
		Example: `  vkattn analyze
  vkattn analyze --batch 16 --heads 32 --seq 2k --head-dim 64 --causal --out figures
  vkattn analyze results.jsonl --seq 2048 --format json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = f.axes.argument(cmd, args)
			g, err := f.axes.grid()
			if g.Passes == (result.Passes{}) {
				g.Passes = result.Passes{Fwd: true, Bwd: true}
			}
			switch {
			case err != nil:
			case g.Passes.JVP:
				err = errors.New("--pass jvp: passes in forward mode are not analyzed, only forward and backward ones")
			case len(args) > 1:
				err = fmt.Errorf("unexpected argument %q", args[1])
			case format != "table" && format != "json":
				err = fmt.Errorf("--format %q: it must be table or json", format)
			case !(nonzero > 0 && nonzero <= 1):
				err = fmt.Errorf("--nonzero is %g: it must be above 0 and at most 1", nonzero)
			case plans && (out != "" || len(args) == 1):
				err = errors.New("--plans measures nothing: without --out, and without a file")
			}
			if err != nil {
				return usage(cmd, err)
			}
			var r *analysis.Result
			if len(args) == 1 {
				r, err = analyzeFile(cmd.ErrOrStderr(), args[0], g, nonzero)
			} else {
				r, err = analyzeDevice(cmd, &f, g, nonzero, plans)
			}
			if err != nil {
				return err
			}
			r.Width = screenOf(cmd.OutOrStdout(), f.wide).Width
			if err := r.Write(cmd.OutOrStdout(), format); err != nil {
				return err
			}
			if out != "" {
				return r.WriteRoofline(out)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	sizes := usual(analyzeGPU, &analyzeCPU)
	sizes["impl"], sizes["causal"], sizes["pass"] = "all", "true", "both"
	f.axes.add(cmd, sizes, "impl", "dtype", "batch", "heads", "kv-heads", "seq", "head-dim", "causal", "pass")
	deviceFlags(cmd, &f.device)
	fl.DurationVar(&f.limit, "limit", 0, "time limit of a measurement (default: none)")
	fl.BoolVar(&plans, "plans", false, "only plan, measure nothing")
	fl.Float64Var(&nonzero, "nonzero", 0.25, "`share` of nonzero blocks of the block-sparse model")
	fl.StringVar(&format, "format", "table", "`form` to print: table, json")
	fl.StringVar(&out, "out", "", "`folder` for roofline.svg and roofline.png (default: none are drawn)")
	wideFlag(cmd, &f.wide)
	return cmd
}

// analyzeFile analyses the rows that agree with every axis that the flags name.
func analyzeFile(stderr io.Writer, path string, g result.Grid, nonzero float64) (*analysis.Result, error) {
	file, err := readResults(stderr, path)
	if err != nil {
		return nil, err
	}
	return analysis.FromFile(file, nonzero, g.Wants)
}

// What is analysed where nothing is named: the reports' setting, and what a CPU measures in a moment.
var (
	analyzeGPU = result.Grid{Batch: []int{16}, Heads: []int{32}, Seq: []int{2048}, HeadDim: []int{64}, Causal: []bool{true}}
	analyzeCPU = result.Grid{Batch: []int{1}, Heads: []int{4}, Seq: []int{256}, HeadDim: []int{64}, Causal: []bool{true}}
)

func analyzeDevice(cmd *cobra.Command, f *benchFlags, g result.Grid, nonzero float64, plans bool) (*analysis.Result, error) {
	dev, err := f.device.open()
	if err != nil {
		return nil, err
	}
	defer closeDevice(cmd.ErrOrStderr(), dev)
	usual := analyzeGPU
	if bench.IsCPU(dev.Info()) {
		usual = analyzeCPU
	}
	// Block-sparse attention stands in as a model, with --nonzero's share of the blocks, unless it is asked for.
	usual.Impls = slices.DeleteFunc(result.Implementations(), func(name string) bool { return name == result.BlockSparse })
	cases, err := usual.Override(g).Expand()
	if err != nil {
		return nil, usage(cmd, err)
	}
	header, err := headerOf(cmd.Context(), dev)
	if err != nil {
		return nil, err
	}
	var measurer *bench.Device
	if !plans {
		measurer = bench.NewDevice(dev, version(), header.Peaks)
		measurer.Limit = f.limit
	}
	return analysis.FromDevice(cmd.Context(), dev, header.Peaks, measurer, result.JobsOf(cases, g.Passes), nonzero)
}
