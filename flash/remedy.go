package flash

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// remedy looks for what would run a problem that no kernel of an implementation and tier runs: anywhere says that no device has to do
// with it, and help what to ask for instead, a tier less or another implementation. "": nothing of the list runs it here.
func remedy[K kernel.AnyKernel](c *kernel.Capabilities, p *attn.Problem, list []K, of Implementation, insisted Tier) (anywhere bool, help string) {
	anywhere = true
	for _, k := range list {
		o := k.Offered()
		if o.Implementation == kernel.Implementation(of) && (insisted == "" || o.Tier == kernel.Tier(insisted)) && o.Exists(p) && o.Refuses(p) == "" {
			anywhere = false
		}
	}
	runs := func(of Implementation) string {
		for _, k := range list {
			if o := k.Offered(); o.Implementation == kernel.Implementation(of) && o.Exists(p) && o.Cannot(c, p) == "" && (o.Reserved == nil || o.Reserved(c, p) == "") {
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
