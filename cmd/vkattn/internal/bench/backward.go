package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// measureBackward times the backward pass of a plan on the sets, after a forward pass on each, and compares the output and lse
// that the last run's gradients came from, and then those, with the reference.
func (s *deviceShape) measureBackward(ctx context.Context, row *result.Row, plan *flash.Plan, mask masks, limit time.Duration,
	verify bool) error {
	info, err := plan.BackwardInfo()
	if err != nil {
		return err
	}
	row.BwdKernel = info.Kernel
	before := s.d.dev.Usage()
	var kept []*flash.Weights
	defer func() {
		for _, w := range kept {
			w.Close()
		}
	}()
	first := &s.sets[0]
	runs, err := s.recordings(ctx, &row.Bwd, before, first.bytes()+bytesOf(first.grad.all()...), func(i int) (*flash.Recording, error) {
		weights, err := plan.NewWeights()
		if err != nil {
			return nil, err
		}
		kept = append(kept, weights)
		if err := s.forwardForBackward(ctx, plan, i, weights, mask, verify); err != nil {
			return nil, err
		}
		s.d.dev.ResetPeak() // forward's own workspace is not backward's
		r, err := plan.NewRecording(flash.ForBackward())
		if err != nil {
			return nil, err
		}
		return r, r.Backward(s.backward(i, weights, mask))
	})
	defer closeAll(runs)
	if err != nil {
		return err
	}
	model, err := tune.BackwardModel(plan)
	if err != nil {
		return err
	}
	if row.Bwd.LeastBytes, err = s.c.Least(tune.LeastBackwardBytes); err != nil {
		return err
	}
	if err := count(row, &row.Bwd, model, plan.Problem()); err != nil {
		return err
	}
	last, err := s.time(ctx, row, &row.Bwd, row.BackwardFLOPs(), limit, runs,
		func() error { return runs[0].Backward(s.backward(0, kept[0], mask)) })
	if err != nil {
		return err
	}
	if !verify {
		return nil
	}
	// The gradients' reference starts from the device's own output and lse: those come first.
	if err := s.checkForward(ctx, row, last, s.sets[last].grad.lse); err != nil {
		return err
	}
	res, err := s.checkGradients(ctx, last, row.BlockMask())
	if err != nil {
		return err
	}
	row.BwdCheck = res.outcome()
	if res.err != nil {
		return Wrong(fmt.Errorf("gradients: %w", res.err))
	}
	return nil
}

// forwardForBackward runs the forward pass of a set whose backward pass is to be timed, all outputs poisoned where it is verified too.
func (s *deviceShape) forwardForBackward(ctx context.Context, plan *flash.Plan, set int, weights *flash.Weights, mask masks,
	verify bool) error {
	g := &s.sets[set].grad
	if verify {
		for _, t := range append(g.outputs(), g.lse) {
			if t == nil {
				continue
			}
			if err := poison(ctx, t); err != nil {
				return err
			}
		}
	}
	f := s.forward(set, g.lse, mask)
	f.Weights = weights
	pending, err := plan.SubmitForward(f)
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}
