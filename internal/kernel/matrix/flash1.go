package matrix

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Flash1 is the first FlashAttention on cooperative matrices: shaders/matrix/matrix_flash1.comp.
var Flash1 = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "matrix_flash1",
		Implementation: kernel.Flash1,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths,
		Parameters: tileRanges.And(kernel.Parameters{"prefetch": kernel.OnOff,
			"max_key_blocks": kernel.Between(0, kernel.AllKeyBlocks)}),
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: kernel.MatrixLacks,
	},
	Plan:       planFlash1,
	Candidates: Flash1Candidates,
}

func planFlash1(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	fragment, layout, form, err := e.ChooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := ChooseFlash1Tile(&e.Caps, p, fragment, form, t)
	if err != nil {
		return nil, err
	}
	prog := &Flash1Program{Problem: *p, Shape: tile, layout: layout, sizes: tile.Flash1Scratch(p)}
	if err := e.Caps.Holds(prog.sizes); err != nil {
		return nil, err
	}
	if prog.grid, prog.keyBlocks, err = kernel.Flash1Grid(&e.Caps, p, tile.BC, kernel.PaddedFLOPs(p), kernel.MatrixPace, t); err != nil {
		return nil, err
	}
	prog.CheckedKernels = kernel.CheckedKernels{Env: e, For: &prog.Problem, Module: "matrix_flash1." + p.DType.Suffix(),
		Named: tile.String(), Describe: prog.Describe, Try: prog.try}
	return prog, prog.Usual(p)
}

// Flash1Scratch is the memory that passes from one block of keys to the next, m and l of every row and O in fp32, for whole
// blocks of queries and whole fragments of columns.
func (t *Tile) Flash1Scratch(p *attn.Problem) []uint64 {
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(attn.CeilDiv(p.QueryLen, t.Rows())*t.Rows())
	return []uint64{8 * rows, 4 * rows * uint64(attn.CeilDiv(p.ValueDim, t.Fragment.N)*t.Fragment.N)}
}

// rowReaders is the number of invocations that read m and l of one row.
func (t *Tile) rowReaders(l *kernel.FragmentLayout) int {
	if t.Form == kernel.FormShared {
		return 1
	}
	return t.Fragment.Lanes * len(l.RowOfSlot) / t.Fragment.M
}

// Flash1Program is matrix_flash1 fitted to a problem.
type Flash1Program struct {
	kernel.CheckedKernels
	Problem   attn.Problem
	Shape     Tile
	layout    kernel.FragmentLayout
	grid      kernel.Grid
	keyBlocks int // of a dispatch
	sizes     []uint64
}

func (m *Flash1Program) Scratch() []uint64 { return m.sizes }
func (m *Flash1Program) Dispatches() int   { return m.grid.Dispatches() }

func (m *Flash1Program) Model() traffic.Model {
	t := &m.Shape
	return traffic.KeysOutside{Label: matrixFlash1Label, Rows: t.Rows(), Keys: t.BC, RowReaders: t.rowReaders(&m.layout),
		Fragment: t.Fragment.N}
}

// Describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (m *Flash1Program) Describe(v kernel.Variant) (kernel.Constants, pipeline.KernelInfo) {
	t := &m.Shape
	return t.constants(&m.Problem, &m.layout, v).And(kernel.LengthConstants(&m.Problem), kernel.Constants{"KEY_BLOCKS": m.keyBlocks,
			"ROWS_LEN": t.Shared(m.Problem.HeadDim, m.Problem.ValueDim).Rows}),
		pipeline.KernelInfo{SubgroupSize: uint32(t.Fragment.Lanes), FullSubgroups: true}
}

func (m *Flash1Program) Record(r *kernel.Recorder, f *kernel.Operands) error {
	k, err := m.Kernel(kernel.Variant{
		Aligned: f.AlignedInputs() && f.O.Aligned && m.layout.BiasLies(&m.Problem, m.Shape.Form, &f.Scores), LSE: f.HasLSE})
	if err != nil {
		return err
	}
	return m.run(r, f, k)
}

// run records the dispatches with a given pipeline.
func (m *Flash1Program) run(r *kernel.Recorder, f *kernel.Operands, k *pipeline.Kernel) error {
	access := kernel.Flash1Access(r, k, &m.Problem, f)
	at := r.Push.Forward(&m.Problem, f)
	return r.Dispatch(k, access, at, m.grid, m.grid.Total, matrixFlash1Label)
}

// matrixFlash1Label is the label of its dispatches.
const matrixFlash1Label = "matrix_flash1"

// try runs a pipeline on a small problem and says what is wrong with the output.
func (m *Flash1Program) try(k *pipeline.Kernel, v kernel.Variant) (wrong string, err error) {
	small := Flash1Program{Problem: m.Shape.trial(&m.Problem), Shape: m.Shape}
	heads := uint64(small.Problem.Batch) * uint64(small.Problem.Heads)
	parts := attn.CeilDiv(attn.CeilDiv(small.Problem.KeyLen, m.Shape.BC), m.keyBlocks)
	if small.grid, err = kernel.NewGrid(heads*uint64(parts), heads); err != nil {
		return "", err
	}
	return m.Env.TryForward(&small.Problem, v, m.Shape.Flash1Scratch(&small.Problem),
		func(r *kernel.Recorder, f *kernel.Operands) error { return small.run(r, f, k) })
}

// ChooseFlash1Tile takes the first row that fits, with fewer rows where there are few queries; overrides from t
// replace single numbers.
func ChooseFlash1Tile(c *kernel.Capabilities, p *attn.Problem, s kernel.Fragment, form int, t *kernel.Tuning) (Tile, error) {
	return firstTile(c.Suiting(kernel.Asked(p, s), "matrix_flash1"), c, p, t, func(tile Tile) Tile {
		tile.KeysOutside, tile.HeadsTogether = true, 1
		tile.cut(p, s, form)
		for tile.W > 1 && p.QueryLen <= tile.Rows()/2 {
			tile.W = attn.CeilDiv(tile.W, 2)
		}
		return tile
	})
}

// Flash1Candidates are the rows that suit the device, whatever problem they are for, and some neighbours.
func Flash1Candidates(c *kernel.Capabilities, _ *attn.Problem) []map[string]int {
	return candidatesOf(c, "matrix_flash1")
}
