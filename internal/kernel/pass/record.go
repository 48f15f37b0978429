package pass

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
)

// ready is a pass with its pipelines and the places of its bindings. Recording it allocates nothing.
type ready struct {
	*Pass
	stages []readyStage
}

type readyStage struct {
	*Stage
	kernel   *pipeline.Kernel
	bindings int // of the module, captured tensors among them
	captured int // these are the last
	binds    []readyBind
	idle     source
	counts   source
	x, y     int // places of Args.X and Y among operands; −1: none
}

type readyBind struct {
	at    int
	from  source
	mode  pipeline.Mode
	given bool // Bind.Given
}

// Check says what is wrong with the names of the pass, without a device: modules, constants and buffers that are not declared, constants
// that are not set.
func (p *Pass) Check() error {
	for i := range p.Stages {
		s := &p.Stages[i]
		info, err := shaders.Describe(s.Module)
		if err == nil {
			_, err = s.Constants.Number(s.Module, &info.Interface)
		}
		if err != nil {
			return err
		}
	}
	_, err := p.resolve()
	return err
}

// resolve finds the places of all names, without a device.
func (p *Pass) resolve() (*ready, error) {
	out := &ready{Pass: p, stages: make([]readyStage, len(p.Stages))}
	for i := range p.Stages {
		if err := out.stages[i].resolve(p, &p.Stages[i]); err != nil {
			return nil, fmt.Errorf("%w, in %s", err, p.Stages[i].Module)
		}
	}
	return out, nil
}

func (r *readyStage) resolve(p *Pass, s *Stage) (err error) {
	info, err := shaders.Describe(s.Module)
	if err != nil {
		return err
	}
	r.Stage, r.bindings = s, info.Interface.BindingCount()
	if s.Constants.TakesFunctions() {
		code := p.functions(s)
		captured, err := code.Captures()
		if err != nil {
			return err
		}
		r.captured = len(captured)
		r.bindings += r.captured
	}
	if r.idle, err = p.source(s.Idle); err != nil {
		return err
	}
	if s.Counts != (Counts{}) {
		if r.counts, err = p.source(s.Counts.Scratch); err != nil {
			return err
		}
	}
	for _, b := range s.Bind {
		at, declared := info.Interface.Bindings[b.Name]
		if !declared && b.May {
			continue
		}
		from, err := p.source(b.To)
		if err == nil && !declared {
			err = fmt.Errorf("flash: no buffer %s is declared", b.Name)
		}
		if err != nil {
			return err
		}
		r.binds = append(r.binds, readyBind{int(at), from, b.Mode, b.Given})
	}
	r.x, r.y = -1, -1
	for to, name := range map[*int]string{&r.x: s.Args.X, &r.y: s.Args.Y} {
		if name != "" {
			from, err := p.source(name)
			if err != nil {
				return err
			}
			*to = from.at
		}
	}
	return nil
}

// build makes the pass's pipelines. of, where it is not nil, has the pipelines of stages that prove themselves: in a self-check it is these
// that are in question, and no others.
func (p *Pass) build(e *kernel.Env, of *ready) (*ready, error) {
	out, err := p.resolve()
	if err != nil {
		return nil, err
	}
	proven, makes := of.proven(), []func() error(nil)
	for i := range out.stages {
		s := &out.stages[i]
		if s.Again > 0 {
			continue
		}
		if s.Proves && of != nil {
			s.kernel, proven = proven[0], proven[1:]
			continue
		}
		makes = append(makes, func() (err error) {
			s.kernel, err = e.Build(s.Module, s.Constants, s.Made, p.functions(s.Stage))
			return err
		})
	}
	err = kernel.Together(makes...)
	for i := range out.stages {
		if s := &out.stages[i]; s.Again > 0 {
			s.kernel = out.stages[i-s.Again].kernel
		}
	}
	return out, err
}

// proven are the pipelines of stages that prove themselves; none of nil.
func (p *ready) proven() (out []*pipeline.Kernel) {
	if p != nil {
		for i := range p.stages {
			if s := &p.stages[i]; s.Proves && s.Again == 0 {
				out = append(out, s.kernel)
			}
		}
	}
	return out
}

// tensors are those of a pass. It has nothing but pointers, so that it stays on the stack.
type tensors struct {
	operands []*kernel.Operand // in the order of Pass.Operands
	forward  *kernel.Operands  // of other passes, what they have of one
	backward *kernel.Gradients
	jvp      *kernel.Tangents
	mapped   *kernel.MapStage
	moving   *kernel.RowOperands
}

func (p *ready) forward(r *kernel.Recorder, f *kernel.Operands) error {
	all := f.List()
	return p.record(r, &tensors{operands: all[:], forward: f})
}

func (p *ready) backward(r *kernel.Recorder, g *kernel.Gradients) error {
	all := g.List()
	return p.record(r, &tensors{operands: all[:], forward: &g.Operands, backward: g})
}

func (p *ready) jvp(r *kernel.Recorder, j *kernel.Tangents) error {
	all := j.List()
	return p.record(r, &tensors{operands: all[:], forward: &j.Operands, jvp: j})
}

