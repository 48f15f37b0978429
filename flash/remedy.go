package flash

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

// remedy looks for what would run a problem that no kernel of an implementation and tier runs: anywhere says that no device has to do
// with it, and help what to ask for instead, a tier less or another implementation. "": nothing of the list runs it here.
func remedy[K kernel.AnyKernel](d *Device, p *attn.Problem, list []K, of Implementation, insisted Tier) (anywhere bool, help string) {
	c := &d.env.Caps
	anywhere = true
	for _, k := range list {
		o := k.Offered()
		if o.Implementation == kernel.Implementation(of) && (insisted == "" || o.Tier == kernel.Tier(insisted)) && o.Exists(p) &&
			o.Refuses(p) == "" {
			anywhere = false
		}
	}
	runs := func(of Implementation) string {
		for _, k := range list {
			o := k.Offered()
			can := o.Implementation == kernel.Implementation(of) && o.Exists(p) && o.Cannot(c, p) == "" &&
				(o.Reserved == nil || o.Reserved(c, p) == "")
			if can && stands(d, p, k) {
				return o.Name
			}
		}
		return ""
	}
	if name := runs(of); insisted != "" && name != "" {
		return anywhere, fmt.Sprintf("without WithTier it is %s that runs it", name)
	}
	for other, name := range []string{"Flash", "Standard", "Flash1"} {
		if kernel := runs(Implementation(other)); Implementation(other) != of && kernel != "" {
			return anywhere, fmt.Sprintf("WithImplementation(%s) runs it, by %s", name, kernel)
		}
	}
	return anywhere, ""
}

// stands says whether a kernel that could run a problem is not denied. One that has to prove itself is fitted to find that out; of a
// backward kernel beside a forward one of its implementation.
func stands(d *Device, p *attn.Problem, k kernel.AnyKernel) bool {
	o := k.Offered()
	if o.Tier == kernel.TierScalar && !kernel.HasFunctions(p) {
		return true
	}
	switch k := k.(type) {
	case *kernel.Kernel:
		_, err := k.Plan(d.env, p, kernel.NewTuning(nil))
		return err == nil
	case *kernel.JVPKernel:
		_, err := k.Plan(d.env, p, kernel.NewTuning(nil))
		return err == nil
	case *kernel.BackwardKernel:
		for _, forward := range catalogue.Forward {
			f := forward.Offered()
			if f.Implementation != o.Implementation || !f.Exists(p) || f.Cannot(&d.env.Caps, p) != "" {
				continue
			}
			program, err := forward.Plan(d.env, p, kernel.NewTuning(nil))
			if err != nil {
				continue
			}
			made, err := k.Plan(d.env, p, program, kernel.NewBackwardTuning(nil))
			if err == nil {
				_, _, err = withScoreGradients(d.env, p, made, o, nil)
			}
			return err == nil
		}
	}
	return false
}
