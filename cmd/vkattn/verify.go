package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

func newVerify() *cobra.Command {
	var (
		pattern                               string
		device                                deviceChoice
		impls, tiers, tunings                 []string
		quick, failed, bare, ran, wide, quiet bool
		seed                                  uint64
		random, parallel                      int
		vectors                               string
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every kernel on this machine's device against the float64 reference",
		Long: `Run the conformance suite on this machine's device: golden vectors, ragged sizes, extreme values and random
problems, for every implementation and kernel tier that the device offers. Each case runs three times into
poisoned, guarded outputs and must give the same bits.

Before that each kernel passes the self-check that decides, at its first use on a device and driver, whether it
is used at all: a small problem against attention in float64.

Cases run side by side, for most of the time goes into compiling kernels and computing what is right, on the CPU;
results come in the order of cases all the same.

The error of each output stands beside the bound it must keep: twice the error of attention computed in the
inputs' own type. The exit status is not zero when any case fails.

With --vectors the cases are those of a folder and the folders in it, computed by others, in place of the suite's:
every .safetensors file that holds a golden vector (inputs, options, and what is right, gradients and tangents too) or
a case of the ONNX operator Attention (the form of testdata/vectors and testdata/vectors/onnx). All keep the suite's
bounds, and ONNX cases their own tolerances besides: in bf16 around what float64 makes of the inputs, for their own
values are computed in bf16 throughout; how far those are is reported. A case that asks for what vkattn does not have is listed with what
is missing and counted apart, neither passed nor failed; a file that is no such case, or damaged, is left out, named and
counted, and the exit status is not zero.`,
		Example: `  vkattn verify
  vkattn verify --quick --impl flash --tier matrix
  vkattn verify --summary
  vkattn verify --run 'causal|ragged' --seed 7
  vkattn verify --vectors testdata/vectors --no-skipped
  vkattn verify --impl flash --tier matrix --tuning fm=16,fn=8,fk=16 --tuning fm=16,fn=8,fk=8`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := conformance.Options{Quick: quick, Seed: seed, Random: random, Parallel: parallel}
			for _, f := range []struct {
				name string
				n    int
			}{{"random", random}, {"parallel", parallel}} {
				if cmd.Flags().Changed(f.name) && f.n < 1 {
					return usage(cmd, fmt.Errorf("--%s is %d: it must be at least 1; leave it out for as many as suit the device",
						f.name, f.n))
				}
			}
			for i, s := range tunings {
				t, err := result.ParseTuning(s)
				if err != nil {
					return usage(cmd, fmt.Errorf("--%w", err))
				}
				if err := knownParameters(t); err != nil {
					return usage(cmd, err)
				}
				if slices.Contains(tunings[:i], s) {
					return usage(cmd, fmt.Errorf("--tuning %q is given twice", s))
				}
				o.Tunings = append(o.Tunings, t.Values())
			}
			for _, s := range impls {
				family, err := conformance.ParseFamily(s)
				if err != nil {
					return usage(cmd, fmt.Errorf("--impl %q: it must be standard, flash1, flash (flash2) or blocksparse", s))
				}
				o.Families = append(o.Families, family)
			}
			for _, s := range tiers {
				switch t := flash.Tier(s); t {
				case flash.TierScalar, flash.TierMatrix:
					o.Tiers = append(o.Tiers, t)
				default:
					return usage(cmd, fmt.Errorf("--tier %q: it must be scalar or matrix", s))
				}
			}
			if pattern != "" {
				var err error
				if o.Filter, err = regexp.Compile(pattern); err != nil {
					return usage(cmd, fmt.Errorf("--run %q: it must be a regular expression: %w", pattern, err))
				}
			}
			if cmd.Flags().Changed("vectors") {
				for _, name := range []string{"quick", "random", "seed"} {
					if cmd.Flags().Changed(name) {
						return usage(cmd, fmt.Errorf("--vectors and --%s are both given: that is for the suite's own cases", name))
					}
				}
				var err error
				if o.Folder, err = readVectors(vectors); err != nil {
					return err
				}
			}
			dev, err := device.open()
			if err != nil {
				return err
			}
			out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
			defer closeDevice(stderr, dev)
			header := bench.DescribeDevice(dev.Info())
			header.VKAttn = version()
			printHeader(out, header)
			fmt.Fprintln(out)
			checks, err := tune.SelfCheck(cmd.Context(), dev, o.Implementations(), o.Tiers)
			if err != nil {
				return err
			}
			sound := printSelfChecks(out, checks, colored(out))
			progress := newBar(stderr, quiet)
			o.Progress = func(done, total int, r conformance.Result) { progress.step(done+1, total, r.Target+" "+r.Case) }
			began := time.Now()
			results, err := conformance.Run(cmd.Context(), dev, o)
			progress.done()
			switch {
			case bare:
				printCoverage(out, results, wide, colored(out))
			case len(results) > 0 && o.Folder != nil:
				printVectors(out, results, failed, ran, wide, colored(out))
			case len(results) > 0:
				printCases(out, results, failed, ran, wide, colored(out))
			}
			ok := printVerdicts(out, results, time.Since(began), colored(out)) && sound
			ok = printDamaged(out, o.Folder, colored(out)) && ok
			switch {
			case err != nil:
				return err
			case !ok:
				return errSilent
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	deviceFlags(cmd, &device)
	fl.StringSliceVar(&impls, "impl", nil, "`list` of implementations: standard, flash1, flash, blocksparse (default: all)")
	fl.StringSliceVar(&tiers, "tier", nil, "`list` of kernel tiers: scalar, matrix (default: all the device has)")
	fl.StringArrayVar(&tunings, "tuning", nil, "force `parameters` of the kernels asked for: a fragment such as fm=16,fn=8,fk=16, a form "+
		"such as form=2, a tile; several run one after the other (default: the library's choice, and every form)")
	fl.StringVar(&vectors, "vectors", "", "`folder` of golden vectors and ONNX cases to run in place of the suite (default: the suite)")
	fl.BoolVar(&quick, "quick", false, "the core cases only")
	fl.StringVar(&pattern, "run", "", "only the cases whose names match this regular `expression` (default: all)")
	fl.IntVar(&random, "random", 0, "`number` of random problems (default: as many as suit the device)")
	fl.Uint64Var(&seed, "seed", 1, "`seed` of inputs and random problems")
	fl.IntVar(&parallel, "parallel", 0, "`number` of cases at once, 1 for one after the other (default: the number of CPUs, as far as "+
		"memory goes; 2 where a CPU is the device)")
	fl.BoolVar(&ran, "no-skipped", false, "leave skipped cases out of the list")
	fl.BoolVar(&failed, "failed", false, "list failed cases only")
	wideFlag(cmd, &wide)
	fl.BoolVar(&quiet, "quiet", false, "no progress bar")
	fl.BoolVar(&bare, "summary", false, "no cases: how many of them ran on each kernel, by types, passes and options, and the verdict of "+
		"each tier")
	return cmd
}

// verdict is the word for a result.
func resultWord(r conformance.Result) string {
	switch {
	case r.Failure != "":
		return "FAIL"
	case len(r.Lacks) > 0:
		return "lacks"
	case r.Skipped != "":
		return "skip"
	case r.Pass:
		return "pass"
	}
	return "FAIL"
}

// printCases prints one line a case: the error against its bound.
func printCases(w io.Writer, results []conformance.Result, failedOnly, ranOnly, wide, color bool) {
	t := newText(w, wide, []string{"lse bound", "lse error", "dtype", "bound", "error"},
		[]string{"case", "target", "dtype", "error", "bound", "lse error", "lse bound", "verdict", "reason"}, "lllrrrrll")
	shown := 0
	for _, r := range results {
		word := resultWord(r)
		if failedOnly && word != "FAIL" || ranOnly && word == "skip" {
			continue
		}
		shown++
		row := []string{r.Case, r.Target, r.DType.String(), "", "", "", "", paintWord(word, color), r.Skipped + r.Failure}
		if r.Skipped == "" {
			row[3], row[4] = fmt.Sprintf("%.1e", r.MaxErr), fmt.Sprintf("%.1e", r.Bound)
			if r.LSEBound > 0 {
				row[5], row[6] = fmt.Sprintf("%.1e", r.LSEErr), fmt.Sprintf("%.1e", r.LSEBound)
			}
		}
		t.Row(row...)
	}
	if shown == 0 {
		return
	}
	printText(w, t)
	fmt.Fprintln(w)
}

func paintWord(word string, color bool) string {
	switch {
	case !color:
		return word
	case word == "FAIL":
		return text.FgRed.Sprint(word)
	case word == "pass":
		return text.FgGreen.Sprint(word)
	case word == "lacks":
		return text.FgYellow.Sprint(word)
	}
	return text.Faint.Sprint(word)
}

// printSelfChecks prints the verdict on each kernel and says whether all passed.
func printSelfChecks(w io.Writer, verdicts []tune.Verdict, color bool) bool {
	ok := true
	for _, v := range verdicts {
		word := "pass"
		if !v.Pass {
			word, ok = "FAIL", false
		}
		line := fmt.Sprintf("%s  self-check  %-15s %-8s  %s", paintWord(word, color), fmt.Sprintf("%v/%s", v.Implementation, v.Tier),
			v.DType, strings.TrimSpace(v.Kernel+"  "+v.Why))
		fmt.Fprintln(w, report.Fold(line, widthOf(w), "      "))
	}
	if len(verdicts) > 0 {
		fmt.Fprintln(w)
	}
	return ok
}

// printVerdicts prints one line a target and says whether all is well: nothing
// failed, and something was checked.
func printVerdicts(w io.Writer, results []conformance.Result, took time.Duration, color bool) bool {
	type tally struct{ pass, fail, skip, part int }
	tallies := map[string]*tally{}
	var order []string
	for _, r := range results {
		if r.Target == "" {
			continue // no kernel could run it
		}
		c := tallies[r.Target]
		if c == nil {
			c = &tally{}
			tallies[r.Target] = c
			order = append(order, r.Target)
		}
		switch resultWord(r) {
		case "pass":
			c.pass++
		case "skip":
			c.skip++
		case "lacks":
			c.part++
		default:
			c.fail++
		}
	}
	ok, checked := true, 0
	for _, target := range order {
		c := tallies[target]
		word := "pass"
		switch {
		case c.fail > 0:
			word, ok = "FAIL", false
		case c.pass+c.part == 0:
			word = "skip"
		case c.pass == 0:
			word = "lacks"
		}
		checked += c.pass + c.part
		text := fmt.Sprintf("%s passed", count(c.pass, "case"))
		if c.fail > 0 {
			text += fmt.Sprintf(", %d FAILED", c.fail)
		}
		if c.part > 0 {
			text += fmt.Sprintf(", %d right as far as it goes", c.part)
		}
		if c.skip > 0 {
			text += fmt.Sprintf(", %d skipped", c.skip)
		}
		fmt.Fprintf(w, "%s  %-20s %s\n", paintWord(word, color), target, text)
	}
	printLacks(w, results, color)
	if len(results) > 0 {
		fmt.Fprintf(w, "%s in %v\n", count(len(results), "result"), took.Round(100*time.Millisecond))
	}
	if checked == 0 {
		fmt.Fprintln(w, "no case ran")
		return false
	}
	return ok
}
