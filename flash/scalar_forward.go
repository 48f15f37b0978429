package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// scalarForward is FlashAttention-2 in fp32 arithmetic: shaders/scalar/scalar_forward.comp.
var scalarForward = &kernel{
	offer: offer{
		name:           "scalar_forward",
		implementation: Flash,
		tier:           TierScalar,
		can:            withDropout,
		parameters:     scalarRanges.and(parameters{decodeParameter: onOff}),
		unsupported:    scalarLacks,
	},
	plan:       planScalarForward,
	candidates: scalarForwardCandidates,
}

// lacksScalar says what every scalar kernel needs of a device that this one lacks.
func (c *capabilities) lacksScalar(t DType) string {
	if v := c.facts.EffectiveVersion; v < vk.Version11 {
		return fmt.Sprintf("the device offers Vulkan %v, and 1.1 is needed", v)
	}
	if n := c.facts.Limits.MaxPushConstants; n < forwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, forwardPushBytes)
	}
	if t != F32 {
		return lacking("storageBuffer16BitAccess", c.enabled.Storage16, c.facts.Features.Storage16)
	}
	return ""
}

func planScalarForward(d *Device, p *Problem, t *tuning) (program, error) {
	return fitScalarForward("scalar_forward", d, p, t)
}

// fitScalarForward plans the kernel of this name: with a block mask or without.
func fitScalarForward(name string, d *Device, p *Problem, t *tuning) (program, error) {
	tile, err := chooseScalarTile(&d.caps, p, t)
	if err != nil {
		return nil, err
	}
	g, err := gridFor(d, tile.groups(p)*uint64(tile.Parts), p.ForwardFLOPs(), scalarPace, t)
	if err != nil {
		return nil, err
	}
	prog := &scalarProgram{dev: d, problem: *p, name: name, shape: tile, grid: g}
	module := "scalar_forward"
	if tile.Parts > 1 {
		module += "_parts"
		if prog.combine, err = newCombiner(d, p, tile.Parts, t); err != nil {
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
	dev     *Device
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

// kernel gives the pipeline of a variant, built at the first call.
func (s *scalarProgram) kernel(v variant) (*pipeline.Kernel, error) {
	return s.dev.variant(&s.kernels[v.index()], s.module, func() (constants, pipeline.KernelInfo) { return s.describe(v) })
}

func (s *scalarProgram) describe(v variant) (constants, pipeline.KernelInfo) {
	p, t := &s.problem, &s.shape
	sh := t.shared(p.HeadDim, p.ValueDim)
	c := append(constants{{"WG", t.threads()}, {"BR", t.BR}, {"BC", t.BC}, {"MR", t.MR}, {"MC", t.MC}, {"DK", t.DK}, {"VC", t.VC},
		{"PC", t.PC}, {"Q_RESIDENT", boolInt(t.QResident)}, {"V_EARLY", boolInt(t.VEarly)}, {"K_AT", sh.kAt}, {"V_AT", sh.vAt},
		{"P_AT", sh.pAt}, {"SHARED_V4", sh.length}, {"REDUCE_LEN", sh.reduce}, {"DROPOUT", boolInt(p.dropThreshold() > 0)}},
		p.forwardConstants(v)...)
	return append(c, p.partsOrBlocks(s.combine, t.Parts)...), s.dev.subgroups(t.Subgroup)
}

// subgroups is how a kernel is built that needs whole subgroups of the device's own size, or does not.
func (d *Device) subgroups(needed bool) pipeline.KernelInfo {
	if !needed {
		return pipeline.KernelInfo{}
	}
	return pipeline.KernelInfo{SubgroupSize: d.caps.facts.Subgroup.Size, FullSubgroups: true}
}

func (s *scalarProgram) record(r *recorder, f *operands) error {
	k, err := s.kernel(f.variant(s.combine))
	if err != nil {
		return err
	}
	return r.forward(k, &s.problem, f, s.grid, s.name, s.combine)
}

// variant is the one for these tensors of a fused forward kernel. Where keys are in parts, o and lse are the combiner's business.
func (f *operands) variant(c *combiner) variant {
	if c != nil {
		return variant{aligned: f.alignedInputs(), lse: true}
	}
	return variant{aligned: f.alignedInputs() && f.o.aligned, lse: f.hasLSE}
}

// forward records a fused forward kernel and, where keys are in parts, their combination.
func (r *recorder) forward(k *pipeline.Kernel, p *Problem, f *operands, g grid, label string, c *combiner) error {
	access, at := r.forwardAccess(k, p, f), r.push.forward(p, f)
	if c == nil {
		return r.dispatch(k, access, at, g, g.total, label)
	}
	c.bind(r)
	if err := r.dispatch(k, access, at, g, g.total, label); err != nil {
		return err
	}
	return c.record(r, f)
}

// forwardAccess binds the tensors of a fused forward kernel: q, k, v, o, lse and, where it can do with one, the block mask, or q in its
// place, untouched, where the problem has none.
func (r *recorder) forwardAccess(k *pipeline.Kernel, p *Problem, f *operands) []pipeline.Access {
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[3] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	r.access[4] = f.lseAccess()
	r.access[5] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Unused}
	if !p.Blocks.none() {
		r.access[5] = pipeline.Access{Binding: f.blocks, Mode: pipeline.Read}
	}
	n := k.Bindings()
	if r.count != nil {
		n-- // bound by dispatch
	}
	return r.access[:n]
}

// forwardConstants are what every fused forward kernel is told of the problem and of its tensors.
func (p *Problem) forwardConstants(v variant) constants {
	return constants{{"D", p.HeadDim}, {"DV", p.ValueDim}, {"CAUSAL", boolInt(p.Causal != CausalNone)}, {"ALIGNED", boolInt(v.aligned)},
		{"WRITE_LSE", boolInt(v.lse)}}
}

// partsOrBlocks are the constants of the builds for keys in parts, or of the block mask, which the others can do with.
func (p *Problem) partsOrBlocks(c *combiner, parts int) constants {
	if c != nil {
		return constants{{"PARTS", parts}}
	}
	return p.Blocks.constants()
}

// lseAccess binds lse, or o in its place, untouched, when there is none.
func (f *operands) lseAccess() pipeline.Access {
	if !f.hasLSE {
		return pipeline.Access{Binding: f.o.binding, Mode: pipeline.Unused}
	}
	return pipeline.Access{Binding: f.lse.binding, Mode: pipeline.Write}
}

// variant says which pipeline of a program the tensors at hand need.
type variant struct{ aligned, lse bool }

const variants = 4

func (v variant) index() int { return boolInt(v.aligned) + 2*boolInt(v.lse) }

// variant gives the kernel that p holds, building it at the first call. Concurrent first calls build it once.
func (d *Device) variant(p *atomic.Pointer[pipeline.Kernel], module string, describe func() (constants, pipeline.KernelInfo)) (*pipeline.Kernel, error) {
	if k := p.Load(); k != nil {
		return k, nil
	}
	c, info := describe()
	k, err := d.build(module, c, info)
	if err != nil {
		return nil, err
	}
	p.Store(k)
	return k, nil
}
