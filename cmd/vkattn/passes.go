package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
)

func newPasses() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "passes",
		Short: "List what a problem's passes do on this device: kernels, constants, workgroups, bindings, barriers",
		Long: `List what the passes of a problem do on this device: each dispatch with its module, specialization constants,
workgroups, push constants and bindings by their names in GLSL, copies and fills, and the barriers between
them. Nothing runs but the self-checks of the kernels.

The text names no handle, address or time: that of two versions of a program, two devices, or two tilings of
one kernel (--tuning) can be compared with diff.

A problem is named as for 'vkattn bench'; of an axis with several values each has its listing.`,
		Example: `  vkattn passes --seq 2k --head-dim 128 --causal --pass both
  vkattn passes --impl flash --seq 1k --bias heads > before.txt
  diff <(vkattn passes --tuning br=64,bc=64) <(vkattn passes --tuning br=128,bc=64)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = f.axes.argument(cmd, args)
			g, err := f.axes.grid()
			if err == nil && len(args) > 0 {
				err = fmt.Errorf("unexpected argument %q", args[0])
			}
			var opts []flash.PlanOption
			if err == nil {
				opts, err = f.tierOption()
			}
			if err != nil {
				return usage(cmd, err)
			}
			cases, err := passesUsual.Override(g).Expand()
			if err != nil {
				return usage(cmd, err)
			}
			dev, err := f.device.open()
			if err != nil {
				return err
			}
			defer closeDevice(cmd.ErrOrStderr(), dev)
			to := cmd.OutOrStdout()
			info := dev.Info()
			if _, err := fmt.Fprintf(to, "%s, %s\n", info.Name, info.Driver); err != nil {
				return err
			}
			d := bench.NewDevice(dev, version(), result.Peaks{}, opts...)
			for _, j := range result.JobsOf(cases, g.Passes) {
				passes, err := d.List(cmd.Context(), j)
				for _, p := range passes {
					if e := writePass(to, p); e != nil {
						return e
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	sizes := usual(passesUsual, nil)
	sizes["impl"] = "flash"
	f.axes.add(cmd, sizes)
	deviceFlags(cmd, &f.device)
	fl.StringVar(&f.tier, "tier", "", "insist on one kernel `tier`: scalar or matrix (default: the fastest that can)")
	return cmd
}

// passesUsual is the problem that is listed where nothing is named.
var passesUsual = result.Grid{Impls: []string{"flash2"}, DTypes: []string{"float16"}, Batch: []int{1}, Heads: []int{8}, Seq: []int{1024},
	HeadDim: []int{64}, Causal: []bool{false}, Passes: result.Passes{Fwd: true, Bwd: true}}

func writePass(to io.Writer, p bench.ListedPass) error {
	direction := "forward"
	if p.Backward {
		direction = "backward"
	}
	bound := map[[2]uint64]uint64{}
	for _, o := range p.Operations {
		for _, r := range o.Ranges {
			at := [2]uint64{uint64(r.Buffer), r.Offset}
			bound[at] = max(bound[at], r.Size)
		}
	}
	sum := uint64(0)
	for _, size := range bound {
		sum += size
	}
	if _, err := fmt.Fprintf(to, "\n%s, %s: %s\n%d operations on %d bytes in %d buffers; workspace %d bytes\n\n", p.Case, direction,
		p.Kernel, len(p.Operations), sum, len(p.Buffers), p.Workspace); err != nil {
		return err
	}
	_, err := p.WriteTo(to)
	return err
}
