package flash

import (
	"fmt"
	"maps"
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

func between(least, most int) parameter { return parameter{least: least, most: most} }

// multiples are the multiples of step.
func multiples(least, most, step int) parameter {
	return parameter{least: least, most: most, step: step}
}

// powers are the powers of two.
func powers(least, most int) parameter { return parameter{least: least, most: most, power: true} }

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

// Ranges that kernels of several families share. No product of the numbers of one kernel comes near 63 bits.
var (
	onOff         = between(0, 1)
	partsRange    = between(1, mostParts)
	fragmentRange = between(1, 256) // a side of one, or a number of them

	// A bound on a dispatch, for tests. 0 sets none.
	groupBound = parameters{"max_groups": between(0, 1<<24)}

	sideRanges = parameters{"fm": fragmentRange, "fn": fragmentRange, "fk": fragmentRange}
	formRanges = sideRanges.and(parameters{"form": between(formRegisters, formShared)})
)

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
			return &declined{why: err.Error()}
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
