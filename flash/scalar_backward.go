package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// scalarBackward is the backward pass of FlashAttention-2 in fp32 arithmetic, without atomic additions: shaders/common/backward_delta.comp,
// then scalar_backward_kv.comp, whose workgroups own keys, and scalar_backward_q.comp, whose workgroups own queries.
var scalarBackward = &backwardKernel{
	offer: offer{
		name:           "scalar_backward",
		implementation: Flash,
		tier:           TierScalar,
		can:            withDropout,
		parameters:     groupBound.and(backwardRanges.of("kv_"), backwardRanges.of("q_")),
		unsupported:    scalarBackwardLacks,
	},
	plan: planScalarBackward,
}

func scalarBackwardLacks(c *capabilities, p *Problem) string {
	if n := c.facts.Limits.MaxPushConstants; n < backwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, backwardPushBytes)
	}
	return c.lacksScalar(p.DType)
}

func planScalarBackward(d *Device, p *Problem, _ program, t *tuning) (backwardProgram, error) {
	s := &scalarBackwardProgram{dev: d, problem: *p}
	s.kv.module, s.q.module = "scalar_backward_kv."+p.DType.suffix(), "scalar_backward_q."+p.DType.suffix()
	var err error
	if s.delta, err = newDeltaProgram(d, p, t); err != nil {
		return nil, err
	}
	if s.kv.tile, err = chooseBackwardTile(&d.caps, p, "kv_", p.KeyLen, t); err != nil {
		return nil, err
	}
	if s.q.tile, err = chooseBackwardTile(&d.caps, p, "q_", p.QueryLen, t); err != nil {
		return nil, err
	}
	// Of the seven products, four are of the kernel of keys. Forward has two.
	blocks := uint64(ceilDiv(p.KeyLen, s.kv.tile.BR)) * uint64(p.Batch) * uint64(p.KeyHeads)
	if s.kv.grid, err = gridFor(d, blocks, 2*p.ForwardFLOPs(), scalarPace, t); err != nil {
		return nil, err
	}
	blocks = uint64(ceilDiv(p.QueryLen, s.q.tile.BR)) * uint64(p.Batch) * uint64(p.Heads)
	if s.q.grid, err = gridFor(d, blocks, 1.5*p.ForwardFLOPs(), scalarPace, t); err != nil {
		return nil, err
	}
	// The usual case is dense tensors, gradients overwritten.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	if _, err = s.delta.kernel(aligned, false); err == nil {
		if _, err = s.kernel(&s.kv, aligned, false); err == nil {
			_, err = s.kernel(&s.q, aligned, false)
		}
	}
	return s, err
}

// scalarBackwardProgram is the three kernels fitted to a problem.
type scalarBackwardProgram struct {
	dev     *Device
	problem Problem
	delta   *deltaProgram
	kv, q   backwardPart
}

// backwardPart is one of the two kernels.
type backwardPart struct {
	module  string
	tile    backwardTile
	grid    grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and accumulation
}

func (s *scalarBackwardProgram) tile() string {
	return fmt.Sprintf("kv %v, q %v", &s.kv.tile, &s.q.tile)
}
func (s *scalarBackwardProgram) scratch() []uint64 { return []uint64{s.delta.bytes()} }
func (s *scalarBackwardProgram) dispatches() int {
	return s.delta.grid.dispatches() + s.kv.grid.dispatches() + s.q.grid.dispatches()
}

func (s *scalarBackwardProgram) kernel(part *backwardPart, aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := boolInt(aligned) + 2*boolInt(accumulate)
	return s.dev.variant(&part.kernels[i], part.module, func() (constants, pipeline.KernelInfo) {
		return s.constants(part, aligned, accumulate), pipeline.KernelInfo{}
	})
}

func (s *scalarBackwardProgram) constants(part *backwardPart, aligned, accumulate bool) constants {
	p, t := &s.problem, &part.tile
	wide := p.HeadDim
	if part == &s.kv {
		wide = max(p.HeadDim, p.ValueDim)
	}
	sh := t.shared(wide)
	return constants{{"WG", t.threads()}, {"BR", t.BR}, {"BC", t.BC}, {"D", p.HeadDim}, {"DV", p.ValueDim},
		{"CAUSAL", boolInt(p.Causal != CausalNone)}, {"ALIGNED", boolInt(aligned)}, {"ACCUMULATE", boolInt(accumulate)},
		{"MR", t.MR}, {"MC", t.MC}, {"DK", t.DK}, {"VC", t.VC}, {"PC", t.PC}, {"C_AT", sh.cAt}, {"V_AT", 0}, {"P_AT", sh.pAt},
		{"SHARED_V4", sh.length}, {"DROPOUT", boolInt(p.dropThreshold() > 0)}}
}

func (s *scalarBackwardProgram) record(r *recorder, g *gradients) error {
	delta := operand{binding: r.scratch[0]}
	if err := s.delta.record(r, g, &delta); err != nil {
		return err
	}
	aligned := g.aligned()
	k, err := s.kernel(&s.kv, aligned, g.accumulate)
	if err != nil {
		return err
	}
	at := r.push.backward(&s.problem, g, &delta, &g.dk, &g.dv)
	r.backwardInputs(g, &delta)
	r.access[6] = g.output(&g.dk)
	r.access[7] = g.output(&g.dv)
	if err := r.dispatch(k, r.access[:8], at, s.kv.grid, s.kv.grid.total, "scalar_backward_kv"); err != nil {
		return err
	}
	if k, err = s.kernel(&s.q, aligned, g.accumulate); err != nil {
		return err
	}
	at = r.push.backward(&s.problem, g, &delta, &g.dq, nil)
	r.backwardInputs(g, &delta)
	r.access[6] = g.output(&g.dq)
	return r.dispatch(k, r.access[:7], at, s.q.grid, s.q.grid.total, "scalar_backward_q")
}

// backwardInputs are the first six bindings of both kernels of a backward pass.
func (r *recorder) backwardInputs(g *gradients, delta *operand) {
	for i, o := range [...]*operand{&g.q, &g.k, &g.v, &g.do, &g.lse, delta} {
		r.access[i] = pipeline.Access{Binding: o.binding, Mode: pipeline.Read}
	}
}

// output is how a kernel touches a gradient.
func (g *gradients) output(o *operand) pipeline.Access {
	if g.accumulate {
		return pipeline.Access{Binding: o.binding, Mode: pipeline.ReadWrite}
	}
	return pipeline.Access{Binding: o.binding, Mode: pipeline.Write}
}
