package matrix

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Flash1 is the first FlashAttention on cooperative matrices: shaders/matrix/matrix_flash1.comp.
var Flash1 = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "matrix_flash1",
		Implementation: kernel.Flash1,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithMaxLogit,
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
	return tile.flash1(p, &layout).Forward(e, p, t)
}

// flash1 is the kernel with this tile.
func (t Tile) flash1(p *attn.Problem, l *kernel.FragmentLayout) *pass.Flash1 {
	return &pass.Flash1{Label: matrixFlash1Label, Module: matrixFlash1Label + "." + p.DType.Suffix(), Tile: t.String(), Keys: t.BC,
		FLOPs: kernel.PaddedFLOPs(p), Pace: kernel.MatrixPace, Buffers: buffers, Made: t.Fragment.Subgroups(), Rows: t.Flash1Rows,
		Moves: traffic.KeysOutside{Label: matrixFlash1Label, Rows: t.Rows(), Keys: t.BC, RowReaders: t.rowReaders(l),
			Fragment: t.Fragment.N},
		Constants: func(p *attn.Problem, v kernel.Variant, keyBlocks int) kernel.Constants {
			return t.Flash1Constants(p, l, v, keyBlocks)
		},
		SelfCheck: t.selfCheck, WholeBias: l.PairsOfBias(p, t.Form)}
}

// matrixFlash1Label is the label of its dispatches.
const matrixFlash1Label = "matrix_flash1"

// Flash1Rows is the memory that passes from one block of keys to the next, m and l of every row and O in fp32, for whole
// blocks of queries and whole fragments of columns.
func (t *Tile) Flash1Rows(p *attn.Problem) (statistics, sums uint64) {
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(attn.CeilDiv(p.QueryLen, t.Rows())*t.Rows())
	return 8 * rows, 4 * rows * uint64(attn.CeilDiv(p.ValueDim, t.Fragment.N)*t.Fragment.N)
}

// rowReaders is the number of invocations that read m and l of one row.
func (t *Tile) rowReaders(l *kernel.FragmentLayout) int {
	if t.Form == kernel.FormShared {
		return 1
	}
	return t.Fragment.Lanes * len(l.RowOfSlot) / t.Fragment.M
}

// Flash1Constants are the specialization constants of matrix_flash1, whose dispatches take so many blocks of keys.
func (t *Tile) Flash1Constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant, keyBlocks int) kernel.Constants {
	return t.constants(p, l, v).And(kernel.LengthConstants(p), kernel.Constants{"KEY_BLOCKS": keyBlocks,
		"ROWS_LEN": t.Shared(p.HeadDim, p.ValueDim).Rows})
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
	return candidatesOf(c, "matrix_flash1", "late", "repeat", "sums", "look_apart")
}
