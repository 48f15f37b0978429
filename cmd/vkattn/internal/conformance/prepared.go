package conformance

import (
	"context"
	"errors"

	"github.com/vkattn/vkattn/flash"
)

// prepareForward gives Case.prepared what the case records: the forward pass; with weights that are kept, where a plan keeps them; and the
// backward pass.
func (c *Case) prepareForward(ctx context.Context, dev *flash.Device, t Target, plan *flash.Plan, f flash.Forward, weights *flash.Weights,
	scores *scoreTensors, r *Result) error {
	given := []*flash.Weights{nil}
	if weights != nil {
		given = append(given, weights)
	}
	for _, f.Weights = range given {
		if err := c.prepareWith(plan, func(rec *flash.Recording) error { return rec.Forward(f) }); err != nil {
			return err
		}
	}
	if c.grads == nil || t.skipsGradients(c) {
		return nil
	}
	if c.moved != nil && t.Implementation == flash.Flash {
		if err := c.jvp(ctx, dev, plan, &f, r); err != nil {
			return err
		}
	}
	return c.backward(ctx, dev, t, plan, &f, scores, r)
}

// prepareBackward gives what the backward pass records, overwriting and adding up.
func (c *Case) prepareBackward(plan *flash.Plan, b flash.Backward, scores *scoreTensors, r *Result) error {
	scores.want(&b)
	for _, b.Accumulate = range []bool{false, true} {
		if b.Accumulate {
			if !c.accumulates() {
				break
			}
			r.Accumulated = true
			(&scoreTensors{}).want(&b)
		}
		if err := c.prepareWith(plan, func(rec *flash.Recording) error { return rec.Backward(b) }, flash.ForBackward()); err != nil {
			return err
		}
	}
	return nil
}

func (c *Case) prepareWith(plan *flash.Plan, fill func(*flash.Recording) error, o ...flash.RecordingOption) error {
	rec, err := plan.NewRecording(o...)
	if err != nil {
		return err
	}
	if err = fill(rec); err == nil {
		err = c.prepared(rec)
	}
	return errors.Join(err, rec.Close())
}
