package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash/tune"
)

// axisFlags hold what the flags of a sweep's axes were given, by name. The flags are those of bench's table of axes.
type axisFlags map[string]*[]string

// add makes the flags of some axes, of all where none is named. usual has defaults, for help, that are not the table's.
func (f *axisFlags) add(cmd *cobra.Command, usual map[string]string, names ...string) {
	for _, a := range result.Axes {
		if len(names) > 0 && !slices.Contains(names, a.Name) {
			continue
		}
		var hints []string
		byDefault, ok := usual[a.Name]
		if !ok {
			byDefault = a.Usual
		}
		if byDefault != "" {
			hints = append(hints, "default "+byDefault)
		}
		if a.Alone != "" {
			hints = append(hints, "--"+a.Name+" alone is "+a.Alone)
		}
		help := a.Usage
		if len(hints) > 0 {
			help += " (" + strings.Join(hints, "; ") + ")"
		}
		fl, list := cmd.Flags(), f.list(a.Name)
		if a.Whole {
			fl.StringArrayVar(list, a.Name, nil, help)
		} else {
			fl.StringSliceVar(list, a.Name, nil, help)
		}
		fl.Lookup(a.Name).NoOptDefVal = a.Alone
	}
}

// usual are the sizes of a grid as defaults in help, where both are given those of a GPU and of a CPU.
func usual(gpu result.Grid, cpu *result.Grid) map[string]string {
	out := map[string]string{"q-len": "seq", "emb-dim": "heads × head-dim"}
	for name, of := range map[string]func(g *result.Grid) []int{"batch": func(g *result.Grid) []int { return g.Batch },
		"heads": func(g *result.Grid) []int { return g.Heads },
		"seq":   func(g *result.Grid) []int { return g.Seq }, "head-dim": func(g *result.Grid) []int { return g.HeadDim }} {
		text := commas(of(&gpu))
		switch {
		case text != "":
		case name == "batch":
			text = fmt.Sprintf("%d / seq", gpu.Tokens)
		case name == "heads" && len(gpu.EmbDim) > 0:
			text = fmt.Sprintf("%d / head-dim", gpu.EmbDim[0])
		}
		if cpu != nil {
			text += "; " + commas(of(cpu)) + " on a CPU"
		}
		out[name] = text
	}
	return out
}

// commas is a list as a flag takes it.
func commas(list []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), ",")
}

// list is where the value of a flag is.
func (f *axisFlags) list(name string) *[]string {
	if *f == nil {
		*f = axisFlags{}
	}
	if (*f)[name] == nil {
		(*f)[name] = new([]string)
	}
	return (*f)[name]
}

// set is what the flag would do.
func (f *axisFlags) set(name string, values ...string) { *f.list(name) = values }

// grid turns the flags into a grid.
func (f *axisFlags) grid() (g result.Grid, err error) {
	for i := range result.Axes {
		a := &result.Axes[i]
		if err = a.Parse(&g, *f.list(a.Name)); err != nil {
			return g, fmt.Errorf("--%w", err) // that begins with the name of the flag
		}
	}
	for _, t := range g.Tunings {
		if err = knownParameters(t); err != nil {
			return g, err
		}
	}
	if g.Tokens > 0 && len(g.Batch) > 0 {
		err = errors.New("--tokens and --batch are both given: with --tokens the batch is tokens / seq")
	}
	return g, err
}

// knownParameters refuses a parameter that no kernel has. One that only another kernel has than that of a row is the row's affair.
func knownParameters(t result.Tuning) error {
	known := slices.Concat(tune.Parameters(), tune.BackwardParameters())
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range slices.Sorted(maps.Keys(t.Values())) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--tuning %q: no kernel has a parameter %q; there are %s", t, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// sized says whether the flags name any size of the problem.
func (f *axisFlags) sized() bool {
	return slices.ContainsFunc(result.Axes, func(a result.Axis) bool { return a.Size && len(*f.list(a.Name)) > 0 })
}

// argument takes what stands behind --causal and a blank, "--causal both", and gives the arguments without it.
func (f *axisFlags) argument(cmd *cobra.Command, args []string) []string {
	if cmd.Flags().Changed("causal") {
		if i := slices.IndexFunc(args, func(s string) bool { _, err := result.ParseCausal(s); return err == nil }); i >= 0 {
			f.set("causal", args[i])
			return slices.Delete(slices.Clone(args), i, i+1)
		}
	}
	return args
}
