package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/vk"
)

// Flash1 is the first FlashAttention in fp32 arithmetic: shaders/scalar/scalar_flash1.comp.
var Flash1 = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "scalar_flash1",
		Implementation: kernel.Flash1,
		Tier:           kernel.TierScalar,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithMaxLogit,
		Parameters: pieceRanges.And(kernel.GroupBound,
			kernel.Parameters{"subgroup": kernel.OnOff, "max_key_blocks": kernel.Between(0, kernel.AllKeyBlocks)}),
		Unsupported: kernel.ScalarLacks,
	},
	Plan: planFlash1,
}

func planFlash1(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	k, err := fusedFlash1(e, p, t)
	if err != nil {
		return nil, err
	}
	return k.Forward(e, p, t)
}

func fusedFlash1(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*pass.Flash1, error) {
	tile, err := ChooseFlash1Tile(&e.Caps, p, t)
	if err != nil {
		return nil, err
	}
	module := "scalar_flash1"
	if tile.Subgroup {
		module += "_subgroup"
	}
	return &pass.Flash1{Label: flash1Label, Module: module + "." + p.DType.Suffix(), Tile: tile.String(), Keys: tile.BC,
		FLOPs: p.ForwardFLOPs(), Pace: kernel.ScalarPace, Trusted: true, Buffers: pass.Views, Rows: Flash1Rows,
		Moves: traffic.KeysOutside{Label: flash1Label, Rows: tile.BR, Keys: tile.BC, VAgain: tile.VC < tile.BC, RowReaders: tile.Tx()},
		Made:  e.Subgroups(tile.Subgroup), Constants: tile.Constants, SelfCheck: tile.selfCheck}, nil
}

// selfCheck is a small problem of two blocks of queries and three of keys, the last ones ragged.
func (t *flash1Tile) selfCheck(of *attn.Problem) attn.Problem {
	p := kernel.SelfCheckOf(of)
	p.QueryLen, p.KeyLen = t.BR+3, 2*t.BC+3
	return p
}

// Flash1Rows is the memory that passes from one block of keys to the next, linear in the number of queries: m and l of every row, and O in
// fp32 where the output has fewer bits. Rows of that O are whole pieces of four.
func Flash1Rows(p *attn.Problem) (statistics, sums uint64) {
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(p.QueryLen)
	if p.DType != attn.F32 {
		sums = rows * 16 * uint64(attn.CeilDiv(p.ValueDim, 4))
	}
	return 8 * rows, sums
}

