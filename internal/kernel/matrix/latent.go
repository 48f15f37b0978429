package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// latentKernel is the kernel's name, the label of its dispatches, and that of its rows of tiles.
const latentKernel = "matrix_latent"

// latentRows is the fewest rows of a key head, queries of all query heads that read it, for which matrix_latent stands before
// scalar_decode: its fragments have 16.
const latentRows = 9

// mostLatentRows is the most: 128 query heads of 8 queries. More were not timed, and are no decoding.
const mostLatentRows = 1024

// mayLieInKeys says whether values can be the first columns of keys, as they are stored: none that are wider or of another type, nor of
// blocks, whose scales keys are multiplied by as scores.
func mayLieInKeys(p *attn.Problem) bool {
	return p.ValueDim <= p.HeadDim && p.KeyType == p.ValueType && p.KeyType.Block() == 1
}

// likelyInKeys says whether they may well be, which a plan does not know: as many query heads read one key head as in multi-head latent
// attention, and values are shorter.
func likelyInKeys(p *attn.Problem) bool { return p.Group() >= 8 && p.ValueDim < p.HeadDim }

// wideRows is the most rows for which matrix_latent is faster than matrix_forward_wide where values lie elsewhere.
const wideRows = 64

// elsewhere says why matrix_forward_wide takes a problem before this kernel, "" where it does not.
func elsewhere(p *attn.Problem) string {
	if kernel.RowsOf(p) <= wideRows || likelyInKeys(p) || p.Features()&^ForwardWide.Can != 0 {
		return ""
	}
	return fmt.Sprintf("values may lie elsewhere than in keys, and with more than %d rows matrix_forward_wide is faster then; "+
		"the parameter %s asks for it", wideRows, kernel.DecodeParameter)
}

// Latent is FlashAttention-2 on cooperative matrices where many rows read few wide keys, as decoding with latent keys (MLA) does:
// shaders/matrix/matrix_latent.comp. Keys pass through shared memory once for both products where values are their first columns.
var Latent = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           latentKernel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		LeastDim:       kernel.PlainDims + 1,
		MostDim:        attn.MostDim,
		Can: attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked | attn.WithPages | attn.WithMaxLogit |
			attn.WithLists | attn.WithQuantised,
		MostRows: mostLatentRows,
		Parameters: kernel.GroupBound.And(kernel.SideRanges, kernel.IndirectRange,
			kernel.RowRanges(latentKernel).But("beside", "part_keys"),
			kernel.Parameters{kernel.DecodeParameter: kernel.OnOff, "parts": kernel.PartsRange}),
		Yields:      true,
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: latentUnsupported,
	},
	Plan:       planLatent,
	Candidates: latentCandidates,
}

// latentUnsupported says what the device or the problem lacks.
func latentUnsupported(c *kernel.Capabilities, p *attn.Problem) string {
	if rows := kernel.RowsOf(p); rows < latentRows {
		return fmt.Sprintf("%d rows for each key head: from %d on it is worth its fragments", rows, latentRows)
	}
	if attn.HasLeast(p.KeyType) {
		return fmt.Sprintf("keys of %v: it multiplies whole numbers, and a block's least is none", p.KeyType)
	}
	if p.DType == attn.BF16 && p.ValueType.Block() > 1 {
		return "quantised numbers would be rounded to the eight bits of bf16"
	}
	return c.LacksMatrix(p.DType)
}

func planLatent(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	if why := elsewhere(p); why != "" && t.Given[kernel.DecodeParameter] == 0 {
		return nil, &kernel.Declined{Why: why}
	}
	fragment, layout, err := latentFragment(e, p, t)
	if err != nil {
		return nil, err
	}
	tile, err := ChooseLatentTile(&e.Caps, p, fragment, &layout, t)
	if err != nil {
		return nil, err
	}
	return tile.fused(p, &layout).Forward(e, p, t)
}

// latentFragment takes the preferred fragment of those whose layout says which rows a lane's components of an accumulator are of.
func latentFragment(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Fragment, kernel.FragmentLayout, error) {
	return firstFragment(e, p.DType, e.Caps.Fragments(p.DType), t, func(l *kernel.FragmentLayout) string {
		if l.Form == kernel.FormShared {
			return "lanes do not know the rows of an accumulator's components: " + l.Why
		}
		return ""
	})
}

