package flash

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Verdict is what a kernel's self-check found on a device.
type Verdict struct {
	Implementation Implementation
	Tier           Tier
	Kernel         string // with its tile, where it got as far
	DType          DType  // storage type of the small problem
	Pass           bool   // it may be used
	Why            string // it may not: what went wrong
}

// SelfCheck runs each kernel of these implementations and tiers (none: all) that the device offers, in each storage type, on a
// small problem, and compares with attention computed in float64 on the host. Kernels of tiers that depend on more than the
// specification promises are checked by Plan too, before their first use on a device and driver; those verdicts are
// remembered, and one that is on the deny-list fails here with what was wrong with it.
func (d *Device) SelfCheck(ctx context.Context, impls []Implementation, tiers []Tier) (_ []Verdict, err error) {
	defer during("SelfCheck", &err)
	if err := d.usable(); err != nil {
		return nil, err
	}
	type trial struct {
		kernel  *kernel.Kernel
		problem attn.Problem
		verdict Verdict
		done    bool
	}
	var trials []*trial
	for _, k := range kernels {
		if len(impls) > 0 && !slices.Contains(impls, Implementation(k.Implementation)) || len(tiers) > 0 &&
			!slices.Contains(tiers, Tier(k.Tier)) {
			continue
		}
		dim := max(16, attn.CeilDiv(k.LeastDim, 16)*16)
		for _, dtype := range []DType{F32, F16, BF16} {
			if !k.Stores(attn.DType(dtype)) {
				continue
			}
			p, err := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: k.TrialQueries(70, 2), KeyLen: 90, HeadDim: dim,
				ValueDim: min(dim, 64), DType: dtype, Causal: CausalBottomRight}.Normalize()
			if err != nil {
				return nil, err
			}
			a := p.attn()
			if k.Unsupported(&d.env.Caps, &a) != "" {
				continue
			}
			if k.Needs&attn.WithBlocks != 0 {
				a.Blocks = attn.Blocks{Queries: 32, Keys: 32, PerHead: true}
			}
			trials = append(trials, &trial{kernel: k, problem: a, verdict: Verdict{Implementation: Implementation(k.Implementation),
				Tier: Tier(k.Tier), Kernel: k.Name, DType: dtype}})
		}
	}
	// Side by side: a driver takes longer to compile a kernel than a device to run it.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range trials {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v := &t.verdict
			if v.Why, err = d.check(t.kernel, &t.problem, v); err != nil {
				return d.fail(fmt.Errorf("self-check of %s: %w", t.kernel.Name, err))
			}
			v.Pass, t.done = v.Why == "", true
			return nil
		})
	}
	err = group.Wait()
	var out []Verdict
	for _, t := range trials {
		if !t.done {
			break
		}
		out = append(out, t.verdict)
	}
	return out, err
}

func (d *Device) check(k *kernel.Kernel, p *attn.Problem, v *Verdict) (wrong string, err error) {
	var asked map[string]int
	if k.MostRows > 0 {
		asked = map[string]int{kernel.DecodeParameter: 1} // on devices too that leave it out unless it is asked for
	}
	prog, err := k.Plan(d.env, p, kernel.NewTuning(asked))
	var no *kernel.Declined
	if errors.As(err, &no) {
		return no.Why, nil
	}
	if err != nil {
		return "", err
	}
	v.Kernel += " " + prog.Tile()
	return d.env.TryForward(p, kernel.Variant{Aligned: true, LSE: true}, prog.Scratch(), prog.Record)
}
