package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// Measure times a job of the shape.
func (s *deviceShape) Measure(ctx context.Context, j result.Job, check bool) result.Row {
	return s.measureWith(ctx, j, check)
}

// measureWith is Measure with more options for the plan.
func (s *deviceShape) measureWith(ctx context.Context, j result.Job, check bool, opts ...flash.PlanOption) result.Row {
	row := s.d.Row(j.Case)
	if err := s.measure(ctx, &row, j, check, opts); err != nil {
		row.Fail(FailureOf(err))
	}
	return row
}

func (s *deviceShape) measure(ctx context.Context, row *result.Row, j result.Job, verify bool, opts []flash.PlanOption) error {
	passes := j.Passes.OrDefault()
	if passes.Bwd && !s.passes.Bwd {
		return fmt.Errorf("the shape %s was made without gradients", s.c)
	}
	own, err := s.d.options(j.Case)
	if err != nil {
		return err
	}
	if _, names := tune.Split(j.Case.Tuning.Values()); len(names) > 0 && !passes.Bwd {
		return fmt.Errorf("tuning %q: %s is of backward passes, and none is timed", j.Case.Tuning, slices.Sorted(maps.Keys(names))[0])
	}
	problem, err := j.Case.Problem()
	if err != nil {
		return err
	}
	plan, err := s.d.dev.Plan(problem, slices.Concat(own, opts)...)
	if err != nil {
		if j.Case.Tuning != "" && errors.Is(err, flash.ErrArgument) { // a tile that does not fit this device or problem
			row.Failure = result.Failure{Error: err.Error(), Reason: result.ReasonUnsupported}
			return nil
		}
		return err
	}
	defer plan.Close()
	mask, err := s.d.masks(ctx, j.Case)
	defer mask.Close()
	if err != nil {
		return err
	}
	if row.Classes, err = mask.shares(ctx); err != nil {
		return err
	}
	// Outputs of an earlier measurement must not pass for this one's.
	for _, set := range s.sets {
		if verify {
			if err := poison(ctx, set.o); err != nil {
				return err
			}
		}
	}
	// Workspace is allocated by recordings. Making the plan may have tried the kernel out, with tensors of its own.
	s.d.dev.ResetPeak()
	before := s.d.dev.Usage()
	info := plan.ForwardInfo()
	row.Tier, row.Kernel = string(info.Tier), info.Kernel

	forward, backward := s.d.Limit, s.d.Limit
	if passes.JVP && !s.passes.JVP {
		return fmt.Errorf("the shape %s was made without tangents", s.c)
	}
	if passes.Fwd && passes.Bwd { // each gets its share of the row's time, by its operations
		forward = time.Duration(math.Ceil(float64(s.d.Limit) / (1 + result.BackwardWork)))
		backward -= forward
	}
	if passes.Fwd {
		if err := s.measureForward(ctx, row, plan, mask, before, forward, verify); err != nil {
			return err
		}
	}
	if passes.JVP {
		if err := s.measureJVP(ctx, row, plan, mask, forward, verify); err != nil {
			if reasonOf(err) == result.ReasonCheck || ctx.Err() != nil {
				return err
			}
			row.JVP, row.JVPFailure = result.Pass{}, FailureOf(err) // what forward gave stays
		}
	}
	if !passes.Bwd {
		return nil
	}
	err = s.measureBackward(ctx, row, plan, mask, backward, verify)
	if err == nil || !passes.Fwd || reasonOf(err) == result.ReasonCheck || ctx.Err() != nil {
		return err
	}
	row.Bwd, row.BwdFailure = result.Pass{}, FailureOf(err) // what forward gave stays
	return nil
}