// fused is the kernel with this tile.
func (t LatentTile) fused(p *attn.Problem, l *kernel.FragmentLayout) *pass.Fused {
	return &pass.Fused{Label: latentKernel, Module: kernel.CacheModule(latentKernel, p) + "." + p.DType.Suffix(), Tile: t.String(),
		Parts: t.Parts, Groups: t.Groups, Rows: t.blocks, FLOPs: p.ForwardFLOPs(), Pace: kernel.MatrixPace,
		Moves: traffic.QueriesOutside{Label: latentKernel, Rows: t.Rows, Keys: 1, Batch: t.Keys, Packed: true, NoneUnseen: true,
			InKeys: mayLieInKeys(p), Parts: t.Parts, Combine: kernel.CombineLabel(t.Parts)},
		Buffers: pass.Views, Made: t.Fragment.Subgroups(), InKeys: mayLieInKeys(p),
		Constants: func(p *attn.Problem, v kernel.Variant) kernel.Constants { return t.Constants(p, l, v) },
		SelfCheck: func(p *attn.Problem) attn.Problem { return pass.SelfCheckOfFew(p, t.Keys, t.Parts) }}
}

// Constants are the specialization constants of matrix_latent.
func (t *LatentTile) Constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant) kernel.Constants {
	f := &t.Fragment
	return kernel.Constants{"WG": t.Threads(), "ROWS": t.Rows, "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "PARTS": t.Parts,
		"IN_KEYS": kernel.BoolInt(v.InKeys), "WORDS": kernel.BoolInt(t.Words)}.
		And(latentFields.Constants(t), l.Constants(), kernel.ForwardConstants(p, v), kernel.LengthConstants(p), kernel.MaxLogitConstants(p),
			kernel.ListConstants(p))
}

func latentCandidates(c *kernel.Capabilities, _ *attn.Problem) []map[string]int {
	return rowTunings(c, latentKernel, latentFields, func(t *LatentTile) (w, rm int) { return t.W, 1 })
}

// LatentTile is the shape of matrix_latent's work; the shader says what each number means.
type LatentTile struct {
	Fragment kernel.Fragment
	Words    bool // weights are stored by pairs of neighbours
	Rows     int  // of a workgroup
	W        int  // subgroups of a workgroup
	Teams    int  // fragments of rows
	Split    int  // parts of the columns of scores
	Keys     int  // of a tile
	Prefetch int  // pieces of a tile that a lane asks for before the scores
	Stages   int  // tiles in shared memory
	QReg     int  // fragments of its part of Q that a subgroup keeps in registers
	Parts    int  // of the keys
}

// latentFields are the numbers of a LatentTile that rows of tables name.
var latentFields = kernel.Fields[LatentTile]{
	{Name: "w", Of: func(t *LatentTile) any { return &t.W }},
	{Name: "teams", Constant: "TEAMS", Of: func(t *LatentTile) any { return &t.Teams }},
	{Name: "split", Constant: "SPLIT", Of: func(t *LatentTile) any { return &t.Split }},
	{Name: "keys", Constant: "KEYS", Of: func(t *LatentTile) any { return &t.Keys }},
	{Name: "prefetch", Constant: "PREFETCH", Of: func(t *LatentTile) any { return &t.Prefetch }},
	{Name: "stages", Constant: "STAGES", Of: func(t *LatentTile) any { return &t.Stages }},
	{Name: "q_reg", Constant: "Q_REG", Of: func(t *LatentTile) any { return &t.QReg }},
}

func (t *LatentTile) Threads() int { return t.W * t.Fragment.Lanes }

// String is rows of a workgroup x keys of a tile, how they are cut, and the fragment.
func (t *LatentTile) String() string {
	return fmt.Sprintf("%dx%d by %d subgroups, columns in %d, %v%s", t.Rows, t.Keys, t.W, t.Split, t.Fragment, kernel.PartsSuffix(t.Parts))
}

// Groups is the number of workgroups for one part.
func (t *LatentTile) Groups(p *attn.Problem) uint64 {
	return t.blocks(p).Most(p) * uint64(p.KeyHeads)
}

// blocks is how queries, of all query heads of a key head, are cut.
func (t *LatentTile) blocks(p *attn.Problem) kernel.RowBlocks {
	return kernel.RowBlocks{Rows: t.Rows, Columns: t.Keys, Members: p.Group()}
}

// owned is the fragments of scores of a subgroup.
func (t *LatentTile) owned() int { return t.Keys / t.Fragment.N / t.groups() }

// groups is the groups of keys.
func (t *LatentTile) groups() int { return t.W / (t.Teams * t.Split) }

