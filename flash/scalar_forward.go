package flash

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// scalarForward is FlashAttention-2 in fp32 arithmetic: shaders/scalar/scalar_forward.comp.
var scalarForward = &kernel{
	offer: offer{
		name:           "scalar_forward",
		implementation: Flash,
		tier:           TierScalar,
		can:            attn.WithDropout,
		parameters:     scalarRanges.and(parameters{decodeParameter: onOff}),
		unsupported:    scalarLacks,
	},
	plan:       planScalarForward,
	candidates: scalarForwardCandidates,
}

func planScalarForward(e *environment, p *Problem, t *tuning) (program, error) {
	return fitScalarForward("scalar_forward", e, p, t)
}

// fitScalarForward plans the kernel of this name: with a block mask or without.
func fitScalarForward(name string, e *environment, p *Problem, t *tuning) (program, error) {
	tile, err := chooseScalarTile(&e.caps, p, t)
	if err != nil {
		return nil, err
	}
	g, err := gridFor(e, tile.groups(p)*uint64(tile.Parts), p.ForwardFLOPs(), scalarPace, t)
	if err != nil {
		return nil, err
	}
	prog := &scalarProgram{env: e, problem: *p, name: name, shape: tile, grid: g}
	module := "scalar_forward"
	if tile.Parts > 1 {
		module += "_parts"
		if prog.combine, err = newCombiner(e, p, tile.Parts, t); err != nil {
			return nil, err
		}
	}
	if tile.Subgroup {
		module += "_subgroup"
	}
	prog.module = module + "." + p.DType.suffix()
	// The usual case is dense tensors with lse.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	_, err = prog.kernel(variant{aligned: aligned, lse: true})
	return prog, err
}

// scalarProgram is scalar_forward fitted to a problem.
type scalarProgram struct {
	env     *environment
	problem Problem
	name    string // of the kernel
	shape   scalarTile
	grid    grid
	module  string
	combine *combiner // of keys in parts; nil: in one
	kernels [variants]atomic.Pointer[pipeline.Kernel]
}

func (s *scalarProgram) tile() string      { return s.shape.String() }
func (s *scalarProgram) scratch() []uint64 { return s.combine.scratch() }
func (s *scalarProgram) dispatches() int   { return s.grid.dispatches() + s.combine.dispatches() }

func (s *scalarProgram) model() traffic.Model {
	return traffic.QueriesOutside{Label: s.name, Rows: s.shape.BR, Keys: s.shape.BC, QAgain: !s.shape.QResident, Parts: s.shape.Parts, Combine: s.combine.label()}
}

// kernel gives the pipeline of a variant, built at the first call.
func (s *scalarProgram) kernel(v variant) (*pipeline.Kernel, error) {
	return s.env.variant(&s.kernels[v.index()], s.module, func() (constants, pipeline.KernelInfo) { return s.describe(v) })
}

func (s *scalarProgram) describe(v variant) (constants, pipeline.KernelInfo) {
	p, t := &s.problem, &s.shape
	sh := t.shared(p.HeadDim, p.ValueDim)
	c := constants{"WG": t.threads(), "BR": t.BR, "BC": t.BC, "MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC,
		"PC": t.PC, "Q_RESIDENT": boolInt(t.QResident), "V_EARLY": boolInt(t.VEarly), "K_AT": sh.kAt, "V_AT": sh.vAt,
		"P_AT": sh.pAt, "SHARED_V4": sh.length, "REDUCE_LEN": sh.reduce, "DROPOUT": boolInt(p.dropThreshold() > 0)}.and(forwardConstants(p, v))
	return c.and(partsOrBlocks(p, s.combine, t.Parts)), s.env.subgroups(t.Subgroup)
}

func (s *scalarProgram) record(r *recorder, f *operands) error {
	k, err := s.kernel(f.variant(s.combine))
	if err != nil {
		return err
	}
	return r.forward(k, &s.problem, f, s.grid, s.name, s.combine)
}

// candidates are the shapes that were fastest on some device, and their neighbours.
func scalarForwardCandidates(c *capabilities, p *Problem) []map[string]int {
	var out []map[string]int
	for _, r := range c.family().Candidates("scalar_forward") {
		if br := r.Get("br"); br > 16 && br >= 4*p.QueryLen { // mostly empty
			continue
		}
		out = append(out, map[string]int{"br": r.Get("br"), "bc": r.Get("bc"), "mr": r.Get("mr"), "mc": r.Get("mc")})
	}
	return out
}
