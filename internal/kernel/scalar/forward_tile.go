package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// ForwardTile is the shape of scalar_forward's work; shaders/scalar/scalar_forward.comp says what each number means. BR, BC, MR and
// MC are chosen; the rest follows from what fits into shared memory.
type ForwardTile struct {
	BR, BC int // queries of a workgroup, keys of a tile
	MR, MC int // piece of the scores that one invocation owns

	DK        int  // columns of K staged at a time
	VC        int  // keys of V staged at a time
	PC        int  // keys of P in shared memory at a time
	QResident bool // Q is staged once, whole
	VEarly    bool // V of the whole tile is staged with K
	Subgroup  bool // rows are reduced by shuffles
	Parts     int  // parts of the keys, each for workgroups of its own (parts.go); 1: all in one
}

// forwardFields are the numbers of a ForwardTile that rows of tables name.
var forwardFields = kernel.Fields[ForwardTile]{
	{Name: "br", Constant: "BR", Of: func(t *ForwardTile) any { return &t.BR }},
	{Name: "bc", Constant: "BC", Of: func(t *ForwardTile) any { return &t.BC }},
	{Name: "mr", Constant: "MR", Of: func(t *ForwardTile) any { return &t.MR }},
	{Name: "mc", Constant: "MC", Of: func(t *ForwardTile) any { return &t.MC }},
	{Name: "dk", Constant: "DK", Of: func(t *ForwardTile) any { return &t.DK }, Open: true},
	{Name: "pc", Constant: "PC", Of: func(t *ForwardTile) any { return &t.PC }, Open: true},
	{Name: "vc", Constant: "VC", Of: func(t *ForwardTile) any { return &t.VC }, Open: true},
	{Name: "q_resident", Constant: "Q_RESIDENT", Of: func(t *ForwardTile) any { return &t.QResident }, Open: true},
	{Name: "v_early", Constant: "V_EARLY", Of: func(t *ForwardTile) any { return &t.VEarly }, Open: true},
}

// pieceFields are the names of those that are chosen first; the others are how that is staged.
var pieceFields = []string{"br", "bc", "mr", "mc"}

// groups is the number of workgroups for one part.
func (t *ForwardTile) groups(p *attn.Problem) uint64 {
	return t.blocks().Most(p) * uint64(p.Heads)
}

// blocks is how queries are cut.
func (t *ForwardTile) blocks() kernel.RowBlocks { return kernel.RowBlocks{Rows: t.BR, Columns: t.BC} }

func (t *ForwardTile) Tx() int      { return t.BC / t.MC }
func (t *ForwardTile) ty() int      { return t.BR / t.MR }
func (t *ForwardTile) Threads() int { return t.Tx() * t.ty() }

func (t *ForwardTile) String() string {
	return fmt.Sprintf("%dx%d", t.BR, t.BC) + kernel.PartsSuffix(t.Parts)
}

// tileShared is the layout of shared memory, in units of 16 bytes: where K, V and P begin, and the length. reduce is the
// length in floats of the array for row reductions. The shader sizes its arrays with these numbers.
type tileShared struct {
	KAt, VAt, PAt, Length int
	reduce                int
}

func (s tileShared) bytes() int { return 16*s.Length + 4*s.reduce }

// Shared lays shared memory out for head dimensions d and dv.
func (t *ForwardTile) Shared(d, dv int) tileShared {
	dk4 := t.DK / 4
	chunks := attn.CeilDiv(d, t.DK)
	q := t.BR * (dk4 | 1)
	if t.QResident {
		q = t.BR * (chunks*dk4 | 1)
	}
	k := t.BC * (dk4 | 1)
	p := t.BR * (t.PC/4 | 1)
	vRows := t.VC
	if t.VEarly {
		vRows = t.BC
	}
	v := vRows * t.Tx() * attn.CeilDiv(attn.CeilDiv(dv, 4), t.Tx())

	s := tileShared{KAt: q, reduce: 1}
	switch {
	case t.VEarly: // all four at once
		s.VAt = q + k
		s.PAt = s.VAt + v
	case t.QResident: // V takes K's place
		s.VAt = q
		s.PAt = q + v
	default: // V and P take the place of Q and K
		s.VAt = 0
		s.PAt = v
	}
	s.Length = max(q+k, s.VAt+v, s.PAt+p)
	if !t.Subgroup {
		s.reduce = t.BR * t.Tx()
	}
	return s
}

// Check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *ForwardTile) Check(d, dv, elem int, l *vk.Limits) string {
	if why := checkPieces("", t.BR, t.BC, t.MR, t.MC, t.DK, elem); why != "" {
		return why
	}
	switch {
	case t.PC < 1 || t.PC%(4*t.Tx()) != 0 || t.BC%t.PC != 0:
		return fmt.Sprintf("pc = %d must be a multiple of 4·bc/mc = %d that divides bc = %d", t.PC, 4*t.Tx(), t.BC)
	case t.VC < 4 || t.VC%4 != 0 || t.PC%t.VC != 0:
		return fmt.Sprintf("vc = %d must be a multiple of 4 that divides pc = %d", t.VC, t.PC)
	case t.VEarly && t.DK < d:
		return fmt.Sprintf("v_early needs dk = %d to be at least the head dimension %d", t.DK, d)
	}
	return kernel.CheckLimits(t.Threads(), t.Shared(d, dv).bytes(), l)
}

