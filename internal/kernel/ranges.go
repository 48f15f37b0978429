package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
)

// Parameter is the range of a tuning parameter, checked before anything is computed with its value. A value within it may still not
// go with the others, the problem or the device: the kernels say so.
type Parameter struct {
	Least, Most int
	step        int  // it must be a multiple; 0 for any
	power       bool // it must be a power of two
}

// Parameters are those of a kernel by name.
type Parameters map[string]Parameter

func Between(least, most int) Parameter { return Parameter{Least: least, Most: most} }

// Multiples are the multiples of step.
func Multiples(least, most, step int) Parameter {
	return Parameter{Least: least, Most: most, step: step}
}

// Powers are the powers of two.
func Powers(least, most int) Parameter { return Parameter{Least: least, Most: most, power: true} }

func (r Parameter) Allows(v int) bool {
	return v >= r.Least && v <= r.Most && (r.step == 0 || v%r.step == 0) && (!r.power || v&(v-1) == 0)
}

// String is the rule.
func (r Parameter) String() string {
	switch {
	case r == OnOff:
		return "must be 0 or 1"
	case r.power:
		return fmt.Sprintf("must be a power of two from %d to %d", r.Least, r.Most)
	case r.step > 0:
		return fmt.Sprintf("must be a multiple of %d from %d to %d", r.step, r.Least, r.Most)
	}
	return fmt.Sprintf("must be from %d to %d", r.Least, r.Most)
}

// Ranges that kernels of several families share. No product of the numbers of one kernel comes near 63 bits.
var (
	OnOff         = Between(0, 1)
	PartsRange    = Between(1, MostParts)
	FragmentRange = Between(1, 256) // a side of one, or a number of them

	// A bound on a dispatch, for tests. 0 sets none.
	GroupBound = Parameters{"max_groups": Between(0, 1<<24)}

	// A tile of rows and keys that invocations share, mr rows each, and of scores mc keys each. Pieces are unrolled.
	TileRanges  = Parameters{"br": Between(1, 1024), "bc": Multiples(8, 1024, 8), "mr": Between(1, 16)}
	PieceRanges = TileRanges.And(Parameters{"mc": Multiples(4, 16, 4)})

	SideRanges = Parameters{"fm": FragmentRange, "fn": FragmentRange, "fk": FragmentRange}
	FormRanges = SideRanges.And(Parameters{"form": Between(FormRegisters, FormShared)})
)

// And joins parameters; later ones go before earlier ones of the same name.
func (p Parameters) And(more ...Parameters) Parameters {
	out := maps.Clone(p)
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// Only are those of these names.
func (p Parameters) Only(names ...string) Parameters {
	out := Parameters{}
	for _, name := range names {
		out[name] = p[name]
	}
	return out
}

// But are those of all other names.
func (p Parameters) But(names ...string) Parameters {
	out := maps.Clone(p)
	for _, name := range names {
		delete(out, name)
	}
	return out
}

// Of puts a prefix before each name.
func (p Parameters) Of(prefix string) Parameters {
	out := Parameters{}
	for name, r := range p {
		out[prefix+name] = r
	}
	return out
}

// Fits checks the values given against the ranges of a kernel's parameters. Nothing has been computed with them before.
func (t *Tuning) Fits(o *Offer) error {
	if err := t.Unknown(o); err != nil {
		if o.Yields {
			return &Declined{Why: err.Error()}
		}
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.Given)) {
		if v, r := t.Given[name], o.Parameters[name]; !r.Allows(v) {
			return attn.BadArgument(t.option+"["+name+"]", v, "%v for %s", r, o.Name)
		}
	}
	return t.Decodes(o)
}

// Unknown gives an error for overrides that the kernel does not have.
func (t *Tuning) Unknown(o *Offer) error {
	for _, name := range slices.Sorted(maps.Keys(t.Given)) {
		if _, ok := o.Parameters[name]; !ok {
			return attn.BadArgument(t.option+"["+name+"]", t.Given[name], "%s has no such parameter; it has %s", o.Name,
				strings.Join(slices.Sorted(maps.Keys(o.Parameters)), ", "))
		}
	}
	return nil
}

// Allowed checks a value against the kernels of a pass, before one of them is chosen: one of those that have the parameter must allow
// it. A name that none of them has is left to the kernel that is chosen, which says what it has.
func Allowed[K AnyKernel](list []K, option, name string, v int) error {
	var rules []string
	for _, k := range list {
		o := k.Offered()
		r, ok := o.Parameters[name]
		if ok && r.Allows(v) {
			return nil
		}
		if rule := fmt.Sprintf("%v for %s", r, o.Name); ok && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	if len(rules) > 0 {
		return attn.BadArgument(option+"["+name+"]", v, "%s", strings.Join(rules, ", "))
	}
	return nil
}
