package flash

import (
	"github.com/vkattn/vkattn/pipeline"
)

// matrixFlash1 is the first FlashAttention on cooperative matrices: shaders/matrix/matrix_flash1.comp.
var matrixFlash1 = &kernel{
	offer: offer{
		name:           "matrix_flash1",
		implementation: Flash1,
		tier:           TierMatrix,
		can:            withDropout,
		parameters:     matrixRanges.and(parameters{"prefetch": onOff, "max_key_blocks": {0, allKeyBlocks, 0, false}}),
		reserved:       reservedOnCPU,
		unsupported:    matrixLacks,
	},
	plan:       planMatrixFlash1,
	candidates: matrixFlash1Candidates,
}

func planMatrixFlash1(d *Device, p *Problem, t *tuning) (program, error) {
	fragment, layout, form, err := d.chooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := chooseMatrixFlash1Tile(&d.caps, p, fragment, form, t)
	if err != nil {
		return nil, err
	}
	prog := &matrixFlash1Program{problem: *p, shape: tile, layout: layout, sizes: tile.flash1Scratch(p)}
	if err := d.caps.holds(prog.sizes); err != nil {
		return nil, err
	}
	if prog.grid, prog.keyBlocks, err = flash1Grid(&d.caps, p, tile.BC, p.paddedFLOPs(), matrixPace, t); err != nil {
		return nil, err
	}
	prog.checkedKernels = checkedKernels{dev: d, module: "matrix_flash1." + p.DType.suffix(), named: tile.String(), describe: prog.describe, try: prog.try}
	return prog, prog.usual(p)
}

// flash1Scratch is the memory that passes from one block of keys to the next, m and l of every row and O in fp32, for whole
// blocks of queries and whole fragments of columns.
func (t *matrixTile) flash1Scratch(p *Problem) []uint64 {
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(ceilDiv(p.QueryLen, t.rows())*t.rows())
	return []uint64{8 * rows, 4 * rows * uint64(ceilDiv(p.ValueDim, t.fragment.N)*t.fragment.N)}
}

// rowReaders is the number of invocations that read m and l of one row.
func (t *matrixTile) rowReaders(l *matrixLayout) int {
	if t.Form == formShared {
		return 1
	}
	return t.fragment.Lanes * len(l.RowOfSlot) / t.fragment.M
}

// matrixFlash1Program is matrix_flash1 fitted to a problem.
type matrixFlash1Program struct {
	checkedKernels
	problem   Problem
	shape     matrixTile
	layout    matrixLayout
	grid      grid
	keyBlocks int // of a dispatch
	sizes     []uint64
}

func (m *matrixFlash1Program) scratch() []uint64 { return m.sizes }
func (m *matrixFlash1Program) dispatches() int   { return m.grid.dispatches() }

// describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (m *matrixFlash1Program) describe(v variant) (constants, pipeline.KernelInfo) {
	t := &m.shape
	return append(t.constants(&m.problem, &m.layout, v), constants{{"KEY_BLOCKS", m.keyBlocks},
			{"ROWS_LEN", t.shared(m.problem.HeadDim, m.problem.ValueDim).rows}}...),
		pipeline.KernelInfo{SubgroupSize: uint32(t.fragment.Lanes), FullSubgroups: true}
}

func (m *matrixFlash1Program) record(r *recorder, f *operands) error {
	k, err := m.kernel(variant{aligned: f.alignedInputs() && f.o.aligned, lse: f.hasLSE})
	if err != nil {
		return refused(err, m.problem.String())
	}
	return m.run(r, f, k)
}

// run records the dispatches with a given pipeline.
func (m *matrixFlash1Program) run(r *recorder, f *operands, k *pipeline.Kernel) error {
	n := flash1Access(r, f, m.problem.DType)
	at := r.push.forward(&m.problem, f)
	return r.dispatch(k, r.access[:n], at, m.grid, m.grid.total, "matrix_flash1")
}

