package bench

import (
	"context"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Bench measures shapes on a device.
type Bench interface {
	// Shape makes the inputs and outputs of a shape (c.Impl and c.Tuning are
	// not looked at) for these passes.
	Shape(ctx context.Context, c result.Case, p result.Passes) (Shape, error)
	// Row returns an empty row of a case: library, device and driver filled in.
	Row(c result.Case) result.Row
	// Ceiling is a rate in operations a second that no kernel passes; 0: not known.
	Ceiling() float64
}

// Shape holds the tensors of one shape, ready to be measured.
type Shape interface {
	// Measure times a job of this shape for one round, its passes among the
	// shape's, and when check is set compares the outputs with the reference.
	Measure(ctx context.Context, j result.Job, check bool) result.Row
	Close() error
}

// preparer is a Bench that can do beforehand, for many jobs at the same time, what takes each of them long once.
type preparer interface {
	// Prepare calls done after each job.
	Prepare(ctx context.Context, jobs []result.Job, done func())
}