// checkPieces gives the rule that every scalar kernel has for its tile of br × bc scores, cut into pieces of mr × mc that
// invocations own, and for the dk columns of a staged operand whose elements have elem bytes; "" when none is broken. prefix is
// that of the parameters' names.
func checkPieces(prefix string, br, bc, mr, mc, dk, elem int) string {
	unit := 4 // columns that are staged in one load
	if elem == 2 {
		unit = 8
	}
	switch {
	case mr < 1 || mc < 4 || mc%4 != 0:
		return fmt.Sprintf("%[1]smr must be at least 1 and %[1]smc a multiple of 4", prefix)
	case br < 1 || br%mr != 0:
		return fmt.Sprintf("%[1]sbr = %[2]d must be a multiple of %[1]smr = %[3]d", prefix, br, mr)
	case bc < 1 || bc%mc != 0:
		return fmt.Sprintf("%[1]sbc = %[2]d must be a multiple of %[1]smc = %[3]d", prefix, bc, mc)
	case bc/mc%2 != 0:
		return fmt.Sprintf("%[1]sbc/%[1]smc = %[2]d must be even", prefix, bc/mc)
	case dk < unit || dk%unit != 0:
		return fmt.Sprintf("%sdk = %d must be a multiple of %d", prefix, dk, unit)
	}
	return ""
}

// ChooseForwardTile takes the first shape that fits, with the staging that needs the fewest passes; overrides from t replace
// single numbers.
// With a block mask, a shape that lies in one block goes before those that do not.
func ChooseForwardTile(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning) (ForwardTile, error) {
	if !p.Blocks.None() {
		if tile, err := firstForwardTile(c, p, t, func(s *ForwardTile) bool { return p.Blocks.OfTiles(s.BR, s.BC) }); err == nil {
			return tile, nil
		}
	}
	return firstForwardTile(c, p, t, func(*ForwardTile) bool { return true })
}

// partsToFill is the number of parts with which almost ScalarBeside workgroups fall to each multiprocessor, more where some blocks see few
// keys and others many, and never a few workgroups too many, which would run alone.
func (t *ForwardTile) partsToFill(c *kernel.Capabilities, p *attn.Problem) int {
	k := c.Prediction()
	if !k.Fill || p.Cached() {
		return 1
	}
	enough := float64(k.ScalarBeside*k.Count) * float64(p.MostKeys()) / max(1, p.Mask().MeanKeys())
	return max(1, min(kernel.MostPartsOf(p), int(enough/float64(t.groups(p)))))
}

// firstForwardTile takes the first shape that suits and fits.
func firstForwardTile(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning, suits func(*ForwardTile) bool) (ForwardTile, error) {
	why, names := "no shape is for the problem", []string{"scalar_forward"}
	if !p.Blocks.None() {
		names = []string{"scalar_forward_blocks", "scalar_forward"}
	}
	for _, r := range c.Suiting(kernel.Asked(p, c.Lanes()), names...) {
		var tile ForwardTile
		forwardFields.Read(&tile, r)
		forwardFields.Take(&tile, t, "", pieceFields...)
		if !suits(&tile) {
			continue
		}
		if why = tile.fit(c, p, t); why == "" {
			tile.Parts = t.Get("parts", tile.partsToFill(c, p))
			if why = kernel.CheckParts(tile.Parts, p); why == "" && tile.Parts > 1 && p.Cached() {
				why = fmt.Sprintf("parts = %d must be 1 where keys and values lie in a cache: scalar_decode takes them in parts, and "+
					"matrix_forward", tile.Parts)
			}
			if why == "" {
				t.Took(r)
				return tile, nil
			}
		}
		if len(t.Given) > 0 {
			break // the caller's numbers do not fit: say so rather than look for others that go with them
		}
	}
	return ForwardTile{}, t.NoTile(why)
}

// fit completes a tile whose shape is set. It gives the rule that cannot be kept, "" when all are.
func (tile *ForwardTile) fit(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning) string {
	elem := p.DType.Size()
	limits := &c.Facts.Limits
	if tile.MR < 1 || tile.MC < 1 || tile.BR < tile.MR || tile.BC < tile.MC {
		return "br and bc must be at least mr and mc, and those at least 1"
	}
	whole := attn.CeilDiv(p.HeadDim, 8) * 8
	type staging struct {
		dk, pc, vc int
		resident   bool
		early      bool
	}
	var tries []staging
	if tile.DK > 0 && tile.DK <= whole {
		tries = append(tries, staging{tile.DK, tile.PC, tile.VC, tile.QResident, tile.VEarly})
	}
	tries = append(tries, staging{whole, tile.BC, tile.BC, true, true})
	leastKeys := 8 // of V at a time
	if p.ValueDim > kernel.PlainDims {
		leastKeys = 4
	}
	for _, resident := range []bool{true, false} {
		for _, dk := range []int{whole, 128, 64, 32, 16, 8} {
			if dk > whole || (!resident && dk > 64) || (resident && dk < 32 && dk < whole) {
				continue
			}
			for pc := tile.BC; pc >= 4*tile.Tx() && pc%(4*tile.Tx()) == 0; pc /= 2 {
				for vc := pc; vc >= min(leastKeys, pc) && vc%4 == 0; vc /= 2 {
					tries = append(tries, staging{dk, pc, vc, resident, false})
				}
			}
		}
	}
	why := "no staging fits"
	for _, s := range tries {
		tile.DK, tile.PC, tile.VC, tile.QResident, tile.VEarly = s.dk, s.pc, s.vc, s.resident, s.early
		forwardFields.Take(tile, t, "", "dk", "pc", "vc", "q_resident", "v_early")
		tile.Subgroup = t.Get("subgroup", kernel.BoolInt(c.SubgroupRows(tile.Tx(), tile.Threads()))) != 0
		if tile.Subgroup && !c.SubgroupRows(tile.Tx(), tile.Threads()) {
			return "subgroup = 1 needs full subgroups of a known size, shuffles, and rows that fit into one"
		}
		if why = tile.Check(p.HeadDim, p.ValueDim, elem, limits); why == "" {
			return ""
		}
	}
	return why
}