func (p *ready) maps(r *kernel.Recorder, m *kernel.MapStage) error {
	all := m.Operands.List()
	return p.record(r, &tensors{operands: all[:], forward: &m.Operands.Operands, mapped: m})
}

// kept are the matrices that a forward pass keeps.
func (t *tensors) kept(r *kernel.Recorder) []pipeline.Binding {
	if t.backward != nil || t.forward.Weights != nil {
		return t.forward.Weights
	}
	return r.Scratch
}

// record writes the dispatches. The further arguments are the same for all of them.
func (p *ready) record(r *kernel.Recorder, t *tensors) error {
	var err error
	switch {
	case t.jvp != nil:
		err = r.WriteTangents(p.Problem, t.jvp)
	case kernel.NeedsMore(p.Problem):
		err = r.WriteMore(p.Problem, &t.forward.Scores)
	}
	if err == nil && p.Problem.MaxLogit {
		err = r.WriteMaxLogit(&t.forward.MaxLogit)
	}
	if err != nil {
		return err
	}
	for i := range p.stages {
		if err := p.stages[i].record(r, t); err != nil {
			return err
		}
	}
	return nil
}

func (s *readyStage) record(r *kernel.Recorder, t *tensors) error {
	access := r.Access[:s.bindings]
	idle := pipeline.Access{Binding: s.idle.binding(r, t), Mode: pipeline.Unused}
	for i := range access {
		access[i] = idle
	}
	for i := range s.binds {
		b := &s.binds[i]
		if x := b.from.binding(r, t); x.Buffer != nil || !b.given {
			access[b.at] = pipeline.Access{Binding: x, Mode: b.mode}
		}
	}
	for i := range s.captured {
		access[s.bindings-s.captured+i] = pipeline.Access{Binding: t.forward.Captured[i], Mode: pipeline.Read}
	}
	at := s.push(&r.Push, t)
	if s.Args.As == AsNothing {
		return r.Rec.Dispatch(s.kernel, access, nil, s.Groups, s.Label)
	}
	if s.Args.As == AsMap {
		return r.Dispatch(s.kernel, access, at, t.mapped.Grid, t.mapped.Grid.Total, s.Label)
	}
	if s.Grid == (kernel.Grid{}) {
		r.Push.Set(at+4, s.Total)
		return r.Rec.Dispatch(s.kernel, access, r.Push.Bytes(), [3]uint32{1, 1, 1}, s.Label)
	}
	if s.Counts != (Counts{}) {
		groups := s.counts.binding(r, t)
		groups.Offset, groups.Size = groups.Offset+s.Counts.At, kernel.CountBytes
		return r.DispatchCounted(s.kernel, access, at, s.Grid, groups, s.Label)
	}
	total := s.Total
	if total == 0 {
		total = s.Grid.Total
	}
	return r.Dispatch(s.kernel, access, at, s.Grid, total, s.Label)
}

func (s source) binding(r *kernel.Recorder, t *tensors) pipeline.Binding {
	switch s.of {
	case fromScratch:
		return r.Scratch[s.at]
	case fromBlocks:
		return t.forward.Blocks
	case fromMore:
		return r.More.All()
	case fromDCaptured:
		return t.backward.DCaptured[s.at]
	case fromKept:
		return t.kept(r)[s.at]
	case fromCells:
		return t.mapped.To.Binding
	}
	return t.operands[s.at].Binding
}

var none kernel.Operand

// push fills in the stage's arguments.
func (s *readyStage) push(to *kernel.Pushes, t *tensors) (baseAt int) {
	p, x, y := s.Args.Problem, &none, &none
	if s.x >= 0 {
		x = t.operands[s.x]
	}
	if s.y >= 0 {
		y = t.operands[s.y]
	}
	switch s.Args.As {
	case AsBackward:
		baseAt = to.Backward(p, t.backward, &none, x, y)
		to.SlabOfDS(s.Args.Slab.Heads / p.Group())
		return baseAt
	case AsWeights: // P and dS stand in x's place
		b := &s.Args.Slab
		x = &kernel.Operand{Strides: [3]uint32{uint32(b.Head0), uint32(b.Rows * s.Args.Pitch), uint32(s.Args.Pitch)}}
		if !p.Packed.None() {
			y = &kernel.Operand{Strides: [3]uint32{uint32(b.Heads)}}
		}
		return to.Backward(p, t.backward, &none, x, y)
	case AsJVP:
		return to.JVP(p, t.jvp)
	case AsDelta:
		return to.Delta(p, t.backward, &none)
	case AsTable:
		return to.Begin(&kernel.PassArgs().Forward, p, &kernel.Draw{})
	case AsScores, AsRows, AsProduct:
		return s.Args.OfSlab(to, x, y, &t.forward.Drop)
	case AsMap:
		return to.Map(p, t.mapped)
	case AsMerge:
		return to.Merge(s.Args.Merge, s.Args.Link, t.operands)
	case AsAdding:
		return to.Accumulate(s.Args.Accumulate, t.operands)
	case AsMoving:
		return to.Rows(s.Args.Rows, t.moving)
	case AsNothing:
		return 0
	}
	return to.Forward(p, t.forward)
}
