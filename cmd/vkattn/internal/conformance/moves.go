package conformance

import (
	"context"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// moves says that the case is no attention, but of rows that are moved: rotary embedding, or a scatter into a cache.
func (c *Case) moves() bool {
	return c.operator != nil && c.operator.attention == nil && c.operator.of.Known()
}

// rowsTarget is what results name: the kernel that moves rows.
const rowsTarget = "append"

// move runs such a case, by the one kernel that there is for it.
func (c *Case) move(ctx context.Context, dev *flash.Device) (r Result) {
	start := time.Now()
	r = Result{Case: c.Name, Tier: flash.TierScalar, Target: rowsTarget, Kernel: rowsTarget, NoLSE: true}
	defer func() {
		r.Duration = time.Since(start)
		r.Pass = r.Failure == ""
	}()
	of := c.operator.of
	got, err := of.Run(ctx, dev)
	if err != nil {
		r.fail("%v", err)
		return r
	}
	for _, output := range of.Outputs() {
		r.heldTo(of, output, got[output])
	}
	return r
}
