package flash

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// parameter is the range of a tuning parameter, checked before anything is computed with its value. A value within it may still not
// go with the others, the problem or the device: the kernels say so.
type parameter struct {
	least, most int
	step        int  // it must be a multiple; 0 for any
	power       bool // it must be a power of two
}

// parameters are those of a kernel by name.
type parameters map[string]parameter

func (r parameter) allows(v int) bool {
	return v >= r.least && v <= r.most && (r.step == 0 || v%r.step == 0) && (!r.power || v&(v-1) == 0)
}

// String is the rule.
func (r parameter) String() string {
	switch {
	case r == onOff:
		return "must be 0 or 1"
	case r.power:
		return fmt.Sprintf("must be a power of two from %d to %d", r.least, r.most)
	case r.step > 0:
		return fmt.Sprintf("must be a multiple of %d from %d to %d", r.step, r.least, r.most)
	}
	return fmt.Sprintf("must be from %d to %d", r.least, r.most)
}

// Ranges that several kernels share. No product of the numbers of one kernel comes near 63 bits.
var (
	onOff         = parameter{0, 1, 0, false}
	partsRange    = parameter{1, mostParts, 0, false}
	fragmentRange = parameter{1, 256, 0, false} // a side of one, or a number of them
	togetherRange = parameter{1, 1 << 16, 0, false}

	// A bound on a dispatch, for tests. 0 sets none.
	groupBound = parameters{"max_groups": {0, 1 << 24, 0, false}}

	// Pieces of a tile of scores that invocations own. They are unrolled.
	pieceRanges = parameters{
		"br": {1, 1024, 0, false}, "bc": {8, 1024, 8, false}, "mr": {1, 16, 0, false}, "mc": {4, 16, 4, false},
		"dk": {4, 256, 4, false}, "vc": {4, 1024, 4, false},
	}
	scalarRanges = pieceRanges.and(groupBound, parameters{
		"pc": {16, 1024, 4, false}, "q_resident": onOff, "v_early": onOff, "subgroup": onOff, "parts": partsRange,
	})
	sideRanges     = parameters{"fm": fragmentRange, "fn": fragmentRange, "fk": fragmentRange}
	formRanges     = sideRanges.and(parameters{"form": {formRegisters, formShared, 0, false}})
	subgroupRanges = parameters{
		"w": {1, 64, 0, false}, "rm": {1, 8, 0, false}, "bc": {1, 1024, 0, false}, "ck": {1, 1024, 0, false},
	}
	matrixRanges = formRanges.and(groupBound, subgroupRanges, parameters{
		"br": {1, 4096, 0, false}, "prefetch": {0, 5, 0, false}, "pipe": onOff, "max_first": onOff, "q_reg": fragmentRange, "keep_masks": onOff,
		"steps": onOff, "whole": onOff,
	})
	headRanges           = parameters{"heads_together": togetherRange, "pack": onOff, "parts": partsRange}
	backwardMatrixRanges = subgroupRanges.and(parameters{
		"prefetch": {0, 2, 0, false}, "a_reg": fragmentRange, "b_reg": fragmentRange, "heads_together": togetherRange,
	})
	scoresRanges = parameters{"wr": {1, 64, 0, false}, "fr": {1, 16, 0, false}, "fc": {1, 64, 0, false}, "run": {1, 1024, 0, false}}
	blockRanges  = parameters{
		"wr": {1, 64, 0, false}, "wc": {1, 64, 0, false}, "fr": {1, 16, 0, false}, "fc": {1, 64, 0, false}, "stage": {1, 1024, 0, false},
	}
	rowRanges  = parameters{"row_threads": {1, softmaxThreads, 0, true}}
	slabRanges = parameters{"max_slab": {0, math.MaxInt32, 0, false}} // bytes; for tests, and 0 sets no bound
)

// Ranges of standard attention's kernels.
var (
	standardScalarRanges = groupBound.and(rowRanges, slabRanges, parameters{
		"br": {1, 1024, 0, false}, "bc": {8, 1024, 8, false}, "mr": {1, 16, 0, false}, "mc": {4, 16, 4, false}, "dk": {8, 256, 8, false},
		"product_br": {1, 1024, 0, false}, "product_bc": {8, 1024, 8, false}, "product_mr": {1, 16, 0, false}, "product_tx": {2, 256, 2, false},
	})
	standardMatrixRanges   = sideRanges.and(groupBound, rowRanges, slabRanges, scoresRanges, blockRanges.of("product_"), parameters{"half": onOff})
	standardGradientRanges = sideRanges.and(groupBound, scoresRanges.of("dp_"), blockRanges.of("dq_"), blockRanges.of("dv_"), blockRanges.of("dk_"),
		parameters{"half": onOff})
)

var backwardRanges = pieceRanges.and(parameters{"pc": {16, 1024, 4, false}})

// and joins parameters; later ones go before earlier ones of the same name.
func (p parameters) and(more ...parameters) parameters {
	out := maps.Clone(p)
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// of puts a prefix before each name.
func (p parameters) of(prefix string) parameters {
	out := parameters{}
	for name, r := range p {
		out[prefix+name] = r
	}
	return out
}

// fits checks the values given against the ranges of a kernel's parameters. Nothing has been computed with them before.
func (t *tuning) fits(o *offer) error {
	if err := t.unknown(o); err != nil {
		if o.yields {
			return &declined{err.Error()}
		}
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.given)) {
		if v, r := t.given[name], o.parameters[name]; !r.allows(v) {
			return badArgument(t.option+"["+name+"]", v, "%v for %s", r, o.name)
		}
	}
	return t.decodes(o)
}

// unknown gives an error for overrides that the kernel does not have.
func (t *tuning) unknown(o *offer) error {
	for _, name := range slices.Sorted(maps.Keys(t.given)) {
		if _, ok := o.parameters[name]; !ok {
			return badArgument(t.option+"["+name+"]", t.given[name], "%s has no such parameter; it has %s", o.name, strings.Join(slices.Sorted(maps.Keys(o.parameters)), ", "))
		}
	}
	return nil
}

// allowed checks a value against the kernels of a pass, before one of them is chosen: one of those that have the parameter must allow
// it. A name that none of them has is left to the kernel that is chosen, which says what it has.
func allowed[K anyKernel](list []K, option, name string, v int) error {
	var rules []string
	for _, k := range list {
		o := k.offered()
		r, ok := o.parameters[name]
		if ok && r.allows(v) {
			return nil
		}
		if rule := fmt.Sprintf("%v for %s", r, o.name); ok && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	if len(rules) > 0 {
		return badArgument(option+"["+name+"]", v, "%s", strings.Join(rules, ", "))
	}
	return nil
}