// try runs a pipeline on a small problem and says what is wrong with the output.
func (m *matrixFlash1Program) try(k *pipeline.Kernel, v variant) (wrong string, err error) {
	small := matrixFlash1Program{problem: m.shape.trial(&m.problem), shape: m.shape}
	heads := uint64(small.problem.Batch) * uint64(small.problem.Heads)
	parts := ceilDiv(ceilDiv(small.problem.KeyLen, m.shape.BC), m.keyBlocks)
	if small.grid, err = newGrid(heads*uint64(parts), heads); err != nil {
		return "", err
	}
	return m.dev.tryForward(&small.problem, v, m.shape.flash1Scratch(&small.problem), func(r *recorder, f *operands) error { return small.run(r, f, k) })
}

// matrixFlash1Tiles are the tiles tried, best first; the first that the device's limits allow is taken. As many keys in a block as
// some 28 KiB hold K_j and V_j of, for every further block reads and writes O once more; many subgroups, for a head has one
// workgroup. Not searched: these ran. On a CPU the shader's unrolled code, here in two loops, takes seconds to compile, so all is small.
var matrixFlash1Tiles = []matrixRow{
	{cpu: true, tile: matrixTile{W: 2, RM: 1, BC: 8, CK: 8, MaxFirst: 1}},

	{lanes: 32, maxDim: 32, tile: matrixTile{W: 8, RM: 1, BC: 96, CK: 16, Prefetch: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 64, tile: matrixTile{W: 8, RM: 1, BC: 64, CK: 16, Prefetch: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 96, tile: matrixTile{W: 8, RM: 1, BC: 48, CK: 16, Prefetch: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 128, tile: matrixTile{W: 8, RM: 1, BC: 32, CK: 16, Prefetch: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 256, tile: matrixTile{W: 8, RM: 1, BC: 16, CK: 16, MaxFirst: 1}},

	{maxDim: 64, tile: matrixTile{W: 4, RM: 1, BC: 64, CK: 32}},
	{maxDim: 128, tile: matrixTile{W: 4, RM: 1, BC: 32, CK: 16}},
	{maxDim: 256, tile: matrixTile{W: 4, RM: 1, BC: 16, CK: 16}},
	{tile: matrixTile{W: 2, RM: 1, BC: 16, CK: 16}},
	{tile: matrixTile{W: 1, RM: 1, BC: 8, CK: 8}},
	{tile: matrixTile{W: 1, RM: 1, BC: 8, CK: 8, QReg: 1}},
}

// chooseMatrixFlash1Tile takes the first row of the table that fits, with fewer rows where there are few queries; overrides from t
// replace single numbers.
func chooseMatrixFlash1Tile(c *capabilities, p *Problem, s matrixShape, form int, t *tuning) (matrixTile, error) {
	return firstMatrixTile(matrixFlash1Tiles, c, p, s, t, func(tile matrixTile) matrixTile {
		tile.KeysOutside, tile.HeadsTogether = true, 1
		tile.cut(p, s, form)
		for tile.W > 1 && p.QueryLen <= tile.rows()/2 {
			tile.W = ceilDiv(tile.W, 2)
		}
		return tile
	})
}

// candidates are the rows of the table that suit the device, whatever problem they stand there for, and some neighbours.
func matrixFlash1Candidates(c *capabilities, _ *Problem) []map[string]int {
	return matrixCandidates(c, matrixFlash1Tiles, []matrixTile{
		{W: 4, RM: 2, BC: 64, CK: 16, Prefetch: 1}, {W: 4, RM: 2, BC: 96, CK: 32}, {W: 4, RM: 1, BC: 96, CK: 16, Prefetch: 1},
		{W: 8, RM: 1, BC: 64, CK: 32, Prefetch: 1, Pipe: 1}, {W: 8, RM: 2, BC: 64, CK: 16}, {W: 8, RM: 1, BC: 128, CK: 16, Prefetch: 1},
		{W: 12, RM: 1, BC: 64, CK: 16}, {W: 16, RM: 1, BC: 64, CK: 16}, {W: 4, RM: 2, BC: 32, CK: 16}, {W: 4, RM: 1, BC: 48, CK: 16, Prefetch: 1},
		{W: 4, RM: 1, BC: 16, CK: 16, Prefetch: 1},
	})
}