// shared is the shared memory of a workgroup in bytes.
func (t *LatentTile) shared(p *attn.Problem) int {
	f := &t.Fragment
	weights := t.Teams * t.Keys / f.N // fragments
	staged := attn.CeilDiv(p.HeadDim, f.K) * f.K
	pitch := max(staged, t.W*attn.CeilDiv(attn.CeilDiv(p.ValueDim, f.N), t.W)*f.N)/8 | 1
	bytes := max(t.Stages*16*t.Keys*pitch, 4*t.W*f.M*(f.N+4)) + t.Stages*4*weights*max(t.Split-1, 1)*f.M*f.N
	if t.Words {
		bytes += 16
	} else {
		bytes += t.Stages * 2 * weights * f.M * (f.N + 8)
	}
	rows := t.Teams * f.M
	if p.Cached() || !p.Lists.None() { // scales of blocks, and listed keys
		bytes += 4*t.Keys*attn.CeilDiv(p.HeadDim, 32) + 8*t.Keys
	}
	return bytes + 4*rows*(t.Keys/f.N+2) + 8 // statistics, and whether references move
}

// Check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *LatentTile) Check(p *attn.Problem, c *kernel.Capabilities) string {
	f := &t.Fragment
	switch {
	case f.N != f.K || f.N%8 != 0 || f.M*f.N%(4*f.Lanes) != 0:
		return fmt.Sprintf("a fragment's N = %d and K = %d must be the same multiple of 8, and lanes have fours of %d numbers", f.N, f.K,
			f.M*f.N)
	case t.W < 1 || t.Teams < 1 || t.Split < 1 || t.W%(t.Teams*t.Split) != 0:
		return fmt.Sprintf("w = %d must be a multiple of teams·split = %d", t.W, t.Teams*t.Split)
	case t.Keys < 1 || t.Keys%f.M != 0 || t.Keys%(f.N*t.groups()) != 0:
		return fmt.Sprintf("keys = %d must be a multiple of the fragment's M = %d, and of its N = %d for each of %d groups of keys",
			t.Keys, f.M, f.N, t.groups())
	case t.Stages < 1 || t.Stages > 2:
		return fmt.Sprintf("stages = %d must be 1 or 2", t.Stages)
	case t.QReg < attn.CeilDiv(attn.CeilDiv(p.HeadDim, f.K), t.Split) && f.M*f.K != 8*f.Lanes:
		return fmt.Sprintf("q_reg = %d must be all fragments of Q where lanes hold %d numbers of one", t.QReg, f.M*f.K/f.Lanes)
	case t.Threads()%t.Keys != 0:
		return fmt.Sprintf("keys = %d must divide the %d invocations", t.Keys, t.Threads())
	case t.owned() > t.Split:
		return fmt.Sprintf("split = %d must be no less than the %d fragments of scores of a subgroup", t.Split, t.owned())
	}
	return kernel.CheckSubgroups(t.W, f.Lanes, t.shared(p), c)
}

// ChooseLatentTile takes the first row that fits, and cuts keys into parts until the device is full.
// Overrides from t replace single numbers.
func ChooseLatentTile(c *kernel.Capabilities, p *attn.Problem, s kernel.Fragment, l *kernel.FragmentLayout,
	t *kernel.Tuning) (LatentTile, error) {
	why := "no row of tiles is for the problem"
	for _, row := range c.Suiting(kernel.Asked(p, s), latentKernel) {
		tile := LatentTile{Fragment: s, Words: l.PairsOfQueries()}
		latentFields.Read(&tile, row)
		tile.whole()
		latentFields.Take(&tile, t, "")
		tile.Rows = min(tile.Teams*s.M, kernel.RowsOf(p))
		if why = tile.Check(p, c); why != "" {
			continue
		}
		tile.Parts = kernel.PartsBeside(p, row, row.Get("beside")*c.Prediction().Count, tile.Groups(p), kernel.MostPartsBytes)
		tile.Parts = t.Get("parts", tile.Parts)
		t.Effect["parts"] = tile.Parts
		if why = kernel.CheckParts(tile.Parts, p); why == "" {
			t.Took(row)
			return tile, nil
		}
	}
	return LatentTile{}, t.NoTile(why)
}

// whole rounds a row of the table to whole fragments.
func (t *LatentTile) whole() {
	side := max(t.Fragment.M, t.Fragment.N)
	t.Keys = attn.CeilDiv(t.Keys, side) * side
}
