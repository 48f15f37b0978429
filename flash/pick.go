package flash

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// pick takes the first kernel of a list, most preferred first, that is of the implementation, of the tier insisted on (""
// for any), can run the problem, and that fit fits to it. Its reasons say why kernels before it were not taken, and what fit
// noted. pass stands before the problem in the error.
func pick[K kernel.AnyKernel, P fitted](d *Device, p *attn.Problem, list []K, pass string, of Implementation, insisted Tier,
	fit func(K) (program P, t *kernel.Tuning, note string, err error)) (*chosen[K, P], error) {
	var reasons []string
	failed := false // a self-check
	for _, k := range list {
		o := k.Offered()
		if o.Implementation != kernel.Implementation(of) || (insisted != "" && o.Tier != kernel.Tier(insisted)) {
			continue
		}
		has := p.Features()
		special := func(k K) bool { // the kernel that is there for what this one cannot
			other := k.Offered()
			return other.Implementation == o.Implementation && other.Tier == o.Tier && other.Needs&has&^o.Can != 0
		}
		if !o.Exists(p) || slices.ContainsFunc(list, special) {
			continue
		}
		not := func(why string) { reasons = append(reasons, o.Name+": "+why) }
		if why := o.Cannot(&d.env.Caps, p); why != "" {
			not(why)
			continue
		}
		if o.Reserved != nil && insisted == "" {
			if why := o.Reserved(&d.env.Caps, p); why != "" {
				not(why)
				continue
			}
		}
		program, t, note, err := fit(k)
		if note != "" {
			not(note)
		}
		var no *kernel.Declined
		if errors.As(err, &no) {
			not(no.Why)
			failed = failed || kernel.IsDenied(err)
			continue
		}
		if err != nil {
			return nil, d.fail(err)
		}
		return &chosen[K, P]{k, program, t.Effect, reasons}, nil
	}
	what := fmt.Sprintf("%s%v (%v", pass, p, of)
	if insisted != "" {
		what += ", tier " + string(insisted)
	}
	if len(reasons) == 0 {
		reasons = []string{"there is no such kernel"}
	}
	unsupported := &UnsupportedError{What: what + ")", Reasons: reasons, Denied: failed}
	unsupported.Anywhere, unsupported.Remedy = remedy(d, p, list, of, insisted)
	return nil, unsupported
}

// refused makes the error of a variant that the plan did not need, and that cannot run, while recording: there is no other kernel to turn
// to any more. What is refused is what, tensors of such an alignment.
func refused(err error, what string, tier Tier) error {
	var no *kernel.Declined
	if errors.As(err, &no) {
		return &UnsupportedError{What: fmt.Sprintf("%s with tensors of this alignment, tier %s", what, tier), Reasons: []string{no.Why},
			Denied: kernel.IsDenied(err)}
	}
	return err
}
