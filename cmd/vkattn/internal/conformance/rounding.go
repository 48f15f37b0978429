package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// lookAgain compares outputs that exceed plain attention's measure with the bounds of rounding, see [ref.RoundingBounds]: what is within
// those is right, and the result says why it was looked at. values are o, lse, dq, dk and dv; nil is not compared. start is what gradients
// were added to.
func (c *Case) lookAgain(values [5][]float32, start *[3][]float32, r *Result) {
	why, err := c.beyondRounding(r.Implementation, values, start)
	switch {
	case err != nil:
		r.Failure += "; " + err.Error()
	case why != "":
		r.Failure += "; and beyond what rounding explains: " + why
	default:
		r.ByRounding, r.Failure = r.Failure, ""
	}
}

// beyondRounding names the first element that is farther off than rounding can make it, "" for none.
func (c *Case) beyondRounding(implementation flash.Implementation, values [5][]float32, start *[3][]float32) (string, error) {
	t := refType(c.Problem.DType)
	var do *ref.Tensor
	var dlse []float32
	if c.grads != nil {
		do, dlse = &c.grads.do, c.grads.dlse
	}
	b, err := ref.RoundingBounds(c.inputs, t, ref.Rounds{Scores: implementation == flash.Standard}, do, dlse)
	if err != nil {
		return "", err
	}
	right := [5][]float64{c.o, c.lse}
	if c.grads != nil {
		copy(right[2:], c.grads.answers[:])
	}
	for i, bound := range [5][]float64{b.O.Data, b.LSE.Data, b.DQ.Data, b.DK.Data, b.DV.Data} {
		if values[i] == nil {
			continue
		}
		want := right[i]
		if i >= 2 && start != nil { // added to what was there, and rounded again
			want = slices.Clone(want)
			for j, x := range start[i-2] {
				want[j] += float64(x)
				bound[j] += t.Ulp(want[j])
			}
		}
		of := t
		if i == 1 {
			of = ref.F32
		}
		if at := ref.Exceeds(ref.Widen(values[i]), want, bound, of); at >= 0 {
			return fmt.Sprintf("%s: error %.3g, bound %.3g, at element %d", outputNames[i], math.Abs(float64(values[i][at])-want[at]),
				bound[at], at), nil
		}
	}
	return "", nil
}
