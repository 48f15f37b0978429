package flash

import (
	"context"

	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// What flash/tune, flash/kvcache, flash/rows, flash/ring and flash/hostmem work with, and nobody else; see package access.
func init() {
	access.Give(access.Flash[*Device, *Plan, Problem, *Tensor, *Recording]{
		Env: func(d *Device) (*kernel.Env, error) {
			if err := d.usable(); err != nil {
				return nil, err
			}
			return d.env, nil
		},
		Problem: func(p Problem) (attn.Problem, error) {
			p, err := p.Normalize()
			if err != nil {
				return attn.Problem{}, err
			}
			return p.attn(), nil
		},
		ByPosition: Problem.byPosition,
		Unmask:     (*Problem).unmask,
		Forward: func(p *Plan) (*kernel.Kernel, kernel.Program) {
			if !p.made() {
				return nil, nil
			}
			return p.kernel, p.program
		},
		Backward: func(p *Plan) (*kernel.BackwardKernel, kernel.BackwardProgram, error) {
			if err := p.usable(); err != nil {
				return nil, nil, err
			}
			c, err := p.backward()
			if err != nil {
				return nil, nil, err
			}
			return c.kernel, c.program, nil
		},
		JVP: func(p *Plan) (*kernel.JVPKernel, kernel.JVPProgram, error) {
			c, err := p.forwardMode()
			if err != nil {
				return nil, nil, err
			}
			return c.kernel, c.program, nil
		},
		Recorded:   recorded,
		Recordings: func(of func(any) *Device) { recordings = append(recordings, of) },
		Fail:       (*Device).fail,
		Public:     public,
		Named: func(operation string, err error) error {
			during(operation, &err)
			return err
		},
		RoomFor: (*Device).roomFor,
		Allocate: func(d *Device, label string, dtype attn.DType, shape [4]int) (*Tensor, error) {
			return d.allocate(label, DType(dtype), shape, attn.Contiguous)
		},
		Bound: func(t *Tensor) pipeline.Binding { return t.bound.Binding },
		Hold: func(t *Tensor) (*Device, pipeline.Binding, error) {
			if err := t.hold(); err != nil {
				return nil, pipeline.Binding{}, err
			}
			return t.dev, t.bytesAt(0, int(t.Bytes())), nil
		},
		Release:      (*Tensor).letGo,
		Begun:        (*Tensor).begun,
		Ended:        func(t *Tensor) { t.mem.busy.Add(-1) },
		Place:        place,
		Pages:        func(problem string, p attn.Pages) error { return Pages(p).check(problem) },
		NewRecording: lend,
		Rewrite:      rewrite,
		Idle:         (*Recording).idle,
		Wait:         (*Recording).waitFor,
	})
}

// recordings know the devices of recordings of packages beside this one.
var recordings []func(recording any) *Device

// lend makes a recording without commands for a package beside this one.
func lend(d *Device, c access.Commands[*Tensor], first string) (*Recording, error) {
	r := &Recording{dev: d, name: c.Name, first: first, tensors: c.Tensors, write: c.Write}
	options, _ := c.Options.([]RecordingOption)
	var err error
	if c.Info.Timestamps, err = timestampsOf(options); err != nil {
		return nil, err
	}
	if err := r.open(c.Info); err != nil {
		return nil, err
	}
	return r, nil
}

// rewrite gives a lent recording its commands, in place of those that it has.
func rewrite(r *Recording, place func() error) error {
	if err := r.begin("", r.write != nil); err != nil {
		return err
	}
	defer r.mu.Unlock()
	r.ready = false
	if err := place(); err != nil {
		return err
	}
	err := r.reset()
	if err == nil {
		err = r.write(&r.writer)
	}
	r.ready = err == nil
	return r.dev.fail(err)
}

// idle says without waiting whether the device has finished with the latest submission.
func (r *Recording) idle() (bool, error) {
	if r.lockUnlessWaited() != 0 {
		return false, nil
	}
	defer r.mu.Unlock()
	if r.inFlight == nil {
		return true, nil
	}
	if done, err := r.inFlight.Done(); err != nil || !done {
		return false, r.dev.fail(err)
	}
	return true, r.wait()
}

// waitFor waits for the latest submission, whichever it is.
func (r *Recording) waitFor(ctx context.Context) error {
	r.mu.Lock()
	p := Pending{rec: r, submit: r.submits}
	r.mu.Unlock()
	return p.Wait(ctx)
}

// recorded is the device of a recording; nil of what is none, and of those that say themselves what is wrong with them.
func recorded(recording any) *Device {
	if s, ok := recording.(Submittable); ok {
		if r := s.Commands(); r.made() == nil {
			return r.dev
		}
	}
	for _, of := range recordings {
		if d := of(recording); d != nil {
			return d
		}
	}
	return nil
}
