package tune

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

// Verdict is what a kernel's self-check found on a device.
type Verdict struct {
	Implementation flash.Implementation
	Tier           flash.Tier
	Kernel         string      // with its tile, where it got as far
	DType          flash.DType // storage type of the small problem
	Pass           bool        // it may be used
	Why            string      // it may not: what went wrong
}

// SelfCheck runs each kernel of these implementations and tiers (none: all) that the device offers, in each storage type, on a
// small problem, and compares with attention computed in float64 on the host. Kernels of tiers that depend on more than the
// specification promises are checked by [flash.Device.Plan] too, before their first use on a device and driver; those verdicts are
// remembered, and one that is on the deny-list fails here with what was wrong with it.
func SelfCheck(ctx context.Context, d *flash.Device, impls []flash.Implementation, tiers []flash.Tier) (_ []Verdict, err error) {
	defer within.During("SelfCheck", &err)
	env, err := within.Env(d)
	if err != nil {
		return nil, err
	}
	type selfCheck struct {
		kernel  *kernel.Kernel
		problem attn.Problem
		verdict Verdict
		done    bool
	}
	var selfChecks []*selfCheck
	for _, k := range catalogue.Forward {
		if len(impls) > 0 && !slices.Contains(impls, flash.Implementation(k.Implementation)) ||
			len(tiers) > 0 && !slices.Contains(tiers, flash.Tier(k.Tier)) {
			continue
		}
		dim := max(16, attn.CeilDiv(k.LeastDim, 16)*16)
		for _, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
			if !k.Stores(attn.DType(dtype)) {
				continue
			}
			a, err := within.Problem(flash.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: k.SelfCheckQueries(70, 2), KeyLen: 90,
				HeadDim:  dim,
				ValueDim: min(dim, 64), DType: dtype, Causal: flash.CausalBottomRight})
			if err != nil {
				return nil, err
			}
			if k.Unsupported(&env.Caps, &a) != "" {
				continue
			}
			if k.Needs&attn.WithBlocks != 0 {
				a.Blocks = attn.Blocks{Queries: 32, Keys: 32, PerHead: true}
			}
			selfChecks = append(selfChecks, &selfCheck{kernel: k, problem: a, verdict: Verdict{
				Implementation: flash.Implementation(k.Implementation), Tier: flash.Tier(k.Tier), Kernel: k.Name, DType: dtype}})
		}
	}
	// Side by side: a driver takes longer to compile a kernel than a device to run it.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range selfChecks {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v := &t.verdict
			if v.Why, err = check(env, t.kernel, &t.problem, v); err != nil {
				return within.Fail(d, fmt.Errorf("self-check of %s: %w", t.kernel.Name, err))
			}
			v.Pass, t.done = v.Why == "", true
			return nil
		})
	}
	err = group.Wait()
	var out []Verdict
	for _, t := range selfChecks {
		if !t.done {
			break
		}
		out = append(out, t.verdict)
	}
	return out, err
}

func check(env *kernel.Env, k *kernel.Kernel, p *attn.Problem, v *Verdict) (wrong string, err error) {
	var asked map[string]int
	if k.MostRows > 0 {
		asked = map[string]int{kernel.DecodeParameter: 1} // on devices too that leave it out unless it is asked for
	}
	prog, err := k.Plan(env, p, kernel.NewTuning(asked))
	var no *kernel.Declined
	if errors.As(err, &no) {
		return no.Why, nil
	}
	if err != nil {
		return "", err
	}
	v.Kernel += " " + prog.Tile()
	return env.TryForward(p, kernel.Variant{Aligned: true, LSE: true}, prog.Scratch(), prog.Record)
}
