package scalar

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Backward is the backward pass of FlashAttention-2 in fp32 arithmetic, without atomic additions: shaders/common/backward_delta.comp,
// then scalar_backward_kv.comp, whose workgroups own keys, and scalar_backward_q.comp, whose workgroups own queries.
var Backward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           "scalar_backward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		Can:            attn.WithDropout | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths,
		Parameters:     kernel.GroupBound.And(backwardRanges.Of("kv_"), backwardRanges.Of("q_")),
		Unsupported:    backwardLacks,
	},
	Plan: planBackward,
}

func backwardLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if why := c.LacksArguments(&kernel.PassArgs().Backward); why != "" {
		return why
	}
	return c.LacksScalar(p.DType)
}

func planBackward(e *kernel.Env, p *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	s := &BackwardProgram{env: e, Problem: *p}
	s.Kv.module, s.Q.module = keysLabel+"."+p.DType.Suffix(), queriesLabel+"."+p.DType.Suffix()
	var err error
	if s.delta, err = kernel.NewDeltaProgram(e, p, t); err != nil {
		return nil, err
	}
	if s.Kv.Tile, err = ChooseBackwardTile(&e.Caps, p, "kv_", t); err != nil {
		return nil, err
	}
	if s.Q.Tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Of the seven products, four are of the kernel of keys. Forward has two.
	blocks := uint64(attn.CeilDiv(p.KeyLen, s.Kv.Tile.BR)) * uint64(p.Batch) * uint64(p.KeyHeads)
	if s.Kv.grid, err = kernel.GridFor(e, blocks, 2*p.ForwardFLOPs(), kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	blocks = uint64(attn.CeilDiv(p.QueryLen, s.Q.Tile.BR)) * uint64(p.Batch) * uint64(p.Heads)
	if s.Q.grid, err = kernel.GridFor(e, blocks, 1.5*p.ForwardFLOPs(), kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	// The usual case is dense tensors, gradients overwritten.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	if _, err = s.delta.Kernel(aligned, false); err == nil {
		if _, err = s.Kernel(&s.Kv, aligned, false); err == nil {
			_, err = s.Kernel(&s.Q, aligned, false)
		}
	}
	return s, err
}

// BackwardProgram is the three kernels fitted to a problem.
type BackwardProgram struct {
	env     *kernel.Env
	Problem attn.Problem
	delta   *kernel.DeltaProgram
	Kv, Q   BackwardPart
}

// BackwardPart is one of the two kernels.
type BackwardPart struct {
	module  string
	Tile    BackwardTile
	grid    kernel.Grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and accumulation
}

func (s *BackwardProgram) Tile() string {
	return fmt.Sprintf("kv %v, q %v", &s.Kv.Tile, &s.Q.Tile)
}
func (s *BackwardProgram) Scratch() []uint64 { return []uint64{s.delta.Bytes()} }
func (s *BackwardProgram) Dispatches() int {
	return s.delta.Grid.Dispatches() + s.Kv.grid.Dispatches() + s.Q.grid.Dispatches()
}

// Labels of the dispatches, and names of the modules.
const (
	keysLabel    = "scalar_backward_kv"
	queriesLabel = "scalar_backward_q"
)

func (s *BackwardProgram) Model() traffic.Model {
	kv, q := &s.Kv.Tile, &s.Q.Tile
	return traffic.BackwardFused{Delta: kernel.DeltaLabel,
		Keys:    traffic.BackwardTile{Label: keysLabel, Rows: kv.BR, Columns: kv.BC, Restaged: true, RowReaders: kv.BR / kv.MR},
		Queries: traffic.BackwardTile{Label: queriesLabel, Rows: q.BR, Columns: q.BC, Restaged: true, RowReaders: q.tx()}}
}

func (s *BackwardProgram) Kernel(part *BackwardPart, aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	return s.env.Variant(&part.kernels[i], part.module, &s.Problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return s.Constants(part, aligned, accumulate), pipeline.KernelInfo{}
	})
}

func (s *BackwardProgram) Constants(part *BackwardPart, aligned, accumulate bool) kernel.Constants {
	p, t := &s.Problem, &part.Tile
	wide := p.HeadDim
	if part == &s.Kv {
		wide = max(p.HeadDim, p.ValueDim)
	}
	sh := t.shared(wide)
	return kernel.Constants{"WG": t.threads(), "BR": t.BR, "BC": t.BC, "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": kernel.BoolInt(accumulate),
		"MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC, "PC": t.PC, "C_AT": sh.cAt, "V_AT": 0, "P_AT": sh.pAt,
		"SHARED_V4": sh.length, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(kernel.MaskConstants(p), kernel.ScoreConstants(p), kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p))
}

func (s *BackwardProgram) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	delta := kernel.Operand{Binding: r.Scratch[0]}
	if err := s.delta.Record(r, g, &delta); err != nil {
		return err
	}
	aligned := g.Aligned()
	k, err := s.Kernel(&s.Kv, aligned, g.Accumulate)
	if err != nil {
		return err
	}
	at := r.Push.Backward(&s.Problem, g, &delta, &g.DK, &g.DV)
	r.BackwardInputs(g, &delta)
	r.Access[6] = g.Output(&g.DK)
	r.Access[7] = g.Output(&g.DV)
	if err := r.Dispatch(k, r.BackwardScores(k, &s.Problem, g), at, s.Kv.grid, s.Kv.grid.Total, keysLabel); err != nil {
		return err
	}
	if k, err = s.Kernel(&s.Q, aligned, g.Accumulate); err != nil {
		return err
	}
	at = r.Push.Backward(&s.Problem, g, &delta, &g.DQ, nil)
	r.BackwardInputs(g, &delta)
	r.Access[6] = g.Output(&g.DQ)
	r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
	return r.Dispatch(k, r.BackwardScores(k, &s.Problem, g), at, s.Q.grid, s.Q.grid.Total, queriesLabel)
}
