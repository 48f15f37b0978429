package pass

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// CacheStep brings a step over a cache to the device: a stage makes edits, and one for each buffer of pools copies pages.
type CacheStep struct {
	program
	kernel.CacheStep
}

// NewCacheStep makes the pipelines.
func NewCacheStep(e *kernel.Env, of kernel.CacheStep, pools []kernel.CachePools) (*CacheStep, error) {
	s := &CacheStep{CacheStep: of}
	return s, s.begin(fitCacheStep(e, of, pools), nil)
}

func fitCacheStep(e *kernel.Env, of kernel.CacheStep, pools []kernel.CachePools) *Fitted {
	p := &Pass{Problem: &attn.Problem{}, Operands: []attn.Operand{{Name: "Step"}, {Name: "Words"}}}
	add := func(pools *kernel.CachePools, groups [3]uint32, b Bind) {
		p.Stages = append(p.Stages, Stage{Label: kernel.CacheStepModule, Module: kernel.CacheStepModule,
			Constants: kernel.CacheStepConstants(of.Copies, pools), Groups: groups, Args: Args{As: AsNothing},
			Bind: []Bind{{Name: "Step_", To: "Step", Mode: pipeline.Read}, b}, Idle: "Step"})
	}
	add(nil, of.EditGroups(), Bind{Name: "Words_", To: "Words", Mode: pipeline.Write})
	for i := range pools {
		name := fmt.Sprintf("Pools %d", i)
		p.Operands = append(p.Operands, attn.Operand{Name: name})
		add(&pools[i], of.CopyGroups(&pools[i]), Bind{Name: "Pools_", To: name, Mode: pipeline.ReadWrite})
	}
	return &Fitted{Env: e, Problem: p.Problem, Name: kernel.CacheStepModule, Pass: func(Variant) *Pass { return p }}
}

// Record writes the dispatches for the step that lies in memory, the words that are edited, and the buffers of pools.
func (s *CacheStep) Record(r *kernel.Recorder, all []*kernel.Operand) error {
	return s.recordAs(r, s.usual, &tensors{operands: all})
}
