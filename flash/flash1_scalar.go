package flash

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// scalarFlash1 is the first FlashAttention in fp32 arithmetic: shaders/scalar/scalar_flash1.comp.
var scalarFlash1 = &kernel{
	offer: offer{
		name:           "scalar_flash1",
		implementation: Flash1,
		tier:           TierScalar,
		can:            withDropout,
		parameters:     pieceRanges.and(groupBound, parameters{"subgroup": onOff, "max_key_blocks": {0, allKeyBlocks, 0, false}}),
		unsupported:    scalarLacks,
	},
	plan: planScalarFlash1,
}

func planScalarFlash1(d *Device, p *Problem, t *tuning) (program, error) {
	tile, err := chooseFlash1Tile(&d.caps, p, t)
	if err != nil {
		return nil, err
	}
	name := "scalar_flash1"
	if tile.Subgroup {
		name += "_subgroup"
	}
	prog := &flash1Program{dev: d, problem: *p, shape: tile, module: name + "." + p.DType.suffix()}
	if prog.sizes, err = flash1Scratch(&d.caps, p); err != nil {
		return nil, err
	}
	if prog.grid, prog.keyBlocks, err = flash1Grid(&d.caps, p, tile.BC, p.ForwardFLOPs(), scalarPace, t); err != nil {
		return nil, err
	}
	// The usual case is dense tensors with lse.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	_, err = prog.kernel(variant{aligned: aligned, lse: true})
	return prog, err
}

// flash1Scratch is the memory that passes from one block of keys to the next, linear in the number of queries: m and l of every
// row, and O in fp32 where the output has fewer bits. Rows of that O are whole pieces of four.
func flash1Scratch(c *capabilities, p *Problem) ([]uint64, error) {
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(p.QueryLen)
	sizes := []uint64{8 * rows}
	if p.DType != F32 {
		sizes = append(sizes, rows*16*uint64(ceilDiv(p.ValueDim, 4)))
	}
	return sizes, c.holds(sizes)
}

// holds gives an error when the device cannot bind buffers of these sizes.
func (c *capabilities) holds(sizes []uint64) error {
	l := &c.facts.Limits
	for _, size := range sizes {
		for _, limit := range []struct {
			most uint64
			rule string
		}{{l.MaxStorageBufferRange, "what one binding can hold, for O in fp32"}, {l.MaxAllocationSize, "the device's largest allocation, for O in fp32"},
			{l.MaxBufferSize, "the device's largest buffer, for O in fp32"}} {
			if limit.most > 0 && size > limit.most {
				return &MemoryError{Label: "workspace", Needed: size, Available: limit.most, Rule: limit.rule}
			}
		}
	}
	return nil
}

// allKeyBlocks stands for every block of keys in one part, however many there are: pipelines are specialized with the number,
// and lengths of keys that differ are to share one.
const allKeyBlocks = 1 << 24

// flash1Grid cuts the work, flops operations, into dispatches. A workgroup is a head, and workgroup part·heads + head takes the
// part-th range of keyBlocks blocks of keys. There are enough parts that no dispatch takes too long, however few heads there are
// to fill the device with. max_key_blocks and max_groups lower the bounds further, for tests.
func flash1Grid(c *capabilities, p *Problem, bc int, flops float64, at pace, t *tuning) (g grid, keyBlocks int, err error) {
	const full = 64 // workgroups that a device reaches its pace with
	heads, blocks := uint64(p.Batch)*uint64(p.Heads), ceilDiv(p.KeyLen, bc)
	keyBlocks = allKeyBlocks
	used := float64(min(heads, full)) / full
	if limit := c.groupsPerDispatch(uint64(blocks), flops, pace{at.discrete * used, at.other * used}); limit > 0 {
		keyBlocks = 1 << (bits.Len64(limit) - 1) // a power of two, so that there are few pipelines
	}
	cut := t.get("max_key_blocks", 0)
	if cut > 0 {
		keyBlocks = min(keyBlocks, cut)
	}
	if keyBlocks >= blocks {
		keyBlocks = allKeyBlocks
	}
	limit := heads // a head's parts must not run at the same time
	groups := t.get("max_groups", 0)
	if groups > 0 {
		limit = min(limit, uint64(groups))
	}
	g, err = newGrid(heads*uint64(ceilDiv(blocks, keyBlocks)), limit)
	if err == nil && g.dispatches() > mostDispatches && (cut > 0 || groups > 0) {
		name := "max_key_blocks"
		if cut == 0 {
			name = "max_groups"
		}
		err = t.bad(name, "cuts %d blocks of keys of %d heads into %d dispatches, more than %d", blocks, heads, g.dispatches(), mostDispatches)
	}
	return g, keyBlocks, err
}