// Constants are the specialization constants of scalar_flash1, whose dispatches take so many blocks of keys.
func (t *flash1Tile) Constants(p *attn.Problem, v kernel.Variant, keyBlocks int) kernel.Constants {
	sh := t.Shared(p.HeadDim, p.ValueDim)
	return kernel.Constants{"WG": t.Threads(), "KEY_BLOCKS": keyBlocks, "K_AT": sh.KAt, "V_AT": sh.VAt, "P_AT": sh.PAt,
		"SHARED_V4": sh.Length, "REDUCE_LEN": sh.reduce, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(flash1Fields.Constants(t),
		kernel.ForwardConstants(p, v), kernel.LengthConstants(p), kernel.MaxLogitConstants(p))
}

// flash1Label is the label of its dispatches.
const flash1Label = "scalar_flash1"

// flash1Tile is the shape of scalar_flash1's work; shaders/scalar/scalar_flash1.comp says what each number means.
type flash1Tile struct {
	BR, BC   int  // queries and keys of a block
	MR, MC   int  // piece of the scores that one invocation owns
	DK       int  // columns of Q staged at a time
	VC       int  // keys of V staged at a time; BC: once for a block of keys
	Subgroup bool // rows are reduced by shuffles
}

// flash1Fields are the numbers of a flash1Tile; rows of tables name the shape alone.
var flash1Fields = kernel.Fields[flash1Tile]{
	{Name: "br", Constant: "BR", Of: func(t *flash1Tile) any { return &t.BR }},
	{Name: "bc", Constant: "BC", Of: func(t *flash1Tile) any { return &t.BC }},
	{Name: "mr", Constant: "MR", Of: func(t *flash1Tile) any { return &t.MR }},
	{Name: "mc", Constant: "MC", Of: func(t *flash1Tile) any { return &t.MC }},
	{Name: "dk", Constant: "DK", Of: func(t *flash1Tile) any { return &t.DK }, Open: true},
	{Name: "vc", Constant: "VC", Of: func(t *flash1Tile) any { return &t.VC }, Open: true},
}

func (t *flash1Tile) Tx() int      { return t.BC / t.MC }
func (t *flash1Tile) Threads() int { return t.Tx() * (t.BR / t.MR) }

func (t *flash1Tile) String() string { return fmt.Sprintf("%dx%d", t.BR, t.BC) }

// Shared lays shared memory out for head dimensions d and dv.
func (t *flash1Tile) Shared(d, dv int) tileShared {
	s := tileShared{KAt: t.BR * (t.DK/4 | 1), reduce: 1}
	s.VAt = s.KAt + t.BC*(attn.CeilDiv(d, t.DK)*t.DK/4|1)
	s.PAt = s.VAt + t.VC*t.Tx()*attn.CeilDiv(attn.CeilDiv(dv, 4), t.Tx())
	s.Length = s.PAt + t.BR*(t.BC/4|1)
	if !t.Subgroup {
		s.reduce = t.BR * t.Tx()
	}
	return s
}

// Check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *flash1Tile) Check(d, dv, elem int, l *vk.Limits) string {
	if why := checkPieces("", t.BR, t.BC, t.MR, t.MC, t.DK, elem); why != "" {
		return why
	}
	if t.VC < 4 || t.VC%4 != 0 || t.BC%t.VC != 0 {
		return fmt.Sprintf("vc = %d must be a multiple of 4 that divides bc = %d", t.VC, t.BC)
	}
	return kernel.CheckLimits(t.Threads(), t.Shared(d, dv).bytes(), l)
}

// ChooseFlash1Tile takes the first shape that fits with V staged once for a block of keys, else the first that fits with V staged
// in pieces; overrides from t replace single numbers.
func ChooseFlash1Tile(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning) (flash1Tile, error) {
	why, rows := "no shape is for the problem", c.Suiting(kernel.Asked(p, c.Lanes()), "scalar_flash1")
	for _, whole := range []bool{true, false} {
		for _, r := range rows {
			var tile flash1Tile
			flash1Fields.Read(&tile, r)
			flash1Fields.Take(&tile, t, "", pieceFields...)
			if why = tile.fit(c, p, t, whole); why == "" {
				t.Took(r)
				return tile, nil
			}
			if len(t.Given) > 0 {
				break // the caller's numbers do not fit: say so rather than look for others that go with them
			}
		}
	}
	return flash1Tile{}, t.NoTile(why)
}

// fit completes a tile whose shape is set, with all of V or a piece of it in shared memory. It gives the rule that cannot be
// kept, "" when all are.
func (tile *flash1Tile) fit(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning, whole bool) string {
	if tile.MR < 1 || tile.MC < 1 || tile.BR < tile.MR || tile.BC < tile.MC {
		return "br and bc must be at least mr and mc, and those at least 1"
	}
	can := c.SubgroupRows(tile.Tx(), tile.Threads())
	tile.Subgroup = t.Get("subgroup", kernel.BoolInt(can)) != 0
	if tile.Subgroup && !can {
		return "subgroup = 1 needs full subgroups of a known size, shuffles, and rows that fit into one"
	}
	pieces := []int{tile.BC}
	if !whole {
		pieces = []int{tile.BC / 2, 4}
	}
	cols := attn.CeilDiv(p.HeadDim, 8) * 8
	why := "no staging fits"
	for _, vc := range pieces {
		for dk := min(cols, 64); dk >= 8; dk = attn.CeilDiv(dk/2, 8) * 8 {
			tile.DK, tile.VC = dk, vc
			flash1Fields.Take(tile, t, "", "dk", "vc")
			if why = tile.Check(p.HeadDim, p.ValueDim, p.DType.Size(), &c.Facts.Limits); why == "" {
				return ""
			}
			if dk == 8 {
				break
			}
		}
	}
	return why
}
