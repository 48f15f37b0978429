package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Attention of fp32 tensors on matrices of a narrower type: every operand is a sum of two or three numbers of it, and a product is the sum
// of three or six (shaders/include/matrix_split.glsl, which has the papers; docs/notes/split.md has the errors).
//
//	operands  terms  products  errors beside those of the scalar tier
//	bf16      3      6         not above them, with exponents as fp32 has them
//	fp16      2      3         not above them, where the numbers of a row of Q, K or V are within 2^15 of one another
//	fp16      3      6         the same: what two terms leave is less than what sums in fp32 lose

// ForwardSplit is shaders/matrix/matrix_forward.comp built with SPLIT.
var ForwardSplit = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "matrix_forward_split",
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		Storage:        []attn.DType{attn.F32},
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked |
			attn.WithMaxLogit,
		Parameters: tileRanges.And(headRanges, lateRange, kernel.IndirectRange,
			kernel.Parameters{"terms": kernel.Between(2, 3), "bf16": kernel.OnOff,
				kernel.DecodeParameter: kernel.OnOff}),
		Reserved:    splitReserved,
		Unsupported: splitLacks,
	},
	Plan:       planSplit,
	Candidates: splitCandidates,
}

// A self-check of it has scores of eight times the usual size, and o this close to what it should be. Errors of scores are those of
// weights: a term that is lost shows ten times as large, and fp32's own are a tenth.
const (
	splitSelfCheckScores = 8
	splitSelfCheckBound  = 2e-5
)

// splitLacks says what the device lacks for fp32 in terms of either type.
func splitLacks(c *kernel.Capabilities, _ *attn.Problem) string {
	why := c.LacksMatrix(attn.F16)
	if why == "" || c.LacksMatrix(attn.BF16) == "" {
		return ""
	}
	return why
}

// splitReserved is why a device does not take it by itself. Three terms of bf16 alone may stand for fp32 unasked, and where a row of tiles
// says so.
func splitReserved(c *kernel.Capabilities, p *attn.Problem) string {
	if why := kernel.ReservedOnCPU(c, p); why != "" {
		return why
	}
	if why := c.LacksMatrix(attn.BF16); why != "" {
		return "two terms of fp16 may lose bits that fp32 keeps, and for three of bf16 " + why + "; WithTier(TierMatrix) insists"
	}
	t := kernel.NewTuning(nil)
	if _, err := ChooseSplitTile(c, p, 3, false, c.Fragments(attn.BF16)[0], kernel.FormRegisters, t); err != nil {
		return err.Error()
	}
	if !t.Rows[0].On(byDefault) {
		return "for such problems it was not measured to be faster than the scalar tier on devices of this family; WithTier(TierMatrix) " +
			"insists"
	}
	return ""
}

// byDefault is the switch of a row of tiles for problems that the kernel runs without being asked for.
const byDefault = "default"

// splitOperands is the type of terms and their number: what is asked for, else three of bf16, or two of fp16 where the device has no bf16.
func splitOperands(c *kernel.Capabilities, t *kernel.Tuning) (attn.DType, int, error) {
	asked, given := t.Given["terms"]
	bf16 := t.Get("bf16", kernel.BoolInt(c.LacksMatrix(attn.BF16) == "" && (!given || asked == 3))) != 0
	terms := t.Get("terms", 2+kernel.BoolInt(bf16))
	operands := attn.F16
	if bf16 {
		operands = attn.BF16
		if terms < 3 {
			return operands, terms, t.Bad("terms", "must be 3 with bf16: two terms of it have 16 bits of fp32's 24")
		}
	}
	if why := c.LacksMatrix(operands); why != "" {
		return operands, terms, &kernel.Declined{Why: fmt.Sprintf("terms of %v: %s", operands, why)}
	}
	return operands, terms, nil
}

func planSplit(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	operands, terms, err := splitOperands(&e.Caps, t)
	if err != nil {
		return nil, err
	}
	return PlanTerms(e, p, t, operands, terms, operands == attn.F16)
}

// PlanTerms plans ForwardSplit with terms of a type, whose rows are scaled or not.
func PlanTerms(e *kernel.Env, p *attn.Problem, t *kernel.Tuning, operands attn.DType, terms int, scaled bool) (kernel.Program, error) {
	return fitForward("matrix_forward_split", "matrix_forward_split", operands, e, p, t,
		func(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, form int, t *kernel.Tuning) (Tile, error) {
			return ChooseSplitTile(c, p, terms, scaled, f, form, t)
		})
}

// ChooseSplitTile is ChooseTile for a number of terms.
func ChooseSplitTile(c *kernel.Capabilities, p *attn.Problem, terms int, scaled bool, s kernel.Fragment, form int,
	t *kernel.Tuning) (Tile, error) {
	if scaled && form == kernel.FormShared {
		return Tile{}, &kernel.Declined{Why: "rows are scaled back in registers, and nothing is known of where accumulators lie in form 3"}
	}
	k := c.Prediction()
	return firstTile(c.Suiting(kernel.Asked(p, s), "matrix_forward_split"), c, p, t, func(tile Tile) Tile {
		tile.Terms, tile.Scaled = terms, scaled
		return tile.Complete(&k, p, s, form)
	})
}

// terms is the number of terms of an operand, one of those that are not split.
func (t *Tile) terms() int { return max(1, t.Terms) }

// products is the number of products on matrices that one of operands takes: those of terms whose indices add up to less than their number.
func (t *Tile) products() int { return t.terms() * (t.terms() + 1) / 2 }

// splitConstants are those of builds with SPLIT alone.
func (t *Tile) splitConstants(s *tileShared) kernel.Constants {
	if t.Terms == 0 {
		return nil
	}
	return kernel.Constants{"TERMS": t.Terms, "SCALED": kernel.BoolInt(t.Scaled), "E_LEN": s.Exponents}
}

func splitCandidates(c *kernel.Capabilities, _ *attn.Problem) []map[string]int {
	return candidatesOf(c, "matrix_forward_split", "repeat", "sums", "look_apart")
}
