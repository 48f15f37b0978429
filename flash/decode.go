package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// scalarDecode is FlashAttention-2 in fp32 arithmetic for few queries, keys in parts: shaders/scalar/scalar_decode.comp. Memory is what bounds
// it, so that matrices would gain nothing.
var scalarDecode = &kernel{
	offer: offer{
		name:           decodeKernel,
		implementation: Flash,
		tier:           TierScalar,
		mostRows:       decodeRows,
		parameters:     decodeRanges,
		yields:         true,
		unsupported:    scalarDecodeLacks,
	},
	plan:       planScalarDecode,
	candidates: scalarDecodeCandidates,
}

// decodeRows is the most rows of a key head, queries of all query heads that read it, that scalar_decode takes: more keep the arithmetic
// busier than the memory, and matrices are faster.
const decodeRows = 8

// decodeParameter is the tuning parameter that turns scalar_decode off (0) or insists on it (1).
const decodeParameter = "decode"

// decodeKernel is the kernel's name.
const decodeKernel = "scalar_decode"

// decodeRanges are its parameters.
var decodeRanges = groupBound.and(parameters{
	decodeParameter: onOff, "rows": {1, decodeRows, 0, false}, "w": {1, 32, 0, false}, "lpr": {1, 128, 0, true}, "u": {1, 16, 0, false}, "parts": partsRange,
})

// decodes declines a kernel where the caller's parameter decode asks for the other: the one for few rows, or one for any number.
func (t *tuning) decodes(o *offer) error {
	on, given := t.given[decodeParameter]
	if _, has := o.parameters[decodeParameter]; !has {
		return nil
	}
	if !given {
		if o.mostRows > 0 {
			t.effect[decodeParameter] = 1
		}
		return nil
	}
	t.effect[decodeParameter] = on
	switch {
	case on != 0 && o.mostRows == 0:
		return &declined{"WithTuning[" + decodeParameter + "] asks for " + decodeKernel}
	case on == 0 && o.mostRows > 0:
		return &declined{"WithTuning[" + decodeParameter + "] is 0"}
	}
	return nil
}

func scalarDecodeLacks(c *capabilities, p *Problem) string {
	if why := c.lacksScalar(p.DType); why != "" {
		return why
	}
	return c.lacksShuffles()
}

// lacksShuffles says what the device lacks for kernels whose rows are spread over a subgroup.
func (c *capabilities) lacksShuffles() string {
	s := &c.facts.Subgroup
	if !s.Compute || s.Ops&vk.SubgroupBasic == 0 || s.Ops&vk.SubgroupShuffle == 0 {
		return "the device has no subgroup shuffles in compute shaders"
	}
	if why := lacking("computeFullSubgroups", c.enabled.ComputeFullSubgroups, s.FullSubgroups); why != "" {
		return why
	}
	if why := lacking("subgroupSizeControl", c.enabled.SubgroupSizeControl, s.RequiredSizeCompute); why != "" {
		return why
	}
	if size := int(s.Size); !c.subgroupRows(size, size) {
		return fmt.Sprintf("subgroups of a required size of %d are not offered in compute shaders", size)
	}
	return ""
}

func planScalarDecode(d *Device, p *Problem, t *tuning) (program, error) {
	tile, err := chooseDecodeTile(&d.caps, p, t)
	if err != nil {
		return nil, err
	}
	prog := &decodeProgram{dev: d, problem: *p, shape: tile, module: decodeKernel + "." + p.DType.suffix()}
	if prog.grid, err = gridFor(d, tile.groups(p)*uint64(tile.Parts), p.ForwardFLOPs(), scalarPace, t); err != nil {
		return nil, err
	}
	if tile.Parts > 1 {
		if prog.combine, err = newCombiner(d, p, tile.Parts, t); err != nil {
			return nil, err
		}
	}
	// The usual case is dense tensors with lse.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	_, err = prog.kernel(variant{aligned: aligned, lse: true})
	return prog, err
}

// decodeProgram is scalar_decode fitted to a problem.
type decodeProgram struct {
	dev     *Device
	problem Problem
	shape   decodeTile
	grid    grid
	module  string
	combine *combiner // of keys in parts; nil: in one
	kernels [variants]atomic.Pointer[pipeline.Kernel]
}

