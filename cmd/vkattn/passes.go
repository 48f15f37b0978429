package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/compiled"
	"github.com/vkattn/vkattn/flash"
)

func newPasses() *cobra.Command {
	var f benchFlags
	var beside []string
	var compile bool
	cmd := &cobra.Command{
		Use:   "passes",
		Short: "List what a problem's passes do on this device: kernels, constants, workgroups, bindings, barriers",
		Long: `List what the passes of a problem do on this device: each dispatch with its module, specialization constants,
workgroups, push constants and bindings by their names in GLSL, copies and fills, and the barriers between
them. Nothing runs but the self-checks of the kernels; with --compile these do not run either, and below each
pass stands what the driver says of its kernels' machine code, as in the table of 'vkattn info --compile'.

The text names no handle, address or time: that of two versions of a program, two devices, or two tilings of
one kernel (--tuning) can be compared with diff.

A problem is named as for 'vkattn bench'; of an axis with several values each has its listing.`,
		Example: `  vkattn passes --seq 2k --head-dim 128 --causal --pass both
  vkattn passes --impl flash --seq 1k --bias heads > before.txt
  vkattn passes --q-len 1 --seq 64k --pass fwd --beside append,merge
  diff <(vkattn passes --tuning br=64,bc=64) <(vkattn passes --tuning br=128,bc=64)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = f.axes.argument(cmd, args)
			g, err := f.axes.grid()
			if err == nil && g.Passes.JVP {
				err = errors.New("--pass jvp: passes in forward mode are not listed, only forward and backward ones")
			}
			if err == nil && len(args) > 0 {
				err = fmt.Errorf("unexpected argument %q", args[0])
			}
			for _, what := range beside {
				if err == nil && !slices.Contains(bench.Beside, what) {
					err = fmt.Errorf("--beside %s: must be of %s", what, strings.Join(bench.Beside, ", "))
				}
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
			var how []flash.DeviceOption
			if compile {
				how = append(how, flash.CompileOnly())
			}
			dev, err := f.device.open(how...)
			if err != nil {
				return err
			}
			defer closeDevice(cmd.ErrOrStderr(), dev)
			to := cmd.OutOrStdout()
			info := dev.Info()
			if _, err := fmt.Fprintf(to, "%s, %s\n", info.Name, info.Driver); err != nil {
				return err
			}
			if compile {
				if _, err := fmt.Fprintln(to, "Kernels are compiled, and have not proved that they are right: nothing runs."); err != nil {
					return err
				}
			}
			d := bench.NewDevice(dev, version(), result.Peaks{}, opts...)
			for _, j := range result.JobsOf(cases, g.Passes) {
				passes, err := d.List(cmd.Context(), j)
				for _, p := range passes {
					if e := writePass(to, p); e != nil {
						return e
					}
					if compile {
						if e := writeCompiled(to, dev, p); e != nil {
							return e
						}
					}
				}
				for _, what := range beside {
					var p bench.ListedPass
					if err == nil {
						p, err = d.ListBeside(j.Case, what)
					}
					if err == nil {
						err = writePass(to, p)
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
	fl.Lookup("pass").Usage = "`list` of passes to list: fwd, bwd, both (default fwd)"
	deviceFlags(cmd, &f.device)
	fl.BoolVar(&compile, "compile", false, "leave self-checks out, and print what the driver says of the kernels' machine code")
	fl.StringSliceVar(&beside, "beside", nil, "`list` of what goes with the passes: append (new rows into a cache), merge (two parts of "+
		"the keys put together), accumulate (a part joined to a running result)")
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
	direction = cmp.Or(p.Beside, direction)
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

// writeCompiled writes what the driver says of a pass's kernels.
func writeCompiled(to io.Writer, dev *flash.Device, p bench.ListedPass) error {
	stages, err := compiled.Stages(dev, p.Listing)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(to); err != nil {
		return err
	}
	return compiled.WriteStages(to, stages)
}
