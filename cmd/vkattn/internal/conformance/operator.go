package conformance

import (
	"context"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/onnx"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// operator is what a case of an operator of ONNX has besides.
type operator struct {
	of        *onnx.Case
	attention *onnx.Attention
}

// operatorCase makes the case of an operator: its outputs are held to its own tolerances, and o and lse to the suite's bounds besides.
func operatorCase(name string, of *onnx.Case) (*Case, error) {
	c := &Case{Name: name, operator: &operator{of: of}, every: true}
	if of.Op != "Attention" {
		if !of.Known() {
			c.lacks = []string{"the operator " + of.Op}
			return c, nil
		}
		_, err := of.Compute() // it must make sense
		return c, err
	}
	a, err := of.Attention()
	if err != nil {
		return nil, err
	}
	c.operator.attention = a
	c.Problem, c.lacks, _ = translate(&a.Problem, a.Type)
	c.lacks = append(c.lacks, a.Lacks...)
	c.Core = max(c.Problem.HeadDim, c.Problem.ValueDim) <= lightDim
	if a.Flat {
		c.Layouts.Q, c.Layouts.O = BNHD, BNHD
		if a.Past == 0 {
			c.Layouts.K, c.Layouts.V = BNHD, BNHD
		}
	}
	return c, nil
}

// stored says that the matrix of scores is an output, which standard attention alone has.
func (o *operator) stored() bool { return o != nil && o.attention != nil && o.attention.Matrix }

// judge compares o [B, Hq, Nq, Dv].
func (o *operator) judge(r *Result, got []float64, shape [4]int) {
	r.heldTo(o.of, "Y", o.attention.Output(ref.Array{B: shape[0], H: shape[1], N: shape[2], D: shape[3], Data: got}))
}

// operate compares every output of package flash/onnx on a target: Y, which was compared as kernels alone give it, too, present keys and
// values, and the scores at the stage that the case asks for.
func (c *Case) operate(ctx context.Context, dev *flash.Device, t Target, r *Result) error {
	of := c.operator.of
	got, err := of.Run(ctx, dev, t.options(c.Tuning, c.Backward)...)
	if err != nil {
		return err
	}
	for _, output := range of.Outputs() {
		if output != "Y" || c.held(t) {
			r.heldTo(of, output, got[output])
		}
	}
	return nil
}

// held says whether Y is held to the tolerances of its case. Standard attention stores its scores in bf16, of eight bits: the suite's own
// bound allows for that, and tolerances of ONNX, made for scores in fp32, do not.
func (c *Case) held(t Target) bool {
	return c.operator != nil && !(t.Implementation == flash.Standard && c.Problem.DType == flash.BF16)
}

// heldTo notes the verdict on an output of an operator.
func (r *Result) heldTo(of *onnx.Case, output string, got []float64) {
	v, theirs, err := of.Judge(output, got)
	if err != nil {
		r.fail("%v", err)
		return
	}
	r.Theirs = max(r.Theirs, theirs)
	r.note(output, v)
	if !v.OK {
		r.fail("%s: %v", output, v)
	}
}
