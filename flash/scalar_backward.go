package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// scalarBackward is the backward pass of FlashAttention-2 in fp32 arithmetic, without atomic additions: shaders/common/backward_delta.comp,
// then scalar_backward_kv.comp, whose workgroups own keys, and scalar_backward_q.comp, whose workgroups own queries.
var scalarBackward = &backwardKernel{
	offer: offer{
		name:           "scalar_backward",
		implementation: Flash,
		tier:           TierScalar,
		can:            attn.WithDropout,
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

func planScalarBackward(e *environment, p *Problem, _ program, t *tuning) (backwardProgram, error) {
	s := &scalarBackwardProgram{env: e, problem: *p}
	s.kv.module, s.q.module = scalarKeysLabel+"."+p.DType.suffix(), scalarQueriesLabel+"."+p.DType.suffix()
	var err error
	if s.delta, err = newDeltaProgram(e, p, t); err != nil {
		return nil, err
	}
	if s.kv.tile, err = chooseBackwardTile(&e.caps, p, "kv_", t); err != nil {
		return nil, err
	}
	if s.q.tile, err = chooseBackwardTile(&e.caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Of the seven products, four are of the kernel of keys. Forward has two.
	blocks := uint64(ceilDiv(p.KeyLen, s.kv.tile.BR)) * uint64(p.Batch) * uint64(p.KeyHeads)
	if s.kv.grid, err = gridFor(e, blocks, 2*p.ForwardFLOPs(), scalarPace, t); err != nil {
		return nil, err
	}
	blocks = uint64(ceilDiv(p.QueryLen, s.q.tile.BR)) * uint64(p.Batch) * uint64(p.Heads)
	if s.q.grid, err = gridFor(e, blocks, 1.5*p.ForwardFLOPs(), scalarPace, t); err != nil {
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
	env     *environment
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

// Labels of the dispatches, and names of the modules.
const (
	scalarKeysLabel    = "scalar_backward_kv"
	scalarQueriesLabel = "scalar_backward_q"
)

func (s *scalarBackwardProgram) model() traffic.Model {
	kv, q := &s.kv.tile, &s.q.tile
	return traffic.BackwardFused{Delta: deltaLabel,
		Keys:    traffic.BackwardTile{Label: scalarKeysLabel, Rows: kv.BR, Columns: kv.BC, Restaged: true, RowReaders: kv.BR / kv.MR},
		Queries: traffic.BackwardTile{Label: scalarQueriesLabel, Rows: q.BR, Columns: q.BC, Restaged: true, RowReaders: q.tx()}}
}

func (s *scalarBackwardProgram) kernel(part *backwardPart, aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := boolInt(aligned) + 2*boolInt(accumulate)
	return s.env.variant(&part.kernels[i], part.module, func() (constants, pipeline.KernelInfo) {
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
	return constants{"WG": t.threads(), "BR": t.BR, "BC": t.BC, "D": p.HeadDim, "DV": p.ValueDim,
		"CAUSAL": boolInt(p.Causal != CausalNone), "ALIGNED": boolInt(aligned), "ACCUMULATE": boolInt(accumulate),
		"MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC, "PC": t.PC, "C_AT": sh.cAt, "V_AT": 0, "P_AT": sh.pAt,
		"SHARED_V4": sh.length, "DROPOUT": boolInt(p.dropThreshold() > 0)}
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
	if err := r.dispatch(k, r.access[:8], at, s.kv.grid, s.kv.grid.total, scalarKeysLabel); err != nil {
		return err
	}
	if k, err = s.kernel(&s.q, aligned, g.accumulate); err != nil {
		return err
	}
	at = r.push.backward(&s.problem, g, &delta, &g.dq, nil)
	r.backwardInputs(g, &delta)
	r.access[6] = g.output(&g.dq)
	return r.dispatch(k, r.access[:7], at, s.q.grid, s.q.grid.total, scalarQueriesLabel)
}
