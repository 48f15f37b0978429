package flash

import (
	"errors"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
)

// mapKernels plan maps of a problem's weights, the most preferred first.
var mapKernels = []struct {
	name string
	tier kernel.Tier
	// why says what the device or the problem lacks for it, "" when it can run.
	why  func(c *kernel.Capabilities, p *attn.Problem) string
	plan func(e *kernel.Env, p *attn.Problem) (*pass.MapProgram, error)
}{
	{matrix.MapLabel, kernel.TierMatrix, matrix.MapLacks, matrix.NewMap},
	{scalar.MapLabel, kernel.TierScalar, scalar.MapLacks, scalar.NewMap},
}

// mapChoice is how a plan makes maps, chosen when it is first asked for.
type mapChoice struct {
	smallPlan
	choosing sync.Mutex
	program  *pass.MapProgram
	reasons  []string
}

// mapping chooses a plan's kernel of maps, at the first call.
func (p *Plan) mapping() (*pass.MapProgram, []string, error) {
	c := &p.maps
	c.choosing.Lock()
	defer c.choosing.Unlock()
	if c.program != nil {
		return c.program, c.reasons, nil
	}
	var reasons []string
	failed := false
	for _, k := range mapKernels {
		if insisted := p.gradient.tier; insisted != "" && insisted != Tier(k.tier) {
			continue
		}
		why := k.why(&p.dev.env.Caps, &p.attn)
		if why == "" && k.tier == kernel.TierMatrix && p.gradient.tier == "" {
			why = kernel.ReservedOnCPU(&p.dev.env.Caps, &p.attn)
		}
		if why == "" {
			program, err := k.plan(p.dev.env, &p.attn)
			var no *kernel.Declined
			switch {
			case err == nil:
				c.program, c.reasons = program, reasons
				return program, reasons, nil
			case !errors.As(err, &no):
				return nil, nil, p.dev.fail(err)
			}
			why, failed = no.Why, failed || kernel.IsDenied(err)
		}
		reasons = append(reasons, k.name+": "+why)
	}
	if len(reasons) == 0 {
		reasons = []string{"there is no such kernel of maps"}
	}
	return nil, nil, &UnsupportedError{What: "maps of " + p.problem.String(), Reasons: reasons, Denied: failed}
}
