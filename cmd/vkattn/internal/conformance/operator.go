package conformance

import (
	"context"
	"errors"
	"fmt"

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

// presents compares the keys and values that the kernels were given with present_key and present_value.
func (o *operator) presents(r *Result) {
	for _, name := range o.of.Outputs() {
		x := map[string][]float32{"present_key": o.attention.Problem.K.Data, "present_value": o.attention.Problem.V.Data}[name]
		if x == nil {
			continue
		}
		r.heldTo(o.of, name, ref.Widen(x))
	}
}

// matrix compares the scores, at the stage that the case asks for: those before masks are of a problem without what comes later.
func (c *Case) matrix(ctx context.Context, dev *flash.Device, plan *flash.Plan, t Target, f flash.Forward, r *Result) (err error) {
	p, stage := c.Problem, c.operator.attention.Stage
	got := make([]float32, p.Batch*p.Heads*p.QueryLen*p.KeyLen)
	if stage == ref.Weights {
		w, err := plan.NewWeights()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		f.Weights = w
		if err := plan.Forward(ctx, f); err != nil {
			return err
		}
		if err := w.Download(ctx, got); err != nil {
			return err
		}
		r.heldTo(c.operator.of, "qk_matmul_output", ref.Widen(got))
		return nil
	}
	if stage < ref.Masked {
		in := stage.At(c.inputs)
		early, lacks, _ := translate(&in, refType(p.DType))
		if len(lacks) > 0 {
			return fmt.Errorf("scores before masks: the library lacks %v", lacks)
		}
		if plan, err = dev.Plan(early, t.options(c.Tuning)...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, plan.Close()) }()
		f = flash.Forward{Q: f.Q, K: f.K}
		free, err := bind(ctx, dev, early, &in, &f)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, free()) }()
	}
	if err := plan.Scores(ctx, f, got); err != nil {
		return err
	}
	r.heldTo(c.operator.of, "qk_matmul_output", ref.Widen(got))
	return nil
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
