package flash

import (
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// What flash/tune works with, and nobody else; see package access.
func init() {
	access.Give(access.Flash[*Device, *Plan, Problem]{
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
		Recorded: recorded,
		Fail:     (*Device).fail,
		During:   during,
	})
}

// recorded is the device of a recording; nil of what is none, and of those that say themselves what is wrong with them.
func recorded(recording any) *Device {
	switch r := recording.(type) {
	case *Recording:
		if r.made() == nil {
			return r.plan.dev
		}
	case *RowRecording:
		if r.made() == nil {
			return r.dev
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
	case *CacheBatch:
		if r.made() == nil {
			return r.cache.dev
		}
	}
	return nil
}
