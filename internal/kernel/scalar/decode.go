package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/vk"
)

// Decode is FlashAttention-2 in fp32 arithmetic for few queries, keys in parts: shaders/scalar/scalar_decode.comp. Memory is what bounds
// it, so that matrices would gain nothing.
var Decode = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           DecodeKernel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
		Can: attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked | attn.WithPages | attn.WithQuantised |
			attn.WithMaxLogit | attn.WithLists,
		MostRows:    DecodeRows,
		Parameters:  decodeRanges,
		Yields:      true,
		Unsupported: decodeLacks,
	},
	Plan:       planDecode,
	Candidates: decodeCandidates,
}

// DecodeRows is the most rows of a key head, queries of all query heads that read it, that scalar_decode takes: more keep the arithmetic
// busier than the memory, and matrices are faster.
const DecodeRows = 8

// DecodeKernel is the kernel's name, and the label of its dispatches.
const DecodeKernel = "scalar_decode"

// decodeRanges are its parameters.
var decodeRanges = kernel.GroupBound.And(kernel.IndirectRange, kernel.RowRanges(DecodeKernel).Only("w", "u"), kernel.Parameters{
	kernel.DecodeParameter: kernel.OnOff, "rows": kernel.Between(1, DecodeRows), "lpr": kernel.Powers(1, 128), "parts": kernel.PartsRange,
})

func decodeLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if why := c.LacksScalar(p.DType); why != "" {
		return why
	}
	return c.LacksShuffles()
}

func planDecode(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	k, err := fusedDecode(e, p, t)
	if err != nil {
		return nil, err
	}
	return k.Forward(e, p, t)
}

func fusedDecode(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*pass.Fused, error) {
	tile, err := ChooseDecodeTile(&e.Caps, p, t)
	if err != nil {
		return nil, err
	}
	return &pass.Fused{Label: DecodeKernel, Module: kernel.CacheModule(DecodeKernel, p) + "." + p.DType.Suffix(), Tile: tile.String(),
		Parts: tile.Parts, Groups: tile.Groups, Rows: tile.blocks, FLOPs: p.ForwardFLOPs(), Pace: kernel.ScalarPace,
		// lanes that take a key together load all queries of the workgroup
		Moves: traffic.QueriesOutside{Label: DecodeKernel, Rows: tile.Rows, Keys: 1, Batch: tile.batch(), Packed: true, NoneUnseen: true,
			QReaders: tile.Threads() / tile.LPR, Parts: tile.Parts, Combine: kernel.CombineLabel(tile.Parts)},
		Trusted: e.Caps.FullSubgroups(), Buffers: pass.Views, Constants: tile.Constants, Made: e.Subgroups(true),
		SelfCheck: func(p *attn.Problem) attn.Problem { return pass.SelfCheckOfFew(p, tile.W*tile.batch(), tile.Parts) }}, nil
}

// Constants are the specialization constants of scalar_decode.
func (t *DecodeTile) Constants(p *attn.Problem, v kernel.Variant) kernel.Constants {
	return kernel.Constants{"WG": t.Threads(), "SG": t.Lanes, "MEET": t.Meet}.And(decodeFields.Constants(t), kernel.ForwardConstants(p, v),
		kernel.LengthConstants(p), kernel.MaxLogitConstants(p), kernel.ListConstants(p))
}

// candidates are neighbours of what is chosen.
func decodeCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	tile, err := ChooseDecodeTile(c, p, kernel.NewTuning(nil))
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
					if parts >= 1 && parts <= kernel.MostParts {
						out = append(out, map[string]int{"w": w, "lpr": lpr, "u": u, "parts": parts})
					}
				}
			}
		}
	}
	return out
}

// DecodeTile is the shape of scalar_decode's work; the shader says what each number means.
type DecodeTile struct {
	Rows  int // of a workgroup
	W     int // subgroups of a workgroup
	Lanes int // of a subgroup
	LPR   int // lanes of a key
	U     int // keys of a lane in a batch
	Parts int // of the keys
	Meet  int // rows that subgroups add up at the same time
}

// decodeFields are the numbers of a DecodeTile; rows of tables name all but rows and parts.
var decodeFields = kernel.Fields[DecodeTile]{
	{Name: "w", Of: func(t *DecodeTile) any { return &t.W }},
	{Name: "lpr", Constant: "LPR", Of: func(t *DecodeTile) any { return &t.LPR }},
	{Name: "u", Constant: "U", Of: func(t *DecodeTile) any { return &t.U }},
	{Name: "rows", Constant: "ROWS", Of: func(t *DecodeTile) any { return &t.Rows }},
	{Name: "parts", Constant: "PARTS", Of: func(t *DecodeTile) any { return &t.Parts }},
}

func (t *DecodeTile) Threads() int { return t.W * t.Lanes }

// batch is the number of keys that a subgroup takes at a time.
func (t *DecodeTile) batch() int { return t.Lanes / t.LPR * t.U }

// String is rows of a workgroup x keys of a batch.
func (t *DecodeTile) String() string {
	return fmt.Sprintf("%dx%d%s", t.Rows, t.batch(), kernel.PartsSuffix(t.Parts))
}

// Groups is the number of workgroups for one part.
func (t *DecodeTile) Groups(p *attn.Problem) uint64 {
	return t.blocks(p).Most(p) * uint64(p.KeyHeads)
}

