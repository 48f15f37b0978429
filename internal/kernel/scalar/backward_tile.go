package scalar

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// BackwardTile is the shape of the work of one of the two scalar backward kernels; shaders/include/scalar_backward.glsl says
// what each number means. Rows are keys in one and queries in the other.
type BackwardTile struct {
	BR, BC int // rows of a workgroup, columns of a tile
	MR, MC int // piece of the scores that one invocation owns
	DK     int // columns of the operands of the scores staged at a time
	PC, VC int // columns of P in shared memory, rows of the sums' operand staged at a time
}

// backwardFields are the numbers of a BackwardTile; rows of tables name all but pc.
var backwardFields = kernel.Fields[BackwardTile]{
	{Name: "br", Constant: "BR", Of: func(t *BackwardTile) any { return &t.BR }},
	{Name: "bc", Constant: "BC", Of: func(t *BackwardTile) any { return &t.BC }},
	{Name: "mr", Constant: "MR", Of: func(t *BackwardTile) any { return &t.MR }},
	{Name: "mc", Constant: "MC", Of: func(t *BackwardTile) any { return &t.MC }},
	{Name: "dk", Constant: "DK", Of: func(t *BackwardTile) any { return &t.DK }, Open: true},
	{Name: "pc", Constant: "PC", Of: func(t *BackwardTile) any { return &t.PC }, Open: true},
	{Name: "vc", Constant: "VC", Of: func(t *BackwardTile) any { return &t.VC }, Open: true},
}

func (t *BackwardTile) tx() int        { return t.BC / t.MC }
func (t *BackwardTile) threads() int   { return t.BR / t.MR * t.tx() }
func (t *BackwardTile) String() string { return fmt.Sprintf("%dx%d", t.BR, t.BC) }

// backwardShared is the layout of shared memory in units of 16 bytes: where the columns' operand and P begin, and the length.
// The sums' operand begins at 0, over the operands of the scores.
type backwardShared struct{ cAt, pAt, length int }

// shared lays shared memory out; wide is the larger width of the kernel's sums.
func (t *BackwardTile) shared(wide int) backwardShared {
	pitch := t.DK/4 | 1
	s := backwardShared{cAt: t.BR * pitch, pAt: t.VC * t.tx() * attn.CeilDiv(attn.CeilDiv(wide, 4), t.tx())}
	s.length = max((t.BR+t.BC)*pitch, s.pAt+t.BR*(t.PC/4|1))
	return s
}

// Check gives the rule that a tile breaks on a device, "" when it breaks none. prefix is that of the parameters' names.
func (t *BackwardTile) Check(prefix string, wide, elem int, l *vk.Limits) string {
	if why := checkPieces(prefix, t.BR, t.BC, t.MR, t.MC, t.DK, elem); why != "" {
		return why
	}
	switch {
	case t.PC < 1 || t.PC%(4*t.tx()) != 0 || t.BC%t.PC != 0:
		return fmt.Sprintf("%[1]spc = %[2]d must be a multiple of 4·%[1]sbc/%[1]smc = %[3]d that divides %[1]sbc = %[4]d", prefix, t.PC,
			4*t.tx(), t.BC)
	case t.VC < 4 || t.VC%4 != 0 || t.PC%t.VC != 0:
		return fmt.Sprintf("%[1]svc = %[2]d must be a multiple of 4 that divides %[1]spc = %[3]d", prefix, t.VC, t.PC)
	}
	return kernel.CheckLimits(t.threads(), 16*t.shared(wide).length, l)
}

// ChooseBackwardTile takes the first row that fits, with the staging that needs the fewest passes, DK and VC of 0 as large as fit;
// overrides from t, whose names begin with prefix, replace single numbers.
func ChooseBackwardTile(c *kernel.Capabilities, p *attn.Problem, prefix string, t *kernel.Tuning) (BackwardTile, error) {
	dim, limits := max(p.HeadDim, p.ValueDim), &c.Facts.Limits
	forced := func() bool {
		for _, f := range backwardFields {
			if _, ok := t.Given[prefix+f.Name]; ok {
				return true
			}
		}
		return false
	}()
	why := "no shape fits"
	for _, r := range c.Suiting(kernel.Asked(p, c.Lanes()), "scalar_backward_"+strings.TrimSuffix(prefix, "_")) {
		var tile BackwardTile
		backwardFields.Read(&tile, r)
		backwardFields.Take(&tile, t, prefix, pieceFields...)
		for _, dk := range stagings(tile.DK, 32, 16, 8) {
			if whole := attn.CeilDiv(dim, 8) * 8; dk > whole {
				dk = whole
			}
			for _, vc := range stagings(tile.VC, 16, 8, 4) {
				tile.DK, tile.PC, tile.VC = dk, tile.BC, vc
				backwardFields.Take(&tile, t, prefix, "dk", "pc", "vc")
				if why = tile.Check(prefix, dim, p.DType.Size(), limits); why == "" {
					t.Took(r)
					return tile, nil
				}
			}
		}
		if forced {
			return BackwardTile{}, attn.BadArgument("WithBackwardTuning", fmt.Sprint(t.Given), "%s", why)
		}
	}
	return BackwardTile{}, &kernel.Declined{Why: why}
}

// stagings are the sizes to try: the shape's own, or those that suit any.
func stagings(own int, otherwise ...int) []int {
	if own > 0 {
		return []int{own}
	}
	return otherwise
}
