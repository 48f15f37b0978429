package kernel

import "github.com/vkattn/vkattn/internal/attn"

// Merge is attention over disjoint keys that is put together: shaders/common/merge.comp has the mathematics.
type Merge struct {
	Parts                            int
	Stacked                          bool // they lie in one tensor
	Batch, Heads, QueryLen, ValueDim int
	DType                            attn.DType
	PartsF32, ResultF32              bool // whatever DType
}

// MostMerged is the most parts of a merge.
const MostMerged = 4096

// mergeTensors is the most pairs of tensors that one dispatch takes.
const mergeTensors = 4

// Pairs is the number of pairs of tensors, o and lse, that hold the parts.
func (m *Merge) Pairs() int {
	if m.Stacked {
		return 1
	}
	return m.Parts
}

// Links is the number of stages of the chain, and Link the pairs that one of them takes.
func (m *Merge) Links() int { return attn.CeilDiv(m.Pairs(), mergeTensors) }
func (m *Merge) Link(i int) (first, end int) {
	return i * mergeTensors, min((i+1)*mergeTensors, m.Pairs())
}

// Bits of the argument chain, above two offsets.
const (
	mergeContinues = 1 << (16 + iota)
	mergeContinued
	mergeOdd
	mergeLSE
)

// MergeLabel is the label of its dispatches, and the beginning of its module's name.
const MergeLabel = "merge"

// LacksMerge says what the device lacks for merges of a type.
func (c *Capabilities) LacksMerge(t attn.DType) string {
	if why := c.LacksArguments(&PassArgs().Merge); why != "" {
		return why
	}
	return c.LacksScalar(t)
}

// MergeConstants are its specialization constants.
func MergeConstants(m *Merge, aligned bool, tensors int) Constants {
	return Constants{"WG": PieceThreads, "DV": m.ValueDim, "ALIGNED": BoolInt(aligned), "TENSORS": tensors, "STACKED": BoolInt(m.Stacked),
		"PARTS_F32": BoolInt(m.PartsF32), "RESULT_F32": BoolInt(m.ResultF32)}
}

// Merge fills in the arguments of a link of the chain, for o and lse, and those of each pair behind them.
func (p *Pushes) Merge(m *Merge, link int, all []*Operand) (baseAt int) {
	l := &PassArgs().Merge
	p.start(l)
	p.PutInt(argQueries, m.QueryLen)
	p.PutInt(argRowHeads, m.Heads)
	p.PutInt(argBatch, m.Batch)
	p.PutInt(argParts, m.Parts)
	var none Operand
	chain := Offsets(all[0], all[1], &none, &none)
	if link > 0 {
		chain |= mergeContinues
	}
	if link%2 == 1 {
		chain |= mergeOdd
	}
	if link < m.Links()-1 {
		chain |= mergeContinued
	} else if all[1].Given() {
		chain |= mergeLSE
	}
	p.Put(argChain, chain)
	var outputs, statistics uint32
	first, end := m.Link(link)
	for i := range end - first {
		o, lse := all[2*(first+i)+2], all[2*(first+i)+3]
		outputs |= o.Offset << (8 * i)
		statistics |= lse.Offset << (8 * i)
		for j, s := range o.Strides {
			p.Set(l.at[argPartStrides]+12*i+4*j, s)
		}
		p.Set(l.at[argRowStrides]+8*i, lse.Strides[0])
		p.Set(l.at[argRowStrides]+8*i+4, lse.Strides[1])
	}
	p.Put(ArgOffsets, outputs)
	p.Put(argMoreOffsets, statistics)
	p.Strides(ArgO, all[0])
	return l.at[argBase]
}
