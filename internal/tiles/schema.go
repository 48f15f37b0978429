package tiles

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// limit is the range of a number.
type limit struct {
	least, most int
	open        bool // a row may leave it to the kernel; so it may every switch, whose least is 0
}

// values are the numbers that rows of a kernel may name; the shaders say what each means.
type values map[string]limit

// genericFile says what numbers there are.
const (
	folder      = "internal/tiles/"
	genericFile = "generic.tiles"
)

// kernels are the kernels, and the steps of such, that have rows: those that generic.tiles has numbers of.
var kernels = func() map[string]values {
	text, err := files.ReadFile(genericFile)
	if err != nil {
		panic(err)
	}
	all, err := readNumbers(string(text))
	if err != nil {
		panic(err) // a file of ours
	}
	return all
}()

// readNumbers reads the lines of numbers of a file, of the kernels that they stand behind. The name of a kernel before stands for its.
func readNumbers(text string) (map[string]values, error) {
	all, kernel := map[string]values{}, ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "kernel":
			kernel = words[1]
		case len(words) > 0 && words[0] == "numbers":
			if kernel == "" {
				return nil, errors.New("tiles: numbers stand behind the line of their kernel")
			}
			if all[kernel] == nil {
				all[kernel] = values{}
			}
			for _, w := range words[1:] {
				if same, known := all[w]; known && w != kernel {
					maps.Copy(all[kernel], same)
					continue
				}
				name, ends, _ := strings.Cut(w, "=")
				from, to, ok := strings.Cut(ends, "..")
				least, err1 := strconv.Atoi(from)
				most, err2 := strconv.Atoi(to)
				if !ok || err1 != nil || err2 != nil || least < 0 || least >= most {
					return nil, fmt.Errorf("tiles: numbers of %q: %q is neither NAME=LEAST..MOST nor a kernel before", kernel, w)
				}
				name, open := strings.CutSuffix(name, "?")
				if _, twice := all[kernel][name]; twice {
					return nil, fmt.Errorf("tiles: numbers of %q: %s is there twice", kernel, name)
				}
				all[kernel][name] = limit{least, most, open || least == 0}
			}
		}
	}
	return all, nil
}

// Ranges are the least and the most of each number that rows of a kernel may name; a kernel's tuning parameters have the same.
func Ranges(kernel string) map[string][2]int {
	out := map[string][2]int{}
	for name, l := range kernels[kernel] {
		out[name] = [2]int{l.least, l.most}
	}
	return out
}

// mostTuned is the largest value of a tuning parameter; the kernels' own ranges are narrower.
const mostTuned = 1 << 24

// Constants are the numbers by which the time of a pass is predicted, and by which rows are cut down where a device would not be full.
// Pairs are of a row and a key, on one multiprocessor.
type Constants struct {
	Multiprocessors   int     // to reckon with where the driver does not say
	FewGroups         int     // workgroups below which the device is not full; 0: as many as it has multiprocessors
	Fill              bool    // rows are cut down, and keys into parts, until the device is full; a CPU is full at once
	ResidentSubgroups int     // of a multiprocessor, by their registers
	ScalarBeside      int     // workgroups of scalar_forward on a multiprocessor that parts are chosen by
	HalfPace          float64 // of a pair where a fragment of keys serves one row fragment and not two
	SmallPace         float64 // of a pair where fewer subgroups share a tile of keys
	SplitSmallPace    float64 // the same of matrix_forward_split, which splits it into terms too
	AlonePace         float64 // of a pair of a workgroup whose multiprocessor would hold another, as long as it has none
	CombinePairs      float64 // what the second dispatch of keys in parts costs
	PartRowPairs      float64 // what it costs to store a row of a part, and to load it again
	CacheMiB          int     // keys and values of heads that run together stay in it
}

// constants are the names of those numbers in a file, and their ranges. All must be given by a family or by those that it inherits from.
var constants = map[string]struct {
	least, most float64
	to          func(c *Constants) any
}{
	"multiprocessors":    {1, 1 << 16, func(c *Constants) any { return &c.Multiprocessors }},
	"few_groups":         {0, 1 << 16, func(c *Constants) any { return &c.FewGroups }},
	"fill":               {0, 1, func(c *Constants) any { return &c.Fill }},
	"resident_subgroups": {1, 256, func(c *Constants) any { return &c.ResidentSubgroups }},
	"scalar_beside":      {1, 64, func(c *Constants) any { return &c.ScalarBeside }},
	"half_pace":          {0.1, 10, func(c *Constants) any { return &c.HalfPace }},
	"small_pace":         {0.1, 10, func(c *Constants) any { return &c.SmallPace }},
	"split_small_pace":   {0.1, 10, func(c *Constants) any { return &c.SplitSmallPace }},
	"alone_pace":         {0.1, 10, func(c *Constants) any { return &c.AlonePace }},
	"combine_pairs":      {0, 1e9, func(c *Constants) any { return &c.CombinePairs }},
	"part_row_pairs":     {0, 1e6, func(c *Constants) any { return &c.PartRowPairs }},
	"cache_mib":          {1, 1 << 16, func(c *Constants) any { return &c.CacheMiB }},
}

// set sets a constant by its name.
func (c *Constants) set(name string, v float64) {
	switch to := constants[name].to(c).(type) {
	case *int:
		*to = int(v)
	case *bool:
		*to = v != 0
	case *float64:
		*to = v
	}
}