// blocks is how queries, of all query heads of a key head, are cut.
func (t *DecodeTile) blocks(p *attn.Problem) kernel.RowBlocks {
	return kernel.RowBlocks{Rows: t.Rows, Columns: t.batch(), Members: p.Group()}
}

// decodePiece is what a lane takes of a row at a time: so many elements, in so many words while they are on their way. 16 bytes, or half a
// block.
func decodePiece(t attn.DType) (elements, words int) {
	switch t {
	case attn.Q8_0:
		return 16, 6
	case attn.Q5_1:
		return 16, 6
	case attn.Q4_1, attn.Q5_0:
		return 16, 5
	case attn.Q4_0, attn.IQ4_NL, attn.F8E4M3, attn.F8E5M2:
		return 16, 4
	}
	return 16 / t.Size(), 4
}

// perLane is the number of elements that a lane has of a row of K and of one of V together, and of the words they come in.
func (t *DecodeTile) perLane(p *attn.Problem) (elements, words int) {
	for _, x := range [...]struct {
		columns int
		t       attn.DType
	}{{p.HeadDim, p.KeyType}, {p.ValueDim, p.ValueType}} {
		n, w := decodePiece(x.t)
		pieces := attn.CeilDiv(attn.CeilDiv(x.columns, n), t.LPR)
		elements, words = elements+pieces*n, words+pieces*w
	}
	return elements, words
}

// registers is the number of words that a lane holds of Q and O.
func (t *DecodeTile) registers(p *attn.Problem) int {
	elements, _ := t.perLane(p)
	return t.Rows * elements
}

// shared is the shared memory of a workgroup in bytes: sums of subgroups, then their m and l.
func (t *DecodeTile) shared(p *attn.Problem) int {
	unit, _ := decodePiece(p.ValueType)
	return t.W*t.Meet*attn.CeilDiv(p.ValueDim, unit)*unit*4 + t.W*t.Rows*8
}

// decodeMostSpilled is the most words of Q and O that a lane holds where a subgroup has no more lanes to share them: not fast, but right.
const decodeMostSpilled = 512

// complete chooses what depends on other choices: rows of sums in shared memory.
func (t *DecodeTile) complete(p *attn.Problem, row *tiles.Row, l *vk.Limits) {
	for t.Meet = max(t.Rows, 1); t.Meet > 1 && t.shared(p) > min(row.Get("shared_kib")<<10, int(l.MaxSharedMemory)); {
		t.Meet--
	}
}

// Check gives the rule that a tile breaks on a device, and the parameter that does, "" when it breaks none.
func (t *DecodeTile) Check(p *attn.Problem, l *vk.Limits) (name, why string) {
	all := kernel.RowsOf(p)
	switch {
	case t.Rows < 1 || t.Rows > all:
		return "rows", fmt.Sprintf("must be from 1 to the %d rows of a key head, or with lists of a query", all)
	case t.LPR < 1 || t.LPR > t.Lanes || t.Lanes%t.LPR != 0 || t.LPR&(t.LPR-1) != 0:
		return "lpr", fmt.Sprintf("must be a power of two that divides the %d lanes of a subgroup", t.Lanes)
	case t.registers(p) > decodeMostSpilled:
		return "lpr", fmt.Sprintf("%d words of Q and O in a lane pass %d: more lanes must share a row, or fewer rows a workgroup",
			t.registers(p), decodeMostSpilled)
	}
	return "w", kernel.CheckLimits(t.Threads(), t.shared(p), l)
}

// ChooseDecodeTile takes the first row: as few lanes for a key as have the registers, for the fewer add up a score, and as many keys at a
// time as registers are left for. More of Q and O in a lane leaves too little for what is on its way from memory, and more of that is not
// needed. Overrides from t replace single numbers.
func ChooseDecodeTile(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning) (DecodeTile, error) {
	row := c.First(p, c.Lanes(), DecodeKernel)
	all, limits, registers := kernel.RowsOf(p), &c.Facts.Limits, row.Get("registers")
	tile := DecodeTile{Lanes: int(c.Facts.Subgroup.Size)}
	decodeFields.Read(&tile, row)
	tile.Rows, tile.LPR = all, min(tile.LPR, tile.Lanes)
	for tile.registers(p) > registers && tile.LPR < tile.Lanes {
		tile.LPR *= 2
	}
	for blocks := 2; tile.registers(p) > registers && tile.Rows > 1; blocks++ {
		tile.Rows = attn.CeilDiv(all, blocks)
	}
	decodeFields.Take(&tile, t, "", "rows", "lpr")
	for _, words := tile.perLane(p); tile.U > 1 && tile.U*words > row.Get("in_flight"); {
		tile.U /= 2
	}
	for tile.W > 1 && kernel.CheckLimits(tile.Threads(), 0, limits) != "" {
		tile.W /= 2
	}
	decodeFields.Take(&tile, t, "", "u", "w")
	tile.Parts = kernel.PartsBeside(p, row, row.Get("beside")*c.Prediction().Count, tile.Groups(p), kernel.DecodeMostBytes)
	decodeFields.Take(&tile, t, "", "parts")
	tile.complete(p, row, limits)
	if name, why := tile.Check(p, limits); why != "" {
		return DecodeTile{}, t.BadTile(name, why)
	}
	t.Took(row)
	return tile, nil
}