func (s *decodeProgram) tile() string      { return s.shape.String() }
func (s *decodeProgram) scratch() []uint64 { return s.combine.scratch() }
func (s *decodeProgram) dispatches() int   { return s.grid.dispatches() + s.combine.dispatches() }

// kernel gives the pipeline of a variant, built at the first call.
func (s *decodeProgram) kernel(v variant) (*pipeline.Kernel, error) {
	return s.dev.variant(&s.kernels[v.index()], s.module, func() (constants, pipeline.KernelInfo) { return s.describe(v) })
}

func (s *decodeProgram) describe(v variant) (constants, pipeline.KernelInfo) {
	t := &s.shape
	return append(constants{{"WG", t.threads()}, {"ROWS", t.Rows}, {"SG", t.Lanes}, {"LPR", t.LPR}, {"U", t.U}, {"PARTS", t.Parts},
			{"MEET", t.Meet}}, s.problem.forwardConstants(v)...),
		pipeline.KernelInfo{SubgroupSize: uint32(t.Lanes), FullSubgroups: true}
}

func (s *decodeProgram) record(r *recorder, f *operands) error {
	k, err := s.kernel(f.variant(s.combine))
	if err != nil {
		return err
	}
	return r.forward(k, &s.problem, f, s.grid, decodeLabel, s.combine)
}

// decodeLabel is the label of its dispatches.
const decodeLabel = "scalar_decode_" + partsKernel

// candidates are neighbours of what is chosen.
func scalarDecodeCandidates(c *capabilities, p *Problem) []map[string]int {
	tile, err := chooseDecodeTile(c, p, newTuning(nil))
	if err != nil {
		return nil
	}
	var out []map[string]int
	for _, w := range []int{2, 4, 8} {
		for _, lpr := range []int{tile.LPR / 2, tile.LPR, tile.LPR * 2} {
			for _, u := range []int{tile.U / 2, tile.U, tile.U * 2} {
				if lpr < 1 || u < 1 || lpr != tile.LPR && u*tile.LPR != tile.U*lpr { // the same registers, or the same lanes
					continue
				}
				for _, parts := range []int{tile.Parts / 2, tile.Parts, tile.Parts * 2} {
					if parts >= 1 && parts <= mostParts {
						out = append(out, map[string]int{"w": w, "lpr": lpr, "u": u, "parts": parts})
					}
				}
			}
		}
	}
	return out
}

// decodeTile is the shape of scalar_decode's work; the shader says what each number means.
type decodeTile struct {
	Rows  int // of a workgroup
	W     int // subgroups of a workgroup
	Lanes int // of a subgroup
	LPR   int // lanes of a key
	U     int // keys of a lane in a batch
	Parts int // of the keys
	Meet  int // rows that subgroups add up at the same time
}

func (t *decodeTile) threads() int { return t.W * t.Lanes }

// batch is the number of keys that a subgroup takes at a time.
func (t *decodeTile) batch() int { return t.Lanes / t.LPR * t.U }

// String is rows of a workgroup x keys of a batch, as the byte model reads it.
func (t *decodeTile) String() string {
	return fmt.Sprintf("%dx%d%s", t.Rows, t.batch(), partsSuffix(t.Parts))
}

// groups is the number of workgroups for one part.
func (t *decodeTile) groups(p *Problem) uint64 {
	return uint64(ceilDiv(p.QueryLen*p.group(), t.Rows)) * uint64(p.Batch) * uint64(p.KeyHeads)
}

// pieces is the number of pieces of 16 bytes that a lane has of a row of K and of one of V together.
func (t *decodeTile) pieces(p *Problem) int {
	unit := 16 / p.DType.Size()
	return ceilDiv(ceilDiv(p.HeadDim, unit), t.LPR) + ceilDiv(ceilDiv(p.ValueDim, unit), t.LPR)
}

// registers is the number of words that a lane holds of Q and O.
func (t *decodeTile) registers(p *Problem) int { return t.Rows * t.pieces(p) * 16 / p.DType.Size() }

// shared is the shared memory of a workgroup in bytes: sums of subgroups, then their m and l.
func (t *decodeTile) shared(p *Problem) int {
	unit := 16 / p.DType.Size()
	return t.W*t.Meet*ceilDiv(p.ValueDim, unit)*unit*4 + t.W*t.Rows*8
}

