package flash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
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
	err := p.open()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.dev.usable()
}

// open is ErrClosed after Close; p.mu is held.
func (p *smallPlan) open() error {
	if p.closed {
		return fmt.Errorf("%w: %s", ErrClosed, p.name)
	}
	return nil
}

// run prepares the recording that the plan keeps, which the first call makes, submits it and waits.
func (p *smallPlan) run(ctx context.Context, recording func(timestamps bool) (*Recording, error), prepare func(*Recording) error) error {
	if err := unlessEnded(ctx); err != nil {
		return err
	}
	if err := p.usable(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(); err != nil { // it may have been closed since
		return err
	}
	if p.kept == nil {
		var err error
		if p.kept, err = recording(false); err != nil {
			return err
		}
	}
	if err := prepare(p.kept); err != nil {
		return err
	}
	return awaited(ctx, p.kept.Submit)
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

// tensorsPlan is a plan of a kernel on the tensors of a table of its own: of merges and accumulations.
type tensorsPlan struct {
	smallPlan
	does    string // Merge: the method of recordings, and what errors call its argument
	table   []attn.Operand
	first   int // how far behind its place in the table the kernel has a tensor, the last ones first
	program interface {
		Scratch() []uint64
		Dispatches() int
		Record(*kernel.Recorder, []*kernel.Operand) error
	}
}

// tensorsCommands is what a recording of such a plan has beside others.
type tensorsCommands struct {
	plan       *tensorsPlan
	given      []*Tensor         // in the order of the plan's table
	to, placed []*kernel.Operand // in the same order, and in that of the kernel
}

// newRecording makes a recording for the caller.
func (p *tensorsPlan) newRecording(opts []RecordingOption) (*Recording, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	timestamps, err := timestampsOf(opts)
	if err != nil {
		return nil, err
	}
	return p.recording(timestamps)
}

func (p *tensorsPlan) recording(timestamps bool) (*Recording, error) {
	sizes := p.program.Scratch()
	if err := p.dev.roomFor("workspace", sizes); err != nil {
		return nil, err
	}
	n := len(p.table)
	c := &tensorsCommands{plan: p, given: make([]*Tensor, n), to: make([]*kernel.Operand, n)}
	for i := range c.to {
		c.to[i] = &kernel.Operand{}
	}
	c.placed = slices.Concat(c.to[n-p.first:], c.to[:n-p.first])
	r := &Recording{dev: p.dev, name: "Recording", first: p.does, small: c, tensors: make([]*Tensor, n)}
	if err := r.open(kernel.RecordingInfo(p.program.Dispatches(), timestamps)); err != nil {
		return nil, err
	}
	if err := r.workspace(sizes); err != nil {
		return nil, err
	}
	return r, nil
}

// beginSmall says why the recording cannot be given commands of such a plan, or locks it.
func (r *Recording) beginSmall(does string) error {
	has, from := r != nil && r.small != nil && r.small.plan.does == does, ""
	if !has {
		from = does + "Plan.NewRecording"
	}
	err := r.begin(from, has)
	if err == nil {
		r.ready = false
	}
	return err
}

// writeSmall replaces the recording's commands by those for the tensors that it was given. It does not allocate unless it fails.
func (r *Recording) writeSmall() error {
	c := r.small
	p := c.plan
	if err := place(r.dev, p.does, p.table, nil, c.given, c.to); err != nil {
		return err
	}
	for i := range p.table {
		o, t := &p.table[i], c.given[i]
		if t != nil && !o.Statistics && strings.HasSuffix(o.Name, "LSE") && t.layout.Shape[2] > 1 && t.layout.Strides[2] != 1 {
			return badArgument(p.does+"."+o.Name, t, "must have the rows of a head one behind the other")
		}
	}
	copy(r.tensors, c.given)
	err := r.reset()
	if err == nil {
		err = p.program.Record(&r.writer, c.placed)
	}
	r.ready = err == nil
	return r.dev.fail(err)
}
