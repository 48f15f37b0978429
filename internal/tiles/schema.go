package tiles

// limit is the range of a number.
type limit struct {
	least, most int
	open        bool // a row may leave it to the kernel; so it may every switch, whose least is 0
}

// values are the numbers that rows of a kernel may name; the shaders say what each means.
type values map[string]limit

var (
	onOff    = limit{0, 1, true}
	side     = limit{1, 1024, false} // of a tile
	few      = limit{1, 64, false}   // subgroups of a workgroup, or fragments of a subgroup
	slicesOf = limit{1, 256, true}   // slices of an operand in registers
	together = limit{1, 1 << 16, true}

	forwardMatrix = values{"w": few, "rm": {1, 8, false}, "bc": side, "ck": side, "prefetch": {0, 5, true}, "pipe": onOff,
		"max_first": onOff,
		"q_reg":     slicesOf, "keep_masks": onOff, "steps": onOff, "whole": onOff, "heads_together": together}
	// default: it is taken where no tier is asked for.
	forwardSplit = forwardMatrix.and(values{"default": onOff})
	forwardWide  = values{"w": few, "split": few, "rm": {1, 8, false}, "ck": side, "slice": side, "v_keys": side, "prefetch": {0, 3, true},
		"heads_together": together}
	backwardMatrix = values{"w": few, "rm": {1, 8, false}, "bc": side, "ck": side, "prefetch": {0, 2, true}, "a_reg": slicesOf,
		"b_reg": slicesOf}
	// slabs: it is taken where the caller says nothing.
	backwardWeights = backwardMatrix.and(values{"slabs": onOff})
	pieces          = values{"br": side, "bc": side, "mr": {1, 16, false}, "mc": {4, 16, false}}
	forwardScalar   = pieces.and(values{"dk": {4, 576, true}, "pc": {1, 1024, true}, "vc": {4, 1024, true}, "q_resident": onOff,
		"v_early": onOff})
	backwardScalar = pieces.and(values{"dk": {4, 256, true}, "vc": {4, 1024, true}})
)

// kernels are the kernels, and the steps of such, that have rows.
var kernels = map[string]values{
	"matrix_forward":          forwardMatrix,
	"matrix_forward_blocks":   forwardMatrix, // before those of matrix_forward
	"matrix_forward_split":    forwardSplit,
	"matrix_forward_wide":     forwardWide,
	"matrix_flash1":           forwardMatrix,
	"matrix_backward_kv":      backwardMatrix,
	"matrix_backward_q":       backwardMatrix,
	"matrix_backward_weights": backwardWeights,
	"scalar_forward":          forwardScalar,
	"scalar_forward_blocks":   forwardScalar, // before those of scalar_forward
	"scalar_flash1":           pieces,
	"scalar_backward_kv":      backwardScalar,
	"scalar_backward_q":       backwardScalar,
	"scalar_map":              pieces.and(values{"dk": {4, 576, false}}), // bc is mr mc
	// registers: words of Q and O in a lane; in_flight: words of K and V on their way; beside: workgroups of a multiprocessor; part_keys:
	// fewer keys in a part are not worth a workgroup; shared_kib: for sums of subgroups.
	"scalar_decode": {"w": {1, 32, false}, "lpr": {1, 128, false}, "u": {1, 16, false}, "registers": side, "in_flight": side,
		"beside":    side,
		"part_keys": {1, 1 << 20, false}, "shared_kib": side},
	// keys: of a batch; the others as in scalar_decode.
	"matrix_decode": {"w": {1, 32, false}, "keys": {1, 256, false}, "registers": side, "beside": side, "part_keys": {1, 1 << 20, false},
		"shared_kib": side},
	// Rows, columns and keys are of a subgroup's piece, or of a run, in elements: fragments differ.
	"standard_scores_matrix":  {"wr": few, "rows": side, "columns": side, "run": {1, 1 << 16, false}},
	"standard_product_matrix": {"wr": few, "wc": few, "rows": side, "keys": side},
	"standard_scalar": {"br": side, "bc": side, "mr": {1, 16, false}, "mc": {4, 16, false}, "dk": {8, 256, false},
		"product_bc": {8, 1024, false}},
	"standard_softmax":          {"pieces": {1, 16, false}}, // of four, that an invocation keeps of a row
	"standard_softmax_subgroup": {"pieces": {1, 16, false}}, // the same
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

// and joins values.
func (v values) and(more values) values {
	out := values{}
	for _, m := range []values{v, more} {
		for name, l := range m {
			out[name] = l
		}
	}
	return out
}

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
