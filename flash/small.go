package flash

import (
	"context"
	"fmt"
	"sync"
)

// smallPlan is what plans of one small kernel have in common.
type smallPlan struct {
	dev  *Device
	name string // of the type that callers hold: MergePlan

	mu     sync.Mutex
	kept   *Recording // of calls that record, submit and wait at once
	closed bool
}

// usable says why nothing can be done with the plan; p.mu is not held.
func (p *smallPlan) usable() error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: %s", ErrClosed, p.name)
	}
	return p.dev.usable()
}

// run prepares the recording that the plan keeps, which the first call makes, submits it and waits.
func (p *smallPlan) run(ctx context.Context, recording func() (*Recording, error), prepare func(*Recording) error) error {
	if err := unlessEnded(ctx); err != nil {
		return err
	}
	if err := p.usable(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil {
		var err error
		if p.kept, err = recording(); err != nil {
			return err
		}
	}
	if err := prepare(p.kept); err != nil {
		return err
	}
	pending, err := p.kept.Submit()
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}

// newRecording makes a recording for the caller.
func (p *smallPlan) newRecording(opts []RecordingOption, recording func(timestamps bool) (*Recording, error)) (*Recording, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	timestamps, err := timestampsOf(opts)
	if err != nil {
		return nil, err
	}
	return recording(timestamps)
}

func (p *smallPlan) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.kept.Close()
}
