package bench

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// deviceShape is the Shape of a Device.
type deviceShape struct {
	d       *Device
	c       result.Case
	passes  result.Passes // that may be measured
	problem flash.Problem
	sets    []tensorSet

	expected map[expectationKey]*expectation // of the sets checked so far: rows of one shape differ in kernel and tile alone
}

// expectationKey is what outputs of a shape depend on, besides its case.
type expectationKey struct {
	set     int
	density float64
}

// Shape allocates and fills the input sets that the passes need.
func (d *Device) Shape(ctx context.Context, c result.Case, passes result.Passes) (Shape, error) {
	problem, err := c.Problem()
	if err != nil {
		return nil, err
	}
	s := &deviceShape{d: d, c: c.Shape(), passes: passes, problem: problem, expected: map[expectationKey]*expectation{}}
	for i := range d.setsFor(problem, passes) {
		set, err := d.newSet(ctx, c, problem, passes, uint64(result.InputSeed+i))
		if err != nil {
			if len(s.sets) > 0 && outOfMemory(err) {
				break // fewer sets must do
			}
			s.Close()
			return nil, fmt.Errorf("inputs and outputs: %w", err)
		}
		s.sets = append(s.sets, set)
	}
	return s, nil
}

// setsFor is the number of input sets whose rotation outgrows the cache.
func (d *Device) setsFor(p flash.Problem, passes result.Passes) int {
	bytes, err := tune.LeastForwardBytes(p, flash.Flash)
	if err != nil {
		return 1
	}
	if passes.Bwd || passes.JVP {
		bytes *= 2
	}
	return d.Sets(bytes)
}

// Close frees the tensors.
func (s *deviceShape) Close() error {
	for i := range s.sets {
		s.sets[i].close()
	}
	s.sets = nil
	return nil
}

func (s *deviceShape) forward(set int, lse *flash.Tensor, mask masks) flash.Forward {
	t := s.sets[set]
	return flash.Forward{Q: t.q, K: t.k, V: t.v, O: t.o, LSE: lse, Bias: t.bias, Sinks: t.sinks,
		QueryStarts: t.starts, KeyStarts: t.starts, KeyLengths: t.used, Lists: t.lists, PageTable: t.pages, KeyScales: t.keyScales,
		ValueScales: t.valueScales, MaxLogit: t.maxLogit,
		Blocks: mask.blocks, MaskBlocks: mask.classes, Seed: dropoutSeed, Offset: uint32(set)}
}

func (s *deviceShape) backward(set int, weights *flash.Weights, mask masks) flash.Backward {
	t := &s.sets[set]
	f := s.forward(set, t.grad.lse, mask)
	f.Weights = weights
	return flash.Backward{Forward: f, DO: t.grad.do, DQ: t.grad.dq, DK: t.grad.dk, DV: t.grad.dv, DBias: t.grad.dbias,
		DSinks: t.grad.dsinks}
}
