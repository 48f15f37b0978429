package kernel

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Keys in parts. With few queries there are too few workgroups to fill a GPU, so kernels may cut the keys into parts. The workgroups of
// part s compute, for each row i, attention over the keys of that part alone,
//
//	t_si = log2 Σ_{j ∈ s} exp(scale q_i·k_j),   o_si = Σ_{j ∈ s} exp(scale q_i·k_j) v_j / 2^{t_si}
//
// and combine_parts puts them together: o_i = Σ_s 2^{t_si − t_i} o_si with 2^{t_i} = Σ_s 2^{t_si}. (Dao, "FlashAttention-2", 2023, section
// 2.3.1; Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023.) The plan fixes the number of parts, and nothing is
// added atomically: the same inputs give the same bits.

const (
	MostParts      = 1024     // more is of no use to anything
	LeastPartKeys  = 256      // with fewer, starting and combining a part costs more than it saves
	MostPartsBytes = 32 << 20 // of memory between the two steps

	DecodeMostBytes = 8 << 20 // the same of kernels for few rows
)

// MostPartsOf is the number of parts into which the keys of a problem may sensibly be cut.
func MostPartsOf(p *attn.Problem) int {
	if !p.Blocks.None() {
		return 1
	}
	return max(1, int(min(uint64(p.KeyLen/LeastPartKeys), MostPartsBytes/PartBytes(p), MostParts)))
}

// PartsBeside is the number of parts for a problem whose kernel has this number of workgroups without parts: enough that as many workgroups
// run as can at the same time, with no more bytes between the two steps than given.
func PartsBeside(p *attn.Problem, row *tiles.Row, beside int, groups, most uint64) int {
	return int(max(1, min(uint64(beside)/groups, uint64(p.MostKeys()/row.Get("part_keys")), most/PartBytes(p), MostParts)))
}

// CheckParts gives the rule that a number of parts breaks, "" for none.
func CheckParts(parts int, p *attn.Problem) string {
	most := MostParts
	if !p.Blocks.None() {
		most = 1 // a block mask has few keys as it is
	}
	if parts < 1 || parts > most {
		return fmt.Sprintf("parts = %d must be from 1 to %d", parts, most)
	}
	return ""
}

// PartsSuffix says in a tile's name how many parts there are.
func PartsSuffix(parts int) string {
	if parts < 2 {
		return ""
	}
	return fmt.Sprintf(", keys in %d parts", parts)
}

// Combiner is the second step, for any tier: shaders/common/combine_parts.comp.
type Combiner struct {
	Problem attn.Problem
	Module  string
	parts   int
	share   int    // invocations of four columns of a row
	Items   uint32 // fours of columns
	Grid    Grid
}

const combineThreads = 128 // of a workgroup; every device allows it

// CombinerLabel is the label of its dispatches.
const CombinerLabel = "combine_parts"

// CombineLabel is the label of the second step's dispatches, "" where keys are in one part.
func CombineLabel(parts int) string {
	if parts < 2 {
		return ""
	}
	return CombinerLabel
}

// NewCombiner lays it out for a problem.
func NewCombiner(e *Env, p *attn.Problem, parts int, t *Tuning) (*Combiner, error) {
	if err := e.Caps.Holds(PartsScratch(p, parts)); err != nil {
		return nil, err
	}
	c := &Combiner{Problem: *p, Module: CombinerLabel + "." + p.DType.Suffix(), parts: parts, share: 1}
	for 4*c.share < parts && c.share < 32 { // four parts at least for an invocation
		c.share *= 2
	}
	rows := uint64(p.Heads) * p.QueryRows()
	items := rows * uint64(attn.CeilDiv(p.ValueDim, 4))
	per := uint64(combineThreads / c.share)
	var err error
	// It reads the parts and no more: reckon with 16 operations a number.
	c.Grid, err = GridFor(e, (items+per-1)/per, 64*float64(items)*float64(parts), ScalarPace, t)
	if err != nil {
		return nil, err
	}
	c.Items = uint32(items)
	return c, nil
}

// PartsScratch is the memory between the two steps: o_si in fp32, rows of whole eights, and t_si.
func PartsScratch(p *attn.Problem, parts int) []uint64 {
	rows := uint64(parts) * uint64(p.Heads) * p.QueryRows()
	return []uint64{4 * rows * uint64(attn.CeilDiv(p.ValueDim, 8)*8), 4 * rows}
}

// PartBytes is what one part takes of that memory.
func PartBytes(p *attn.Problem) (n uint64) {
	for _, size := range PartsScratch(p, 1) {
		n += size
	}
	return n
}

// Constants are its specialization constants for a variant of the output.
func (c *Combiner) Constants(v Variant) Constants {
	return Constants{"WG": combineThreads, "SHARE": c.share, "DV": c.Problem.ValueDim, "PARTS": c.parts,
		"ALIGNED": BoolInt(v.Aligned), "WRITE_LSE": BoolInt(v.LSE)}.And(SinkConstants(&c.Problem), LengthConstants(&c.Problem))
}