// flash1Program is scalar_flash1 fitted to a problem.
type flash1Program struct {
	dev       *Device
	problem   Problem
	shape     flash1Tile
	grid      grid
	keyBlocks int // of a dispatch
	sizes     []uint64
	module    string
	kernels   [variants]atomic.Pointer[pipeline.Kernel]
}

func (s *flash1Program) tile() string      { return s.shape.String() }
func (s *flash1Program) scratch() []uint64 { return s.sizes }
func (s *flash1Program) dispatches() int   { return s.grid.dispatches() }

// kernel gives the pipeline of a variant, built at the first call.
func (s *flash1Program) kernel(v variant) (*pipeline.Kernel, error) {
	return s.dev.variant(&s.kernels[v.index()], s.module, func() (constants, pipeline.KernelInfo) { return s.describe(v) })
}

func (s *flash1Program) describe(v variant) (constants, pipeline.KernelInfo) {
	p, t := &s.problem, &s.shape
	sh := t.shared(p.HeadDim, p.ValueDim)
	return append(constants{{"WG", t.threads()}, {"BR", t.BR}, {"BC", t.BC}, {"MR", t.MR}, {"MC", t.MC}, {"DK", t.DK}, {"VC", t.VC},
		{"KEY_BLOCKS", s.keyBlocks}, {"K_AT", sh.kAt}, {"V_AT", sh.vAt}, {"P_AT", sh.pAt}, {"SHARED_V4", sh.length},
		{"REDUCE_LEN", sh.reduce}, {"DROPOUT", boolInt(p.dropThreshold() > 0)}}, p.forwardConstants(v)...), s.dev.subgroups(t.Subgroup)
}

func (s *flash1Program) record(r *recorder, f *operands) error {
	k, err := s.kernel(variant{aligned: f.alignedInputs() && f.o.aligned, lse: f.hasLSE})
	if err != nil {
		return err
	}
	n := flash1Access(r, f, s.problem.DType)
	at := r.push.forward(&s.problem, f)
	return r.dispatch(k, r.access[:n], at, s.grid, s.grid.total, "scalar_flash1")
}

// flash1Access binds the tensors and the scratch of a flash1 kernel and says how many bindings that makes.
func flash1Access(r *recorder, f *operands, t DType) int {
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[3] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	if t == F32 { // is its own scratch
		r.access[3].Mode = pipeline.ReadWrite
	}
	r.access[4] = f.lseAccess()
	n := 5
	for _, b := range r.scratch {
		r.access[n] = pipeline.Access{Binding: b, Mode: pipeline.ReadWrite}
		n++
	}
	return n
}

// flash1Tile is the shape of scalar_flash1's work; shaders/scalar/scalar_flash1.comp says what each number means.
type flash1Tile struct {
	BR, BC   int  // queries and keys of a block
	MR, MC   int  // piece of the scores that one invocation owns
	DK       int  // columns of Q staged at a time
	VC       int  // keys of V staged at a time; BC: once for a block of keys
	Subgroup bool // rows are reduced by shuffles
}

func (t *flash1Tile) tx() int      { return t.BC / t.MC }
func (t *flash1Tile) threads() int { return t.tx() * (t.BR / t.MR) }

func (t *flash1Tile) String() string { return fmt.Sprintf("%dx%d", t.BR, t.BC) }

// shared lays shared memory out for head dimensions d and dv.
func (t *flash1Tile) shared(d, dv int) scalarShared {
	s := scalarShared{kAt: t.BR * (t.DK/4 | 1), reduce: 1}
	s.vAt = s.kAt + t.BC*(ceilDiv(d, t.DK)*t.DK/4|1)
	s.pAt = s.vAt + t.VC*t.tx()*ceilDiv(ceilDiv(dv, 4), t.tx())
	s.length = s.pAt + t.BR*(t.BC/4|1)
	if !t.Subgroup {
		s.reduce = t.BR * t.tx()
	}
	return s
}

