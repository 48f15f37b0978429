package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/internal/traffic"
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

// decodeKernel is the kernel's name, and the label of its dispatches.
const decodeKernel = "scalar_decode"

// decodeRanges are its parameters.
var decodeRanges = groupBound.and(parameters{
	decodeParameter: onOff, "rows": between(1, decodeRows), "w": between(1, 32), "lpr": powers(1, 128), "u": between(1, 16), "parts": partsRange,
})

func scalarDecodeLacks(c *capabilities, p *Problem) string {
	if why := c.lacksScalar(p.DType); why != "" {
		return why
	}
	return c.lacksShuffles()
}

func planScalarDecode(e *environment, p *Problem, t *tuning) (program, error) {
	tile, err := chooseDecodeTile(&e.caps, p, t)
	if err != nil {
		return nil, err
	}
	prog := &decodeProgram{env: e, problem: *p, shape: tile, module: decodeKernel + "." + p.DType.suffix()}
	if prog.grid, err = gridFor(e, tile.groups(p)*uint64(tile.Parts), p.ForwardFLOPs(), scalarPace, t); err != nil {
		return nil, err
	}
	if tile.Parts > 1 {
		if prog.combine, err = newCombiner(e, p, tile.Parts, t); err != nil {
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
	env     *environment
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

func (s *decodeProgram) model() traffic.Model {
	t := &s.shape // lanes that take a key together load all queries of the workgroup
	return traffic.QueriesOutside{Label: decodeKernel, Rows: t.Rows, Keys: 1, Packed: true, NoneUnseen: true, QReaders: t.threads() / t.LPR,
		Parts: t.Parts, Combine: s.combine.label()}
}

// kernel gives the pipeline of a variant, built at the first call.
func (s *decodeProgram) kernel(v variant) (*pipeline.Kernel, error) {
	return s.env.variant(&s.kernels[v.index()], s.module, func() (constants, pipeline.KernelInfo) { return s.describe(v) })
}

func (s *decodeProgram) describe(v variant) (constants, pipeline.KernelInfo) {
	t := &s.shape
	return constants{"WG": t.threads(), "ROWS": t.Rows, "SG": t.Lanes, "LPR": t.LPR, "U": t.U, "PARTS": t.Parts,
			"MEET": t.Meet}.and(forwardConstants(&s.problem, v)),
		pipeline.KernelInfo{SubgroupSize: uint32(t.Lanes), FullSubgroups: true}
}

func (s *decodeProgram) record(r *recorder, f *operands) error {
	k, err := s.kernel(f.variant(s.combine))
	if err != nil {
		return err
	}
	return r.forward(k, &s.problem, f, s.grid, decodeKernel, s.combine)
}

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

// String is rows of a workgroup x keys of a batch.
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

// decodeMostSpilled is the most words of Q and O that a lane holds where a subgroup has no more lanes to share them: not fast, but right.
const decodeMostSpilled = 512

// complete chooses what depends on other choices: rows of sums in shared memory.
func (t *decodeTile) complete(p *Problem, row *tiles.Row, l *vk.Limits) {
	for t.Meet = max(t.Rows, 1); t.Meet > 1 && t.shared(p) > min(row.Get("shared_kib")<<10, int(l.MaxSharedMemory)); {
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

// chooseDecodeTile takes the first row: as few lanes for a key as have the registers, for the fewer add up a score, and as many keys at a
// time as registers are left for. More of Q and O in a lane leaves too little for what is on its way from memory, and more of that is not
// needed. Overrides from t replace single numbers.
func chooseDecodeTile(c *capabilities, p *Problem, t *tuning) (decodeTile, error) {
	row := c.first(p, c.lanes(), decodeKernel)
	tile := decodeTile{Lanes: int(c.facts.Subgroup.Size), W: row.Get("w"), U: row.Get("u")}
	all, limits, registers := p.QueryLen*p.group(), &c.facts.Limits, row.Get("registers")
	tile.Rows, tile.LPR = all, min(row.Get("lpr"), tile.Lanes)
	for tile.registers(p) > registers && tile.LPR < tile.Lanes {
		tile.LPR *= 2
	}
	for blocks := 2; tile.registers(p) > registers && tile.Rows > 1; blocks++ {
		tile.Rows = ceilDiv(all, blocks)
	}
	tile.Rows, tile.LPR = t.get("rows", tile.Rows), t.get("lpr", tile.LPR)
	for tile.U > 1 && tile.U*tile.pieces(p)*4 > row.Get("in_flight") {
		tile.U /= 2
	}
	for tile.W > 1 && checkLimits(tile.threads(), 0, limits) != "" {
		tile.W /= 2
	}
	tile.U, tile.W = t.get("u", tile.U), t.get("w", tile.W)
	tile.Parts = t.get("parts", decodeParts(c, p, row, tile.groups(p)))
	tile.complete(p, row, limits)
	if name, why := tile.check(p, limits); why != "" {
		if _, given := t.given[name]; given {
			return decodeTile{}, t.bad(name, "%s", why)
		}
		if len(t.given) > 0 {
			return decodeTile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s: %s", name, why)
		}
		return decodeTile{}, &declined{why: why}
	}
	t.took(row)
	return tile, nil
}

// decodeMostBytes is the most memory between the kernel and the combination.
const decodeMostBytes = 8 << 20

// decodeParts is the number of parts for a problem whose kernel has this number of workgroups without parts: enough that as many
// workgroups run as can at the same time.
func decodeParts(c *capabilities, p *Problem, row *tiles.Row, groups uint64) int {
	k := c.prediction()
	beside := uint64(row.Get("beside") * k.count)
	return int(max(1, min(beside/groups, uint64(p.mostKeys()/row.Get("part_keys")), decodeMostBytes/partBytes(p), mostParts)))
}
