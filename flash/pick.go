package flash

import (
	"errors"
	"fmt"
	"slices"
)

// kernels holds every kernel, the most preferred first within its implementation.
var kernels = []*kernel{
	scalarDecode,
	matrixForward,
	scalarForward,
	matrixStandard,
	scalarStandard,
	matrixFlash1,
	scalarFlash1,
	matrixBlockSparse,
	scalarBlockSparse,
}

// pick takes the first kernel of a list, most preferred first, that is of the implementation, of the tier insisted on (""
// for any), can run the problem, and that fit fits to it. effect is its tuning; reasons say why kernels before it were not
// taken, and what fit noted. pass stands before the problem in the error.
func pick[K anyKernel](d *Device, p *Problem, list []K, pass string, of Implementation, insisted Tier,
	fit func(K) (t *tuning, note string, err error)) (k K, effect map[string]int, reasons []string, err error) {
	failed := false // a self-check
	for _, k := range list {
		o := k.offered()
		if o.implementation != of || (insisted != "" && o.tier != insisted) {
			continue
		}
		has := p.features()
		special := func(k K) bool { // the kernel that is there for what this one cannot
			other := k.offered()
			return other.implementation == of && other.tier == o.tier && other.needs&has&^o.can != 0
		}
		if o.needs&^has != 0 || slices.ContainsFunc(list, special) {
			continue
		}
		not := func(why string) { reasons = append(reasons, o.name+": "+why) }
		if why := o.cannot(&d.env.caps, p); why != "" {
			not(why)
			continue
		}
		if o.reserved != nil && insisted == "" {
			if why := o.reserved(&d.env.caps); why != "" {
				not(why)
				continue
			}
		}
		t, note, err := fit(k)
		if note != "" {
			not(note)
		}
		var no *declined
		if errors.As(err, &no) {
			not(no.why)
			failed = failed || isDenied(err)
			continue
		}
		if err != nil {
			return k, nil, reasons, d.fail(err)
		}
		return k, t.effect, reasons, nil
	}
	what := fmt.Sprintf("%s%v (%v", pass, p, of)
	if insisted != "" {
		what += ", tier " + string(insisted)
	}
	if len(reasons) == 0 {
		reasons = []string{"there is no such kernel"}
	}
	return k, nil, reasons, &UnsupportedError{What: what + ")", Reasons: reasons, Denied: failed}
}

// backwardKernels holds every kernel of the backward pass, the most preferred first within its implementation.
var backwardKernels = []*backwardKernel{
	matrixBackward,
	scalarBackward,
	matrixStandardBackward,
	scalarStandardBackward,
}

// refused makes the error of a variant that the plan did not need, and that cannot run, while recording: there is no other kernel to turn to
// any more. What is refused is what, tensors of such an alignment.
func refused(err error, what string, tier Tier) error {
	var no *declined
	if errors.As(err, &no) {
		return &UnsupportedError{What: fmt.Sprintf("%s with tensors of this alignment, tier %s", what, tier), Reasons: []string{no.why}, Denied: isDenied(err)}
	}
	return err
}
