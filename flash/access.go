package flash

import (
	"context"
	"errors"

	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// What flash/tune, flash/kvcache, flash/rows and flash/hostmem work with, and nobody else; see package access.
func init() {
	access.Give(access.Flash[*Device, *Plan, Problem, *Tensor]{
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
		Release: func(t *Tensor) { t.mem.busy.Add(-1) },
		Place: func(d *Device, pass string, table []attn.Operand, p *attn.Problem, tensors []*Tensor, to []*kernel.Operand) error {
			var all [mostHeld]given
			for i, t := range tensors {
				all[i] = given{t, to[i]}
			}
			return place(pass, table, all[:len(tensors)], d, p)
		},
		Pages: func(problem string, p attn.Pages) error { return Pages(p).check(problem) },
		Record: func(d *Device, c access.Commands[*Tensor]) (access.Recording, error) {
			r, err := lend(d, c, "")
			if err != nil {
				return nil, err
			}
			if err := r.Rewrite(func() error { return nil }); err != nil {
				return nil, errors.Join(err, r.close())
			}
			return r, nil
		},
		Rewritable: func(d *Device, c access.Commands[*Tensor], first string) (access.Rewritable, error) {
			r, err := lend(d, c, first)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
	})
}

// recordings know the devices of recordings of packages beside this one.
var recordings []func(recording any) *Device

// lentRecording is a smallRecording in the hands of a package beside this one.
type lentRecording struct {
	smallRecording
	write func(*kernel.Recorder) error
}

// lend makes a recording without commands.
func lend(d *Device, c access.Commands[*Tensor], first string) (*lentRecording, error) {
	r := &lentRecording{write: c.Write}
	r.dev, r.name, r.first, r.tensors = d, c.Name, first, c.Tensors
	return r, r.open(c.Info)
}

// Rewrite gives the recording its commands, in place of those that it has.
func (r *lentRecording) Rewrite(place func() error) error {
	if err := r.begin(); err != nil {
		return err
	}
	defer r.mu.Unlock()
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

func (r *lentRecording) Submit() error                  { return r.submit() }
func (r *lentRecording) Record(cmd uintptr) error       { return r.record(cmd) }
func (r *lentRecording) Idle() (bool, error)            { return r.idle() }
func (r *lentRecording) Wait(ctx context.Context) error { return r.waitFor(ctx) }
func (r *lentRecording) Close() error                   { return r.close() }

// recorded is the device of a recording; nil of what is none, and of those that say themselves what is wrong with them.
func recorded(recording any) *Device {
	switch r := recording.(type) {
	case *Recording:
		if r.made() == nil {
			return r.plan.dev
		}
	case *MergeRecording:
		if r.made() == nil {
			return r.dev
		}
	case *MapRecording:
		if r.made() == nil {
			return r.dev
		}
	case *AccumulateRecording:
		if r.made() == nil {
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