// What a lane holds: more of Q and O leaves too little for what is on its way from memory, and more of that is not needed.
const (
	decodeMostRegisters = 128 // words of Q and O
	decodeMostSpilled   = 512 // the same where a subgroup has no more lanes to share them: not fast, but right
	decodeMostInFlight  = 64  // words of K and V on their way
	decodeMostShared    = 16 << 10
)

// complete chooses what depends on other choices: rows of sums in shared memory.
func (t *decodeTile) complete(p *Problem, l *vk.Limits) {
	for t.Meet = max(t.Rows, 1); t.Meet > 1 && t.shared(p) > min(decodeMostShared, int(l.MaxSharedMemory)); {
		t.Meet--
	}
}

// check gives the rule that a tile breaks on a device, and the parameter that does, "" when it breaks none.
func (t *decodeTile) check(p *Problem, l *vk.Limits) (name, why string) {
	all := p.QueryLen * p.group()
	switch {
	case t.Rows < 1 || t.Rows > all:
		return "rows", fmt.Sprintf("must be from 1 to the %d rows of a key head", all)
	case t.LPR < 1 || t.LPR > t.Lanes || t.Lanes%t.LPR != 0 || t.LPR&(t.LPR-1) != 0:
		return "lpr", fmt.Sprintf("must be a power of two that divides the %d lanes of a subgroup", t.Lanes)
	case t.registers(p) > decodeMostSpilled:
		return "lpr", fmt.Sprintf("%d words of Q and O in a lane pass %d: more lanes must share a row, or fewer rows a workgroup", t.registers(p), decodeMostSpilled)
	}
	return "w", checkLimits(t.threads(), t.shared(p), l)
}

// chooseDecodeTile takes as few lanes for a key as have the registers, for the fewer add up a score, and as many keys at a time as
// registers are left for; overrides from t replace single numbers.
func chooseDecodeTile(c *capabilities, p *Problem, t *tuning) (decodeTile, error) {
	tile := decodeTile{Lanes: int(c.facts.Subgroup.Size), W: 4, U: 4}
	all, limits := p.QueryLen*p.group(), &c.facts.Limits
	tile.Rows, tile.LPR = all, min(8, tile.Lanes)
	for tile.registers(p) > decodeMostRegisters && tile.LPR < tile.Lanes {
		tile.LPR *= 2
	}
	for blocks := 2; tile.registers(p) > decodeMostRegisters && tile.Rows > 1; blocks++ {
		tile.Rows = ceilDiv(all, blocks)
	}
	tile.Rows, tile.LPR = t.get("rows", tile.Rows), t.get("lpr", tile.LPR)
	for tile.U > 1 && tile.U*tile.pieces(p)*4 > decodeMostInFlight {
		tile.U /= 2
	}
	for tile.W > 1 && checkLimits(tile.threads(), 0, limits) != "" {
		tile.W /= 2
	}
	tile.U, tile.W = t.get("u", tile.U), t.get("w", tile.W)
	tile.Parts = t.get("parts", decodeParts(c, p, tile.groups(p)))
	tile.complete(p, limits)
	if name, why := tile.check(p, limits); why != "" {
		if _, given := t.given[name]; given {
			return decodeTile{}, t.bad(name, "%s", why)
		}
		if len(t.given) > 0 {
			return decodeTile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s: %s", name, why)
		}
		return decodeTile{}, &declined{why}
	}
	return tile, nil
}

// What parts are chosen by.
const (
	decodeBeside    = 2       // workgroups that run side by side on a multiprocessor, by their registers
	decodeOnCPU     = 16      // workgroups that keep a CPU's cores busy
	decodePartKeys  = 128     // fewer keys in a part are not worth a workgroup
	decodeMostBytes = 8 << 20 // of memory between the kernel and the combination
)

// decodeParts is the number of parts for a problem whose kernel has this number of workgroups without parts: enough that as many
// workgroups run as can at the same time.
func decodeParts(c *capabilities, p *Problem, groups uint64) int {
	keys, beside := uint64(p.mostKeys()), decodeBeside*uint64(c.multiprocessors())
	if c.is(onCPU) {
		beside = decodeOnCPU
	}
	return int(max(1, min(beside/groups, keys/decodePartKeys, decodeMostBytes/partBytes(p), mostParts)))
}
