package tune

import (
	"errors"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Candidate is a tiling that a kernel offers for a problem.
type Candidate struct {
	Kernel  string         // its name, "scalar_forward"
	Tile    string         // for people, "64x32"
	Tuning  map[string]int // for WithTuning: what was chosen, without what follows from it
	Default bool           // the built-in choice; its Tuning is empty
}

// Candidates lists the tilings that fit the device, for the kernel that Plan would take with these options; the built-in
// choice comes first. A kernel without a choice has that one alone. Stored tunings are not looked at.
func Candidates(d *flash.Device, p flash.Problem, opts ...flash.PlanOption) (_ []Candidate, err error) {
	defer within.During("Candidates", &err)
	env, a, err := asked(d, p)
	if err != nil {
		return nil, err
	}
	opts = append(slices.Clone(opts), flash.WithoutStoredTuning())
	plan, err := d.Plan(p, opts...)
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	k, _ := within.Forward(plan)
	usual := plan.ForwardInfo()
	out := []Candidate{{Kernel: k.Name, Tile: tile(usual.Kernel, k.Name), Default: true}}
	if k.Candidates == nil {
		return out, nil
	}
	// Two ways to say the same tile are one candidate.
	seen := []map[string]int{usual.Tuning}
	candidates := k.Candidates(&env.Caps, &a)
	if row := env.Caps.TunedRow(k.Name, &a); row != nil {
		candidates = append(candidates, row.Values)
	}
	for _, c := range candidates {
		other, err := d.Plan(p, append(slices.Clone(opts), flash.WithTier(usual.Tier), flash.WithTuning(c))...)
		if errors.Is(err, flash.ErrArgument) || errors.Is(err, flash.ErrUnsupported) {
			continue // does not fit this device
		}
		if err != nil {
			return nil, err
		}
		info := other.ForwardInfo()
		effect := info.Tuning
		named := tile(info.Kernel, k.Name)
		if err := other.Close(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(seen, func(m map[string]int) bool { return kernel.SameTuning(m, effect) }) {
			continue
		}
		seen = append(seen, effect)
		out = append(out, Candidate{Kernel: k.Name, Tile: named, Tuning: c})
	}
	return out, nil
}

// BackwardCandidates lists tilings for the kernels of the backward pass that Plan would take with these options: of one of them at a time,
// while the others keep the built-in choice, which comes first. Those that a kernel's self-check refuses are left out.
func BackwardCandidates(d *flash.Device, p flash.Problem, opts ...flash.PlanOption) (_ []Candidate, err error) {
	defer within.During("BackwardCandidates", &err)
	env, a, err := asked(d, p)
	if err != nil {
		return nil, err
	}
	var out []Candidate
	var seen []map[string]int
	list := []map[string]int{nil} // the built-in choice; it says what else there is
	for i := 0; i < len(list); i++ {
		plan, err := d.Plan(p, append(slices.Clone(opts), flash.WithoutStoredTuning(), flash.WithBackwardTuning(list[i]))...)
		if err != nil {
			return nil, err
		}
		info, err := plan.BackwardInfo()
		if i == 0 && err == nil {
			if k, _, _ := within.Backward(plan); k.Candidates != nil {
				list = append(list, k.Candidates(&env.Caps, &a)...)
			}
		}
		if closing := plan.Close(); closing != nil {
			return nil, errors.Join(err, closing)
		}
		if i > 0 && (errors.Is(err, flash.ErrArgument) || errors.Is(err, flash.ErrUnsupported)) {
			continue // does not fit this device
		}
		if err != nil {
			return nil, err
		}
		// Two ways to say the same tile are one candidate; where a kernel of another tier stepped in, it is none.
		if i > 0 && info.KernelName != out[0].Kernel ||
			slices.ContainsFunc(seen, func(m map[string]int) bool { return kernel.SameTuning(m, info.Tuning) }) {
			continue
		}
		seen = append(seen, info.Tuning)
		out = append(out, Candidate{Kernel: info.KernelName, Tile: tile(info.Kernel, info.KernelName), Tuning: list[i],
			Default: i == 0})
	}
	return out, nil
}

// asked is the environment of a device, and a problem as its kernels take it.
func asked(d *flash.Device, p flash.Problem) (*kernel.Env, attn.Problem, error) {
	a, err := within.Problem(p)
	if err != nil {
		return nil, a, err
	}
	env, err := within.Env(d)
	return env, a, err
}

// tile is what stands behind the name of a kernel.
func tile(whole, name string) string { return strings.TrimPrefix(whole, name+" ") }