// check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *flash1Tile) check(d, dv, elem int, l *vk.Limits) string {
	if why := checkPieces("", t.BR, t.BC, t.MR, t.MC, t.DK, elem); why != "" {
		return why
	}
	if t.VC < 4 || t.VC%4 != 0 || t.BC%t.VC != 0 {
		return fmt.Sprintf("vc = %d must be a multiple of 4 that divides bc = %d", t.VC, t.BC)
	}
	return checkLimits(t.threads(), t.shared(d, dv).bytes(), l)
}

// flash1Shapes are the shapes tried, best first, up to a number of queries and of columns. A block has as many keys as shared
// memory holds K_j and V_j of, for every further block reads and writes O once more. Not measured.
var flash1Shapes = []struct {
	on                 deviceClass
	maxQueries, maxDim int
	tile               flash1Tile
}{
	{onCPU, 8, 256, flash1Tile{BR: 8, BC: 32, MR: 2, MC: 4}},
	{onCPU, anyQueries, 256, flash1Tile{BR: 32, BC: 32, MR: 4, MC: 4}},
	{onAny, 16, 256, flash1Tile{BR: 16, BC: 32, MR: 2, MC: 4}},
	{onAny, anyQueries, 64, flash1Tile{BR: 64, BC: 64, MR: 8, MC: 4}},
	{onAny, anyQueries, 128, flash1Tile{BR: 64, BC: 32, MR: 4, MC: 4}},
	{onAny, anyQueries, 256, flash1Tile{BR: 32, BC: 32, MR: 2, MC: 4}},
	{onAny, anyQueries, 256, flash1Tile{BR: 32, BC: 16, MR: 1, MC: 4}},
	{onAny, anyQueries, 256, flash1Tile{BR: 16, BC: 16, MR: 1, MC: 4}},
	{onAny, anyQueries, 256, flash1Tile{BR: 16, BC: 8, MR: 1, MC: 4}},
}

// chooseFlash1Tile takes the first shape that fits with V staged once for a block of keys, else the first that fits with V staged
// in pieces; overrides from t replace single numbers.
func chooseFlash1Tile(c *capabilities, p *Problem, t *tuning) (flash1Tile, error) {
	dim, why := max(p.HeadDim, p.ValueDim), ""
	for _, whole := range []bool{true, false} {
		for _, s := range flash1Shapes {
			if p.QueryLen > s.maxQueries || dim > s.maxDim || !c.is(s.on) {
				continue
			}
			tile := s.tile
			tile.BR, tile.BC = t.get("br", tile.BR), t.get("bc", tile.BC)
			tile.MR, tile.MC = t.get("mr", tile.MR), t.get("mc", tile.MC)
			if why = tile.fit(c, p, t, whole); why == "" {
				return tile, nil
			}
			if len(t.given) > 0 {
				break // the caller's numbers do not fit: say so rather than look for others that go with them
			}
		}
	}
	if len(t.given) > 0 {
		return flash1Tile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s", why)
	}
	return flash1Tile{}, &declined{why}
}

// fit completes a tile whose shape is set, with all of V or a piece of it in shared memory. It gives the rule that cannot be
// kept, "" when all are.
func (tile *flash1Tile) fit(c *capabilities, p *Problem, t *tuning, whole bool) string {
	if tile.MR < 1 || tile.MC < 1 || tile.BR < tile.MR || tile.BC < tile.MC {
		return "br and bc must be at least mr and mc, and those at least 1"
	}
	can := c.subgroupRows(tile.tx(), tile.threads())
	tile.Subgroup = t.get("subgroup", boolInt(can)) != 0
	if tile.Subgroup && !can {
		return "subgroup = 1 needs full subgroups of a required size, shuffles, and rows that fit into one"
	}
	pieces := []int{tile.BC}
	if !whole {
		pieces = []int{tile.BC / 2, 4}
	}
	cols := ceilDiv(p.HeadDim, 8) * 8
	why := "no staging fits"
	for _, vc := range pieces {
		for dk := min(cols, 64); dk >= 8; dk = ceilDiv(dk/2, 8) * 8 {
			tile.DK, tile.VC = t.get("dk", dk), t.get("vc", vc)
			if why = tile.check(p.HeadDim, p.ValueDim, p.DType.Size(), &c.facts.Limits); why == "" {
				return ""
			}
			if dk == 8 {
				break
			}
		}
	}
	return why
}
